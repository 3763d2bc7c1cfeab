"""The workload ``random-block``: single rows read and updated at random, one row to a page, in a table of a chosen size.

Every transaction touches one page of the table (and the primary key's), so that the working set is the table, or under
a skewed choice its popular part, and can be made of any size. The idea is that of Oracle's SLOB.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from pgherd.model.deployment import Database
from pgherd.model.errors import TrialError, UsageError
from pgherd.model.load import Script
from pgherd.node.protocol import Command, LoadTarget, Node, Say, silent
from pgherd.workloads.workload import Query, client_options

PREFIX = "random-block:"
UPDATES = 25
"""Per cent of the transactions that update, if nothing else is asked for."""

LEAST_ZIPF, MOST_ZIPF = 1.001, 1000.0
"""Between these pgbench's random_zipfian takes its parameter."""

# Measured on PostgreSQL 15 and 18: the table, its primary key (16 bytes and a line pointer a row), maps, catalogues.
_EMPTY_DATABASE = 7_900_000
_PER_MIB = 1_051_600

_STATEMENTS = {
    "read": "SELECT updates FROM block WHERE id = :id;",
    "update": "UPDATE block SET updates = updates + 1 WHERE id = :id;",
}
_CHOICES = {
    "uniform": ["\\set id random(1, :scale * 128)"],
    # The popular rows are spread over the table: neighbours in it are not neighbours in popularity.
    "zipf": ["\\set rank random_zipfian(1, :scale * 128, :zipf)", "\\set id permute(:rank - 1, :scale * 128, 20) + 1"],
}


def mix(updates: int = UPDATES, zipf: float | None = None) -> tuple[tuple[Script, ...], dict[str, str]]:
    """The scripts with their weights, and pgbench's variables for them.

    ``updates`` is the share of transactions that update, in per cent. ``zipf``: rows are chosen by a Zipfian distribution
    of this parameter (the larger, the fewer rows take most of the load), else all alike.

    Raises:
        UsageError: there is no such share or parameter.
    """
    if not 0 <= updates <= 100:
        raise UsageError(f"--updates {updates}: a share of the transactions in per cent is between 0 and 100")
    if zipf is not None and not LEAST_ZIPF <= zipf <= MOST_ZIPF:
        raise UsageError(f"--zipf {zipf:g}: pgbench takes {LEAST_ZIPF:g} to {MOST_ZIPF:g}; leave it out for a uniform choice")
    choice = "uniform" if zipf is None else "zipf"
    weights = {"read": 100 - updates, "update": updates}
    scripts = tuple(Script(source=f"{PREFIX}{name}-{choice}", weight=weight, name=name) for name, weight in weights.items() if weight)
    return scripts, {} if zipf is None else {"zipf": f"{zipf:g}"}


def text(name: str) -> str | None:
    """The text of a script (``read-zipf``); None if there is none of that name."""
    kind, _, choice = name.partition("-")
    if kind not in _STATEMENTS or choice not in _CHOICES:
        return None
    return "\n".join([f"-- {kind} a row: made by pgherd", *_CHOICES[choice], _STATEMENTS[kind]]) + "\n"


def size_estimate(mib: int) -> int:
    """Size of a freshly loaded database (pg_database_size) in bytes."""
    return _EMPTY_DATABASE + _PER_MIB * mib


@dataclass(frozen=True)
class RandomBlockFilling:
    """The table of so many MiB (``scale``), in so many partitions."""

    database: str
    scale: int
    partitions: int = 1

    @property
    def identity(self) -> str:
        """``random-block-256-a1b2c3d4e5f6``: size, and the hash of what fills it; ``random-block-256-p4-…`` in four partitions."""
        digest = hashlib.sha256(load_sql().encode()).hexdigest()[:12]
        return f"random-block-{self.scale}{f'-p{self.partitions}' if self.partitions > 1 else ''}-{digest}"

    @property
    def size_estimate(self) -> int:
        """Bytes."""
        return size_estimate(self.scale)

    def load(self, target: LoadTarget, say: Say = silent) -> None:
        """Fill the table by psql; raises TrialError with its words."""
        argv = [f"{target.bin}/psql", *client_options(target), *load_arguments(self.scale, self.partitions), self.database]
        with resources.as_file(resources.files("pgherd.workloads").joinpath("random_block.sql")) as file:
            done = target.node.run(Command(argv, user=target.account, stdin=str(file)), timeout=300 + self.scale)
        if done.code != 0:
            raise TrialError(f"the table of {self.scale} MiB cannot be filled: {done.err.strip()[-300:]}")


def load_sql() -> str:
    """The SQL that fills a database, for psql with the variable ``scale``, and ``partitions`` where there are to be several."""
    return resources.files("pgherd.workloads").joinpath("random_block.sql").read_text(encoding="utf-8")


def load_arguments(scale: int, partitions: int = 1) -> list[str]:
    """psql's arguments for that SQL on standard input, connection aside."""
    parted = [f"--set=partitions={partitions}"] if partitions > 1 else []
    return ["--no-psqlrc", "--quiet", "--output=/dev/null", f"--set=scale={scale}", *parted, "--set=ON_ERROR_STOP=1", "--file=-"]


@dataclass(frozen=True)
class RandomBlockWorkload:
    """Single rows at random; ``scale`` is the table's size in MiB."""

    name: str = "random-block"
    read_only: bool = False
    default_scale: int = 256

    def scripts(self) -> Sequence[Script]:
        """A quarter updates, all rows alike."""
        return mix()[0]

    def filling(self, node: Node, database: Database) -> RandomBlockFilling:
        """The table of so many MiB as the database's scale says."""
        return RandomBlockFilling(database=database.name, scale=database.scale, partitions=database.partitions)

    def size_estimate(self, scale: int) -> int:
        """Bytes of a database."""
        return size_estimate(scale)

    def violations(self, query: Query) -> Sequence[str]:
        """It has no rules to check."""
        return ()


RANDOM_BLOCK = RandomBlockWorkload()
