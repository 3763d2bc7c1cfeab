"""Interleaved loads: all drivers are connected, and at any time all except those of one name are stopped.

On a shared host, the CPU time of one transaction varies by 10 % and more, within fractions of a second and within
minutes. Slices that are a fraction of a second apart meet the same conditions, and many such pairs fit into a minute.
So this gives much narrower intervals in the same time than loads that run one after the other for seconds.
"""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence

from pgherd.model.load import TimeSlicing
from pgherd.model.result import Slice
from pgherd.node.protocol import Node
from pgherd.runner.execute.driver_launch import RunningDriver

SETTLE = 0.003
"""Seconds at the end of a slice in which the servers finish running transactions before the next slice begins."""

_POLL_INTERVAL_S = 0.005


def order(turns: TimeSlicing, seconds: float) -> Iterator[str]:
    """Yield the name of each slice: as many complete rounds as fit into a period of ``seconds``, each in random order."""
    rng = random.Random(f"turns {turns.seed}")
    for _ in range(max(1, round(seconds / (turns.seconds * len(turns.of))))):
        names = list(turns.of)
        rng.shuffle(names)
        yield from names


def await_programs(node: Node, running: Sequence[RunningDriver], watch: Callable[[], None]) -> None:
    """Wait until each driver process executes its program. Before that, the new process only joins its cgroups and drops
    privileges.

    During that time it neither ends with this process, nor is in the cgroups where ``clean`` finds it. If it were
    stopped then and this process killed, it would never end. ``watch`` is called meanwhile, and raises if a driver
    ended.
    """
    for driver in running:
        while not _runs_program(node, driver):
            watch()
            time.sleep(_POLL_INTERVAL_S)


def _runs_program(node: Node, driver: RunningDriver) -> bool:
    with contextlib.suppress(OSError):  # ``watch`` reports that it has ended
        return node.read(f"/proc/{driver.process.pid}/cmdline").partition(b"\0")[0].decode(errors="replace") == driver.program
    return False


def stop(running: Sequence[RunningDriver]) -> None:
    """Stop drivers until their next slice."""
    for driver in running:
        driver.process.signal(signal.SIGSTOP)


def go_on(running: Sequence[RunningDriver]) -> None:
    """Continue stopped drivers. Others are not affected."""
    for driver in running:
        driver.process.signal(signal.SIGCONT)


def run(
    node: Node, turns: TimeSlicing, start: float, seconds: float, running: Sequence[RunningDriver], watch: Callable[[], None]
) -> dict[str, list[Slice]]:
    """Run all slices from the instant ``start`` on, with drivers that are stopped. Return each target's slices. The
    drivers end stopped.

    Each slice ends when planned, so a late wake-up does not add to the total. ``watch`` is called in each slice, and
    raises if a driver or a server ended.
    """
    slices: dict[str, list[Slice]] = {driver.target: [] for driver in running}
    drivers = {name: [driver for driver in running if driver.target in turns.targets(name, slices)] for name in turns.of}
    end = start
    for name in order(turns, seconds):
        end += turns.seconds
        switches, begun = _switches(node), node.now()
        go_on(drivers[name])
        watch()
        time.sleep(max(0.0, end - SETTLE - node.now()))
        stop(drivers[name])
        ended, after = node.now(), _switches(node)
        difference = None if switches is None or after is None else after - switches
        for driver in drivers[name]:
            slices[driver.target].append(Slice(begun=begun, ended=ended, switches=difference))
        time.sleep(max(0.0, end - node.now()))
    return slices


def _switches(node: Node) -> int | None:
    """Return the host's context switches since boot, or None if /proc lacks them."""
    try:
        text = node.read("/proc/stat")
    except OSError:
        return None
    _, label, remainder = text.partition(b"\nctxt ")
    return int(remainder.split(None, 1)[0]) if label else None
