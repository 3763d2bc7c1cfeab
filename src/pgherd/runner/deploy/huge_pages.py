"""Huge pages of the running servers: reserved before a server starts, released after it stops, and verified.

Servers of every study pass here. Pages are reserved for those that require them, and every server's pages are read.
"""

from __future__ import annotations

from collections.abc import Mapping

from pgherd.host import huge_pages as host_pages
from pgherd.host import paths
from pgherd.host.journal import Journal
from pgherd.metrics.processes import SHARED_MEMORY
from pgherd.model.base import Model
from pgherd.model.deployment import Server
from pgherd.model.errors import CapabilityError, TrialError, UsageError
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Node
from pgherd.postgres import huge_pages
from pgherd.postgres.huge_pages import HugePageNeed
from pgherd.postgres.instance import Instance
from pgherd.runner.deploy.transition_plan import ServerKey
from pgherd.study.study import study_of

MIN_UNRESERVED_BYTES = 64 * 2**20
"""Minimum bytes of a container in addition to its huge pages: processes, connections, files of WAL buffers."""


def require_room(need: HugePageNeed, memory: int | None) -> None:
    """Require that a container's memory (bytes; None: no limit) is enough for a server's huge pages and the rest of the
    server.

    The kernel charges reserved pages to no cgroup. So a container's limit is its memory less its servers' pages.

    Raises:
        UsageError: it is too small.
    """
    if memory is not None and memory < need.bytes + MIN_UNRESERVED_BYTES:
        raise UsageError(
            f"a server needs {need.pages} huge pages of {host_pages.label(need.size)} ({format_bytes(need.bytes)}) and at least "
            f"{format_bytes(MIN_UNRESERVED_BYTES)} of other memory, but its container has {format_bytes(memory)}; "
            f"increase --memory, or reduce shared_buffers or the page size"
        )


def host_changes(node: Node, study: str, options: Model, need: HugePageNeed | None) -> tuple[tuple[str, ...], dict[int, int]]:
    """Return the changes of this host that a study's servers require for huge pages: descriptions, and pages by size
    (bytes).

    Checks the possibility without reserving. ``need`` is that of one server.

    Raises:
        CapabilityError: they are impossible.
    """
    deployments = [trial.deployment for trial in study_of(study).propose(options, []).trials]
    servers = [[server for _, _, server in deployment.servers()] for deployment in deployments]
    changes: list[str] = []
    pages_by_size: dict[int, int] = {}
    max_servers = max(
        (sum(huge_pages.requires_huge_pages(server.settings) for server in servers_of_trial) for servers_of_trial in servers), default=0
    )
    if need is not None and max_servers:
        pages_by_size[need.size] = need.pages * max_servers
        host_pages.check(node, pages_by_size)
        if host_pages.may_reserve(node, need.size):
            changes.append(
                f"{need.pages * max_servers} huge pages of {host_pages.label(need.size)} ({format_bytes(need.bytes * max_servers)}) "
                f"reserved while servers run, and unavailable to other processes ({host_pages.pool_file(need.size)})"
            )
    for enabled in {server.transparent_huge_pages for servers_of_trial in servers for server in servers_of_trial} - {None}:
        current = host_pages.transparent(node)
        if enabled is False and current is None:
            continue
        host_pages.check_transparent(node, bool(enabled))
        required = host_pages.word_for(bool(enabled), current or "")
        if required != current:
            changes.append(
                f"transparent huge pages of all shared memory from '{current}' to '{required}' while servers run ({host_pages.SHARED})"
            )
    return tuple(changes), pages_by_size


def probe_huge_pages(node: Node, pages_by_size: Mapping[int, int]) -> None:
    """Reserve these pages of each size (bytes) for a moment, one size at a time, since only the kernel knows whether it
    can.

    Raises:
        CapabilityError: it cannot.
    """
    if not pages_by_size:
        return
    journal = Journal.open(node, paths.state_dir(), "prepare")
    try:
        for size, pages in pages_by_size.items():
            number = host_pages.reserve(node, journal, size, pages)
            if number is not None:
                journal.undo(number)
    finally:
        journal.close()


