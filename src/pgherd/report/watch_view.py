"""A running run on a terminal: a view that is redrawn, or lines for changes.

Everything is printed as text, never as markup, because names may contain brackets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pgherd.model.text import clean
from pgherd.model.units import format_bytes, format_rate, format_seconds
from pgherd.report.formatting import MISSING, compact, point_text
from pgherd.report.live_status import LiveStatus, LiveTrialResult, LiveTrialStatus, LiveUsage

_STEPS = "▁▂▃▄▅▆▇█"
_SPARK_SECONDS = 60
_BAR = 16
_RESULTS = 5
"""Maximum number of finished trials that are shown, the latest."""
_FIXED = 13
"""Lines of the view without containers and devices."""
_MIN_ROWS = 4


def picture(status: LiveStatus, height: int = 40) -> Group:
    """Return the view of a running run in about ``height`` lines."""
    rows = max(height - _FIXED - min(len(status.trials), _RESULTS), _MIN_ROWS)
    parts: list[RenderableType] = [Text(heading(status), style="bold"), Text(progress(status))]
    if status.trial is not None:
        parts.append(_phase(status.trial))
    elif status.setup_step:
        parts.append(Text(f"Setting up: {clean(status.setup_step)}"))
    if status.trial is not None and status.setup_step:
        parts.append(Text(f"Preparing: {clean(status.setup_step)}"))
    if status.throughput is not None:
        parts.append(Text(_throughput(status)))
    if status.host is not None:
        hosts = [host.model_copy(update={"name": f"host {host.name}"}) for host in status.hosts]
        parts += [Text(), _usage_table([status.host, *hosts, *status.containers], rows)]
    if status.devices:
        parts += [Text(), _devices(status, max(rows - len(status.hosts) - len(status.containers), 2))]
    if status.trials:
        parts.append(Text())
        parts += [_result(trial) for trial in status.trials[-_RESULTS:]]
    return Group(*parts)


def heading(status: LiveStatus) -> str:
    """Return ``density 20260131-…, running for 3 min 20 s``, or ``…, finished after …``."""
    when = "for" if status.state == "running" else "after"
    return f"{clean(status.study)} {clean(status.run)}, {status.state} {when} {format_seconds(status.elapsed)}"


def progress(status: LiveStatus) -> str:
    """Return ``12 done, 4 left, about 1 min 5 s left``."""
    finished = f"{status.trials_done} trial{'' if status.trials_done == 1 else 's'} done"
    if not status.trials_remaining:
        return finished
    duration = "" if status.seconds_remaining is None else f", about {format_seconds(status.seconds_remaining)}"
    return f"{finished}, {status.trials_remaining} left{duration} (more may be added)"


def trial_text(trial: LiveTrialStatus) -> str:
    """Return ``Trial 7: databases 8, repeat 1``, with the reason of an unplanned trial."""
    reason = "" if trial.reason == "planned" else f" ({clean(trial.reason)})"
    return f"Trial {trial.number}: {point_text(trial.point)}, repeat {trial.repeat}{reason}"


def phase_text(trial: LiveTrialStatus) -> str:
    """Return ``phase 'steady', 1 of 1: measured 4 of 10 s, 8 × pgbench``."""
    if trial.phase is None or trial.seconds is None or trial.elapsed is None:
        return ""
    part = "warm-up" if trial.phase_part == "warmup" else "measured"
    at_most = "at most " if trial.phase_part == "measured" and trial.ends_with == "drivers" else ""
    drivers = ", ".join(f"{count} × {clean(driver)}" for driver, count in trial.drivers.items())
    return (
        f"phase '{clean(trial.name)}', {trial.phase} of {trial.phases}: {part} {trial.elapsed:.0f} of {at_most}{trial.seconds:g} s"
        f"{', ' if drivers else ''}{drivers}"
    )


def result_text(trial: LiveTrialResult) -> str:
    """Return ``0007  databases 8: 121.9k tps, all 9 checks pass``."""
    if trial.error is not None:
        return f"{trial.id}  {point_text(trial.point)}: failed: {clean(trial.error)}"
    result = f"took {format_seconds(trial.seconds)}" if trial.throughput is None else f"{compact(trial.throughput)} {trial.unit}"
    return f"{trial.id}  {point_text(trial.point)}: {', '.join(filter(None, (result, trial.judgement, _checks(trial))))}"


def changes(before: LiveStatus | None, now: LiveStatus) -> Iterator[str]:
    """Yield a line for each change between two statuses. Without a previous one, everything is new."""
    if before is None:
        yield heading(now)
        yield progress(now)
    if before is None:
        yield from map(result_text, now.trials[-_RESULTS:])
    else:
        names = {trial.id for trial in before.trials}
        yield from (result_text(trial) for trial in now.trials if trial.id not in names)
    if now.setup_step and (before is None or before.setup_step != now.setup_step):
        yield f"setting up: {clean(now.setup_step)}"
    if now.trial is None:
        return
    last = before.trial if before is not None else None
    if last is None or last.number != now.trial.number:
        yield f"{trial_text(now.trial)}; {progress(now)}"
        last = None
    if now.trial.phase is not None and (last is None or (last.phase, last.phase_part) != (now.trial.phase, now.trial.phase_part)):
        yield phase_text(now.trial)


def measured_text(status: LiveStatus) -> str:
    """Return one line with throughput, and CPU and memory of the host, or '' without readings."""
    if status.host is None:
        return ""
    parts = [_throughput(status, sparkline=False)] if status.throughput is not None else []
    cpu, memory = _cpu(status.host), _memory(status.host)
    parts += [f"{status.host.name} CPU {cpu}"] if status.host.cpu is not None else []
    return "; ".join(part for part in [*parts, f"memory {memory}"] if part)


def spark(values: Sequence[float]) -> str:
    """Return ``▁▂▅█``: values relative to the largest."""
    largest = max(values, default=0.0)
    return "".join(
        _STEPS[min(int(len(_STEPS) * max(value, 0.0) / largest), len(_STEPS) - 1)] if largest > 0 else _STEPS[0] for value in values
    )


def _phase(trial: LiveTrialStatus) -> Table:
    line = Table.grid(padding=(0, 1))
    line.add_column()
    line.add_column()
    line.add_row(Text(trial_text(trial)))
    text = phase_text(trial)
    if text and trial.elapsed is not None and trial.seconds:
        bar = ProgressBar(total=trial.seconds, completed=trial.elapsed, width=_BAR)
        line.add_row(Text(text[0].upper() + text[1:]), bar)
    return line


def _throughput(status: LiveStatus, *, sparkline: bool = True) -> str:
    throughput = status.throughput
    if throughput is None:
        return ""
    if throughput.value is None:
        return "Throughput: known at the end of the trial" if not throughput.reporting else "Throughput: not reported yet"
    reporting = "" if throughput.reporting == throughput.targets else f" of {throughput.reporting} of {throughput.targets} drivers"
    line = spark([value for _, value in throughput.series[-_SPARK_SECONDS:]]) if sparkline else ""
    return f"Throughput: {compact(throughput.value)} {throughput.unit}{reporting}{'  ' if line else ''}{line}"


def _usage_table(usages: Sequence[LiveUsage], rows: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for name in ("CPU, cores", "memory"):
        table.add_column(name, justify="right")
        table.add_column("")
    for usage in usages[: rows + 1]:
        bars = _bar(usage.cpu, usage.vcpus), _bar(usage.memory, usage.limit)
        table.add_row(Text(clean(usage.name)), Text(_cpu(usage)), bars[0], Text(_memory(usage)), bars[1])
    if len(usages) > rows + 1:
        table.add_row(Text(f"… and {len(usages) - rows - 1} more"))
    return table


def _cpu(usage: LiveUsage) -> str:
    if usage.cpu is None:
        return MISSING
    return f"{usage.cpu:.2f}" + ("" if usage.vcpus is None else f" of {usage.vcpus:g}")


def _memory(usage: LiveUsage) -> str:
    if usage.memory is None:
        return MISSING
    return format_bytes(usage.memory) + ("" if usage.limit is None else f" of {format_bytes(usage.limit)}")


def _bar(value: float | None, limit: float | None) -> RenderableType:
    if value is None or not limit:
        return Text()
    return ProgressBar(total=limit, completed=min(value, limit), width=_BAR, finished_style="bar.complete")


def _devices(status: LiveStatus, rows: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("device")
    for name in ("reads/s", "writes/s", "read", "written"):
        table.add_column(name, justify="right")
    for device in sorted(status.devices, key=lambda device: -(device.reads + device.writes))[:rows]:
        requests = [f"{device.reads:,.0f}", f"{device.writes:,.0f}"]
        sizes = [format_rate(device.read_bytes), format_rate(device.write_bytes)]
        table.add_row(Text(clean(device.name)), *requests, *sizes)
    return table


def _result(trial: LiveTrialResult) -> Text:
    return Text(result_text(trial), style="red" if trial.error is not None or trial.tainted else "")


def _checks(trial: LiveTrialResult) -> str:
    failed = [f"{v.name} ({clean(v.observed)}, expected {clean(v.expected)})" for v in trial.checks if v.taints]
    unknown = [v.name for v in trial.checks if v.result == "unknown" and v.severity == "taint"]
    if failed:
        return f"tainted: {'; '.join(failed)}"
    if unknown:
        return f"{trial.passed} checks pass; unknown: {', '.join(unknown)}"
    return f"all {trial.passed} checks pass" if trial.passed else "no checks"
