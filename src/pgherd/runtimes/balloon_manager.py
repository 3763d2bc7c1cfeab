"""The balloon manager of a host: once a second it looks at all guests, applies the law, and moves the balloons.

One thread does all of it, and another reads the answers. Guests are asked side by side, since one that is stopped, swapped out or dying
may answer late or never: a guest that has not answered by the end of the second is late, is not asked again until it has, and keeps its
target. One whose process has ended is forgotten, and its memory is free for the others; one that lives but fails to answer keeps what it
has.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pgherd.model.deployment import Container, GuestMemory
from pgherd.model.errors import TrialError, UsageError
from pgherd.runtimes import balloon_law as law
from pgherd.runtimes.balloon_device import Balloon, Look, Machine, QemuBalloon, statistics_of
from pgherd.runtimes.balloon_estimate import Estimate, Statistics, estimate, rates, unseen
from pgherd.runtimes.balloon_policy import moves
from pgherd.runtimes.balloon_spool import BALLOON, DRIVES, MANAGER, BalloonSpool
from pgherd.runtimes.vm.questions import QUESTIONS_THREAD

_UNFINISHED = 5
"""With so many unfinished rounds in a row the policy was not kept up. Balloons that rest for fewer seconds do not matter to a law by which
a guest that has gone idle gives up its share over a minute."""
_ONE_IN = 20
"""Nor was it where more than ``_UNFINISHED`` rounds, and of all more than one in so many, were not finished here and there."""
_RETURNED_WITHIN = 16 * 2**20
"""Bytes: a balloon that is so nearly empty counts as empty (drivers keep a page or two for themselves)."""


_Question = Future[Look] | Future[int]
"""What a guest has been asked: how it is, or to keep a size."""


@dataclass(frozen=True)
class Managed:
    """A guest with its balloon; ``alive`` says whether its hypervisor's process still runs."""

    guest: law.Guest
    balloon: Balloon
    alive: Callable[[], bool]


def law_guest(container: Container, overhead: int, *, swaps: bool = False) -> law.Guest:
    """What a container that is a guest was promised; for ``balloon_law.check`` before any is up. ``overhead``: what its hypervisor needs
    beside the guest's memory, bytes. ``swaps``: the guest has swap inside.

    Raises:
        UsageError: it has no memory of its own.
    """
    if container.memory is None:
        raise UsageError(f"guest {container.name} has no memory of its own; a virtual machine needs one (--memory)")
    least = law.minimum_of(container.memory, container.memory_minimum)
    return law.Guest(container.name, container.memory, least, container.memory_shares, overhead, swaps)


def managed(container: Container, machine: Machine, overhead: int, *, swaps: bool = False) -> Managed:
    """A container's QEMU, to be given to the manager; raises UsageError as ``law_guest``."""
    return Managed(law_guest(container, overhead, swaps=swaps), QemuBalloon(machine.questions), lambda: machine.running)


@dataclass(frozen=True)
class Status:
    """A guest as the manager saw it last. Sizes in bytes; ``late``: it has not answered the last question yet; ``failed`` says why its
    last answer was none."""

    memory: int
    actual: int
    target: int
    working_set: float
    late: bool
    failed: str


@dataclass
class _Watched:
    managed: Managed
    actual: int
    asked: _Question | None = None
    answer: Look | None = None
    failed: str = ""
    told: Statistics | None = None
    estimate: Estimate | None = None
    sent: int | None = None
    lines: list[tuple[float, str, str, Any]] = field(default_factory=list)


@dataclass
class _Rounds:
    """The rounds since a recording began: how many, how many of them were not finished, the most in a row, and why the last one."""

    number: int = 0
    unfinished: int = 0
    row: int = 0
    longest: int = 0
    why: str = ""

    def count(self, why: str = "") -> None:
        self.number += 1
        self.unfinished += bool(why)
        self.row = self.row + 1 if why else 0
        self.longest = max(self.longest, self.row)
        self.why = why or self.why

    @property
    def too_few(self) -> bool:
        return self.longest >= _UNFINISHED or self.unfinished > max(_UNFINISHED, self.number / _ONE_IN)


