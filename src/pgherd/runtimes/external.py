"""Containers that stand for servers of somebody else: nothing of them is made, limited, seen or ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pgherd.host.journal import Journal
from pgherd.model.deployment import Container, Host
from pgherd.model.errors import CapabilityError
from pgherd.model.facts import HostFacts
from pgherd.node.protocol import Node
from pgherd.runtimes.runtime import Capabilities, Room

_NOT_OURS = "the server is somebody else's: what limits it is set where it runs"


class ExternalRuntime:
    """Implements ``runtimes.runtime.Runtime`` for servers that are reached by a DSN. It does nothing at all."""

    name = "external"

    def __init__(self, node: Node, journal: Journal, facts: HostFacts, suffix: str, cpus: Sequence[int] | None = None) -> None:
        """All are taken for the sake of the common constructor only."""

    def capabilities(self) -> Capabilities:
        """Always available, and able to do nothing."""
        missing = dict.fromkeys(("cpu_quota", "cpuset", "memory_limit", "weight", "accounting"), _NOT_OURS)
        return Capabilities(available=True, missing=missing, note="somebody else's server: its CPU, memory and disks are not seen")

    def open(self, host: Host) -> None:
        """The budget bounds what pgherd runs; there is nothing of ours here."""

    def create(self, container: Container) -> Room:
        """A room without walls; raises CapabilityError for any limit."""
        asked = {
            "vCPUs": container.vcpus is not None or container.cpu_mode != "none" or container.cpus is not None,
            "a memory limit": container.memory is not None,
            "a CPU weight": container.weight is not None,
        }
        for what, wanted in asked.items():
            if wanted:
                raise CapabilityError(f"container {container.name} asks for {what}, which an external server can't be given: {_NOT_OURS}")
        return Room(container.name)

    def destroy(self, container: str) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""

    def change_budget(self, memory: int) -> None:
        """Raises CapabilityError."""
        raise CapabilityError(f"an external server can't be held to {memory} bytes of memory: {_NOT_OURS}")

    def empty(self) -> None:
        """Nothing to do."""

    def budget_groups(self) -> Mapping[str, str]:
        """There is none."""
        return {}
