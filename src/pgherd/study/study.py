"""Definition of a study: everything that the general parts of pgherd need from it.

A study is a package with the modules ``study`` (this object), ``options``, ``propose`` and ``analyse`` (pure) and ``prepare`` (completes a
request for this host). ``figures`` and ``probe`` are optional. A short ``propose`` is part of ``options``, and a short ``probe`` of
``prepare``. Modules are imported when they are needed, so listing all studies is fast.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

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


@dataclass(frozen=True, kw_only=True)
class Study:
    """Definition of a study. Implements ``pgherd.model.study.RunnableStudy``.

    Attributes:
        package: package of the study's modules.
        name: command and scenario name.
        rank: position in ``pgherd --help``, before the name.
        help: line in ``pgherd --help``.
        examples: command lines, each with a comment.
        common: options that ``--help`` shows.
        request: name of the request model in the module ``options``, as given by the user.
        resolved: name of the model of complete options in the module ``options``.
        propose_module: module of ``propose()`` in the package, or a full name.
        analyse_module: module of ``analyse()`` in the package, or a full name.
        probe_module: module of ``measure()`` in the package, which measures a deployment without a load.
        hosts: use of a cluster's hosts.
        each_host: every host of a cluster completes the request locally. ``prepare.registry.over_hosts`` combines the results.
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
    rank: int = 50
    help: str
    examples: tuple[tuple[str, str], ...] = ()
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