class HugePageManager:
    """Huge pages of all deployed servers. Each page size has one pool; each server's part is a journal entry."""

    def __init__(self, node: Node, journal: Journal) -> None:
        self._node, self._journal = node, journal
        self._reserved_before: set[int] = set()
        self._readings: dict[ServerKey, dict[str, float]] = {}

    def reserve(self, servers: Mapping[ServerKey, tuple[Instance, Server]]) -> dict[ServerKey, list[int]]:
        """Reserve pages for these stopped servers, all of them or none. Return journal entries by server, which release
        them.

        Raises:
            CapabilityError: they cannot be reserved, and could not before in this run.
            TrialError: they cannot be reserved now, though they could before: memory is in use or fragmented.
            UsageError: PostgreSQL refuses the settings.
        """
        needs = {key: self._need(instance, server) for key, (instance, server) in servers.items()}
        entries: dict[ServerKey, list[int]] = {key: [] for key in servers}
        sizes = {need.size for need in needs.values() if need is not None}
        try:
            host_pages.check(self._node, total([need for need in needs.values() if need is not None]))
            for key, (_, server) in servers.items():
                need, transparent = needs[key], server.transparent_huge_pages
                if need is not None:
                    self._note(entries[key], host_pages.reserve(self._node, self._journal, need.size, need.pages))
                if transparent is not None and (transparent or host_pages.transparent(self._node) is not None):
                    self._note(entries[key], host_pages.choose_transparent(self._node, self._journal, transparent))
        except BaseException as error:
            for number in [number for numbers in entries.values() for number in numbers]:
                self._journal.undo(number)
            if isinstance(error, CapabilityError) and sizes <= self._reserved_before:
                raise TrialError(str(error)) from error
            raise
        self._reserved_before |= sizes
        return entries

    def refill(self, servers: Mapping[ServerKey, tuple[Instance, Server]]) -> dict[ServerKey, list[int]]:
        """Reserve again what other processes have taken of these stopped servers' pages. Return journal entries by
        server.

        The kernel does not reserve free pages for a process. A server that starts meanwhile with ``huge_pages =
        try``, PostgreSQL's default, takes them.

        Raises:
            TrialError: not enough pages are available.
        """
        needs = {key: self._need(instance, server) for key, (instance, server) in servers.items()}
        pools = host_pages.pools(self._node)
        entries: dict[ServerKey, list[int]] = {}
        for size, pages in total([need for need in needs.values() if need is not None]).items():
            missing = pages - pools[size].spare
            key = next(key for key, need in needs.items() if need is not None and need.size == size)
            if missing > 0:
                try:
                    self._note(entries.setdefault(key, []), host_pages.reserve(self._node, self._journal, size, missing))
                except CapabilityError as error:
                    raise TrialError(
                        f"other processes have taken huge pages that were reserved for server {'/'.join(key)}; {error}"
                    ) from error
        return entries

    def poll(self, key: ServerKey, pid: int) -> None:
        """Read the kind of pages below a server's shared memory from its process ``pid``, which has just read its
        databases.
        """
        source = SHARED_MEMORY.once("/".join(key), pid)
        try:
            raw = self._node.read(source.where).decode(errors="replace")
        except OSError:  # not readable: the check reports it as unknown
            return
        for _, reading in SHARED_MEMORY.parse(raw, source):
            self._readings[key] = reading

    def readings(self) -> dict[str, dict[str, float]]:
        """Return the values read by ``look``, by entity (``server:CONTAINER/SERVER``) and metric."""
        return {f"server:{'/'.join(key)}": dict(reading) for key, reading in self._readings.items()}

    def forget(self, key: ServerKey) -> None:
        """Discard the readings of a server that has stopped."""
        self._readings.pop(key, None)

    def _need(self, instance: Instance, server: Server) -> HugePageNeed | None:
        if not huge_pages.requires_huge_pages(server.settings):
            return None
        return huge_pages.needed(self._node, instance.installation, server.settings, instance.data_dir, instance.account)

    @staticmethod
    def _note(entries: list[int], number: int | None) -> None:
        if number is not None:
            entries.append(number)


def total(needs: list[HugePageNeed]) -> dict[int, int]:
    """Return page size (bytes) → sum of pages of all needs."""
    pages_by_size: dict[int, int] = {}
    for need in needs:
        pages_by_size[need.size] = pages_by_size.get(need.size, 0) + need.pages
    return pages_by_size
