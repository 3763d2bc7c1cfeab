"""Two sides compared by slices of a load that goes on: CPU seconds of a server, and its transactions, with no start in between.

pgbench writes a line of progress each second, with the moment and the rate since the line before; a slice is so many of them. Between
slices a setting is switched under one pgbench, or one pgbench is stopped (SIGSTOP) and another goes on. Runs that each start pgbench
anew differ several times as much among themselves. What a pgbench did between its last line and its stop stands in the line that it
writes as soon as it goes on, and is counted with the slice before.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from pgherd.model.errors import TrialError

_LINE = re.compile(r"^progress: ([\d.]+) s, ([\d.]+) tps", re.MULTILINE)
_BEGIN = 2
"""Lines at the beginning that are not counted: connections and caches."""
_STOP = 1.1
"""Seconds that a stop lasts at least."""
_PATIENCE = 30.0


class Load:
    """A pgbench, stopped or at work, and its lines of progress."""

    def __init__(self, process: subprocess.Popen[str], progress: Path, cpu: Callable[[], float]) -> None:
        """``process`` was started with -P 1 --progress-timestamp and writes to the file ``progress``; ``cpu`` gives the CPU seconds that
        whatever serves it has used so far."""
        self.cpu, self.stopped = cpu, False
        self._process, self._log, self._rest = process, progress.open(), ""
        self._last: float | None = None
        self._lines: list[tuple[float, float]] = []

    def lines(self) -> list[tuple[float, float]]:
        """Of each line but the first: the seconds since the one before, and the transactions in them."""
        whole, _, self._rest = (self._rest + self._log.read()).rpartition("\n")
        for line in _LINE.finditer(whole):
            at, tps = float(line[1]), float(line[2])
            if self._last is not None:
                self._lines.append((at - self._last, (at - self._last) * tps))
            self._last = at
        return self._lines

    def wait(self, lines: int) -> None:
        """Until there are so many lines; raises TrialError where none comes, or pgbench has ended."""
        until = time.monotonic() + _PATIENCE + lines
        while len(self.lines()) < lines:
            if self._process.poll() is not None or time.monotonic() > until:
                said = Path(self._log.name).read_text()[-500:]
                raise TrialError(f"pgbench wrote {len(self.lines())} lines of progress, not {lines}: {said}")
            time.sleep(0.005)

    def stop(self) -> None:
        """Until it is to go on."""
        os.kill(self._process.pid, signal.SIGSTOP)
        self.stopped, self._since = True, time.monotonic()

    def go_on(self) -> None:
        """After a stop, which is made to last until a line is due: the next comes at once."""
        time.sleep(max(0.0, self._since + _STOP - time.monotonic()))
        os.kill(self._process.pid, signal.SIGCONT)
        self.stopped = False

    def end(self) -> None:
        """For good."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
            os.kill(self._process.pid, signal.SIGCONT)
        self._process.communicate(timeout=_PATIENCE)
        self._log.close()


@dataclass(frozen=True)
class _Cut:
    """A slice: its side and load, the first and the last (exclusive) of its lines, whether the load was stopped at its end, CPU seconds."""

    side: str
    load: Load
    first: int
    last: int
    stopped: bool
    cpu: float

    def figures(self) -> dict[str, float]:
        """``cpu``: the server's CPU seconds per transaction; ``tps``."""
        lines = self.load.lines()
        seconds, done = (sum(column) for column in zip(*lines[self.first : self.last], strict=True))
        rest = lines[self.last][1] if self.stopped else 0.0
        return {"cpu": self.cpu / (done + rest), "tps": done / seconds}


@contextlib.contextmanager
def loads(starts: Mapping[str, Callable[[], Load]]) -> Iterator[dict[str, Load]]:
    """The load of each side, all stopped but for a single one; sides with the same start share theirs. All end."""
    made: dict[Callable[[], Load], Load] = {}
    try:
        for start in dict.fromkeys(starts.values()):
            made[start] = load = start()
            load.wait(_BEGIN)
            if any(other is not start for other in starts.values()):
                load.stop()
        yield {side: made[start] for side, start in starts.items()}
    finally:
        for load in made.values():
            load.end()


def measured(
    plan: Sequence[str], by_side: Mapping[str, Load], lines: int, switch: Callable[[str], None] = lambda side: None
) -> list[tuple[str, dict[str, float]]]:
    """Play the sides of the ``plan`` one after another, each for so many lines (two or more: the first lasts what is left of a second);
    ``switch`` brings one about. Side and figures of each."""
    cuts = []
    for number, side in enumerate(plan):
        load = by_side[side]
        switch(side)
        if load.stopped:
            first = len(load.lines()) + 1  # the line that comes at once belongs to the slice before
            load.go_on()
        else:
            first = len(load.lines())
        cpu = load.cpu()
        load.wait(first + lines)
        used = load.cpu() - cpu
        stopped = number + 1 == len(plan) or by_side[plan[number + 1]] is not load
        if stopped:
            load.stop()
        cuts.append(_Cut(side, load, first, first + lines, stopped, used))
    all_loads = list(dict.fromkeys(by_side.values()))
    for load in all_loads:  # the lines that belong to the last slices; then all is as it was before
        known = len(load.lines())
        load.go_on()
        load.wait(known + 1)
        if len(all_loads) > 1:
            load.stop()
    return [(cut.side, cut.figures()) for cut in cuts]


class ServerCpu:
    """CPU seconds of a postmaster and all children that it has had since the first look, as the scheduler counts them (schedstat,
    nanoseconds); what a child used after the last look at it is missing."""

    def __init__(self, postmaster: int) -> None:
        self._postmaster, self._used = psutil.Process(postmaster), dict[int, float]()

    def __call__(self) -> float:
        for process in (self._postmaster, *self._postmaster.children()):
            with contextlib.suppress(OSError):
                self._used[process.pid] = int(Path(f"/proc/{process.pid}/schedstat").read_text().split()[0]) / 1e9
        return sum(self._used.values())


def pairs(found: Sequence[tuple[str, dict[str, float]]]) -> Iterator[dict[str, float]]:
    """Of each two slices one row: what ``measured`` says of either side, by 'SIDE NAME'."""
    for two in zip(found[::2], found[1::2], strict=True):
        yield {f"{side} {name}": value for side, run in two for name, value in run.items()}
