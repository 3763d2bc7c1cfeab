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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pgherd.model.deployment import Container, VmMemoryPolicy
from pgherd.model.errors import TrialError, UsageError
from pgherd.runtimes import balloon_controller as controller
from pgherd.runtimes.balloon_controller import moves
from pgherd.runtimes.balloon_device import GuestBalloon, GuestReading, QemuBalloon, QmpTarget, statistics_of
from pgherd.runtimes.guest_memory_estimate import BalloonStats, GuestMemoryEstimate, estimate, rates, unseen
from pgherd.runtimes.vm.qmp import READER_THREAD

_MAX_FAILED_IN_A_ROW = 5
"""Number of consecutive failed rounds that invalidates the policy. Shorter pauses have no effect: the controller moves an idle guest's
memory over a minute.
"""
_MAX_FAILED_ONE_IN = 20
"""The policy is also invalid if more than ``_UNFINISHED`` rounds, and more than one of this number, failed."""
_EMPTY_BELOW_BYTES = 16 * 2**20
"""Bytes below which a balloon counts as empty. Drivers keep a page or two."""


_Call = Future[GuestReading] | Future[int]
"""Pending call of a guest: a reading, or a target."""


@dataclass(frozen=True)
class ManagedGuest:
    """Guest with its balloon. ``alive`` returns whether its hypervisor's process runs."""

    guest: controller.GuestEntitlement
    balloon: GuestBalloon
    alive: Callable[[], bool]


def entitlement_of(container: Container, overhead: int, *, swaps: bool = False) -> controller.GuestEntitlement:
    """Return the guarantees of a guest container. ``balloon_law.check`` takes them before the guest starts.

    Args:
        overhead: memory of its hypervisor beyond the guest's memory, bytes.
        swaps: the guest has swap space.

    Raises:
        UsageError: the container has no memory size.
    """
    if container.memory is None:
        raise UsageError(f"guest {container.name} has no memory size; a virtual machine needs one (--memory)")
    minimum = controller.minimum_of(container.memory, container.vm_memory_min)
    return controller.GuestEntitlement(container.name, container.memory, minimum, container.vm_memory_shares, overhead, swaps)


def managed(container: Container, machine: QmpTarget, overhead: int, *, swaps: bool = False) -> ManagedGuest:
    """Return a container's QEMU for ``BalloonManager.add``. Raises UsageError as ``entitlement_of``."""
    return ManagedGuest(entitlement_of(container, overhead, swaps=swaps), QemuBalloon(machine.qmp), lambda: machine.running)


@dataclass(frozen=True)
class GuestStatus:
    """Last observation of a guest. Sizes in bytes. ``late``: the last call is unanswered. ``failed``: error of the last answer, or ''."""

    memory: int
    actual: int
    target: int
    working_set: float
    late: bool
    failed: str


@dataclass
class _PolledGuest:
    managed: ManagedGuest
    actual: int
    asked: _Call | None = None
    answer: GuestReading | None = None
    failed: str = ""
    told: BalloonStats | None = None
    estimate: GuestMemoryEstimate | None = None
    sent: int | None = None
    lines: list[tuple[float, str, str, Any]] = field(default_factory=list)


@dataclass
class _PollStats:
    """Round counts since the start of a recording: all, failed, consecutive failed, and the reason of the last failure."""

    number: int = 0
    unfinished: int = 0
    row: int = 0
    longest: int = 0
    why: str = ""

    def count(self, reason: str = "") -> None:
        self.number += 1
        self.unfinished += bool(reason)
        self.row = self.row + 1 if reason else 0
        self.longest = max(self.longest, self.row)
        self.why = reason or self.why

    @property
    def too_few(self) -> bool:
        return self.longest >= _MAX_FAILED_IN_A_ROW or self.unfinished > max(_MAX_FAILED_IN_A_ROW, self.number / _MAX_FAILED_ONE_IN)


