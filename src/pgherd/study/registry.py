"""The studies by name: each package below ``pgherd.studies`` that has a module ``study`` with the object ``STUDY``."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from pgherd.model.errors import UsageError
from pgherd.study.study import Study, TableView


@cache
def studies() -> dict[str, Study]:
    """Name → study, in the order in which help lists them. Imports each package's ``study`` only, which is small."""
    package = importlib.import_module("pgherd.studies")
    found = (
        importlib.import_module(f"pgherd.studies.{one.name}.study").STUDY for one in pkgutil.iter_modules(package.__path__) if one.ispkg
    )
    return {study.name: study for study in sorted(found, key=lambda study: (study.rank, study.name))}


def study_of(name: str) -> Study:
    """Return the study of this name; raises UsageError if there is none."""
    if name not in studies():
        raise UsageError(f"there is no study '{name}'; there are {', '.join(sorted(studies()))}")
    return studies()[name]


@cache
def labels() -> dict[str, str]:
    """Columns and findings of all studies in words, by their names."""
    return {name: text for study in studies().values() for name, text in study.labels.items()}


@cache
def percent_columns() -> frozenset[str]:
    """Columns of all studies that hold shares."""
    return frozenset().union(*(study.percent for study in studies().values()))


def table_view(name: str) -> TableView:
    """How readers first see the table of this name."""
    return next((study.tables[name] for study in studies().values() if name in study.tables), TableView())
