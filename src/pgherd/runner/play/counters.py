"""The processor's counters of each server, read by `perf stat` beside it while a trial runs.

perf is attached to the postmaster before the clients connect, and counts what it forks from then on: their backends. What
cannot be counted here is left out, and ``able`` says why.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pgherd.metrics import tlb
from pgherd.metrics.sampler import ServerView
from pgherd.metrics.spool import SpoolReading
from pgherd.model.trial import Trial
from pgherd.node.protocol import Command, Node, Process

_PERIOD_MS = 500
_END_SECONDS = 5.0


@dataclass(frozen=True)
class Able:
    """The events that can be counted on a node, or why there are none."""

    events: tuple[str, ...]
    why_not: str = ""


_ABLE: dict[str, Able] = {}
"""Node's name → what was found out: a processor does not change."""


def able(node: Node) -> Able:
    """Find out by counting, once: for each metric the first alternative of which every event gives a number."""
    if node.name not in _ABLE:
        _ABLE[node.name] = _find_out(node)
    return _ABLE[node.name]


def _find_out(node: Node) -> Able:
    found: list[str] = []
    said = ""
    for alternatives in tlb.EVENTS.values():
        for events in alternatives:
            refused = _refused(node, events)
            if refused is None:
                found += events
                break
            said = said or refused
    useful = tuple(event for event in found if event != "cycles")
    return Able(tuple(found)) if useful else Able((), said)


def _refused(node: Node, events: Sequence[str]) -> str | None:
    """Why these events cannot be counted here; None when they can."""
    try:
        done = node.run(Command(("perf", "stat", "-x;", "-e", ",".join(events), "--", "true")), timeout=10)
    except (OSError, TimeoutError):
        return "perf is not installed"
    if done.code == 127:
        return "perf is not installed"
    lines = [line.split(";") for line in done.err.splitlines() if ";" in line]
    values = {fields[2].split(":")[0]: fields[0] for fields in lines if len(fields) > 3}
    if done.code != 0:
        if "paranoid" in done.err or "permission" in done.err.lower():
            return "this user may not read the processor's counters (kernel.perf_event_paranoid)"
        return f"this processor, or this virtual machine, does not show the event {events[0]} to perf"
    missing = [event for event in events if not values.get(event, "<").replace(".", "").isdigit()]
    return f"this processor, or this virtual machine, does not count {missing[0]}" if missing else None


def begin(node: Node, trial: Trial, servers: Sequence[ServerView], directory: Path) -> Counting:
    """Count beside the trial's servers what the trial wants counted and can be; ``directory`` takes perf's output."""
    wanted = "tlb" in trial.counters and any(server.pid for server in servers)
    return Counting(node, [server for server in servers if server.pid], able(node).events if wanted else (), directory)


class Counting:
    """perf beside the servers of one trial."""

    def __init__(self, node: Node, servers: Sequence[ServerView], events: Sequence[str], directory: Path) -> None:
        """Attach to all of them; ``directory`` takes perf's output, ``perf-CONTAINER.SERVER.txt``."""
        self._node = node
        self._running: list[tuple[str, Path, float, Process]] = []
        for server in servers if events else ():
            output = directory / f"perf-{server.name.replace('/', '.')}.txt"
            argv = ("perf", "stat", "-x;", "-I", str(_PERIOD_MS), "-e", ",".join(events), "-o", str(output), "-p", str(server.pid))
            with contextlib.suppress(OSError):  # it is gone since it was asked: then nothing is counted
                self._running.append((f"server:{server.name}", output, node.now(), node.spawn(Command(argv))))

    def stop(self) -> list[SpoolReading]:
        """End all, and what they counted."""
        for _, _, _, process in self._running:
            process.signal(signal.SIGINT)
        found: list[SpoolReading] = []
        for entity, output, began, process in self._running:
            try:
                process.wait(_END_SECONDS)
            except TimeoutError:
                process.signal(signal.SIGKILL)
                process.wait(_END_SECONDS)
            with contextlib.suppress(OSError, ValueError):
                found += tlb.readings(output.read_text(errors="replace"), began, entity)
        self._running = []
        return found
