"""A run for a notebook or a script: its answer and findings as objects, its tables, trials and samples as relations of DuckDB.

A relation becomes a pandas DataFrame with ``.df()``, a Polars one with ``.pl()``, and an Arrow table with ``.arrow()``, if that library is
installed. Relations belong to DuckDB's default connection, so that ``duckdb.sql("… FROM name")`` finds them by the name of their variable.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgherd.model.analysis import Finding, Grade
from pgherd.model.errors import UsageError
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.store.run_directory import RunDirectory
from pgherd.store.samples import check_files, read_relation

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation

_TRIAL = r"([^/]+)/samples/[^/]+$"
"""Regular expression of a trial's directory in the path of a sample file."""
_TYPES = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE"}


class Run:
    """One run, read from its directory. Nothing is written. Each property is read once.

    Attributes:
        path: the run's directory.
    """

    def __init__(self, path: Path) -> None:
        """Set the path. Nothing is read."""
        self.path = path
        self._directory = RunDirectory(path)

    def __repr__(self) -> str:
        """Return the name, the grade and the answer."""
        return f"<Run {self.name}: {self.answer or self.record.state}>"

    @property
    def name(self) -> str:
        """Name such as ``20260131-120000-density-0001``."""
        return self._directory.name

    @cached_property
    def record(self) -> RunRecord:
        """Everything in ``run.json``: study, options, host facts, versions, choices, analysis. Raises RunDirectoryError."""
        return self._directory.record()

    @cached_property
    def results(self) -> list[TrialResult]:
        """Finished trials with their deployments, phases, metrics and checks. Raises RunDirectoryError."""
        return self._directory.results()

    @property
    def study(self) -> str:
        """Study such as ``density``."""
        return self.record.study

    @property
    def answer(self) -> str | None:
        """Answer in one sentence. None: the run has no analysis."""
        return self.record.analysis.answer if self.record.analysis else None

    @property
    def grade(self) -> Grade | None:
        """Grade of the answer. None: the run has no analysis."""
        return self.record.analysis.grade if self.record.analysis else None

    @property
    def findings(self) -> dict[str, Finding]:
        """Name → finding, with its value, unit, interval (``low``, ``high``) and method."""
        return dict(self.record.analysis.findings) if self.record.analysis else {}

    @property
    def tables(self) -> list[str]:
        """Names of the tables with rows."""
        return [name for name, rows in self.record.analysis.tables.items() if rows] if self.record.analysis else []

    def table(self, name: str) -> DuckDBPyRelation:
        """Return a table of the report. A measured column NAME has the companions NAME_low, NAME_high and NAME_unit.

        Raises:
            UsageError: the run has no such table.
        """
        if name not in self.tables:
            raise UsageError(f"run {self.name} has no table '{name}'; its tables are {', '.join(self.tables) or 'none'}")
        assert self.record.analysis is not None
        return _relation([_flat(row) for row in self.record.analysis.tables[name]])

    def trials(self) -> DuckDBPyRelation:
        """Return a row for each finished trial: ``trial``, its coordinates, ``repeat``, ``tainted``, ``error``, times, ``throughput``.

        Times are in seconds since the epoch. The throughput is the mean over the measured phases, in transactions per second.

        Raises:
            UsageError: no trial is finished.
        """
        rows = [
            {
                "trial": result.id,
                **result.trial.point,
                "repeat": result.trial.repeat,
                "tainted": result.tainted,
                "error": result.error,
                "started": result.started,
                "ended": result.ended,
                "throughput": _throughput(result),
            }
            for result in self.results
        ]
        if not rows:
            raise UsageError(f"run {self.name} has no finished trial")
        return _relation(rows)

    @cached_property
    def samplers(self) -> list[str]:
        """Names of the samplers that have samples."""
        return sorted({file.stem for file in self._files("*")})

    def samples(self, sampler: str | None = None) -> DuckDBPyRelation:
        """Return the samples of all trials in order of time: ``trial``, ``t`` (seconds since the epoch), ``entity``, and the metrics.

        With a sampler each metric is a column. Without one, all samples are one table with ``sampler``, ``metric`` and ``value``.

        Raises:
            UsageError: the run has no such samples.
        """
        if sampler is not None:
            return self._wide(sampler).order("trial, t, entity")
        if not self.samplers:
            raise UsageError(f"run {self.name} has no samples")
        long = [self._long(name) for name in self.samplers]
        union = long[0]
        for relation in long[1:]:
            union = union.union(relation)
        return union.order("trial, t, sampler, entity, metric")

    def _files(self, sampler: str) -> list[Path]:
        return sorted(self.path.glob(f"trials/[0-9]*[0-9]/samples/{sampler}.parquet"))

    def _wide(self, sampler: str) -> DuckDBPyRelation:
        from duckdb import ColumnExpression, ConstantExpression, FunctionExpression, StarExpression, default_connection

        if sampler not in self.samplers:
            raise UsageError(f"run {self.name} has no samples of '{sampler}'; its samplers are {', '.join(self.samplers) or 'none'}")
        files = [str(file) for file in self._files(sampler)]
        check_files(default_connection(), files)
        rows = read_relation(default_connection(), files)
        trial = FunctionExpression("regexp_extract", ColumnExpression("filename"), ConstantExpression(_TRIAL), ConstantExpression(1))
        first = (ColumnExpression("t"), ColumnExpression("entity"))
        return rows.select(trial.alias("trial"), *first, StarExpression(exclude=["t", "entity", "filename"]))

    def _long(self, sampler: str) -> DuckDBPyRelation:
        from duckdb import ColumnExpression as Column
        from duckdb import ConstantExpression

        long = self._wide(sampler).query("wide", "UNPIVOT wide ON COLUMNS(* EXCLUDE (trial, t, entity)) INTO NAME metric VALUE value")
        assert long is not None
        name = ConstantExpression(sampler).alias("sampler")
        return long.select(Column("trial"), name, Column("t"), Column("entity"), Column("metric"), Column("value"))


