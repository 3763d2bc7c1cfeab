"""Golden copies that one host of a cluster has and others lack: carried there, where that is faster than to make them anew.

Where no host has a copy, each makes its own, all at the same time: no way of one host's copy to the others could be faster than none.
It is different where one has it already: the user's own database, which was loaded there to try the scripts; a run before this one; a
host that has joined since.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pgherd.cluster.remote import HostLost
from pgherd.distributed.crew import Crew
from pgherd.distributed.golden_carrying import Load, Manifest
from pgherd.model.errors import PgherdError
from pgherd.model.trial import Trial
from pgherd.model.units import format_bytes, format_seconds
from pgherd.node import interruption
from pgherd.postgres.disk import patience
from pgherd.runner.watcher import Watcher

_PATIENCE = 600.0
"""Seconds for a step: to have read and compared a PostgreSQL, made room for a copy, or got a piece of it by a slow way."""


@dataclass(frozen=True)
class Errand:
    """A golden copy that ``source`` has and the hosts ``to`` lack. ``seconds``: as long as it took to make it. ``bin``: the PostgreSQL
    that it is of, as trials name it."""

    key: str
    bin: str
    source: str
    to: tuple[str, ...]
    seconds: float


def errands(lacks: Mapping[str, Mapping[str, str]], has: Mapping[str, Mapping[str, float]]) -> list[Errand]:
    """What could be carried: host → the copies that it lacks (key → bin directory) and host → those that it has (key → seconds that it
    took to make them), in. A copy comes from the host that was fastest to make it, as fast as which the others may be. Pure."""
    found = []
    for key, bin_ in {key: bin_ for own in lacks.values() for key, bin_ in own.items()}.items():
        took = {host: own[key] for host, own in has.items() if key in own}
        if took:
            source = min(took, key=lambda host: took[host])
            found.append(Errand(key, bin_, source, tuple(host for host, own in lacks.items() if key in own), took[source]))
    return found


def worth(left: int, done: int, elapsed: float, seconds: float) -> bool:
    """Whether the rest of a copy (``left`` bytes) will have come before it could be made anew, which takes ``seconds``, at the rate at
    which the hosts have got ``done`` bytes in ``elapsed`` seconds. Pure."""
    return left * elapsed < seconds * done


class Sharing:
    """Looks, before a deployment is brought about, for golden copies that its hosts lack. What goes wrong is told, and no more than that:
    the host then makes its own copy, as it would have."""

    def __init__(self, crew: Crew, watcher: Watcher) -> None:
        """Nothing is known of any host."""
        self._crew, self._watcher = crew, watcher
        self._known: dict[str, set[str]] = {}

    def share(self, parts: Mapping[str, Trial]) -> None:
        """Carry what the hosts of these parts lack, from hosts of the run that have it."""
        new = {host: one for host, one in parts.items() if not _contents(one) <= self._known.get(host, set())}
        if not new or len(self._crew.hosts()) < 2:
            return
        lacks: dict[str, dict[str, str]] = self._crew.each("golden", {host: ("lacks", one) for host, one in new.items()})
        for host in lacks:
            self._known.setdefault(host, set()).update(_contents(new[host]))
        wanted = {key: bin_ for own in lacks.values() for key, bin_ in own.items()}
        if wanted:
            has = self._crew.each("golden", dict.fromkeys(self._crew.hosts(), ("has", wanted)))
            for errand in errands(lacks, has):
                self._run(errand)

    def _run(self, errand: Errand) -> None:
        began = time.monotonic()
        try:
            manifest: Manifest = self._crew.call(errand.source, "golden", "lend", errand.key, errand.bin, timeout=_PATIENCE)
            self._carry(errand, manifest, began)
        except HostLost:
            pass  # who needs that host will be told so
        except (PgherdError, OSError) as error:
            self._watcher.note(f"{error}; the hosts that lack this golden copy make their own.")
        finally:
            self._each("drop", [*errand.to, errand.source])

    def _carry(self, errand: Errand, manifest: Manifest, began: float) -> None:
        size, source = format_bytes(manifest.bytes), errand.source
        self._watcher.setup(f"carrying a golden copy ({size}) from {source} to {', '.join(errand.to)}")
        to, done = self._each("borrow", errand.to, manifest), 0
        while to:
            load: Load = self._crew.call(source, "golden", "piece", timeout=_PATIENCE)
            to = self._each("add", to, load.data)
            interruption.insist()
            done += len(load.data)
            elapsed = time.monotonic() - began
            if load.digest is not None:
                to = self._each("keep", to, load.digest, timeout=patience(manifest.bytes))
                took = f"{size} in {format_seconds(time.monotonic() - began)}, where making it took {format_seconds(errand.seconds)}"
                self._watcher.note(f"golden copy {errand.key} carried from {source} to {', '.join(to) or 'no host'}: {took}.")
                return
            if not worth(manifest.bytes - done, done, elapsed, errand.seconds):
                self._watcher.note(
                    f"golden copy {errand.key} is not carried from {source}: {format_bytes(done)} of {size} had come after "
                    f"{format_seconds(elapsed)}, and making it takes {format_seconds(errand.seconds)}; the hosts make their own."
                )
                return

    def _each(self, step: str, hosts: Sequence[str], *arguments: Any, timeout: float = _PATIENCE) -> list[str]:
        """The hosts, of these, on which the step came off; why it did not on another is told."""
        failed: dict[str, PgherdError | OSError] = {}

        def take(host: str) -> None:
            try:
                self._crew.call(host, "golden", step, *arguments, timeout=timeout)
            except (PgherdError, OSError) as error:
                failed[host] = error

        there = [host for host in hosts if host not in self._crew.lost]
        self._crew.side_by_side(take, there)
        for error in failed.values():
            if not isinstance(error, HostLost):
                self._watcher.note(f"{error}; this host makes its own golden copy.")
        return [host for host in there if host not in failed]


def _contents(part: Trial) -> set[str]:
    """What the servers of a part hold, as text."""
    servers = [server for _, _, server in part.deployment.servers() if server.dsn is None]
    return {f"{one.bin} {one.checksums} " + "".join(database.model_dump_json() for database in one.databases) for one in servers}
