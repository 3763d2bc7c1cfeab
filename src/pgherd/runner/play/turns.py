"""Loads that take turns: all drivers are up and connected, and at any time all but those of one name are stopped.

The CPU time of one and the same transaction wanders on a shared host by a tenth and more, within a fraction of a second as within
minutes. What stands a fraction of a second apart has seen the same hour of the host, and many such pairs fit into a minute: so much
more is known in the same time than by loads that run one after the other for seconds each.
"""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence

from pgherd.model.load import Turns
from pgherd.model.result import Turn
from pgherd.node.protocol import Node
from pgherd.runner.play.launching import Running

SETTLE = 0.003
"""Seconds at a turn's end in which the servers finish what is under way, before the next one begins."""

_LOOK_SECONDS = 0.005


def order(turns: Turns, seconds: float) -> Iterator[str]:
    """Whose turn it is, one after the other: as many whole rounds as a period of so many seconds has, each in an order of its own."""
    rng = random.Random(f"turns {turns.seed}")
    for _ in range(max(1, round(seconds / (turns.seconds * len(turns.of))))):
        names = list(turns.of)
        rng.shuffle(names)
        yield from names


def await_programs(node: Node, running: Sequence[Running], watch: Callable[[], None]) -> None:
    """Wait until each driver is its program: before, what was started only joins its groups and gives up its account.

    Until then it does not end with us, nor is it in the groups in which ``clean`` finds it: if it were stopped there and we were
    killed, nobody would end it. ``watch`` is called meanwhile, and raises where a driver ended.
    """
    for one in running:
        while not _became(node, one):
            watch()
            time.sleep(_LOOK_SECONDS)


def _became(node: Node, one: Running) -> bool:
    with contextlib.suppress(OSError):  # that it has ended is told by who watches
        return node.read(f"/proc/{one.process.pid}/cmdline").partition(b"\0")[0].decode(errors="replace") == one.program
    return False


def stop(running: Sequence[Running]) -> None:
    """Have drivers wait until it is their turn."""
    for one in running:
        one.process.signal(signal.SIGSTOP)


def go_on(running: Sequence[Running]) -> None:
    """After a stop; what was not stopped is not disturbed."""
    for one in running:
        one.process.signal(signal.SIGCONT)


def play(
    node: Node, turns: Turns, start: float, seconds: float, running: Sequence[Running], watch: Callable[[], None]
) -> dict[str, list[Turn]]:
    """All turns from the instant ``start`` on, of drivers that are stopped; returns each target's. They are stopped again at its end.

    Each turn ends when the plan says, so that what a turn loses by waking up late is not added to the whole. ``watch`` is called in
    each, and raises where something is amiss.
    """
    found: dict[str, list[Turn]] = {one.target: [] for one in running}
    of = {name: [one for one in running if one.target in turns.targets(name, found)] for name in turns.of}
    end = start
    for name in order(turns, seconds):
        end += turns.seconds
        switches, begun = _switches(node), node.now()
        go_on(of[name])
        watch()
        time.sleep(max(0.0, end - SETTLE - node.now()))
        stop(of[name])
        ended, after = node.now(), _switches(node)
        told = None if switches is None or after is None else after - switches
        for one in of[name]:
            found[one.target].append(Turn(begun=begun, ended=ended, switches=told))
        time.sleep(max(0.0, end - node.now()))
    return found


def _switches(node: Node) -> int | None:
    """The host's context switches so far; None where /proc does not tell them."""
    try:
        text = node.read("/proc/stat")
    except OSError:
        return None
    _, found, rest = text.partition(b"\nctxt ")
    return int(rest.split(None, 1)[0]) if found else None
