"""A study as one object: everything that the general parts of pgherd need to know about it.

A study is a package with the modules ``study`` (this object), ``options``, ``propose`` and ``analyse`` (pure), ``prepare`` (completes a
request for this host), and, where it has them, ``figures`` and ``probe``. They are imported only when they are needed, so that a list
of all studies costs little.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal, Self

from pgherd.model.base import Model
from pgherd.model.finding import Analysis, Proposal
from pgherd.model.result import TrialResult

HostUse = Literal["together", "one", "in turn"]
"""Use of a cluster's hosts. 'together': as one large host. 'one': the study runs on one of them. 'in turn': each block of trials runs
on one host, the next block on the next."""

Form = Literal["text", "number", "whole", "brief", "compact", "share", "value ±", "share ±", "change", "gain", "published", "times",
    "between", "at most", "with unit", "tainted"]  # fmt: skip
"""Format of a column's cells on a terminal; ``pgherd.report.terminal`` has a function for each."""


@dataclass(frozen=True)
class Column:
    """A column of a table on a terminal: its head, the column of the table that it shows, the format of its cells.

    ``needs`` names a column that only some runs' tables have: without it this one is left out.
    """

    head: str
    key: str
    form: Form = "text"
    needs: str = ""


@dataclass(frozen=True)
class TableView:
    """A table of an analysis as readers see it first.

    ``columns`` are shown on a terminal, in order of weight: those without room are left out from the end. ``main`` names the columns
    below the answer on the HTML page, those of ``plain`` without their interval; empty: all. ``ratios_as_changes``: the HTML page shows
    ratios as changes in percent.
    """

    columns: tuple[Column, ...] = ()
    main: tuple[str, ...] = ()
    plain: frozenset[str] = frozenset()
    ratios_as_changes: bool = False


@dataclass(frozen=True)
class SideBySide:
    """A table in which several runs are set side by side: ``table`` of each run, a row for each value of ``key``."""

    table: str
    key: str
    columns: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Study:
    """A question. Implements ``pgherd.model.study.RunnableStudy``.

    ``help`` is its line in ``pgherd --help``, which orders studies by ``rank`` and name. ``examples`` are command lines, each with a
    comment. ``common`` are the options that ``--help`` shows. ``request`` and ``resolved`` name the models in the module ``options``: what
    a user gives, and the same completed. ``propose_module`` and ``analyse_module`` are modules of the package, or of another by full name.

    ``each_host``: every host of a cluster completes the request for itself, and ``prepare.over_hosts`` makes the run's options of them.
    ``needs_direct_io``: the host must not cache the disks of guests, because the study measures their memory.
    ``lead`` are the tables that may be shown below the answer, best first; none: the one named after the study. ``figures`` and
    ``overlays`` are modules that draw. ``labels`` are columns and findings in words, ``percent`` columns that hold shares. ``web`` are the
    options that the form of the web page shows first; without any, the page does not start the study.
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
        """A module of the study's package; a full name is taken as it is. Raises ModuleNotFoundError where there is none."""
        return importlib.import_module(name if name.startswith("pgherd.") else f"{self.package}.{name}")

    def hook(self, module: str, name: str) -> Any:
        """A function of one of the study's modules; None where the module, or the function in it, does not exist."""
        try:
            return getattr(self.module(module), name, None)
        except ModuleNotFoundError as error:
            if error.name != f"{self.package}.{module}":
                raise
            return None

    @property
    def request_model(self) -> type[Model]:
        """Options as a user gives them."""
        model: type[Model] = getattr(self.module("options"), self.request)
        return model

    @property
    def options(self) -> type[Model]:
        """Complete options."""
        model: type[Model] = getattr(self.module("options"), self.resolved)
        return model

    def propose(self, options: Any, results: Sequence[TrialResult]) -> Proposal:
        """Return the trials to run next, or the reason to stop."""
        proposal: Proposal = self.module(self.propose_module).propose(options, results)
        return proposal

    def analyse(self, options: Any, results: Sequence[TrialResult]) -> Analysis:
        """Return the findings from the results. Brings in the scientific libraries."""
        analysis: Analysis = self.module(self.analyse_module).analyse(options, results)
        return analysis


class StudyOptions(Model):
    """Complete options of a study. Those that hold the options of several variants, or use hosts in turn, override the methods."""

    def variant_options(self) -> Mapping[str, Model]:
        """Name → complete options of each variant; empty where there are none."""
        return {}

    def with_variant_options(self, options: Mapping[str, Model]) -> Self:
        """A copy with these options of the variants, all of which are given."""
        return self

    @property
    def hosts_in_turn(self) -> tuple[str, ...]:
        """Hosts of a cluster on which blocks of trials run in turn."""
        return ()

    def on_hosts(self, names: tuple[str, ...]) -> Self:
        """A copy whose blocks of trials run on these hosts of a cluster in turn."""
        return self
