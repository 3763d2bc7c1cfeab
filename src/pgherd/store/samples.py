"""Samples of a finished trial as Parquet: one file per sampler, one row per reading, one column per metric."""

from __future__ import annotations

import csv
import errno
import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgherd.model.errors import RunDirectoryError, TrialError
from pgherd.node import files as node_files
from pgherd.node.interruption import undisturbed
from pgherd.store.version_1 import ENTITIES, METRICS

if TYPE_CHECKING:
    import duckdb


_MAX_CELLS = 4000
"""Cells up to which a sampler's rows are passed as values instead of a CSV file.

A CSV file costs 15 ms even for little data, which matters for a trial of two seconds. For many values, planning the
statement takes longer than reading a file.
"""

MAX_ROWS = 10_000_000
"""Maximum number of rows of a sample file: a day of 115 entities."""
_ROWS_PER_BYTE, _MIN_ROWS = 50, 100_000
"""A file may have this many rows per byte, and the second number in any case. A constant gauge takes a tenth of a byte per row."""
_MEMORY_LIMIT = "1GB"
_MAX_ENTITY = 300
"""Maximum length of an entity's name. The rest is cut."""

Sample = tuple[float, str, str, dict[str, float]]
"""(seconds since the epoch, sampler, entity, metric → value)."""


