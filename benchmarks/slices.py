"""Two sides compared by quick turns of loads that go on: CPU seconds of a server and its transactions, with no start in between.

The CPU time of one and the same transaction wanders on a shared machine by a tenth and more, within a fiftieth of a second as within
minutes: two turns of 0.1 s differ about as much as two runs of two seconds, but twenty times as many of them fit into a minute. So
turns are short. Between them a setting is switched under one pgbench, or one pgbench is stopped (SIGSTOP) and another goes on.
Transactions are those whose end pgbench's log puts into the turn; what was under way when it was stopped ends as soon as it goes on,
and is counted with that turn.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paired

from pgherd.model.errors import TrialError

SAMPLING = 0.2
"""Share of the transactions that pgbench logs."""
BEGIN = 1.0
"""Seconds after its start before a pgbench is counted, or stopped: connections and caches."""
_SETTLE = 0.003
"""Seconds after a stop in which the server ends what was under way."""
_PATIENCE = 30.0


class Load:
    """A pgbench, stopped or at work."""

    def __init__(self, process: subprocess.Popen[str], logs: Path, cpu: Callable[[], float]) -> None:
        """``process`` was started with -l, --sampling-rate=SAMPLING and a prefix below ``logs``; ``cpu`` gives the CPU seconds that
        whatever serves it has used so far."""
        self.cpu, self._process, self._logs = cpu, process, logs

    def stop(self) -> None:
        """Until it is to go on; returns when the server has ended what was under way."""
        os.kill(self._process.pid, signal.SIGSTOP)
        time.sleep(_SETTLE)

    def go_on(self) -> None:
        """After a stop."""
        os.kill(self._process.pid, signal.SIGCONT)

    def require_running(self) -> None:
        """Raises TrialError where it has ended."""
        if self._process.poll() is not None:
            said = self._process.communicate()[1] or f"exit code {self._process.returncode}"
            raise TrialError(f"pgbench has ended before its time: {said[-500:]}")

    def end(self) -> None:
        """As if its time were over: only then its log is whole."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGALRM)
            self.go_on()
        self._process.communicate(timeout=_PATIENCE)

    def ends(self) -> Any:
        """The ends of all logged transactions, seconds since 1970, in order."""
        import numpy

        rows = [numpy.fromfile(file, sep=" ").reshape(-1, 6) for file in self._logs.glob("log*")]
        return numpy.sort(numpy.concatenate([row[:, 4] + row[:, 5] / 1e6 for row in rows]))


@dataclass(frozen=True)
class _Turn:
    """When it began and ended (seconds since 1970), and the CPU seconds in between."""

    begun: float
    ended: float
    cpu: float


def measured(
    starts: Mapping[str, Callable[[], Load]],
    rounds: int,
    *,
    turns: int,
    seconds: float,
    rng: random.Random,
    switch: Callable[[str], None] = lambda side: None,
) -> list[dict[str, float]]:
    """Play so many rounds of ``turns`` turns of each side, of so many ``seconds``, and one round before them that is not counted.

    Sides with the same start share a load, and ``switch`` brings a side about under it. Of each round: 'SIDE cpu', the server's CPU
    seconds per transaction, and 'SIDE tps'.
    """
    played: list[dict[str, list[_Turn]]] = []
    with _loads(starts) as loads:
        several = len({*loads.values()}) > 1
        for _ in range(rounds + 1):
            played.append({side: [] for side in starts})
            for order in paired.orders(turns, tuple(starts), rng):
                for side in order:
                    switch(side)
                    played[-1][side].append(_turn(loads[side], seconds, several))
            for load in loads.values():
                load.require_running()
    ends = {load: load.ends() for load in dict.fromkeys(loads.values())}
    return [
        {f"{side} {name}": value for side, turns in one.items() for name, value in _figures(turns, ends[loads[side]]).items()}
        for one in played[1:]
    ]


def longest(rounds: int, turns: int, seconds: float) -> float:
    """Seconds for which a pgbench must be able to run that is played by ``measured``: ample, as it is ended before."""
    return 60 + 3 * seconds * 2 * turns * (rounds + 1)


@contextlib.contextmanager
def _loads(starts: Mapping[str, Callable[[], Load]]) -> Iterator[dict[str, Load]]:
    """The load of each side, all stopped but for a single one. All end."""
    made: dict[Callable[[], Load], Load] = {}
    try:
        for start in dict.fromkeys(starts.values()):
            made[start] = load = start()
            time.sleep(BEGIN)
            load.require_running()
            if any(other is not start for other in starts.values()):
                load.stop()
        yield {side: made[start] for side, start in starts.items()}
    finally:
        for load in made.values():
            load.end()


def _turn(load: Load, seconds: float, several: bool) -> _Turn:
    cpu, begun = load.cpu(), time.time()
    if several:
        load.go_on()
    time.sleep(seconds)
    if several:
        load.stop()
    return _Turn(begun, time.time(), load.cpu() - cpu)


def _figures(turns: Sequence[_Turn], ends: Any) -> dict[str, float]:
    borders = ends.searchsorted([at for turn in turns for at in (turn.begun, turn.ended)])
    done = float((borders[1::2] - borders[::2]).sum()) / SAMPLING
    if not done:
        raise TrialError("pgbench logged no transaction within a round; make its turns longer")
    return {"cpu": sum(turn.cpu for turn in turns) / done, "tps": done / sum(turn.ended - turn.begun for turn in turns)}


class ServerCpu:
    """CPU seconds of a postmaster and all children that it has had since the first look, as the scheduler counts them (schedstat,
    nanoseconds); what a child used after the last look at it is missing."""

    def __init__(self, postmaster: int) -> None:
        self._postmaster, self._used = postmaster, dict[int, float]()

    def __call__(self) -> float:
        children = Path(f"/proc/{self._postmaster}/task/{self._postmaster}/children").read_text().split()
        for pid in (self._postmaster, *map(int, children)):
            with contextlib.suppress(OSError):
                self._used[pid] = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
        return sum(self._used.values())
