"""Samples of a finished trial as Parquet: one file per sampler, one row per reading, one column per metric."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

_FEW = 4000
"""Cells up to which a sampler's rows are handed over as values: a CSV file costs 15 ms whatever is in it, which a trial of two
seconds feels; of many values the statement takes longer to plan than a file to read."""

Sample = tuple[float, str, str, dict[str, float]]
"""(seconds since the epoch, sampler, entity, metric → value)."""


def write_samples(directory: Path, samples: Iterable[Sample]) -> list[Path]:
    """Write ``samples/SAMPLER.parquet`` below the trial's directory; each file appears whole or not at all.

    Columns: ``t`` (seconds since the epoch), ``entity``, and the sampler's metrics in their reading's unit.
    """
    by_sampler: dict[str, list[Sample]] = {}
    for sample in samples:
        by_sampler.setdefault(sample[1], []).append(sample)
    if not by_sampler:
        return []
    target = directory / "samples"
    target.mkdir(exist_ok=True)
    written = []
    with _database().cursor() as database:
        for sampler, rows in sorted(by_sampler.items()):
            names = sorted({name for row in rows for name in row[3]})
            source, file = target / f"{sampler}.csv.tmp", target / f"{sampler}.parquet"
            few = len(rows) * len(names) <= _FEW
            relation = _of_values(database, names, rows) if few else _of_file(database, names, rows, source)
            temporary = file.with_suffix(".parquet.tmp")
            relation.write_parquet(str(temporary), compression="zstd")
            temporary.replace(file)
            source.unlink(missing_ok=True)
            written.append(file)
    return written


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """The engine that writes, kept: opening one costs as much as a file."""
    import duckdb

    return duckdb.connect(config={"threads": 1})


def _of_values(database: duckdb.DuckDBPyConnection, names: Sequence[str], rows: Sequence[Sample]) -> duckdb.DuckDBPyRelation:
    import duckdb

    cells: list[Any] = [(t, entity, *(values.get(name) for name in names)) for t, _, entity, values in rows]
    plain = database.values(*cells)
    types = ["DOUBLE", "VARCHAR", *("DOUBLE" for _ in names)]
    described = zip(plain.columns, ["t", "entity", *names], types, strict=True)
    return plain.select(*(duckdb.ColumnExpression(column).cast(type_).alias(name) for column, name, type_ in described))


def _of_file(database: duckdb.DuckDBPyConnection, names: Sequence[str], rows: Sequence[Sample], source: Path) -> duckdb.DuckDBPyRelation:
    with open(source, "w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["t", "entity", *names])
        writer.writerows([t, entity, *(values.get(name, "") for name in names)] for t, _, entity, values in rows)
    columns = {"t": "DOUBLE", "entity": "VARCHAR"} | dict.fromkeys(names, "DOUBLE")
    return database.read_csv(str(source), header=True, dtype=columns)


def read_samples(directory: Path, sampler: str, metric: str) -> list[tuple[float, str, float]]:
    """(t, entity, value) of one metric of one trial in time order; empty where it was not sampled."""
    file = directory / "samples" / f"{sampler}.parquet"
    if not file.is_file():
        return []
    import duckdb

    with duckdb.connect(config={"threads": 1}) as database:
        relation = database.read_parquet(str(file))
        if metric not in relation.columns:
            return []
        chosen = relation.select(duckdb.ColumnExpression("t"), duckdb.ColumnExpression("entity"), duckdb.ColumnExpression(metric))
        rows = chosen.filter(duckdb.ColumnExpression(metric).isnotnull()).order("t, entity").fetchall()
    return [(float(t), str(entity), float(value)) for t, entity, value in rows]
