"""The agents of a run's hosts, called together: side by side, interruptible, with a host that is gone noticed and remembered."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from pgherd.cluster.remote import Engine, HostLost, Remote, named
from pgherd.distributed.agent import HostAgent, make_agent
from pgherd.model.errors import PgherdError
from pgherd.node import interruption

BREATH = 0.25
"""Seconds between two looks at what goes on beside a call: signals, and what ``meanwhile`` does."""
SHORT = 60.0
"""Seconds that a call may take which only asks or tells."""
_CALLED_OFF = 30.0


def _nothing() -> None:
    """Nothing is to be done meanwhile."""


class Crew:
    """Agents by host. ``lost`` maps those that are gone to the reason; calls go to the others alone."""

    def __init__(self, engine: Engine, make: Callable[[], HostAgent] = make_agent) -> None:
        """Nothing is made yet."""
        self.engine = engine
        self.lost: dict[str, str] = {}
        self._make = make
        self._remotes: dict[str, Remote] = {}
        self._pool: ThreadPoolExecutor | None = None

    def gather(self, wanted: Sequence[str] | None = None) -> list[str]:
        """Make an agent on every host, anew where there is one; returns the hosts that have one. Those of ``wanted`` that have none
        are lost. Raises HostLost."""
        self._remotes = self.engine.actors(self._make)
        self.dismiss()
        # Two for each host: what is asked meanwhile must not wait for what is being done.
        self._pool = ThreadPoolExecutor(max(2, 2 * len(self._remotes)), thread_name_prefix="pgherd-crew")
        gone = self.engine.lost()
        self.lost = {} if wanted is None else {h: gone.get(h, "it has not joined") for h in wanted if h not in self._remotes}
        return list(self._remotes)

    def hosts(self) -> list[str]:
        """Hosts that have an agent and are not lost."""
        return [host for host in self._remotes if host not in self.lost]

    def addresses(self) -> dict[str, str]:
        """Host → where the others reach it, of those that have an agent."""
        return {host: remote.address for host, remote in self._remotes.items()}

    def returned(self) -> bool:
        """Whether a host that was lost can be had again."""
        return bool(self.lost) and any(host in self.lost for host in self.engine.hosts())

    def call(self, host: str, method: str, *arguments: Any, timeout: float = SHORT) -> Any:
        """One host's answer; raises what the method raised, with the host's name in a PgherdError or OSError, and HostLost."""
        try:
            return self._remotes[host].call(method, *arguments, timeout=timeout)
        except HostLost as error:
            self.lost.setdefault(host, error.why)
            raise
        except TimeoutError:
            self.lost.setdefault(host, f"'{method}' was not over after {timeout:.0f} s")
            raise HostLost(host, self.lost[host]) from None
        except (PgherdError, OSError) as error:
            raise named(error, host) from None

    def ask(self, host: str, method: str, *arguments: Any) -> Future[Any]:
        """Begin to ask a host something of no consequence; whatever comes of it, the host is not taken for lost."""
        assert self._pool is not None
        return self._pool.submit(self._remotes[host].call, method, *arguments, timeout=SHORT)

    def all(
        self,
        method: str,
        arguments: Mapping[str, tuple[Any, ...]],
        *,
        timeout: float,
        meanwhile: Callable[[], None] = _nothing,
    ) -> dict[str, Any]:
        """Host → its answer, asked side by side. ``meanwhile`` is called in between, in this thread.

        The first host that fails ends it: the work of all others is called off, and its error raised once they have ended.

        Raises:
            TrialError: of a host's work, HostLost among them; other PgherdErrors and OSErrors as they are.
            KeyboardInterrupt: a signal asked us to end; the work was called off.
        """
        jobs = {host: self._submit(host, method, own, timeout) for host, own in arguments.items()}
        pending = set(jobs.values())
        try:
            while pending:
                done, pending = wait(pending, BREATH, FIRST_COMPLETED)
                for job in done:
                    job.result()
                interruption.insist()
                meanwhile()
        except BaseException:
            self._call_off(jobs)
            raise
        return {host: job.result() for host, job in jobs.items()}

    def each(self, method: str, arguments: Mapping[str, tuple[Any, ...]], *, timeout: float = SHORT) -> dict[str, Any]:
        """Host → its answer, of those that answer: what fails on one host keeps none of the others from it."""
        found = {}
        for host, job in {host: self._submit(host, method, own, timeout) for host, own in arguments.items()}.items():
            with contextlib.suppress(PgherdError, OSError):
                found[host] = job.result()
        return found

    def side_by_side(self, work: Callable[[str], None], hosts: Sequence[str]) -> None:
        """Do something with each host in a thread of its own; raises what the first that fails raised, once all have ended."""
        assert self._pool is not None
        jobs = [self._pool.submit(work, host) for host in hosts]
        wait(jobs)
        for job in jobs:
            job.result()

    def dismiss(self) -> None:
        """End our own threads; the agents are the engine's."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def _submit(self, host: str, method: str, arguments: tuple[Any, ...], timeout: float) -> Future[Any]:
        assert self._pool is not None

        def work() -> Any:
            return self.call(host, method, *arguments, timeout=timeout)

        return self._pool.submit(work)

    def _call_off(self, jobs: Mapping[str, Future[Any]]) -> None:
        """End what the others still do, and wait for it: the next call would only queue behind it."""
        deadline = time.monotonic() + _CALLED_OFF
        for host, job in jobs.items():
            if not job.done() and host not in self.lost:
                with contextlib.suppress(PgherdError, OSError):
                    self._remotes[host].call("call_off", timeout=SHORT)
        for host, job in jobs.items():
            if host not in self.lost:
                wait([job], max(0.1, deadline - time.monotonic()))
