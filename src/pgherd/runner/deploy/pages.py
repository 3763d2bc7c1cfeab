"""The huge pages of the servers that are up: reserved before a server starts, given back when it has stopped, and seen to be used.

Every study's servers pass here; nothing happens for those whose settings leave huge pages alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pgherd.host import huge_pages as host_pages
from pgherd.host import paths
from pgherd.host.journal import Journal
from pgherd.metrics.shared_memory import SAMPLER
from pgherd.model.base import Model
from pgherd.model.deployment import Server
from pgherd.model.errors import CapabilityError, TrialError, UsageError
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Node
from pgherd.postgres import configuration, huge_pages
from pgherd.postgres.huge_pages import Need
from pgherd.postgres.instance import Instance
from pgherd.postgres.settings import Choice
from pgherd.runner.deploy.transition import ServerKey
from pgherd.study.database_options import READ_ONLY, DatabaseRequest
from pgherd.study.registry import study_of

LEAST_BESIDE = 64 * 2**20
"""Bytes that a container must have beside its huge pages: processes, WAL buffers' files, connections."""


def concerns(server: Server) -> bool:
    """Whether a server's pages are a matter of its trial: its settings or its trial say what they are to be."""
    on_or_off = huge_pages.insists(server.settings) or huge_pages.declines(server.settings)
    return on_or_off or server.transparent_huge_pages is not None


def asked_settings(asked: DatabaseRequest) -> dict[str, str]:
    """The settings that the user asks for: by name (--set), by --huge-pages, and by --read-only.

    Raises:
        UsageError: the two say the same thing in two ways, or one is wrong.
    """
    by_name = configuration.parse_set(asked.set)
    if asked.read_only:
        by_name[READ_ONLY] = "on"
    if asked.huge_pages is None:
        return by_name
    by_size = huge_pages.settings_for(asked.huge_pages)
    for name in ("huge_pages", "huge_page_size"):
        if name in by_name:
            raise UsageError(
                f"--set {name}={by_name[name]} and --huge-pages {asked.huge_pages} say the same thing in two ways; give one of them"
            )
    return {**by_name, **by_size}


def explained(selected: Choice, asked: DatabaseRequest) -> Choice:
    """The choice with the right reason for what --huge-pages and --read-only have set."""
    by_option: dict[str, tuple[str, str]] = {}
    if asked.huge_pages is not None:
        by_option |= {name: (default, "--huge-pages") for name, default in (("huge_pages", "try"), ("huge_page_size", "0"))}
    if asked.read_only:
        by_option[READ_ONLY] = ("off", "--read-only")
    rows = [
        replace(row, default=by_option[row.name][0], why=f"asked for with {by_option[row.name][1]}") if row.name in by_option else row
        for row in selected.rows
    ]
    return replace(selected, rows=tuple(rows))


def rounding(node: Node, settings: Mapping[str, str]) -> int:
    """Bytes that whole pages may take beyond what a server needs; 0 where none are reserved for it."""
    return huge_pages.page_size(node, settings) if huge_pages.insists(settings) else 0


def insist_room(need: Need, memory: int | None) -> None:
    """Insist that a container's memory (bytes; None: no limit) holds a server's huge pages and the rest of the server.

    The kernel charges reserved pages to no control group. So that memory is counted once, a container's limit is what it was
    given less its servers' pages.

    Raises:
        UsageError: it does not.
    """
    if memory is not None and memory < need.bytes + LEAST_BESIDE:
        raise UsageError(
            f"a server needs {need.pages} huge pages of {host_pages.label(need.size)} ({format_bytes(need.bytes)}) and at least "
            f"{format_bytes(LEAST_BESIDE)} beside them, but its container has {format_bytes(memory)}; give more --memory, smaller "
            "shared_buffers, or a smaller page size"
        )


def host_changes(node: Node, study: str, options: Model, need: Need | None) -> tuple[tuple[str, ...], dict[int, int]]:
    """What a study's servers need of this host's huge pages, in words and as pages by size (bytes), as far as it can be told
    without trying that it can be had. ``need`` is that of one server.

    Raises:
        CapabilityError: it cannot.
    """
    deployments = [trial.deployment for trial in study_of(study).propose(options, []).trials]
    servers = [[server for _, _, server in deployment.servers()] for deployment in deployments]
    changes: list[str] = []
    wanted: dict[int, int] = {}
    most = max((sum(huge_pages.insists(server.settings) for server in some) for some in servers), default=0)
    if need is not None and most:
        wanted[need.size] = need.pages * most
        host_pages.check(node, wanted)
        if host_pages.may_reserve(node, need.size):
            changes.append(
                f"{need.pages * most} huge pages of {host_pages.label(need.size)} ({format_bytes(need.bytes * most)}) reserved while "
                f"the servers that use them run, which no one else can use then ({host_pages.pool_file(need.size)})"
            )
    for on in {server.transparent_huge_pages for some in servers for server in some} - {None}:
        word = host_pages.transparent(node)
        if on is False and word is None:
            continue
        host_pages.check_transparent(node, bool(on))
        needed = host_pages.word_for(bool(on), word or "")
        if needed != word:
            changes.append(
                f"transparent huge pages of all shared memory from '{word}' to '{needed}' while servers run ({host_pages.SHARED})"
            )
    return tuple(changes), wanted


