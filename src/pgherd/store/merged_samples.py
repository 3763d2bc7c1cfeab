"""Samples of several hosts as those of one trial: on one clock, with entities that say where."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

    by_sampler: dict[str, dict[str, HostSamples]] = {}
    for part in parts:
        for file in sorted((part.directory / "samples").glob("*.parquet")):
            by_sampler.setdefault(file.name, {})[str(file)] = part
    if not by_sampler:
        return []
    target = directory / "samples"
    target.mkdir(parents=True, exist_ok=True)
    written = []
    with duckdb.connect(config={"threads": 1}) as database:
        for name, files in sorted(by_sampler.items()):
            temporary = target / f"{name}.tmp"
            _whole(database, files).order("t").write_parquet(str(temporary), compression="zstd")
            temporary.replace(target / name)
            written.append(target / name)
    return written


def _whole(database: duckdb.DuckDBPyConnection, files: Mapping[str, HostSamples]) -> duckdb.DuckDBPyRelation:
    """The rows of all files, with our clock's time, the renamed entities, and all metrics in order: one reading of all of them, since a
    union of a hundred takes seven times as long."""
    from duckdb import ColumnExpression as Column

    rows = database.read_parquet(list(files), union_by_name=True, filename=True)
    metrics = sorted(set(rows.columns) - {"t", "entity", "filename"})
    found = rows.select(Column("filename"), Column("entity")).distinct().fetchall()
    cells: list[Any] = [(file, entity, files[file].rename(entity), files[file].ahead) for file, entity in found]
    plain = database.values(*cells)
    described = zip(plain.columns, ("of", "known", "named", "ahead"), ("VARCHAR", "VARCHAR", "VARCHAR", "DOUBLE"), strict=True)
    names = plain.select(*(Column(column).cast(kind).alias(name) for column, name, kind in described))
    return rows.join(names, "filename = of AND entity = known").select(
        (Column("t") - Column("ahead")).alias("t"), Column("named").alias("entity"), *(Column(metric) for metric in metrics)
    )
