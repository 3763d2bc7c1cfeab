"""A running study on a terminal: the whole picture, which is drawn again and again, or lines on what has changed.

Everything is printed as text, never as markup: names may hold brackets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pgherd.model.units import format_bytes, format_seconds
from pgherd.report.formatting import MISSING, clean, compact, point_text
from pgherd.report.live_status import LiveStatus, LiveTrialResult, LiveTrialStatus, LiveUsage

_STEPS = "▁▂▃▄▅▆▇█"
_SPARK_SECONDS = 60
_BAR = 16
_RESULTS = 5
"""Trials that have ended are shown, the last so many."""
_FIXED = 13
"""Lines of the picture beside containers and devices."""
_LEAST_ROWS = 4


def picture(present: LiveStatus, height: int = 40) -> Group:
    """The picture of a run that is being executed, in about ``height`` lines."""
    rows = max(height - _FIXED - min(len(present.trials), _RESULTS), _LEAST_ROWS)
    parts: list[RenderableType] = [Text(heading(present), style="bold"), Text(progress(present))]
    if present.trial is not None:
        parts.append(_phase(present.trial))
    elif present.step:
        parts.append(Text(f"Setting up: {clean(present.step)}"))
    if present.trial is not None and present.step:
        parts.append(Text(f"Making ready: {clean(present.step)}"))
    if present.throughput is not None:
        parts.append(Text(_throughput(present)))
    if present.host is not None:
        each = [one.model_copy(update={"name": f"host {one.name}"}) for one in present.hosts]
        parts += [Text(), _uses([present.host, *each, *present.containers], rows)]
    if present.devices:
        parts += [Text(), _devices(present, max(rows - len(present.hosts) - len(present.containers), 2))]
    if present.trials:
        parts.append(Text())
        parts += [_result(one) for one in present.trials[-_RESULTS:]]
    return Group(*parts)


def heading(present: LiveStatus) -> str:
    """``density 20260131-…, running for 3 min 20 s``, or ``…, finished after …``."""
    when = "for" if present.state == "running" else "after"
    return f"{clean(present.study)} {clean(present.run)}, {present.state} {when} {format_seconds(present.elapsed)}"


def progress(present: LiveStatus) -> str:
    """``12 trials done, 4 to go, about 1 min 5 s left``."""
    done = f"{present.trials_done} trial{'' if present.trials_done == 1 else 's'} done"
    if not present.trials_left:
        return done
    left = "" if present.seconds_left is None else f", about {format_seconds(present.seconds_left)} left"
    return f"{done}, {present.trials_left} to go{left}; the study may ask for more"


def trial_text(trial: LiveTrialStatus) -> str:
    """``Trial 7: databases 8, repeat 1``, with why where it was not planned."""
    why = "" if trial.reason == "planned" else f" ({clean(trial.reason)})"
    return f"Trial {trial.number}: {point_text(trial.point)}, repeat {trial.repeat}{why}"


def phase_text(trial: LiveTrialStatus) -> str:
    """``phase 'steady', 1 of 1: measured 4 of 10 s, 8 × pgbench``."""
    if trial.phase is None or trial.seconds is None or trial.elapsed is None:
        return ""
    part = "ramp-up" if trial.part == "ramp" else "measured"
    most = "at most " if trial.part == "measured" and trial.until == "drivers" else ""
    drivers = ", ".join(f"{count} × {clean(driver)}" for driver, count in trial.drivers.items())
    return (
        f"phase '{clean(trial.name)}', {trial.phase} of {trial.phases}: {part} {trial.elapsed:.0f} of {most}{trial.seconds:g} s"
        f"{', ' if drivers else ''}{drivers}"
    )


def result_text(one: LiveTrialResult) -> str:
    """``0007  databases 8: 121.9k tps, all 9 verdicts pass``."""
    if one.error is not None:
        return f"{one.id}  {point_text(one.point)}: failed: {clean(one.error)}"
    told = f"took {format_seconds(one.seconds)}" if one.throughput is None else f"{compact(one.throughput)} {one.unit}"
    return f"{one.id}  {point_text(one.point)}: {told}, {_verdicts(one)}"


def changes(before: LiveStatus | None, now: LiveStatus) -> Iterator[str]:
    """What has happened between two looks, a line each; before the first, everything is new."""
    if before is None:
        yield heading(now)
        yield progress(now)
    if before is None:
        yield from map(result_text, now.trials[-_RESULTS:])
    else:
        known = {one.id for one in before.trials}
        yield from (result_text(one) for one in now.trials if one.id not in known)
    if now.step and (before is None or before.step != now.step):
        yield f"setting up: {clean(now.step)}"
    if now.trial is None:
        return
    last = before.trial if before is not None else None
    if last is None or last.number != now.trial.number:
        yield f"{trial_text(now.trial)}; {progress(now)}"
        last = None
    if now.trial.phase is not None and (last is None or (last.phase, last.part) != (now.trial.phase, now.trial.part)):
        yield phase_text(now.trial)


def measured_text(present: LiveStatus) -> str:
    """One line on what runs now: throughput, the host's CPU and memory; empty where nothing is seen."""
    if present.host is None:
        return ""
    parts = [_throughput(present, drawn=False)] if present.throughput is not None else []
    cpu, memory = _cpu(present.host), _memory(present.host)
    parts += [f"{present.host.name} CPU {cpu}"] if present.host.cpu is not None else []
    return "; ".join(part for part in [*parts, f"memory {memory}"] if part)


