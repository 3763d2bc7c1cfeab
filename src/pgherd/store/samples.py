"""Samples of a finished trial as Parquet: one file per sampler, one row per reading, one column per metric."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

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
    import duckdb

    target = directory / "samples"
    target.mkdir(exist_ok=True)
    written = []
    with duckdb.connect(config={"threads": 1}) as database:
        for sampler, rows in sorted(by_sampler.items()):
            names = sorted({name for row in rows for name in row[3]})
            source, file = target / f"{sampler}.csv.tmp", target / f"{sampler}.parquet"
            with open(source, "w", newline="") as out:
                writer = csv.writer(out)
                writer.writerow(["t", "entity", *names])
                writer.writerows([t, entity, *(values.get(name, "") for name in names)] for t, _, entity, values in rows)
            columns = {"t": "DOUBLE", "entity": "VARCHAR"} | dict.fromkeys(names, "DOUBLE")
            relation = database.read_csv(str(source), header=True, dtype=columns)
            temporary = file.with_suffix(".parquet.tmp")
            relation.write_parquet(str(temporary), compression="zstd")
            temporary.replace(file)
            source.unlink()
            written.append(file)
    return written


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
