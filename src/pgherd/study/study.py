"""Studies: what the general parts of pgherd need from each, and how they are found.

A study is a package with the modules ``study`` (this object), ``options``, ``propose`` and ``analyse`` (pure) and ``prepare`` (completes a
request for this host). ``figures`` and ``probe`` are optional. A short ``propose`` is part of ``options``, and a short ``probe`` of
``prepare``. Modules are imported when they are needed, so listing all studies is fast.
``studies`` finds the object ``STUDY`` in the module ``study`` of each package below ``pgherd.studies``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from pgherd.model.errors import UsageError

if TYPE_CHECKING:
    from pgherd.model.analysis import Analysis, Proposal
    from pgherd.model.base import Model
    from pgherd.model.result import TrialResult

HostUse = Literal["together", "one", "in turn"]
"""Use of a cluster's hosts. 'together': as one large host. 'one': the study runs on one host. 'in turn': each block of trials runs on
the next host."""

Form = Literal["text", "number", "whole", "brief", "compact", "share", "value ±", "share ±", "change", "gain", "published", "times",
    "between", "at most", "with unit", "tainted"]  # fmt: skip
"""Format of a column's cells in the terminal. ``pgherd.report.terminal`` has a function for each."""


@dataclass(frozen=True)
class Column:
    """Column of a table in the terminal: head, key in the table, and format.

    ``needs`` names a column that only some runs' tables have. Without it, this column is omitted.
    """

    head: str
    key: str
    form: Form = "text"
    needs: str = ""


@dataclass(frozen=True)
class TableView:
    """Initial view of a table of an analysis.

    Attributes:
        columns: columns in the terminal, by importance. The last ones are omitted if space is short.
        main: columns below the answer on the HTML page. Empty: all.
        plain: columns of ``main`` that are shown without interval.
        ratios_as_changes: show ratios as changes in percent on the HTML page.
    """

    columns: tuple[Column, ...] = ()
    main: tuple[str, ...] = ()
    plain: frozenset[str] = frozenset()
    ratios_as_changes: bool = False


@dataclass(frozen=True)
class SideBySide:
    """Table that compares several runs: one row per value of ``key`` in the ``table`` of each run."""

    table: str
    key: str
    columns: tuple[str, ...]


Status = Literal["available", "limited", "unavailable"]


@dataclass(frozen=True)
class StudyCapability:
    """Support of one study on a host. ``missing`` lists what would enable more. It is empty if nothing is missing."""

    study: str
    status: Status
    capability: str
    missing: str = ""


@dataclass(frozen=True, kw_only=True)
class Study:
    """Definition of a study. Implements ``pgherd.model.study.RunnableStudy``.

    Attributes:
        package: package of the study's modules.
        name: command and scenario name.
        started_by: verb that starts the study, if it has none of its own.
        rank: position in ``pgherd --help``, before the name.
        help: line in ``pgherd --help``.
        examples: command lines, each with a comment.
        capability: objects of measurement, for ``pgherd doctor``.
        without_cgroups: objects of measurement on a host without control groups. None: the study requires these. Empty: the same.
        checks_host: the function ``capability`` of the module ``prepare`` checks the host.
        needs_server: the study starts PostgreSQL servers.
        common: options that ``--help`` shows.
        request: name of the request model in the module ``options``, as given by the user.
        resolved: name of the model of complete options in the module ``options``.
        propose_module: module of ``propose()`` in the package, or a full name.
        analyse_module: module of ``analyse()`` in the package, or a full name.
        probe_module: module of ``measure()`` in the package, which measures a deployment without a load.
        hosts: use of a cluster's hosts.
        each_host: every host of a cluster completes the request locally. ``prepare.merge.over_hosts`` combines the results.
        default_metric: metric that ``gate`` and comparisons use.
        needs_direct_io: the host must not cache guest disks, because the study measures guest memory.
        lead: tables to show below the answer, by preference. Empty: the table with the study's name.
        tables: views of the study's tables, by name.
        side_by_side: table that compares several runs.
        labels: labels of columns and findings.
        percent: columns that hold shares.
        figures: modules that draw figures.
        overlays: module that draws several runs in one figure.
        web: options that the web form shows first. Empty: the web page cannot start this study.
    """

    package: str
    name: str
    started_by: str = ""
    rank: int = 50
    help: str
    examples: tuple[tuple[str, str], ...] = ()
    capability: str
    without_cgroups: str | None = ""
    checks_host: bool = False
    needs_server: bool = True
    common: tuple[str, ...] = ()
    request: str
    resolved: str
    propose_module: str = "propose"
    analyse_module: str = "analyse"
    probe_module: str = "probe"
    hosts: HostUse = "together"
    each_host: bool = False
    default_metric: str = "throughput"
    needs_direct_io: bool = False
    lead: tuple[str, ...] = ()
    tables: Mapping[str, TableView] = field(default_factory=dict)
    side_by_side: SideBySide | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    percent: frozenset[str] = frozenset()
    figures: tuple[str, ...] = ("figures",)
    overlays: str = ""
    web: tuple[str, ...] = ()

    def module(self, name: str) -> ModuleType:
        """Import a module of the study's package, or a module by full name. Raises ModuleNotFoundError if it does not exist."""
        return importlib.import_module(name if name.startswith("pgherd.") else f"{self.package}.{name}")

    def hook(self, module: str, name: str) -> Any:
        """Return a function of one of the study's modules. None if the module or the function does not exist."""
        try:
            return getattr(self.module(module), name, None)
        except ModuleNotFoundError as error:
            if error.name != f"{self.package}.{module}":
                raise
            return None

    @property
    def request_model(self) -> type[Model]:
        """Model of the request, as given by the user."""
        model: type[Model] = getattr(self.module("options"), self.request)
        return model

    @property
    def options(self) -> type[Model]:
        """Model of the complete options."""
        model: type[Model] = getattr(self.module("options"), self.resolved)
        return model

    def propose(self, options: Any, results: Sequence[TrialResult]) -> Proposal:
        """Return the trials to run next, or the reason to stop."""
        proposal: Proposal = self.module(self.propose_module).propose(options, results)
        return proposal

    def analyse(self, options: Any, results: Sequence[TrialResult]) -> Analysis:
        """Return the analysis of the results. Imports the scientific libraries."""
        analysis: Analysis = self.module(self.analyse_module).analyse(options, results)
        return analysis


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