class BalloonManager:
    """Begins with ``start`` and ends with ``stop``; guests come and go between. All methods may be called from any thread."""

    def __init__(
        self,
        policy: GuestMemory,
        budget: int | None,
        free: Callable[[], int | None] = lambda: None,
        *,
        period: float = 1.0,
        drives: bool = True,
    ) -> None:
        """``budget`` is the host's memory for all guests and their hypervisors, bytes (None: no limit); ``free`` says how much of it could
        be had at once. ``drives``: what QEMU counts of the guests' drives is recorded too, and their reads count as need."""
        self._policy, self._budget, self._free = policy, budget, free
        self._period, self._drives = period, drives
        self._watched: dict[str, _Watched] = {}
        self._standing = law.Standing()
        self._spool: BalloonSpool | None = None
        self._lock = threading.RLock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._rounds = _Rounds()

    def add(self, managed: Managed) -> None:
        """Watch a guest, which has all its memory as yet.

        Raises:
            UsageError: with it the guaranteed minima are more than guests can have; it is not added.
        """
        with self._lock:
            law.check([*self._guests(), managed.guest], self._budget if moves(self._policy.policy) else None, self._policy.reserve)
            self._watched[managed.guest.name] = _Watched(managed, managed.guest.memory)

    def remove(self, name: str) -> None:
        """Forget a guest, before it is ended; nothing happens if it is not there."""
        with self._lock:
            self._watched.pop(name, None)
            self._standing = law.forget(self._standing, name)

    def change_budget(self, budget: int | None) -> None:
        """Another budget from now on.

        Raises:
            UsageError: the guests' minima are more than they could have; the budget stays as it was.
        """
        with self._lock:
            law.check(self._guests(), budget if moves(self._policy.policy) else None, self._policy.reserve)
            self._budget = budget

    def record(self, spool: Path | None) -> None:
        """Append what is seen to this spool from now on; None: to none.

        Raises:
            OSError: it cannot be opened, or the one before could not be written.
            TrialError: while the one before was written too many rounds were not finished: the policy, which moves balloons, was not
                kept up.
        """
        opened = BalloonSpool(spool) if spool is not None else None
        with self._lock:
            before, self._spool = self._spool, opened
            rounds, self._rounds = self._rounds, _Rounds()
        if before is not None:
            before.close()
            if before.error is not None:
                raise before.error
            if rounds.too_few and moves(self._policy.policy):
                raise TrialError(
                    f"the balloon manager did not finish {rounds.unfinished} of its {rounds.number} rounds, {rounds.longest} of them in a "
                    f"row (the last time: {rounds.why}), so that nobody kept up --guest-memory {self._policy.policy}; repeat the trial, "
                    f"and if it comes again compare with --guest-memory static"
                )

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._loop, name="pgherd-balloons", daemon=True)
        self._thread.start()

    def stop(self, patience: float = 5.0) -> list[str]:
        """End the loop and give all guests all their memory back. Returns the living guests that have not taken it within ``patience``
        seconds; they go on taking it by themselves."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        left = self._give_back(patience) if moves(self._policy.policy) else []
        with contextlib.suppress(OSError, TrialError):
            self.record(None)
        return left

    def status(self) -> dict[str, Status]:
        """All guests, by name."""
        with self._lock:
            return {name: self._status(one) for name, one in self._watched.items()}

    def _guests(self) -> list[law.Guest]:
        return [one.managed.guest for one in self._watched.values()]

    def _status(self, one: _Watched) -> Status:
        guest = one.managed.guest
        target = self._standing.targets.get(guest.name, guest.memory)
        need = one.estimate.working_set if one.estimate is not None else float(one.actual)
        return Status(guest.memory, one.actual, target, need, one.asked is not None, one.failed)

    def _loop(self) -> None:
        due, last = time.monotonic(), time.monotonic() - self._period
        while not self._ending.is_set():
            now = time.monotonic()
            try:
                self.once(now - last)
            except Exception as error:  # the balloons stay where they are, and the next second may go better
                self._unfinished(f"{type(error).__name__}: {error}")
            else:
                with self._lock:
                    self._rounds.count()
            last = now
            due = max(due + self._period, time.monotonic())
            self._ending.wait(max(due - time.monotonic(), 0.0))

    def _unfinished(self, why: str) -> None:
        with self._lock:
            self._rounds.count(why)
            if self._spool is not None:
                self._spool.write([(time.time(), MANAGER, "", f"a round was not finished: {why}")])

    def once(self, seconds: float) -> None:
        """One round: ask, take the answers, decide, set targets, record. ``seconds`` have passed since the last one."""
        with self._lock:
            watched = list(self._watched.values())
        self._ask(watched, self._look, self._period / 2)
        with self._lock:
            for one in watched:
                self._take(one, seconds)
                if not one.managed.alive():
                    self.remove(one.managed.guest.name)
            if moves(self._policy.policy):
                self._decide(seconds)
            behind = [one for one in self._watched.values() if one.sent != self._target(one) and one.asked is None]
            readings = [line for one in watched for line in one.lines]
            for one in watched:
                one.lines = []
            if self._spool is not None:
                self._spool.write([*readings, (time.time(), MANAGER, "", {"cpu": self._own_cpu()})])
        if moves(self._policy.policy):
            self._ask(behind, self._send, self._period / 4)

    @staticmethod
    def _own_cpu() -> float:
        """CPU of this thread, and of the one that reads the answers, whose only user the manager is, since each began, seconds."""
        readers = [thread.ident for thread in threading.enumerate() if thread.name == QUESTIONS_THREAD and thread.ident is not None]
        return round(time.thread_time() + sum(time.clock_gettime(time.pthread_getcpuclockid(ident)) for ident in readers), 6)

    def _target(self, one: _Watched) -> int:
        return self._standing.targets.get(one.managed.guest.name, one.managed.guest.memory)

    def _ask(self, watched: Sequence[_Watched], question: Callable[[_Watched], _Question], patience: float) -> None:
        """Put a question to all guests that have answered the last one, and wait for the answers for a while."""
        for one in watched:
            self._hear(one)
            if one.asked is None:
                one.asked = question(one)
        asked: list[Future[Any]] = [one.asked for one in watched if one.asked is not None]
        wait(asked, patience)
        for one in watched:
            self._hear(one)

    @staticmethod
    def _hear(one: _Watched) -> None:
        """A guest's answer to the last question, if it is there. What went wrong is kept, for it must not end the loop."""
        if one.asked is None or not one.asked.done():
            return
        asked, one.asked = one.asked, None
        try:
            found = asked.result()
        except Exception as error:
            one.failed = f"{type(error).__name__}: {error}".rstrip(": ")
        else:
            if isinstance(found, Look):
                one.answer, one.failed = found, ""
            else:
                one.sent = found

    def _look(self, one: _Watched) -> Future[Look]:
        return one.managed.balloon.look(drives=self._drives)

    def _send(self, one: _Watched) -> Future[int]:
        return one.managed.balloon.set_target(self._target(one))

    def _take(self, one: _Watched, seconds: float) -> None:
        """A guest's answer, if it gave one, into what is believed of it, and into the record."""
        guest, answer, one.answer = one.managed.guest, one.answer, None
        told: Statistics | None = None
        if answer is not None:
            one.actual = answer.actual
            try:
                told = statistics_of(answer.statistics, answer.drives)
            except ValueError as error:
                one.failed = str(error)
        if told is not None and (one.told is None or told.at > one.told.at):
            passed = seconds + (one.estimate.unseen if one.estimate is not None and one.told is not None else 0.0)
            contended = any(other.estimate is not None and other.estimate.contends for other in self._watched.values() if other is not one)
            one.estimate = estimate(
                one.estimate, guest.memory, one.actual, told, rates(one.told, told), passed, target=self._target(one), contended=contended
            )
            one.told = told
        else:
            one.estimate = unseen(one.estimate, one.actual, seconds)
        if answer is None:
            one.lines.append((time.time(), BALLOON, guest.name, one.failed or "the guest has not answered in time"))
            return
        seen: dict[str, Any] = {
            "at": round(answer.at, 3),
            "memory": guest.memory,
            "minimum": guest.minimum,
            "actual": answer.actual,
            "target": self._target(one),
        }
        stats, last = answer.statistics.get("stats", {}), answer.statistics.get("last-update", 0)
        seen |= {"working_set": round(one.estimate.working_set), "stats": stats, "last_update": last}
        one.lines.append((answer.at, BALLOON, guest.name, seen))
        if answer.drives:
            one.lines.append((answer.at, DRIVES, guest.name, answer.drives))

    def _decide(self, seconds: float) -> None:
        seen = {name: law.Seen(one.actual, one.estimate or unseen(None, one.actual, seconds)) for name, one in self._watched.items()}
        free = None
        with contextlib.suppress(OSError, ValueError):  # then nobody knows, for which the law has a rule
            free = self._free() if self._budget is not None else None
        tax, reserve = self._policy.tax, self._policy.reserve
        self._standing = law.step(self._guests(), seen, self._standing, self._budget, seconds, tax=tax, reserve=reserve, free=free)

    def _give_back(self, patience: float) -> list[str]:
        with self._lock:
            self._standing = law.Standing()
            waiting = {name: one for name, one in self._watched.items() if one.managed.alive()}
        deadline = time.monotonic() + patience
        while True:
            self._ask([one for one in waiting.values() if one.sent != one.managed.guest.memory], self._send, self._period / 2)
            self._ask(list(waiting.values()), self._look, self._period / 2)
            for name, one in list(waiting.items()):
                if one.answer is not None:
                    one.actual = one.answer.actual
                if one.actual >= one.managed.guest.memory - _RETURNED_WITHIN or not one.managed.alive():
                    del waiting[name]
            if not waiting or time.monotonic() >= deadline:
                return sorted(waiting)
            time.sleep(min(0.1, self._period))