def try_out(node: Node, wanted: Mapping[int, int]) -> None:
    """Reserve so many pages of each size (bytes) for a moment, one size after the other: the kernel alone knows whether it has them.

    Raises:
        CapabilityError: it has not.
    """
    if not wanted:
        return
    journal = Journal.open(node, paths.state_dir(), "prepare")
    try:
        for size, pages in wanted.items():
            number = host_pages.reserve(node, journal, size, pages)
            if number is not None:
                journal.undo(number)
    finally:
        journal.close()


class Pages:
    """Pages of all servers of one fleet. All share one pool for each size; each server's part is an entry of the journal."""

    def __init__(self, node: Node, journal: Journal) -> None:
        """Nothing is reserved yet."""
        self._node, self._journal = node, journal
        self._had: set[int] = set()
        self._readings: dict[ServerKey, dict[str, float]] = {}

    def reserve(self, servers: Mapping[ServerKey, tuple[Instance, Server]]) -> dict[ServerKey, list[int]]:
        """Reserve what these stopped servers need, all of it or nothing; entries of the journal by server, which give it back.

        Raises:
            CapabilityError: it cannot be had, and could not before in this run.
            TrialError: it cannot be had now, though it could before: memory has come to be in use otherwise, or in pieces.
            UsageError: PostgreSQL refuses the settings.
        """
        needs = {key: self._need(instance, server) for key, (instance, server) in servers.items()}
        entries: dict[ServerKey, list[int]] = {key: [] for key in servers}
        wanted = {need.size for need in needs.values() if need is not None}
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
            if isinstance(error, CapabilityError) and wanted <= self._had:
                raise TrialError(str(error)) from error
            raise
        self._had |= wanted
        return entries

    def refill(self, servers: Mapping[ServerKey, tuple[Instance, Server]]) -> dict[ServerKey, list[int]]:
        """Reserve what others have taken of these stopped servers' pages; entries of the journal by server, none if nothing was taken.

        The kernel does not say whose free pages are: any server that starts meanwhile with ``huge_pages = try``, PostgreSQL's default,
        takes them.

        Raises:
            TrialError: as many more cannot be had.
        """
        needs = {key: self._need(instance, server) for key, (instance, server) in servers.items()}
        there = host_pages.pools(self._node)
        entries: dict[ServerKey, list[int]] = {}
        for size, pages in total([need for need in needs.values() if need is not None]).items():
            short = pages - there[size].spare
            key = next(key for key, need in needs.items() if need is not None and need.size == size)
            if short > 0:
                try:
                    self._note(entries.setdefault(key, []), host_pages.reserve(self._node, self._journal, size, short))
                except CapabilityError as error:
                    raise TrialError(f"others have taken huge pages that were reserved for server {'/'.join(key)}; {error}") from error
        return entries

    def look(self, key: ServerKey, pid: int) -> None:
        """Read what a server's shared memory lies on, of its process ``pid``, which has just read its databases."""
        source = SAMPLER.once("/".join(key), pid)
        try:
            raw = self._node.read(source.where).decode(errors="replace")
        except OSError:  # not ours to read: the verdict will say that it was not seen
            return
        for _, reading in SAMPLER.parse(raw, source):
            self._readings[key] = reading

    def readings(self) -> dict[str, dict[str, float]]:
        """What ``look`` saw, by entity (``server:CONTAINER/SERVER``) and metric."""
        return {f"server:{'/'.join(key)}": dict(reading) for key, reading in self._readings.items()}

    def forget(self, key: ServerKey) -> None:
        """The server has stopped."""
        self._readings.pop(key, None)

    def _need(self, instance: Instance, server: Server) -> Need | None:
        if not huge_pages.insists(server.settings):
            return None
        return huge_pages.needed(self._node, instance.installation, server.settings, instance.data_dir, instance.account)

    @staticmethod
    def _note(entries: list[int], number: int | None) -> None:
        if number is not None:
            entries.append(number)


def total(needs: list[Need]) -> dict[int, int]:
    """Page size (bytes) → pages that all of them need together."""
    found: dict[int, int] = {}
    for need in needs:
        found[need.size] = found.get(need.size, 0) + need.pages
    return found
