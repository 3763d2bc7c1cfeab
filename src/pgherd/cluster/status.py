"""Status of a cluster's hosts for ``cluster start`` and ``cluster status``. Hosts are queried without taking their
lease.
"""

from __future__ import annotations

import os
import socket
from dataclasses import asdict, dataclass, field
from typing import Any

from pgherd.cluster import dask_client, host_software
from pgherd.cluster.interfaces import HostClockOffset, HostLost
from pgherd.cluster.ssh import cleaned
from pgherd.model.text import clean
from pgherd.model.units import format_bytes

DRIVER = "this machine"
"""Name of the driver in a comparison of versions."""


@dataclass(frozen=True)
class HostState:
    """Status of one host.

    ``reason`` is the reason why it is lost, or None. ``memory`` and ``cpu`` are those of its agent so far.
    """

    name: str
    address: str
    reason: str | None
    used_by: str | None
    offset: HostClockOffset | None
    memory: int | None
    cpu: float | None
    software: dict[str, Any]
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def state(self) -> str:
        return f"gone: {self.reason}" if self.reason is not None else f"used by {self.used_by}" if self.used_by else "idle"

    @property
    def clock(self) -> str:
        """Return its offset with its uncertainty, in ms."""
        if self.offset is None:
            return "unknown"
        return f"{self.offset.seconds * 1000:+.2f} ± {self.offset.uncertainty * 1000:.2f} ms"

    @property
    def agent_usage(self) -> str:
        """Return the agent's memory, and its CPU time since it started."""
        return "" if self.memory is None else f"{format_bytes(self.memory)}, {self.cpu:.1f} s of CPU"

    @property
    def postgres(self) -> str:
        """Return the PostgreSQL versions found there."""
        return str(self.software.get("PostgreSQL", ""))


@dataclass(frozen=True)
class ClusterState:
    """All hosts in the cluster's order, and differences between them and the driver."""

    name: str
    address: str
    hosts: tuple[HostState, ...]
    differences: tuple[host_software.HostDifference, ...]

    @property
    def gone(self) -> list[str]:
        """Return the lost hosts."""
        return [host.name for host in self.hosts if host.reason is not None]

    def document(self) -> dict[str, Any]:
        """Return the document for ``--json``: offsets in seconds, memory in bytes, CPU in seconds."""
        hosts = [{**asdict(host), "state": host.state} for host in self.hosts]
        differences = [asdict(difference) for difference in self.differences]
        return {"cluster": self.name, "address": self.address, "hosts": hosts, "gone": self.gone, "differences": differences}


def read_status(cluster: str) -> ClusterState:
    """Query every host. Raises UsageError if the cluster cannot be reached."""
    with dask_client.connect(cluster, hold=False) as joined:
        statuses = joined.ask("look")
        offsets = joined.offsets()
        software = {host: {} if isinstance(statuses[host], HostLost) else answer for host, answer in joined.ask("versions").items()}
        addresses = joined.addresses()
        hosts = tuple(_state(host, addresses[host], statuses[host], offsets.get(host), software[host]) for host in statuses)
        scheduler = joined.scheduler
    by_host = {host.name: host.software for host in hosts if host.reason is None and host.software}
    driver = {f"{DRIVER} ({socket.gethostname()}, pid {os.getpid()})": host_software.required_versions()}
    differences = host_software.compare(by_host, host_software.LISTED) + host_software.compare({**driver, **by_host}, host_software.REFUSED)
    return ClusterState(cluster, scheduler, hosts, tuple(differences))


def _state(host: str, address: str, status: Any, offset: HostClockOffset | None, software: Any) -> HostState:
    """Return the state of a host, whose texts are foreign: workers choose their names, and hosts what they answer."""
    if isinstance(status, HostLost):
        return HostState(clean(host), clean(address), clean(status.why), None, None, None, None, {})
    told = cleaned({**status, "software": software if isinstance(software, dict) else {}})
    return HostState(
        clean(host),
        clean(address),
        None,
        told["driver"],
        offset,
        told["memory"],
        told["cpu"],
        told["software"],
        told.get("labels", {}),
    )
