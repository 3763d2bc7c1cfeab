"""How a cluster stands: what ``cluster start`` and ``cluster status`` tell of each host. Hosts are asked, not held."""

from __future__ import annotations

import os
import socket
from dataclasses import asdict, dataclass, field
from typing import Any

from pgherd.cluster import engine, versions
from pgherd.cluster.remote import HostLost, Offset
from pgherd.model.units import format_bytes

DRIVER = "this machine"
"""The driver in a comparison of versions."""


@dataclass(frozen=True)
class HostState:
    """One host: ``why`` it is gone (None while it is there), who uses it, its clock, what its agent has taken of it so far, its labels."""

    name: str
    address: str
    why: str | None
    used_by: str | None
    offset: Offset | None
    memory: int | None
    cpu: float | None
    found: dict[str, Any]
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """In a few words."""
        return f"gone: {self.why}" if self.why is not None else f"used by {self.used_by}" if self.used_by else "idle"

    @property
    def clock(self) -> str:
        """Its offset with its uncertainty, in ms."""
        if self.offset is None:
            return "unknown"
        return f"{self.offset.seconds * 1000:+.2f} ± {self.offset.uncertainty * 1000:.2f} ms"

    @property
    def took(self) -> str:
        """The agent's memory, and its CPU since it started."""
        return "" if self.memory is None else f"{format_bytes(self.memory)}, {self.cpu:.1f} s of CPU"

    @property
    def postgres(self) -> str:
        """The versions found there."""
        return str(self.found.get("PostgreSQL", ""))


@dataclass(frozen=True)
class ClusterState:
    """All hosts, in the cluster's order, and in what they (and the driver) differ."""

    name: str
    address: str
    hosts: tuple[HostState, ...]
    differences: tuple[versions.Difference, ...]

    @property
    def gone(self) -> list[str]:
        """Hosts that are not there."""
        return [host.name for host in self.hosts if host.why is not None]

    def document(self) -> dict[str, Any]:
        """For ``--json``: offsets in seconds, memory in bytes, CPU in seconds."""
        hosts = [{**asdict(host), "state": host.state} for host in self.hosts]
        differences = [asdict(difference) for difference in self.differences]
        return {"cluster": self.name, "address": self.address, "hosts": hosts, "gone": self.gone, "differences": differences}


def look(cluster: str) -> ClusterState:
    """Ask every host. Raises UsageError when the cluster cannot be reached."""
    with engine.connect(cluster, hold=False) as joined:
        seen = joined.ask("look")
        offsets = joined.offsets()
        found = {host: {} if isinstance(seen[host], HostLost) else answer for host, answer in joined.ask("versions").items()}
        where = joined.addresses()
        hosts = tuple(_state(host, where[host], seen[host], offsets.get(host), found[host]) for host in seen)
        place = joined.scheduler
    told = {host.name: host.found for host in hosts if host.why is None and host.found}
    mine = {f"{DRIVER} ({socket.gethostname()}, pid {os.getpid()})": versions.software()}
    differences = versions.compare(told, versions.LISTED) + versions.compare({**mine, **told}, versions.REFUSED)
    return ClusterState(cluster, place, hosts, tuple(differences))


def _state(host: str, address: str, seen: Any, offset: Offset | None, found: Any) -> HostState:
    if isinstance(seen, HostLost):
        return HostState(host, address, seen.why, None, None, None, None, {})
    known = found if isinstance(found, dict) else {}
    return HostState(host, address, None, seen["driver"], offset, seen["memory"], seen["cpu"], known, seen.get("labels", {}))
