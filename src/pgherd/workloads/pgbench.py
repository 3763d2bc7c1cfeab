"""pgbench's tables and its three built-in transactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pgherd.model.deployment import Database
from pgherd.model.errors import TrialError
from pgherd.model.load import Script
from pgherd.node.protocol import Command, LoaderServer, Node, Say, silent
from pgherd.workloads import Query, client_options

# One unit of scale is 100,000 accounts, 61 to a page of 8 kB (1,640 pages), and their primary key (≈275 pages), with free
# space map and visibility map. Measured after VACUUM, with the same result on PostgreSQL 15 and 18, in millions of bytes:
# 23.5 MB at scale 1, 164.6 MB at scale 10, 635.0 MB at scale 40.
_EMPTY_DATABASE = 7_800_000
_PER_SCALE = 15_690_000


def size_estimate(scale: int) -> int:
    """Return the size of a loaded database (pg_database_size) in bytes, within 1 % of PostgreSQL 15 to 18."""
    return _EMPTY_DATABASE + _PER_SCALE * scale


def load_arguments(scale: int, partitions: int = 1) -> list[str]:
    """Return pgbench's arguments for creating its tables, without the connection. Accounts are partitioned by hash.

    The client generates the rows. At scale 10 this takes 1.0 s of CPU time in total, and 1.2 to 1.4 s if the server
    generates them (step 'G'), because only COPY can freeze rows as it writes them. Step 'v' is omitted, because templates
    are vacuumed later.
    """
    partitioned = [f"--partitions={partitions}", "--partition-method=hash"] if partitions > 1 else []
    return ["-i", "-I", "dtgp", "-q", "-s", str(scale), *partitioned]


@dataclass(frozen=True)
class PgbenchLoader:
    """Loader of pgbench's four tables, with ``partitions`` of the accounts."""

    settings: ClassVar[Mapping[str, str]] = {}
    database: str
    scale: int
    partitions: int = 1

    @property
    def identity(self) -> str:
        """Identity such as ``pgbench-10``, or ``pgbench-10-p4`` with four partitions."""
        return f"pgbench-{self.scale}" + (f"-p{self.partitions}" if self.partitions > 1 else "")

    @property
    def size_estimate(self) -> int:
        """Expected size in bytes."""
        return size_estimate(self.scale)

    def load(self, target: LoaderServer, say: Say = silent) -> None:
        """Run `pgbench -i`; raises TrialError with its errors."""
        argv = [f"{target.bin}/pgbench", *client_options(target), *load_arguments(self.scale, self.partitions), self.database]
        pgbench = target.node.run(Command(argv, user=target.account, can_be_called_off=True), timeout=300 + 20 * self.scale)
        if pgbench.code != 0:
            errors = [line for line in pgbench.err.splitlines() if "error" in line.lower() or "fatal" in line.lower()]
            raise TrialError(f"pgbench cannot load scale {self.scale}: {' '.join(errors) or pgbench.err.strip()[-300:]}")


@dataclass(frozen=True)
class PgbenchWorkload:
    """Built-in transaction of pgbench on pgbench's tables."""

    name: str
    builtin: str
    read_only: bool

    def scripts(self) -> Sequence[Script]:
        return (Script(source=f"builtin:{self.builtin}"),)

    def filling(self, node: Node, database: Database) -> PgbenchLoader:
        return PgbenchLoader(database=database.name, scale=database.scale, partitions=database.partitions)

    def size_estimate(self, scale: int) -> int:
        return size_estimate(scale)

    def violations(self, query: Query) -> Sequence[str]:
        return ()


SELECT_ONLY = PgbenchWorkload("select-only", "select-only", read_only=True)
TPCB_LIKE = PgbenchWorkload("tpcb-like", "tpcb-like", read_only=False)
SIMPLE_UPDATE = PgbenchWorkload("simple-update", "simple-update", read_only=False)
PGBENCH = PgbenchWorkload("pgbench", "tpcb-like", read_only=False)
"""Workload of pgbench without options."""
