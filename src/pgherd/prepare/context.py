"""What stands fast of a request before anything is worked out from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pgherd.host.journal import Journal
from pgherd.model.deployment import GuestMemory, InitData, RuntimeName
from pgherd.model.facts import HostFacts
from pgherd.model.finding import Thresholds
from pgherd.model.load import Script
from pgherd.node.protocol import Node
from pgherd.postgres.external import Found
from pgherd.postgres.installations import Installation
from pgherd.prepare import data_checksums, load_options
from pgherd.prepare.server_volumes import Holding
from pgherd.prepare.vm_options import Beneath
from pgherd.study.database_options import DatabaseRequest
from pgherd.workloads.shipped import Mix


@dataclass(frozen=True)
class Basis:
    """What a request stands on: this host, the installation, the runtime, the load's scripts.

    ``cores`` and ``memory`` (bytes) are the host's budget; of a run on several hosts, of all together. ``theirs`` is what was
    found at ``--dsn``: somebody else's server, which is loaded in the place of one of our own, and of which only client
    counts and time are ours to choose. ``init_data`` are the data files that ``--init-script`` reads.
    ``guest_memory`` says how guests share
    memory and ``beneath`` by what they run, where the runtime has them. ``choices`` are sentences on what was chosen. ``pace`` is how
    long a transaction of the user's own scripts took (seconds) where they were tried; empty where that cannot be said. ``holds`` is what
    lies on volumes, once the disk has been looked at.
    """

    node: Node
    asked: DatabaseRequest
    dry: bool
    facts: HostFacts
    account: str | None
    installation: Installation
    usable: Installation
    runtime: RuntimeName
    cores: float
    memory: int
    thresholds: Thresholds
    scripts: tuple[Script, ...]
    read_only: bool
    scale: int
    choices: list[str]
    journal: Journal
    work: Path
    cache: Path
    theirs: Found | None = None
    init_data: InitData | None = None
    guest_memory: GuestMemory | None = None
    beneath: Beneath | None = None
    pace: list[float] = field(default_factory=list)
    holds: list[Holding] = field(default_factory=list)

    @property
    def own(self) -> Mix | None:
        """What loads the database, where it is one of pgherd's own workloads."""
        return load_options.own_mix(self.asked)

    @property
    def workload(self) -> str:
        """What fills the database: 'script' for the user's own SQL."""
        if self.asked.init_script:
            return "script"
        return "pgbench" if self.own is None else self.asked.workload

    @property
    def checksums(self) -> bool:
        """Whether the servers have data checksums: unless asked otherwise yes, so that versions compare."""
        return data_checksums.chosen(self.asked)

    @property
    def wal_dir(self) -> str | None:
        """Where the servers' WAL is to lie, if not with their data: an absolute path."""
        return None if self.asked.wal_dir is None else str(Path(self.asked.wal_dir).resolve())