def write_samples(directory: Path, samples: Iterable[Sample]) -> list[Path]:
    """Write ``samples/SAMPLER.parquet`` in the trial's directory. Each file is renamed into place when it is complete.

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
            small = len(rows) * len(names) <= _MAX_CELLS
            relation = _from_values(database, names, rows) if small else _from_file(database, names, rows, source)
            temporary = file.with_suffix(".parquet.tmp")
            relation.write_parquet(str(temporary), compression="zstd")
            temporary.replace(file)
            source.unlink(missing_ok=True)
            written.append(file)
    return written


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """Return the cached connection of the writer, because opening one costs as much as a file.

    A KeyboardInterrupt while duckdb's native module is initialized would abort the process, and nothing would be undone.
    """
    with undisturbed():
        import duckdb

    return duckdb.connect(config={"threads": 1})


def _from_values(database: duckdb.DuckDBPyConnection, names: Sequence[str], rows: Sequence[Sample]) -> duckdb.DuckDBPyRelation:
    import duckdb

    cells: list[Any] = [(t, entity, *(values.get(name) for name in names)) for t, _, entity, values in rows]
    unnamed = database.values(*cells)
    types = ["DOUBLE", "VARCHAR", *("DOUBLE" for _ in names)]
    columns = zip(unnamed.columns, ["t", "entity", *names], types, strict=True)
    return unnamed.select(*(duckdb.ColumnExpression(column).cast(type_).alias(name) for column, name, type_ in columns))


def _from_file(database: duckdb.DuckDBPyConnection, names: Sequence[str], rows: Sequence[Sample], source: Path) -> duckdb.DuckDBPyRelation:
    with open(source, "w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["t", "entity", *names])
        writer.writerows([t, entity, *(values.get(name, "") for name in names)] for t, _, entity, values in rows)
    columns = {"t": "DOUBLE", "entity": "VARCHAR"} | dict.fromkeys(names, "DOUBLE")
    return database.read_csv(str(source), header=True, dtype=columns)


def read_samples(directory: Path, sampler: str, metric: str) -> list[tuple[float, str, float]]:
    """Return (t, entity, value) of one metric of one trial in order of time, or nothing if it was not sampled."""
    file = directory / "samples" / f"{sampler}.parquet"
    if not file.is_file():
        return []
    import duckdb

    with open_database(threads=1) as database:
        check_files(database, [str(file)])
        relation = read_relation(database, [str(file)])
        if metric not in relation.columns:
            return []
        columns = relation.select(duckdb.ColumnExpression("t"), duckdb.ColumnExpression("entity"), duckdb.ColumnExpression(metric))
        rows = columns.filter(duckdb.ColumnExpression(metric).isnotnull()).order("t, entity").fetchall()
    return [(float(t), str(entity), float(value)) for t, entity, value in rows]


def open_database(threads: int) -> duckdb.DuckDBPyConnection:
    """Return an in-memory database for sample files that may be from another user.

    Its memory is limited, it writes nothing to disk, and it loads no extensions.
    """
    import duckdb

    limits = {"memory_limit": _MEMORY_LIMIT, "temp_directory": ""}
    return duckdb.connect(config={"threads": threads, **limits, "autoinstall_known_extensions": False, "autoload_known_extensions": False})


def escape(file: str) -> str:
    """Return the name of a file for DuckDB, which takes names as patterns."""
    return re.sub(r"([*?\[])", r"[\1]", file)


def check_files(database: duckdb.DuckDBPyConnection, files: Sequence[str]) -> None:
    """Check sample files by their metadata, before their rows are read.

    Raises:
        RunDirectoryError: one or its directory is a link, or it is no regular file, or it claims more rows than pgherd writes into a
            file of its size.
        duckdb.Error: one is no Parquet file.
    """
    for file in files:
        if os.path.islink(os.path.dirname(file)):
            raise RunDirectoryError(f"the samples cannot be read: {os.path.dirname(file)} is a link")
        try:
            with node_files.open_regular(file) as number:
                size = os.fstat(number).st_size
        except (OSError, node_files.UnsafeFileError) as error:
            raise RunDirectoryError(f"the samples cannot be read: {error}") from None
        rows = sum(int(row[0]) for row in database.execute(_ROWS, {"file": escape(file)}).fetchall())
        if rows > min(MAX_ROWS, max(_MIN_ROWS, size * _ROWS_PER_BYTE)):
            raise RunDirectoryError(f"the samples cannot be read: {file} claims {rows:,} rows in {size:,} bytes")


_ROWS = "SELECT any_value(row_group_num_rows) FROM parquet_metadata($file) GROUP BY row_group_id"


def read_relation(database: duckdb.DuckDBPyConnection, files: Sequence[str]) -> duckdb.DuckDBPyRelation:
    """Return the rows of sample files, with names of today and a column ``filename``.

    A run that was resumed with another version of pgherd has former names in some files and present ones in the others.
    """
    import duckdb

    rows = database.read_parquet([escape(file) for file in files], union_by_name=True, filename=True)
    entity = duckdb.SQLExpression(_ENTITY).alias("entity")
    columns: dict[str, list[duckdb.Expression]] = {}
    for column in rows.columns:
        if column not in ("entity", "filename"):
            columns.setdefault(METRICS.get(column, column), []).append(duckdb.ColumnExpression(column).cast("DOUBLE"))
    values = [duckdb.CoalesceOperator(*cells).alias(name) for name, cells in columns.items()]
    return rows.select(entity, *values, duckdb.ColumnExpression("filename"))


_ENTITY = "left(CASE split_part(entity, ':', 1) {} ELSE entity END, {})".format(
    " ".join(f"WHEN '{old}' THEN '{new}' || substr(entity, {len(old) + 1})" for old, new in ENTITIES.items()), _MAX_ENTITY
)


@dataclass(frozen=True)
class HostSamples:
    """One host's sample files.

    Attributes:
        directory: the directory that contains ``samples``.
        ahead: seconds by which the host's clock is ahead of the local clock.
        rename: maps an entity to its name among the entities of all hosts.
    """

    directory: Path
    ahead: float
    rename: Callable[[str], str]


def merge_samples(parts: Sequence[HostSamples], directory: Path) -> list[Path]:
    """Write ``samples/SAMPLER.parquet`` in ``directory`` with the rows of all hosts, in order of time on the local clock.

    Each file is renamed into place when it is complete. A metric that a host does not have is null in its rows.
    """
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
            _merged(database, files).order("t").write_parquet(str(temporary), compression="zstd")
            temporary.replace(target / name)
            written.append(target / name)
    return written


def _merged(database: duckdb.DuckDBPyConnection, files: Mapping[str, HostSamples]) -> duckdb.DuckDBPyRelation:
    """Return the rows of all files with local time, renamed entities, and the metrics in order of name.

    All files are read at once, because a union of a hundred relations takes seven times as long.
    """
    from duckdb import ColumnExpression as Column

    rows = database.read_parquet([escape(file) for file in files], union_by_name=True, filename=True)
    metrics = sorted(set(rows.columns) - {"t", "entity", "filename"})
    entities = rows.select(Column("filename"), Column("entity")).distinct().fetchall()
    cells: list[Any] = [(file, entity, files[file].rename(entity), files[file].ahead) for file, entity in entities]
    unnamed = database.values(*cells)
    columns = zip(unnamed.columns, ("file", "local_name", "merged_name", "ahead"), ("VARCHAR", "VARCHAR", "VARCHAR", "DOUBLE"), strict=True)
    names = unnamed.select(*(Column(column).cast(type_).alias(name) for column, name, type_ in columns))
    return rows.join(names, "filename = file AND entity = local_name").select(
        (Column("t") - Column("ahead")).alias("t"), Column("merged_name").alias("entity"), *(Column(metric) for metric in metrics)
    )


# ---- writer in a separate process


_WRITER = "from pgherd.store.samples import write_from_stdin; write_from_stdin()"


def write_samples_apart(directory: Path, samples: Iterable[Sample]) -> None:
    """Call ``write_samples`` in a separate process, for a long-lived process that must stay small, such as an agent.

    DuckDB takes about 60 MB, most of it code, and a process that has loaded it keeps that memory.

    Raises:
        OSError: as in ``write_samples``. A full disk ends a run.
        TrialError: any other failure of that process.
    """
    payload = pickle.dumps((directory, list(samples)))
    isolation = ["-I"] if sys.flags.isolated else ["-P"]
    process = subprocess.run([sys.executable, *isolation, "-c", _WRITER], input=payload, capture_output=True)
    if process.returncode:
        if process.stdout:
            number, filename = json.loads(process.stdout)
            raise OSError(number, os.strerror(number), filename)
        lines = process.stderr.decode(errors="replace").strip().splitlines()
        raise TrialError(f"the samples cannot be written: {lines[-1] if lines else f'their process exited with {process.returncode}'}")


def _error_number(error: Exception) -> int | None:
    # DuckDB reports a full disk with the operating system's message only.
    if isinstance(error, OSError):
        return error.errno
    return errno.ENOSPC if os.strerror(errno.ENOSPC) in str(error) else None


def write_from_stdin() -> None:
    """Write the samples that ``write_samples_apart`` passes. An error of the system becomes a line of JSON and exit code 1."""
    directory, samples = pickle.load(sys.stdin.buffer)  # noqa: S301 (from the parent process)
    try:
        write_samples(directory, samples)
    except Exception as error:
        number = _error_number(error)
        if number is None:
            raise
        print(json.dumps([number, str(getattr(error, "filename", None) or directory)]), flush=True)
        sys.exit(1)
