"""Samples of several hosts as those of one trial: on one clock, with entities that say where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True)
class HostSamples:
    """One host's files below ``directory``/samples. ``ahead`` is by how much its clock is ahead of ours (s); ``rename`` gives an
    entity the name that it has among those of all hosts."""

    directory: Path
    ahead: float
    rename: Callable[[str], str]


def merge_samples(parts: Sequence[HostSamples], directory: Path) -> list[Path]:
    """Write ``samples/SAMPLER.parquet`` below ``directory`` with the rows of all parts, in order of time; each file appears whole or not at
    all. A metric that a host does not have is null in its rows."""
    import duckdb

    by_sampler: dict[str, list[tuple[HostSamples, Path]]] = {}
    for part in parts:
        for file in sorted((part.directory / "samples").glob("*.parquet")):
            by_sampler.setdefault(file.name, []).append((part, file))
    if not by_sampler:
        return []
    target = directory / "samples"
    target.mkdir(parents=True, exist_ok=True)
    written = []
    with duckdb.connect(config={"threads": 1}) as database:
        for name, files in sorted(by_sampler.items()):
            relations = [(part, database.read_parquet(str(file))) for part, file in files]
            metrics = sorted({column for _, relation in relations for column in relation.columns} - {"t", "entity"})
            aligned = [_aligned(relation, part, metrics) for part, relation in relations]
            whole = aligned[0]
            for one in aligned[1:]:
                whole = whole.union(one)
            temporary = target / f"{name}.tmp"
            whole.order("t").write_parquet(str(temporary), compression="zstd")
            temporary.replace(target / name)
            written.append(target / name)
    return written


def _aligned(relation: duckdb.DuckDBPyRelation, part: HostSamples, metrics: Sequence[str]) -> duckdb.DuckDBPyRelation:
    """The rows with our clock's time, the renamed entity, and all metrics in order."""
    import duckdb

    entity = duckdb.ColumnExpression("entity")
    names = {str(old): part.rename(str(old)) for (old,) in relation.select(entity).distinct().fetchall()}
    renamed: duckdb.Expression = entity
    for old, new in names.items():
        if new != old:
            renamed = duckdb.CaseExpression(entity == duckdb.ConstantExpression(old), duckdb.ConstantExpression(new)).otherwise(renamed)
    own = set(relation.columns)
    columns = [(duckdb.ColumnExpression(m) if m in own else duckdb.ConstantExpression(None)).cast("DOUBLE").alias(m) for m in metrics]
    shifted = duckdb.ColumnExpression("t") - duckdb.ConstantExpression(part.ahead)
    return relation.select(shifted.cast("DOUBLE").alias("t"), renamed.alias("entity"), *columns)
