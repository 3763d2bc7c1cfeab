"""Registry of studies: the object ``STUDY`` in the module ``study`` of each package below ``pgherd.studies``."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from pgherd.model.errors import UsageError
from pgherd.study.study import Study, TableView


@cache
def studies() -> dict[str, Study]:
    """Return the studies by name, in the order of the help text. Imports only the small module ``study`` of each package."""
    package = importlib.import_module("pgherd.studies")
    registered = (
        importlib.import_module(f"pgherd.studies.{module.name}.study").STUDY
        for module in pkgutil.iter_modules(package.__path__)
        if module.ispkg
    )
    return {study.name: study for study in sorted(registered, key=lambda study: (study.rank, study.name))}


def study_of(name: str) -> Study:
    """Return the study of this name. Raises UsageError if there is none."""
    if name not in studies():
        raise UsageError(f"there is no study '{name}'; there are {', '.join(sorted(studies()))}")
    return studies()[name]


@cache
def labels() -> dict[str, str]:
    """Return the labels of columns and findings of all studies, by name."""
    return {name: text for study in studies().values() for name, text in study.labels.items()}


@cache
def percent_columns() -> frozenset[str]:
    """Return the columns of all studies that hold shares."""
    return frozenset().union(*(study.percent for study in studies().values()))


def table_view(name: str) -> TableView:
    """Return the view of the table of this name."""
    return next((study.tables[name] for study in studies().values() if name in study.tables), TableView())