def spark(values: Sequence[float]) -> str:
    """``▁▂▅█``: values against the largest of them."""
    most = max(values, default=0.0)
    return "".join(_STEPS[min(int(len(_STEPS) * max(value, 0.0) / most), len(_STEPS) - 1)] if most > 0 else _STEPS[0] for value in values)


def _phase(trial: LiveTrialStatus) -> Table:
    line = Table.grid(padding=(0, 1))
    line.add_column()
    line.add_column()
    line.add_row(Text(trial_text(trial)))
    words = phase_text(trial)
    if words and trial.elapsed is not None and trial.seconds:
        bar = ProgressBar(total=trial.seconds, completed=trial.elapsed, width=_BAR)
        line.add_row(Text(words[0].upper() + words[1:]), bar)
    return line


def _throughput(present: LiveStatus, *, drawn: bool = True) -> str:
    told = present.throughput
    if told is None:
        return ""
    if told.value is None:
        return "Throughput: told at the trial's end only" if not told.told else "Throughput: not told yet"
    some = "" if told.told == told.targets else f" of {told.told} of {told.targets} drivers"
    line = spark([value for _, value in told.series[-_SPARK_SECONDS:]]) if drawn else ""
    return f"Throughput: {compact(told.value)} {told.unit}{some}{'  ' if line else ''}{line}"


def _uses(uses: Sequence[LiveUsage], rows: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for name in ("CPU, cores", "memory"):
        table.add_column(name, justify="right")
        table.add_column("")
    for use in uses[: rows + 1]:
        table.add_row(Text(clean(use.name)), Text(_cpu(use)), _bar(use.cpu, use.vcpus), Text(_memory(use)), _bar(use.memory, use.limit))
    if len(uses) > rows + 1:
        table.add_row(Text(f"… and {len(uses) - rows - 1} more"))
    return table


def _cpu(use: LiveUsage) -> str:
    if use.cpu is None:
        return MISSING
    return f"{use.cpu:.2f}" + ("" if use.vcpus is None else f" of {use.vcpus:g}")


def _memory(use: LiveUsage) -> str:
    if use.memory is None:
        return MISSING
    return format_bytes(use.memory) + ("" if use.limit is None else f" of {format_bytes(use.limit)}")


def _bar(value: float | None, most: float | None) -> RenderableType:
    if value is None or not most:
        return Text()
    return ProgressBar(total=most, completed=min(value, most), width=_BAR, finished_style="bar.complete")


def _devices(present: LiveStatus, rows: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("device")
    for name in ("reads/s", "writes/s", "read", "written"):
        table.add_column(name, justify="right")
    for one in sorted(present.devices, key=lambda one: -(one.reads + one.writes))[:rows]:
        amounts = [f"{one.reads:,.0f}", f"{one.writes:,.0f}", f"{format_bytes(one.read_bytes)}/s", f"{format_bytes(one.write_bytes)}/s"]
        table.add_row(Text(clean(one.name)), *amounts)
    return table


def _result(one: LiveTrialResult) -> Text:
    return Text(result_text(one), style="red" if one.error is not None or one.tainted else "")


def _verdicts(one: LiveTrialResult) -> str:
    failed = [f"{v.check} ({clean(v.observed)}, wanted {clean(v.wanted)})" for v in one.verdicts if v.taints]
    unknown = [v.check for v in one.verdicts if v.result == "unknown" and v.severity == "taint"]
    if failed:
        return f"tainted: {'; '.join(failed)}"
    if unknown:
        return f"{one.passed} verdicts pass; not seen: {', '.join(unknown)}"
    return f"all {one.passed} verdicts pass" if one.passed else "nothing to judge"
