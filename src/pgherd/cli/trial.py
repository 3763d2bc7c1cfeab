"""One trial for a reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pgherd.model.result import MIXED, Counted, PhaseResult, TargetResult, TrialResult, counted_by
from pgherd.model.trial import Trial
from pgherd.model.units import format_bytes
from pgherd.study.emulation import EMULATION_REASON, is_emulated

_MARKS = {"pass": "pass", "fail": "FAIL", "unknown": "unknown"}


def point_words(trial: Trial) -> str:
    """``1 database``, ``8 databases``; what is not counted: ``scale 10``; a variant by its name alone."""
    return ", ".join(_coordinate(name, value) for name, value in trial.point.items())


def _coordinate(name: str, value: int | float | str) -> str:
    if name == "variant":
        return str(value)
    return f"{value} {name.removesuffix('s') if value == 1 else name}" if name.endswith("s") else f"{name} {value}"


def show_trial(console: Console, result: TrialResult, path: Path, run: str) -> None:
    """Targets, verdicts, and where the raw files are."""
    trial = result.trial
    console.print(
        f"Trial {result.id} of {run}: {point_words(trial)}, repeat {trial.repeat} ({trial.reason}); servers {trial.state}", markup=False
    )
    if result.transition:
        console.print(f"Servers: {result.transition}.", markup=False)
    if result.error:
        console.print(f"It could not be finished: {result.error}", markup=False)
    if result.probe:
        console.print(f"Probe '{trial.probe}': {readings(result.probe)}.", markup=False)
    if len(result.phases) > MOST_PHASES and not is_emulated(result.phases):
        _briefly(console, result.phases)
    else:
        for phase in result.phases:
            _phase(console, phase)
    if result.verdicts:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("verdict", "result", "observed", "wanted"):
            table.add_column(name, overflow="fold")
        for verdict in result.verdicts:
            mark = _MARKS[verdict.result] + (" (said only)" if verdict.severity == "warn" and verdict.result == "fail" else "")
            table.add_row(verdict.check, mark, verdict.observed + (f": {verdict.why}" if verdict.why else ""), verdict.wanted)
        console.print(table)
    console.print(f"Raw files: {path}", markup=False)
    if not result.error:
        console.print(f"Repeat it without pgherd: pgherd show {run} {int(result.id)} --commands > repeat.sh; sh repeat.sh", markup=False)


MOST_READINGS = 12
"""More of them are counted, not shown: they are in trial.json."""


def readings(probe: Mapping[str, float]) -> str:
    """A probe's readings: ``database 157 MB, tables 135 MB``."""
    if len(probe) > MOST_READINGS:
        return f"{len(probe)} readings"
    parts = []
    for name, value in probe.items():
        what, _, unit = name.rpartition("_")
        parts.append(f"{what.replace('_', ' ')} {format_bytes(value)}" if unit == "bytes" else f"{name.replace('_', ' ')} {value:,.6g}")
    return ", ".join(parts)


MOST_PHASES = 9
"""Of more of them (a soak's windows) each is one line: their targets are in trial.json."""


def _briefly(console: Console, phases: Sequence[PhaseResult]) -> None:
    """One table of all phases."""
    what = _counted(phases)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("phase")
    for name in ("seconds", "overlap", f"{what.unit} in all", "failed"):
        table.add_column(name, justify="right")
    for phase in phases:
        failed = sum(target.failed for target in phase.targets)
        table.add_row(phase.phase, f"{phase.seconds:.2f}", f"{phase.overlap:.1%}", f"{phase.throughput:,.0f}", str(failed))
    console.print(table)


def _counted(phases: Sequence[PhaseResult]) -> Counted:
    found = {counted_by(target.driver) for phase in phases for target in phase.targets}
    return found.pop() if len(found) == 1 else MIXED


def _phase(console: Console, phase: PhaseResult) -> None:
    what = _counted([phase])
    ran = f"Phase '{phase.phase}': {phase.seconds:.2f} s in which all drivers ran ({phase.overlap:.1%} of the period)"
    if is_emulated([phase]):
        console.print(f"{ran}; {EMULATION_REASON}.", markup=False)
        return
    if what == counted_by("command"):
        console.print(f"{ran}.", markup=False)
        for target in phase.targets:
            told = ", ".join(f"{name.removeprefix('value:').replace('_', ' ')} {value:.6g}" for name, value in target.values.items())
            used = f"CPU {target.client_cpu_seconds:.3g} s" if target.client_cpu_seconds is not None else "CPU not seen"
            console.print(f"  {target.target}: {told}{', ' if told else ''}{used}", markup=False)
        return
    console.print(f"{ran}, {phase.throughput:,.0f} {what.many}/s in all.", markup=False)
    if any(target.turns for target in phase.targets):
        count, share = max((len(target.turns), phase.loaded(target)) for target in phase.targets)
        took = f"Loads took turns, {count} each at most, {share:.0%} of the period"
        console.print(f"{took}: {what.unit} is per second of a load's own turns, client cores are over the period.", markup=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("target")
    for name in (what.unit, "mean ms", "p50 ms", "p95 ms", "p99 ms", "sampled", "client cores", "failed"):
        table.add_column(name, justify="right")
    for target in phase.targets:
        table.add_row(*_target(target))
    console.print(table)


def _target(target: TargetResult) -> list[str]:
    latency = target.latency
    times = [f"{value:.3g}" if value is not None else "–" for value in (latency.mean, latency.p50, latency.p95, latency.p99)]
    client = f"{target.client_cpu:.3f}" if target.client_cpu is not None else "–"
    return [target.target, f"{target.throughput:,.0f}", *times, str(latency.sampled), client, str(target.failed)]
