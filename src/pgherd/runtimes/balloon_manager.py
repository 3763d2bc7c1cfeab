"""Balloon manager of a host: polls all guests once per second, runs the controller, and sets balloon targets.

One thread does this, and another one reads the answers. All guests are polled in parallel, because one that is stopped, swapped out or
dying may answer late or never. A guest without an answer at the end of the second is late: it is not polled again until it answers, and
keeps its target. A guest whose process has ended is removed, and the others share its memory. A guest that runs but does not answer
keeps its memory.

Readings and targets are written into the spool of the node's sampling loop (format: ``Node.sample``). Both writers append full
lines, each in one write, so that lines do not mix. The manager numbers its sources from ``FIRST``, which the loop does not reach.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pgherd.model.deployment import Container
from pgherd.model.errors import TrialError, UsageError
from pgherd.model.guest_memory import GuestMemory
from pgherd.runtimes import balloon_law as law
from pgherd.runtimes.balloon_device import Balloon, Look, Machine, QemuBalloon, statistics_of
from pgherd.runtimes.balloon_estimate import Estimate, Statistics, estimate, rates, unseen
from pgherd.runtimes.balloon_law import moves
from pgherd.runtimes.vm.qmp import READER_THREAD

_UNFINISHED = 5
"""Number of consecutive failed rounds that invalidates the policy. Shorter pauses have no effect: the controller moves an idle guest's
memory over a minute.
"""
_ONE_IN = 20
"""The policy is also invalid if more than ``_UNFINISHED`` rounds, and more than one of this number, failed."""
_RETURNED_WITHIN = 16 * 2**20
"""Bytes below which a balloon counts as empty. Drivers keep a page or two."""


_Question = Future[Look] | Future[int]
"""Pending call of a guest: a reading, or a target."""


@dataclass(frozen=True)
class Managed:
    """Guest with its balloon. ``alive`` returns whether its hypervisor's process runs."""

    guest: law.Guest
    balloon: Balloon
    alive: Callable[[], bool]


def law_guest(container: Container, overhead: int, *, swaps: bool = False) -> law.Guest:
    """Return the guarantees of a guest container. ``balloon_law.check`` takes them before the guest starts.

    Args:
        overhead: memory of its hypervisor beyond the guest's memory, bytes.
        swaps: the guest has swap space.

    Raises:
        UsageError: the container has no memory size.
    """
    if container.memory is None:
        raise UsageError(f"guest {container.name} has no memory size; a virtual machine needs one (--memory)")
    least = law.minimum_of(container.memory, container.memory_minimum)
    return law.Guest(container.name, container.memory, least, container.memory_shares, overhead, swaps)


def managed(container: Container, machine: Machine, overhead: int, *, swaps: bool = False) -> Managed:
    """Return a container's QEMU for ``BalloonManager.add``. Raises UsageError as ``law_guest``."""
    return Managed(law_guest(container, overhead, swaps=swaps), QemuBalloon(machine.qmp), lambda: machine.running)


