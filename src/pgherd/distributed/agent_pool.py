"""Agents of a run's hosts, called in parallel. Calls can be interrupted, and a lost host is noticed and remembered."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from pgherd.cluster.interfaces import ClusterClient, HostLost, RemoteObject, named
from pgherd.distributed.agent import HostAgent, make_agent
from pgherd.model.errors import PgherdError
from pgherd.node import interruption

POLL_INTERVAL_S = 0.25
"""Seconds between two checks for signals and calls of ``meanwhile`` during a call."""
CALL_TIMEOUT_S = 60.0
"""Timeout of a call that does no work, in seconds."""
SETUP_TIMEOUT_S = 7 * 24 * 3600.0
"""Timeout of a call that may load databases, in seconds. On one host this work has no limit as a whole, and a single SQL file may load
for 24 h. Heartbeats notice a lost host long before.
"""
_CALL_OFF_TIMEOUT_S = 30.0
_SLOWEST_LINK = 1e6
"""Bytes per second."""


def _nothing() -> None:
    pass


class AgentPool:
    """Agents by host. ``lost`` maps lost hosts to the reason; calls go only to the others."""

    def __init__(self, engine: ClusterClient, make: Callable[[], HostAgent] = make_agent) -> None:
        self.engine = engine
        self.lost: dict[str, str] = {}
        self._make = make
        self._remotes: dict[str, RemoteObject] = {}
        self._pool: ThreadPoolExecutor | None = None

    def gather(self, wanted: Sequence[str] | None = None) -> list[str]:
        """Create an agent on every host, replacing existing ones. Return the hosts that have one.

        Hosts of ``wanted`` without an agent are lost. Raises HostLost.
        """
        self._remotes = self.engine.actors(self._make)
        self.dismiss()
        # Two threads for each host: a query must not wait for running work.
        self._pool = ThreadPoolExecutor(max(2, 2 * len(self._remotes)), thread_name_prefix="pgherd-crew")
        reasons = self.engine.lost()
        self.lost = {} if wanted is None else {h: reasons.get(h, "it has not joined") for h in wanted if h not in self._remotes}
        return list(self._remotes)

    def hosts(self) -> list[str]:
        """Return hosts that have an agent and are not lost."""
        return [host for host in self._remotes if host not in self.lost]

    def addresses(self) -> dict[str, str]:
        """Return host → address for other hosts, of hosts that have an agent."""
        return {host: remote.address for host, remote in self._remotes.items()}

    def returned(self) -> bool:
        """Return whether a lost host is available again."""
        return bool(self.lost) and any(host in self.lost for host in self.engine.hosts())

    def call(self, host: str, method: str, *arguments: Any, timeout: float = CALL_TIMEOUT_S) -> Any:
        """Return one host's result. Raises what the method raised, naming the host in PgherdErrors and OSErrors, and
        HostLost.
        """
        try:
            return self._remotes[host].call(method, *arguments, timeout=timeout)
        except HostLost as error:
            self.lost.setdefault(host, error.why)
            raise
        except TimeoutError:
            self.lost.setdefault(host, f"'{method}' did not finish within {timeout:.0f} s")
            raise HostLost(host, self.lost[host]) from None
        except (PgherdError, OSError) as error:
            raise named(error, host) from None

    def put(self, host: str, name: str, data: bytes) -> str:
        """Store a file on a host, and return its path there. Raises HostLost.

        The timeout grows with the size. Heartbeats notice a host that is lost meanwhile.
        """
        path: str = self.call(host, "put", name, data, timeout=CALL_TIMEOUT_S + len(data) / _SLOWEST_LINK)
        return path

    def ask(self, host: str, method: str, *arguments: Any) -> Future[Any]:
        """Start a best-effort call. A failure does not mark the host as lost."""
        assert self._pool is not None
        return self._pool.submit(self._remotes[host].call, method, *arguments, timeout=CALL_TIMEOUT_S)

    def all(
        self,
        method: str,
        arguments: Mapping[str, tuple[Any, ...]],
        *,
        timeout: float,
        meanwhile: Callable[[], None] = _nothing,
    ) -> dict[str, Any]:
        """Call a method on all these hosts in parallel and return host → result. ``meanwhile`` is called repeatedly in
        this thread.

        The first host that fails ends the call: the work of the others is called off, and its error is raised once
        they have ended.

        Raises:
            TrialError: from a host's work, including HostLost; other PgherdErrors and OSErrors unchanged.
            KeyboardInterrupt: a signal requested the end; the work was called off.
        """
        jobs = {host: self._submit(host, method, host_arguments, timeout) for host, host_arguments in arguments.items()}
        pending = set(jobs.values())
        try:
            while pending:
                finished, pending = wait(pending, POLL_INTERVAL_S, FIRST_COMPLETED)
                for job in finished:
                    job.result()
                interruption.check()
                meanwhile()
        except BaseException:
            self._call_off(jobs)
            raise
        return {host: job.result() for host, job in jobs.items()}

    def each(self, method: str, arguments: Mapping[str, tuple[Any, ...]], *, timeout: float = CALL_TIMEOUT_S) -> dict[str, Any]:
        """Call a method on these hosts in parallel and return host → result of the successful ones."""
        results = {}
        jobs = {host: self._submit(host, method, host_arguments, timeout) for host, host_arguments in arguments.items()}
        for host, job in jobs.items():
            with contextlib.suppress(PgherdError, OSError):
                results[host] = job.result()
        return results

    def side_by_side(self, work: Callable[[str], None], hosts: Sequence[str]) -> None:
        """Call ``work`` for each host in parallel threads. Raises the first error, once all have ended."""
        assert self._pool is not None
        jobs = [self._pool.submit(work, host) for host in hosts]
        wait(jobs)
        for job in jobs:
            job.result()

    def dismiss(self) -> None:
        """End the threads. The engine owns the agents."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def _submit(self, host: str, method: str, arguments: tuple[Any, ...], timeout: float) -> Future[Any]:
        assert self._pool is not None

        def work() -> Any:
            return self.call(host, method, *arguments, timeout=timeout)

        return self._pool.submit(work)

    def _call_off(self, jobs: Mapping[str, Future[Any]]) -> None:
        """Call off the work of the other hosts and wait for its end, because the next call would queue behind it."""
        deadline = time.monotonic() + _CALL_OFF_TIMEOUT_S
        for host, job in jobs.items():
            if not job.done() and host not in self.lost:
                with contextlib.suppress(PgherdError, OSError):
                    self._remotes[host].call("call_off", timeout=CALL_TIMEOUT_S)
        for host, job in jobs.items():
            if host not in self.lost:
                wait([job], max(0.1, deadline - time.monotonic()))
