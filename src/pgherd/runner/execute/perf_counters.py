"""Hardware counters of each server, read by `perf stat` during a trial.

perf attaches to the postmaster before the clients connect, and counts every process that it forks afterwards: the
backends. Events that this machine cannot count are left out; ``able`` reports the reason.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pgherd.metrics import processes
from pgherd.metrics.sampler import ServerView
from pgherd.metrics.spool import SpoolReading
from pgherd.model.trial import Trial
from pgherd.node.protocol import Command, Node, Process

_PERIOD_MS = 500
_STOP_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class PerfEvents:
    """Events that can be counted on a node, or the reason why there are none."""

    events: tuple[str, ...]
    why_not: str = ""


_ABLE: dict[str, PerfEvents] = {}
"""Node's name → countable events. They do not change, so they are probed once."""


def able(node: Node) -> PerfEvents:
    """Return the countable events. They are found by counting: for each metric, the first alternative of which every
    event has a value.
    """
    if node.name not in _ABLE:
        _ABLE[node.name] = _probe_events(node)
    return _ABLE[node.name]


def _probe_events(node: Node) -> PerfEvents:
    countable: list[str] = []
    first_refusal = ""
    for alternatives in processes.TLB_EVENTS.values():
        for events in alternatives:
            refused = _refusal(node, events)
            if refused is None:
                countable += events
                break
            first_refusal = first_refusal or refused
    useful = tuple(event for event in countable if event != "cycles")
    return PerfEvents(tuple(countable)) if useful else PerfEvents((), first_refusal)


def _refusal(node: Node, events: Sequence[str]) -> str | None:
    """Return the reason why these events cannot be counted here, or None."""
    try:
        result = node.run(Command(("perf", "stat", "-x;", "-e", ",".join(events), "--", "true")), timeout=10)
    except (OSError, TimeoutError):
        return "perf is not installed"
    if result.code == 127 or "not found for kernel" in result.err:  # Ubuntu's wrapper ends with 2
        return "perf is not installed"
    lines = [line.split(";") for line in result.err.splitlines() if ";" in line]
    counted = {processes.event_of(fields[2]) for fields in lines if len(fields) > 3 and fields[0].replace(".", "").isdigit()}
    if result.code != 0:
        if "paranoid" in result.err or "permission" in result.err.lower():
            return "this user may not read the processor's counters (kernel.perf_event_paranoid)"
        return f"this processor or virtual machine does not support the perf event {events[0]}"
    missing = [event for event in events if event not in counted]
    return f"this processor or virtual machine does not count {missing[0]}" if missing else None


def begin(node: Node, trial: Trial, servers: Sequence[ServerView], directory: Path) -> PerfRecorder:
    """Count the events that the trial requests and the node supports. perf writes to ``directory``."""
    requested = "tlb" in trial.counters and any(server.pid for server in servers)
    return PerfRecorder(node, [server for server in servers if server.pid], able(node).events if requested else (), directory)


class PerfRecorder:
    """perf processes for the servers of one trial."""

    def __init__(self, node: Node, servers: Sequence[ServerView], events: Sequence[str], directory: Path) -> None:
        """Attach perf to all servers. Its output goes to ``perf-CONTAINER.SERVER.txt`` in ``directory``."""
        self._node = node
        self._running: list[tuple[str, Path, float, Process]] = []
        for server in servers if events else ():
            output = directory / f"perf-{server.name.replace('/', '.')}.txt"
            argv = ("perf", "stat", "-x;", "-I", str(_PERIOD_MS), "-e", ",".join(events), "-o", str(output), "-p", str(server.pid))
            with contextlib.suppress(OSError):  # perf was removed after the probe: nothing is counted
                self._running.append((f"server:{server.name}", output, node.now(), node.spawn(Command(argv))))

    def stop(self) -> list[SpoolReading]:
        """Stop perf and return the readings."""
        for _, _, _, process in self._running:
            process.signal(signal.SIGINT)
        counted: list[SpoolReading] = []
        for entity, output, began, process in self._running:
            try:
                process.wait(_STOP_TIMEOUT_S)
            except TimeoutError:
                process.signal(signal.SIGKILL)
                process.wait(_STOP_TIMEOUT_S)
            with contextlib.suppress(OSError, ValueError):
                counted += processes.tlb_readings(output.read_text(errors="replace"), began, entity)
        self._running = []
        return counted