@dataclass(frozen=True)
class Status:
    """Last observation of a guest. Sizes in bytes. ``late``: the last call is unanswered. ``failed``: error of the last answer, or ''."""

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
    """Round counts since the start of a recording: all, failed, consecutive failed, and the reason of the last failure."""

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
    """Balloon manager between ``start`` and ``stop``. Guests are added and removed meanwhile. Methods may be called from any thread."""

    def __init__(
        self,
        policy: GuestMemory,
        budget: int | None,
        free: Callable[[], int | None] = lambda: None,
        *,
        period: float = 1.0,
        drives: bool = True,
    ) -> None:
        """Args:
        budget: the host's memory for all guests and their hypervisors, bytes (None: no limit).
        free: returns the part of it that could be allocated at once.
        drives: QEMU's counters of the guests' drives are recorded too, and reads count as need.
        """
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
        """Add a guest that has all its memory.

        Raises:
            UsageError: the sum of the guaranteed minima would exceed the memory for guests. The guest is not added.
        """
        with self._lock:
            law.check([*self._guests(), managed.guest], self._budget if moves(self._policy.policy) else None, self._policy.reserve)
            self._watched[managed.guest.name] = _Watched(managed, managed.guest.memory)

    def remove(self, name: str) -> None:
        """Remove a guest before it ends. An unknown name is ignored."""
        with self._lock:
            self._watched.pop(name, None)
            self._standing = law.forget(self._standing, name)

    def change_budget(self, budget: int | None) -> None:
        """Change the budget.

        Raises:
            UsageError: the minima of the guests exceed it. The budget is unchanged.
        """
        with self._lock:
            law.check(self._guests(), budget if moves(self._policy.policy) else None, self._policy.reserve)
            self._budget = budget

    def record(self, spool: Path | None) -> None:
        """Append readings to this spool from now on. None stops recording.

        Raises:
            OSError: the spool cannot be opened, or the previous one could not be written.
            TrialError: too many rounds failed during the previous recording, so the policy was not enforced.
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
                    f"row (last error: {rounds.why}), so --guest-memory {self._policy.policy} was not enforced; repeat the trial, "
                    f"and if it fails again compare with --guest-memory static"
                )

    def start(self) -> None:
        self._thread = threading.Thread(target=self._loop, name="pgherd-balloons", daemon=True)
        self._thread.start()

    def stop(self, patience: float = 5.0) -> list[str]:
        """Stop the loop, and return the memory of all guests.

        Returns the running guests whose balloons are not empty after ``patience`` seconds. They continue to deflate.
        """
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        left = self._give_back(patience) if moves(self._policy.policy) else []
        with contextlib.suppress(OSError, TrialError):
            self.record(None)
        return left

    def status(self) -> dict[str, Status]:
        """Return the status of all guests by name."""
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
            except Exception as error:  # balloons keep their size, and the next round may succeed
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
                self._spool.write([(time.time(), MANAGER, "", f"round failed: {why}")])

    def once(self, seconds: float) -> None:
        """Run one round: poll, process answers, decide, set targets, record. ``seconds`` is the time since the last round."""
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
        """Return the CPU seconds of this thread and of the QMP reader thread since their start.

        During a trial the manager is the only user of the reader thread. While guests boot and stop it also reads their answers.
        """
        readers = [thread.ident for thread in threading.enumerate() if thread.name == READER_THREAD and thread.ident is not None]
        return round(time.thread_time() + sum(time.clock_gettime(time.pthread_getcpuclockid(ident)) for ident in readers), 6)

    def _target(self, one: _Watched) -> int:
        return self._standing.targets.get(one.managed.guest.name, one.managed.guest.memory)

    def _ask(self, watched: Sequence[_Watched], question: Callable[[_Watched], _Question], patience: float) -> None:
        """Call all guests without a pending call, and wait for the answers up to ``patience`` seconds."""
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
        """Take the answer of a guest, if it has arrived. Errors are stored, because they must not end the loop."""
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
        """Update estimate and record from a guest's answer, if there is one."""
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
            one.lines.append((time.time(), BALLOON, guest.name, one.failed or "no answer in time"))
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
        with contextlib.suppress(OSError, ValueError):  # the controller has a rule for an unknown value
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


FIRST = 1_000_000
BALLOON, DRIVES, MANAGER = "guest_balloon", "qemu_blockstats", "balloon_manager"
"""Names of the samplers that parse the lines (pgherd.metrics)."""
_SELF = "platform:balloon-manager"


class BalloonSpool:
    """Open spool. After a write error (disk full) it writes nothing and stores the error in ``error``, because balloons must continue."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._numbers: dict[tuple[str, str], int] = {}
        self.error: OSError | None = None

    def write(self, readings: Sequence[tuple[float, str, str, Any]]) -> None:
        """Append readings: (seconds since the epoch, sampler, guest, value) as JSON.

        A text in place of a value is the reason why it is missing. Readings of the manager itself have the guest ''.
        """
        lines: list[str] = []
        for at, sampler, guest, raw in readings:
            number = self._numbers.get((sampler, guest))
            if number is None:
                number = self._numbers[sampler, guest] = FIRST + len(self._numbers)
                described = [[sampler, f"guest:{guest}" if guest else _SELF, "qmp", guest, guest]]
                lines.append(_line({"sources": described, "first": number}))
            document: dict[str, Any] = {"t": round(at, 6), "i": number}
            document |= {"raw": None, "error": raw} if isinstance(raw, str) else {"raw": raw}
            lines.append(_line(document))
        if not lines or self.error is not None:
            return
        data = memoryview(("\n".join(lines) + "\n").encode())
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            self.error = error

    def close(self) -> None:
        os.close(self._file)


def _line(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"))
