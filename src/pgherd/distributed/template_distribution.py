"""Distribution of templates: those that one host of a cluster has and others lack are copied if that is faster than
creating them.

If no host has a template, each host creates it, all at the same time, because no transfer could be faster. A transfer
pays if one host has it already: the user's database that was loaded there to try the scripts, a template of an
earlier run, or a host that has joined since.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pgherd.cluster.interfaces import HostLost
from pgherd.distributed.agent_pool import AgentPool
from pgherd.distributed.template_transfer import Chunk, Manifest
from pgherd.model.errors import PgherdError
from pgherd.model.trial import Trial
from pgherd.model.units import format_bytes, format_seconds
from pgherd.node import interruption
from pgherd.postgres.disk_space import patience
from pgherd.runner.progress import RunObserver

_STEP_TIMEOUT_S = 600.0
"""Timeout of a step in seconds: reading the files that fill databases, comparing a PostgreSQL, making room for a
template, or receiving a piece over a slow network.
"""


@dataclass(frozen=True)
class TransferJob:
    """Template that ``source`` has and the hosts ``to`` lack.

    Creating it took ``seconds``. ``bin`` is its PostgreSQL, as trials name it.
    """

    key: str
    bin: str
    source: str
    to: tuple[str, ...]
    seconds: float


def errands(lacks: Mapping[str, Mapping[str, str]], has: Mapping[str, Mapping[str, float]]) -> list[TransferJob]:
    """Return possible transfers. A template is sent by the host that created it fastest, since the others may be as
    fast. Pure.

    Args:
        lacks: host → templates that it lacks (key → bin directory).
        has: host → templates that it has (key → seconds to create them).
    """
    transfers = []
    for key, bin_ in {key: bin_ for missing in lacks.values() for key, bin_ in missing.items()}.items():
        seconds = {host: templates[key] for host, templates in has.items() if key in templates}
        if seconds:
            source = min(seconds, key=lambda host: seconds[host])
            transfers.append(
                TransferJob(key, bin_, source, tuple(host for host, missing in lacks.items() if key in missing), seconds[source])
            )
    return transfers


def worth(left: int, done: int, elapsed: float, seconds: float) -> bool:
    """Return whether the rest of a template (``left`` bytes) arrives before the host could create it in ``seconds``.
    Pure.

    The rate is that of the ``done`` bytes received in ``elapsed`` seconds.
    """
    return left * elapsed < seconds * done


class TemplateDistribution:
    """Copies missing templates between hosts before a deployment.

    A failure is only reported. The host then creates the template itself, as without sharing.
    """

    def __init__(self, pool: AgentPool, watcher: RunObserver) -> None:
        self._pool, self._watcher = pool, watcher
        self._checked_contents: dict[str, set[str]] = {}

    def share(self, parts: Mapping[str, Trial]) -> None:
        """Copy templates that the hosts of these parts lack from hosts of the run that have them."""
        new = {host: part for host, part in parts.items() if not _contents(part) <= self._checked_contents.get(host, set())}
        if not new or len(self._pool.hosts()) < 2:
            return
        lacks: dict[str, dict[str, str]] = self._pool.each(
            "templates", {host: ("lacks", part) for host, part in new.items()}, timeout=_STEP_TIMEOUT_S
        )
        for host in lacks:
            self._checked_contents.setdefault(host, set()).update(_contents(new[host]))
        missing = {key: bin_ for host_missing in lacks.values() for key, bin_ in host_missing.items()}
        if missing:
            has = self._pool.each("templates", dict.fromkeys(self._pool.hosts(), ("has", missing)))
            for errand in errands(lacks, has):
                self._run(errand)

    def _run(self, errand: TransferJob) -> None:
        began = time.monotonic()
        try:
            manifest: Manifest = self._pool.call(errand.source, "templates", "lend", errand.key, errand.bin, timeout=_STEP_TIMEOUT_S)
            self._carry(errand, manifest, began)
        except HostLost:
            pass  # the next call to that host reports it
        except (PgherdError, OSError) as error:
            self._watcher.note(f"{error}; the hosts that lack this template create it.")
        finally:
            self._each("drop", [*errand.to, errand.source])

    def _carry(self, errand: TransferJob, manifest: Manifest, began: float) -> None:
        size, source = format_bytes(manifest.bytes), errand.source
        self._watcher.setup(f"copying a template ({size}) from {source} to {', '.join(errand.to)}")
        to, received = self._each("borrow", errand.to, manifest), 0
        while to:
            load: Chunk = self._pool.call(source, "templates", "piece", timeout=_STEP_TIMEOUT_S)
            to = self._each("add", to, load.data)
            interruption.check()
            received += len(load.data)
            elapsed = time.monotonic() - began
            if load.digest is not None:
                to = self._each("keep", to, load.digest, timeout=patience(manifest.bytes))
                durations = f"{size} in {format_seconds(time.monotonic() - began)}, where creating it took {format_seconds(errand.seconds)}"
                self._watcher.note(f"template {errand.key} copied from {source} to {', '.join(to) or 'no host'}: {durations}.")
                return
            if not worth(manifest.bytes - received, received, elapsed, errand.seconds):
                self._watcher.note(
                    f"template {errand.key} is not copied from {source}: {format_bytes(received)} of {size} arrived within "
                    f"{format_seconds(elapsed)}, and creating it takes {format_seconds(errand.seconds)}; the hosts create it."
                )
                return

    def _each(self, step: str, hosts: Sequence[str], *arguments: Any, timeout: float = _STEP_TIMEOUT_S) -> list[str]:
        """Run a step on these hosts and return those on which it succeeded. Failures are reported."""
        failed: dict[str, PgherdError | OSError] = {}

        def run_step(host: str) -> None:
            try:
                self._pool.call(host, "templates", step, *arguments, timeout=timeout)
            except (PgherdError, OSError) as error:
                failed[host] = error

        present = [host for host in hosts if host not in self._pool.lost]
        self._pool.side_by_side(run_step, present)
        for error in failed.values():
            if not isinstance(error, HostLost):
                self._watcher.note(f"{error}; this host creates the template itself.")
        return [host for host in present if host not in failed]


def _contents(part: Trial) -> set[str]:
    """Describe the contents of a part's servers as text."""
    servers = [server for _, _, server in part.deployment.servers() if server.dsn is None]
    return {
        f"{server.bin} {server.checksums} " + "".join(database.model_dump_json() for database in server.databases) for server in servers
    }