class BalloonManager:
    """Balloon manager between ``start`` and ``stop``. Guests are added and removed meanwhile. Methods may be called from any thread."""

    def __init__(
        self,
        policy: VmMemoryPolicy,
        budget: int | None,
        free: Callable[[], int | None] = lambda: None,
        *,
        period: float = 1.0,
        drives: bool = True,
    ) -> None:
        """``budget`` is the host's memory for all guests and their hypervisors, bytes (None: no limit).

        ``free`` returns the part of it that could be allocated at once. With ``drives`` QEMU's counters of the guests' drives are recorded
        too, and reads count as need.
        """
        self._policy, self._budget, self._free = policy, budget, free
        self._period, self._drives = period, drives
        self._watched: dict[str, _PolledGuest] = {}
        self._standing = controller.ControllerState()
        self._spool: BalloonSpool | None = None
        self._lock = threading.RLock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._rounds = _PollStats()

    def add(self, managed: ManagedGuest) -> None:
        """Add a guest that has all its memory.

        Raises:
            UsageError: the sum of the guaranteed minima would exceed the memory for guests. The guest is not added.
        """
        with self._lock:
            controller.check([*self._guests(), managed.guest], self._budget if moves(self._policy.policy) else None, self._policy.reserve)
            self._watched[managed.guest.name] = _PolledGuest(managed, managed.guest.memory)

    def remove(self, name: str) -> None:
        """Remove a guest before it ends. An unknown name is ignored."""
        with self._lock:
            self._watched.pop(name, None)
            self._standing = controller.forget(self._standing, name)

    def change_budget(self, budget: int | None) -> None:
        """Change the budget.

        Raises:
            UsageError: the minima of the guests exceed it. The budget is unchanged.
        """
        with self._lock:
            controller.check(self._guests(), budget if moves(self._policy.policy) else None, self._policy.reserve)
            self._budget = budget

    def record(self, spool: Path | None) -> None:
        """Append readings to this spool from now on. None stops recording.

        Raises:
            OSError: the spool cannot be opened, or the previous one could not be written.
            TrialError: too many rounds failed during the previous recording, so the policy was not enforced.
        """
        spool_file = BalloonSpool(spool) if spool is not None else None
        with self._lock:
            previous, self._spool = self._spool, spool_file
            rounds, self._rounds = self._rounds, _PollStats()
        if previous is not None:
            previous.close()
            if previous.error is not None:
                raise previous.error
            if rounds.too_few and moves(self._policy.policy):
                raise TrialError(
                    f"the balloon manager did not finish {rounds.unfinished} of its {rounds.number} rounds, {rounds.longest} of them in a "
                    f"row (last error: {rounds.why}), so --vm-memory-policy {self._policy.policy} was not enforced; repeat the trial, "
                    f"and if it fails again compare with --vm-memory-policy static"
                )

    def set_target(self, name: str, size: int) -> None:
        """Record the target (bytes) of a guest whose balloon the caller moves, under a policy that moves none."""
        with self._lock:
            self._standing = replace(self._standing, targets={**self._standing.targets, name: size})

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
        lagging = self._give_back(patience) if moves(self._policy.policy) else []
        with contextlib.suppress(OSError, TrialError):
            self.record(None)
        return lagging

    def status(self) -> dict[str, GuestStatus]:
        """Return the status of all guests by name."""
        with self._lock:
            return {name: self._status(state) for name, state in self._watched.items()}

    def _guests(self) -> list[controller.GuestEntitlement]:
        return [state.managed.guest for state in self._watched.values()]

    def _status(self, state: _PolledGuest) -> GuestStatus:
        guest = state.managed.guest
        target = self._standing.targets.get(guest.name, guest.memory)
        need = state.estimate.working_set if state.estimate is not None else float(state.actual)
        return GuestStatus(guest.memory, state.actual, target, need, state.asked is not None, state.failed)

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

    def _unfinished(self, reason: str) -> None:
        with self._lock:
            self._rounds.count(reason)
            if self._spool is not None:
                self._spool.write([(time.time(), MANAGER, "", f"round failed: {reason}")])

    def once(self, seconds: float) -> None:
        """Run one round: poll, process answers, decide, set targets, record. ``seconds`` is the time since the last round."""
        with self._lock:
            states = list(self._watched.values())
        self._ask(states, self._poll, self._period / 2)
        with self._lock:
            for state in states:
                self._take(state, seconds)
                if not state.managed.alive():
                    self.remove(state.managed.guest.name)
            if moves(self._policy.policy):
                self._decide(seconds)
            behind = [state for state in self._watched.values() if state.sent != self._target(state) and state.asked is None]
            readings = [line for state in states for line in state.lines]
            for state in states:
                state.lines = []
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

    def _target(self, state: _PolledGuest) -> int:
        return self._standing.targets.get(state.managed.guest.name, state.managed.guest.memory)

    def _ask(self, states: Sequence[_PolledGuest], call_of: Callable[[_PolledGuest], _Call], patience: float) -> None:
        """Call all guests without a pending call, and wait for the answers up to ``patience`` seconds."""
        for state in states:
            self._hear(state)
            if state.asked is None:
                state.asked = call_of(state)
        calls: list[Future[Any]] = [state.asked for state in states if state.asked is not None]
        wait(calls, patience)
        for state in states:
            self._hear(state)

    @staticmethod
    def _hear(state: _PolledGuest) -> None:
        """Take the answer of a guest, if it has arrived. Errors are stored, because they must not end the loop."""
        if state.asked is None or not state.asked.done():
            return
        call, state.asked = state.asked, None
        try:
            answer = call.result()
        except Exception as error:
            state.failed = f"{type(error).__name__}: {error}".rstrip(": ")
        else:
            if isinstance(answer, GuestReading):
                state.answer, state.failed = answer, ""
            else:
                state.sent = answer

    def _poll(self, state: _PolledGuest) -> Future[GuestReading]:
        return state.managed.balloon.poll(drives=self._drives)

    def _send(self, state: _PolledGuest) -> Future[int]:
        return state.managed.balloon.set_target(self._target(state))

    def _take(self, state: _PolledGuest, seconds: float) -> None:
        """Update estimate and record from a guest's answer, if there is one."""
        guest, answer, state.answer = state.managed.guest, state.answer, None
        statistics: BalloonStats | None = None
        if answer is not None:
            state.actual = answer.actual
            try:
                statistics = statistics_of(answer.statistics, answer.drives)
            except ValueError as error:
                state.failed = str(error)
        if statistics is not None and (state.told is None or statistics.at > state.told.at):
            elapsed = seconds + (state.estimate.unseen if state.estimate is not None and state.told is not None else 0.0)
            contended = any(
                other.estimate is not None and other.estimate.contends for other in self._watched.values() if other is not state
            )
            state.estimate = estimate(
                state.estimate,
                guest.memory,
                state.actual,
                statistics,
                rates(state.told, statistics),
                elapsed,
                target=self._target(state),
                contended=contended,
            )
            state.told = statistics
        else:
            state.estimate = unseen(state.estimate, state.actual, seconds)
        if answer is None:
            state.lines.append((time.time(), BALLOON, guest.name, state.failed or "no answer in time"))
            return
        reading: dict[str, Any] = {
            "at": round(answer.at, 3),
            "memory": guest.memory,
            "minimum": guest.minimum,
            "actual": answer.actual,
            "target": self._target(state),
        }
        stats, last_update = answer.statistics.get("stats", {}), answer.statistics.get("last-update", 0)
        reading |= {"working_set": round(state.estimate.working_set), "stats": stats, "last_update": last_update}
        state.lines.append((answer.at, BALLOON, guest.name, reading))
        if answer.drives:
            state.lines.append((answer.at, DRIVES, guest.name, answer.drives))

    def _decide(self, seconds: float) -> None:
        observations = {
            name: controller.GuestObservation(state.actual, state.estimate or unseen(None, state.actual, seconds))
            for name, state in self._watched.items()
        }
        free = None
        with contextlib.suppress(OSError, ValueError):  # the controller has a rule for an unknown value
            free = self._free() if self._budget is not None else None
        tax, reserve = self._policy.tax, self._policy.reserve
        self._standing = controller.step(
            self._guests(), observations, self._standing, self._budget, seconds, tax=tax, reserve=reserve, free=free
        )

    def _give_back(self, patience: float) -> list[str]:
        with self._lock:
            self._standing = controller.ControllerState()
            waiting = {name: state for name, state in self._watched.items() if state.managed.alive()}
        deadline = time.monotonic() + patience
        while True:
            self._ask([state for state in waiting.values() if state.sent != state.managed.guest.memory], self._send, self._period / 2)
            self._ask(list(waiting.values()), self._poll, self._period / 2)
            for name, state in list(waiting.items()):
                if state.answer is not None:
                    state.actual = state.answer.actual
                if state.actual >= state.managed.guest.memory - _EMPTY_BELOW_BYTES or not state.managed.alive():
                    del waiting[name]
            if not waiting or time.monotonic() >= deadline:
                return sorted(waiting)
            time.sleep(min(0.1, self._period))


FIRST = 1_000_000
BALLOON, DRIVES, MANAGER = "guest_balloon", "qemu_blockstats", "balloon_manager"
"""Names of the samplers that parse the lines (pgherd.metrics)."""
_MANAGER_ENTITY = "platform:balloon-manager"


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
                described = [[sampler, f"guest:{guest}" if guest else _MANAGER_ENTITY, "qmp", guest, guest]]
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
