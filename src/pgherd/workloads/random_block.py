"""Workload ``random-block``: random reads and updates of single rows, one row per page, in a table of a chosen size.

Every transaction accesses one page of the table, and pages of its primary key. The working set is therefore the table, or
its popular part if rows are chosen by a Zipfian distribution, and can have any size. The idea is that of Oracle's SLOB.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import ClassVar

from pgherd.model.deployment import Database
from pgherd.model.errors import TrialError, UsageError
from pgherd.model.load import Script
from pgherd.node.protocol import Command, LoaderServer, Node, Say, silent
from pgherd.workloads import Query, client_options

PREFIX = "random-block:"
UPDATES = 25
"""Default percentage of transactions that update."""

LEAST_ZIPF, MOST_ZIPF = 1.001, 1000.0
"""Limits of the parameter of pgbench's random_zipfian."""

# Measured on PostgreSQL 15 and 18: the table, its primary key (16 bytes and a line pointer per row), maps, catalogs.
_EMPTY_DATABASE = 7_900_000
_PER_MIB = 1_051_600

_STATEMENTS = {
    "read": "SELECT updates FROM block WHERE id = :id;",
    "update": "UPDATE block SET updates = updates + 1 WHERE id = :id;",
}
_CHOICES = {
    "uniform": ["\\set id random(1, :scale * 128)"],
    # permute spreads the popular rows over the table.
    "zipf": ["\\set rank random_zipfian(1, :scale * 128, :zipf)", "\\set id permute(:rank - 1, :scale * 128, 20) + 1"],
}


def mix(updates: int = UPDATES, zipf: float | None = None) -> tuple[tuple[Script, ...], dict[str, str]]:
    """Return the scripts with their weights, and their pgbench variables.

    Args:
        updates: Percentage of transactions that update.
        zipf: Parameter of a Zipfian choice of rows: the larger, the fewer rows receive most of the load. None: uniform.

    Raises:
        UsageError: A value is out of range.
    """
    if not 0 <= updates <= 100:
        raise UsageError(f"--update-percent {updates}: give a percentage of the transactions from 0 to 100")
    if zipf is not None and not LEAST_ZIPF <= zipf <= MOST_ZIPF:
        raise UsageError(f"--zipf {zipf:g}: pgbench takes {LEAST_ZIPF:g} to {MOST_ZIPF:g}; omit it for a uniform choice")
    choice = "uniform" if zipf is None else "zipf"
    weights = {"read": 100 - updates, "update": updates}
    scripts = tuple(Script(source=f"{PREFIX}{name}-{choice}", weight=weight, name=name) for name, weight in weights.items() if weight)
    return scripts, {} if zipf is None else {"zipf": f"{zipf:g}"}


def text(name: str) -> str | None:
    """Return the text of a script such as ``read-zipf``, or None if it does not exist."""
    kind, _, choice = name.partition("-")
    if kind not in _STATEMENTS or choice not in _CHOICES:
        return None
    return "\n".join([f"-- {kind} a row: created by pgherd", *_CHOICES[choice], _STATEMENTS[kind]]) + "\n"


def size_estimate(mib: int) -> int:
    """Return the size of a loaded database (pg_database_size) in bytes."""
    return _EMPTY_DATABASE + _PER_MIB * mib


@dataclass(frozen=True)
class RandomBlockLoader:
    """Loader of a table of ``scale`` MiB."""

    settings: ClassVar[Mapping[str, str]] = {}
    database: str
    scale: int
    partitions: int = 1

    @property
    def identity(self) -> str:
        """Size and hash of the SQL: ``random-block-256-a1b2c3d4e5f6``, or ``random-block-256-p4-…`` with four partitions."""
        digest = hashlib.sha256(load_sql().encode()).hexdigest()[:12]
        return f"random-block-{self.scale}{f'-p{self.partitions}' if self.partitions > 1 else ''}-{digest}"

    @property
    def size_estimate(self) -> int:
        """Expected size in bytes."""
        return size_estimate(self.scale)

    def load(self, target: LoaderServer, say: Say = silent) -> None:
        """Fill the table with psql; raises TrialError with its errors."""
        argv = [f"{target.bin}/psql", *client_options(target), *load_arguments(self.scale, self.partitions), self.database]
        with resources.as_file(resources.files("pgherd.workloads").joinpath("random_block.sql")) as file:
            load = Command(argv, user=target.account, stdin=str(file), can_be_called_off=True)
            psql = target.node.run(load, timeout=300 + self.scale)
        if psql.code != 0:
            raise TrialError(f"the table of {self.scale} MiB cannot be filled: {psql.err.strip()[-300:]}")


def load_sql() -> str:
    """Return the SQL that fills a database, for psql with the variables ``scale`` and, optionally, ``partitions``."""
    return resources.files("pgherd.workloads").joinpath("random_block.sql").read_text(encoding="utf-8")


def load_arguments(scale: int, partitions: int = 1) -> list[str]:
    """Return psql's arguments for this SQL on standard input, without the connection."""
    partitioned = [f"--set=partitions={partitions}"] if partitions > 1 else []
    return ["--no-psqlrc", "--quiet", "--output=/dev/null", f"--set=scale={scale}", *partitioned, "--set=ON_ERROR_STOP=1", "--file=-"]


@dataclass(frozen=True)
class RandomBlockWorkload:
    """Random access to single rows. ``scale`` is the size of the table in MiB."""

    name: str = "random-block"
    read_only: bool = False
    default_scale: int = 256

    def scripts(self) -> Sequence[Script]:
        """Return the default mix: 25 % updates, and a uniform choice of rows."""
        return mix()[0]

    def filling(self, node: Node, database: Database) -> RandomBlockLoader:
        return RandomBlockLoader(database=database.name, scale=database.scale, partitions=database.partitions)

    def size_estimate(self, scale: int) -> int:
        return size_estimate(scale)

    def violations(self, query: Query) -> Sequence[str]:
        return ()


RANDOM_BLOCK = RandomBlockWorkload()
