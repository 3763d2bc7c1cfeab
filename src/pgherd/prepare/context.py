"""Inputs of a request's preparation, before anything is derived from them."""

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
    """Request with its host, installation, runtime and scripts.

    Attributes:
        asked: the request.
        dry: nothing is loaded.
        account: user that servers run as. None: the current user.
        installation: PostgreSQL installation of the servers.
        usable: the installation, or a cached copy if ``account`` cannot execute it.
        cores: CPU budget of the host. In a run on several hosts, the sum.
        memory: memory budget of the host in bytes. In a run on several hosts, the sum.
        choices: sentences on chosen defaults, and warnings.
        work: temporary directory.
        theirs: external server at ``--dsn``. pgherd chooses only the number of clients and the times for it.
        init_data: data files that ``--init-script`` reads.
        guest_memory: memory policy of virtual machines.
        beneath: hypervisor of virtual machines.
        pace: seconds per transaction of the user's scripts in a first execution. Empty: not measured.
        holds: contents of each volume, set by the check of the disk space.
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
        """Scripts and defaults of a workload that pgherd provides. None: other workloads."""
        return load_options.own_mix(self.asked)

    @property
    def workload(self) -> str:
        """Name of the workload that fills the database: 'script' for the user's SQL."""
        if self.asked.init_script:
            return "script"
        return "pgbench" if self.own is None else self.asked.workload

    @property
    def checksums(self) -> bool:
        """True if the servers have data checksums. This is the default for all versions, so that versions are comparable."""
        return data_checksums.chosen(self.asked)