def _throughput(result: TrialResult) -> float | None:
    seconds = sum(phase.seconds for phase in result.phases)
    return sum(phase.throughput * phase.seconds for phase in result.phases) / seconds if seconds > 0 else None


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without findings: their parts become columns."""
    flat: dict[str, Any] = {}
    for name, cell in row.items():
        if isinstance(cell, Finding):
            flat |= {name: cell.value, f"{name}_low": cell.low, f"{name}_high": cell.high, f"{name}_unit": cell.unit}
        else:
            flat[name] = cell
    return flat


def _relation(rows: Sequence[dict[str, Any]]) -> DuckDBPyRelation:
    """Return rows as a relation. A column with values of several types becomes text, except whole and other numbers."""
    from duckdb import ColumnExpression, ConstantExpression, default_connection

    names = list(dict.fromkeys(name for row in rows for name in row))
    types = {name: _type([row[name] for row in rows if row.get(name) is not None]) for name in names}
    cells = [
        tuple(
            ConstantExpression(str(value) if types[name] == "VARCHAR" and value is not None else value).cast(types[name])
            for name, value in ((name, row.get(name)) for name in names)
        )
        for row in rows
    ]
    unnamed = default_connection().values(*cells)
    columns = zip(unnamed.columns, names, strict=True)
    return unnamed.select(*(ColumnExpression(column).alias(name) for column, name in columns))


def _type(values: Sequence[object]) -> str:
    kinds = {type(value) for value in values}
    if kinds == {int, float}:
        return "DOUBLE"
    return _TYPES.get(kinds.pop(), "VARCHAR") if len(kinds) == 1 else "VARCHAR"


def open_run(run: str | Path, runs_dir: str | Path) -> Run:
    """Return a run by its path, its name, an unambiguous part of its name, or 'last'. Raises RunDirectoryError.

    A text is a path if it contains a slash. A ``Path`` is one always.
    """
    return Run(RunDirectory.find(run if isinstance(run, str) else os.path.join(os.curdir, run), Path(runs_dir)).path)
