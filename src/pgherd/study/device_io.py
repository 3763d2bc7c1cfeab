"""What a study's trials say of the devices below its servers and loaded volumes: one row per point and device, for every study. Pure.

Each number is the mean over trials of the trial's own number, with Student's interval.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pgherd.analysis import histogram, io_pattern
from pgherd.analysis.intervals import mean_interval
from pgherd.analysis.io_pattern import ENOUGH
from pgherd.model.finding import Analysis, Finding
from pgherd.model.io_view import DeviceSeries, DeviceView, Direction, IoView, Pattern
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.study.findings import as_finding, missing

MEMORY_FILESYSTEMS = ("tmpfs", "ramfs")
"""File systems whose files are in memory."""

Row = dict[str, Finding | str | int | float | None]
TABLE = "io"
KB, MB = 1024, 2**20
MIN_REQUEST_RATE = 1.0
"""Requests per second below which a device is said to have been next to idle."""

MIN_TRACE_COVERAGE = 0.97
"""Share of the counted requests below which a trace is said to be incomplete."""

UNITS: Mapping[str, str] = {
    "reads": "requests/s",
    "writes": "requests/s",
    "flushes": "requests/s",
    "read_rate": "MB/s",
    "write_rate": "MB/s",
    "read_size": "kB",
    "write_size": "kB",
    "queue": "requests",
    "read_await": "ms",
    "write_await": "ms",
    "flush_await": "ms",
    "peak_to_mean": "",
    "variation": "",
    "bursts": "bursts/min",
    "burst_write_await": "ms",
    "burst_ratio": "",
    "reads_per_tx": "reads/tx",
    "sequential": "%",
    "adjacent": "%",
    "read_p99": "ms",
    "write_p50": "ms",
    "write_p99": "ms",
    "gap_p50": "ms",
}
"""Column → unit; MB and kB are 2^20 and 2^10 bytes."""
_COUNTERS = "/proc/diskstats"
_HYPERVISORS = "guest-drive:"
"""How the number of a guest's drive as its hypervisor sees it begins."""
METHODS: Mapping[str, str] = {
    "writes": "/proc/diskstats, flushes taken out",
    "queue": "/proc/diskstats: mean requests in flight",
    "read_await": "/proc/diskstats: from issue to completion",
    "write_await": "/proc/diskstats: from issue to completion, flushes taken out",
    "flush_await": "/proc/diskstats: from issue to completion",
    "peak_to_mean": "bytes written by interval of about a second: highest ÷ mean",
    "variation": "bytes written by interval of about a second: standard deviation ÷ mean",
    "bursts": f"runs of intervals with more than {io_pattern.BURST:g} × the mean of bytes written",
    "burst_write_await": "/proc/diskstats, in bursts only",
    "burst_ratio": "mean rate of the bursts of writes over the mean rate of the same servers' WAL on another device",
    "reads_per_tx": "/proc/diskstats; reads of the device over transactions of all databases whose servers have files on it",
    "sequential": f"traced reads and writes; window rule: {io_pattern.RULE}",
    "adjacent": "traced reads and writes that start exactly where the one before, of either kind, ended",
    "read_p99": "traced, from issue to completion",
    "write_p50": "traced, from issue to completion",
    "write_p99": "traced, from issue to completion",
    "gap_p50": "traced reads and writes, from the issue of one to that of the next",
}


def with_device_io(analysis: Analysis, results: Sequence[TrialResult]) -> Analysis:
    """The analysis with the tables ``io`` and, of traced requests, ``io_sizes``; findings of each device where there is one point only;
    and what could not be seen.

    Trials without a view (external servers, probes) add nothing; an analysis that has the table already is left as it is.
    """
    seen = [result for result in results if result.error is None and any(phase.io is not None for phase in result.phases)]
    if not seen or TABLE in analysis.tables:
        return analysis
    rows, sizes = io_rows(seen)
    warnings = [*analysis.warnings, *_warnings(seen)]
    if not rows:
        return analysis.model_copy(update={"warnings": warnings})
    points = dict.fromkeys(str(row["point"]) for row in rows)
    findings: dict[str, Finding] = {}
    if len(points) == 1:
        for row in rows:
            findings |= {
                f"io_{name}:{row['device']}": cell for name, cell in row.items() if isinstance(cell, Finding) and cell.value is not None
            }
    return analysis.model_copy(
        update={
            "tables": {**analysis.tables, TABLE: rows, **({SIZES_TABLE: sizes} if sizes else {})},
            "findings": {**analysis.findings, **findings},
            "warnings": warnings,
        }
    )


def io_rows(results: Sequence[TrialResult]) -> tuple[list[Row], list[Row]]:
    """One row per point and device, and those of the sizes of traced requests: clean trials where a point has any, else all of it."""
    rows: list[Row] = []
    sizes: list[Row] = []
    points: dict[str, list[TrialResult]] = {}
    for result in results:
        points.setdefault(point_name(result), []).append(result)
    for point, trials in points.items():
        used = [trial for trial in trials if not trial.tainted] or trials
        devices: dict[str, DeviceView] = {}
        for trial in used:
            for view in device_views(trial):
                devices.setdefault(view.number, view)
        roles = {number: role_text(device, devices) for number, device in devices.items()}
        sizes += size_rows(point, used, devices, roles)
        for number, device in devices.items():
            cells = [_trial_numbers(trial, number) for trial in used]
            row: Row = {"point": point, "device": device.name, "number": number, "roles": roles[number]}
            row["label"] = _label(used, number)
            for name, unit in UNITS.items():
                method = METHODS.get(name, _COUNTERS)
                if number.startswith(_HYPERVISORS):
                    method = method.replace(_COUNTERS, "QEMU's query-blockstats")
                row[name] = _mean([cell.get(name) for cell in cells], unit, method)
            rows.append(row)
    return [{name: cell for name, cell in row.items() if _known(name, rows)} for row in rows], sizes


def _known(name: str, rows: Sequence[Row]) -> bool:
    """Whether a column says anything."""
    cells = [row[name] for row in rows]
    return any(cell.value is not None if isinstance(cell, Finding) else cell not in (None, "") for cell in cells)


def point_name(result: TrialResult) -> str:
    """A trial's point in words; what stands alone without its name."""
    point = result.trial.point
    return ", ".join(f"{name} {value}" for name, value in point.items())


def device_views(result: TrialResult) -> list[DeviceView]:
    """The devices of all the trial's phases."""
    return [view for phase in result.phases if phase.io is not None for view in phase.io.devices]


def role_text(device: DeviceView, devices: Mapping[str, DeviceView]) -> str:
    """``data, WAL``, ``volume NAME``; of a device that only others lie on: ``below loop0``."""
    names = {"data": "data", "wal": "WAL", "tablespace": "tablespaces", "volume": f"volume {', '.join(device.roles.get('volume', ()))}"}
    if device.roles:
        return ", ".join(names[role] for role in names if role in device.roles)
    above = [other.name for other in devices.values() if device.number in other.below]
    return f"below {', '.join(above)}" if above else ""


def _mean(values: Sequence[float | None], unit: str, method: str) -> Finding:
    seen = [value for value in values if value is not None]
    if not seen:
        return missing(unit, "nothing of it was seen", method=method)
    return as_finding(mean_interval(seen), unit, method=f"{method}; mean over trials, Student's t interval")


def _trial_numbers(result: TrialResult, number: str) -> dict[str, float | None]:
    """All numbers of one device in one trial, over its phases."""
    parts = [(phase, view) for phase in result.phases if phase.io for view in phase.io.devices if view.number == number]
    joined = concatenated_series([view.series for _, view in parts])
    found: dict[str, float | None] = dict(series_numbers(joined))
    done = math.fsum(_transactions(phase, view) for phase, view in parts)
    seconds = math.fsum(phase.seconds for phase, _ in parts)
    reads = found.get("reads")
    if done > 0 and reads is not None:
        found["reads_per_tx"] = reads * seconds / done
    found["burst_ratio"] = burst_ratio(joined, separate_wal_series(parts))
    return found | _traced_numbers([view for _, view in parts])


def _transactions(phase: PhaseResult, view: DeviceView) -> float:
    """Of the databases whose servers have files on a device."""
    here = {server for role, servers in view.roles.items() for server in servers if role != "volume"}
    return math.fsum(one.transactions for one in phase.targets if "/".join(one.target.split("/")[1:3]) in here)


def separate_wal_series(parts: Sequence[tuple[PhaseResult, DeviceView]]) -> DeviceSeries | None:
    """What the WAL of the servers on a device wrote to another one, over the same phases; None where it lies on the device itself, also by
    way of another (a loop device on a file there), on one that sees more than WAL, on several others, or nowhere that is seen. ``parts``:
    each phase with its view of the device."""
    found: dict[str, list[DeviceSeries]] = {}
    for phase, view in parts:
        servers = {server for role in ("data", "tablespace") for server in view.roles.get(role, ())}
        every = phase.io.devices if phase.io is not None else []
        for other in (one for one in every if servers.intersection(one.roles.get("wal", ()))):
            if view.number in underlying_devices(other.number, every) or not has_only_wal(other, every):
                return None
            found.setdefault(other.number, []).append(other.series)
    return concatenated_series(next(iter(found.values()))) if len(found) == 1 else None


def has_only_wal(device: DeviceView, devices: Sequence[DeviceView]) -> bool:
    """Whether nothing but WAL is known to reach a device, be it by way of another (a loop device on a file there)."""
    reaching = [device, *(view for view in devices if device.number in underlying_devices(view.number, devices))]
    return {role for view in reaching for role in view.roles} == {"wal"}


def underlying_devices(number: str, devices: Sequence[DeviceView]) -> set[str]:
    """The numbers of all devices that a device passes its requests on to, however far below."""
    below = {view.number: view.below for view in devices}
    found: set[str] = set()
    level = [number]
    while level:
        level = [one for upper in level for one in below.get(upper, ()) if one not in found]
        found.update(level)
    return found


def burst_ratio(device: DeviceSeries, wal: DeviceSeries | None) -> float | None:
    """Mean rate of a device's bursts of writes over the mean rate of its servers' WAL (E11: about 10); None without either."""
    found = io_pattern.burstiness(device.write_bytes, device.seconds)
    rate = None if wal is None else series_numbers(wal).get("write_rate")
    return None if found is None or found.burst_rate is None or not rate else found.burst_rate / MB / rate


def concatenated_series(parts: Sequence[DeviceSeries]) -> DeviceSeries:
    """Several phases' series as one."""
    names = list(DeviceSeries.model_fields)
    return DeviceSeries(**{name: [value for part in parts for value in getattr(part, name)] for name in names})


def series_numbers(series: DeviceSeries) -> dict[str, float | None]:
    """What a device's series amounts to."""
    total = math.fsum(series.seconds)
    if total <= 0:
        return {}

    def mean(values: Sequence[float]) -> float:
        return math.fsum(value * length for value, length in zip(values, series.seconds, strict=True)) / total

    queue = [value for value in series.queue if value is not None]

    reads, writes = mean(series.reads), mean(series.writes)
    found: dict[str, float | None] = {
        "reads": reads,
        "writes": writes,
        "flushes": mean(series.flushes),
        "read_rate": mean(series.read_bytes) / MB,
        "write_rate": mean(series.write_bytes) / MB,
        "read_size": mean(series.read_bytes) / reads / KB if reads >= MIN_REQUEST_RATE else None,
        "write_size": mean(series.write_bytes) / writes / KB if writes >= MIN_REQUEST_RATE else None,
        "queue": mean(queue) if len(queue) == len(series.queue) else None,
        "read_await": _weighted(series.read_await, series.reads, series.seconds),
        "write_await": _weighted(series.write_await, series.writes, series.seconds),
        "flush_await": _weighted(series.flush_await, series.flushes, series.seconds),
    }
    bursty = io_pattern.burstiness(series.write_bytes, series.seconds) if writes >= MIN_REQUEST_RATE else None
    if bursty is not None:
        within = sorted({i for burst in bursty.bursts for i in range(burst.first, burst.last + 1)})
        found |= {"peak_to_mean": bursty.peak_to_mean, "variation": bursty.variation, "bursts": 60 * len(bursty.bursts) / total}
        picked = [[values[i] for i in within] for values in (series.write_await, series.writes, series.seconds)]
        found["burst_write_await"] = _weighted(*picked) if within else None
    return found


def _weighted(awaits: Sequence[float | None], rates: Sequence[float | None], seconds: Sequence[float | None]) -> float | None:
    """The mean over requests of response times by interval."""
    parts = [(a, r * s) for a, r, s in zip(awaits, rates, seconds, strict=True) if a is not None and r is not None and s is not None]
    weight = math.fsum(part for _, part in parts)
    return math.fsum(a * part for a, part in parts) / weight if weight > 0 else None


def _traced_numbers(parts: Sequence[DeviceView]) -> dict[str, float | None]:
    """Shares in per cent and latencies in ms, of a trial's phases together."""
    found: dict[str, float | None] = {}
    both = [view.trace["all"] for view in parts if view.trace and "all" in view.trace]
    found["sequential"] = _share(both, lambda p: p.window_share)
    found["adjacent"] = _share(both, lambda p: p.adjacent_share)
    for direction, share, name in (("read", 0.99, "read_p99"), ("write", 0.5, "write_p50"), ("write", 0.99, "write_p99")):
        counts = histogram.merged(view.trace[direction].latency for view in parts if view.trace and direction in view.trace)
        value = histogram.quantile(counts, share)
        found[name] = None if value is None else value / 1000
    gap = histogram.quantile(histogram.merged(pattern.gaps for pattern in both), 0.5)
    found["gap_p50"] = None if gap is None else gap / 1000
    return found


def _share(patterns: Sequence[Pattern], take: Callable[[Pattern], float | None]) -> float | None:
    known = [(share, one.requests) for one in patterns if (share := take(one)) is not None]
    total = sum(weight for _, weight in known)
    return 100 * math.fsum(share * weight for share, weight in known) / total if total else None


def _label(results: Sequence[TrialResult], number: str) -> str:
    """Sequential, random or mixed, by all traced trials together."""
    traced = [
        view.trace["all"]
        for result in results
        for view in device_views(result)
        if view.number == number and view.trace and "all" in view.trace
    ]
    if not traced:
        return ""
    share = _share(traced, lambda p: p.window_share)
    return io_pattern.label(None if share is None else share / 100, sum(one.requests for one in traced))


def _warnings(results: Sequence[TrialResult]) -> list[str]:
    found: list[str] = []
    every = [phase.io for result in results for phase in result.phases if phase.io is not None]
    found += list(dict.fromkeys(f"I/O view: {sentence}" for io in every for sentence in io.missing))
    if any(_together(io) for io in every):
        shared = next(view for io in every if (view := _together(io)) is not None)
        found.append(f"I/O view: data and WAL lie on one device, {shared.name}: what it saw is that of both, and they are not told apart")
    found += _cost(results)
    return found


def _covered(results: Sequence[TrialResult]) -> float | None:
    """Traced reads and writes over those that the kernel's counters show, of all devices: what the kernel could not put into its
    buffers it does not always count as lost."""
    traced = counted = 0.0
    for result in results:
        for phase in result.phases:
            for view in phase.io.devices if phase.io is not None else ():
                numbers = series_numbers(view.series)
                if view.trace is not None and numbers:
                    traced += view.trace["all"].requests if "all" in view.trace else 0
                    counted += ((numbers["reads"] or 0.0) + (numbers["writes"] or 0.0)) * phase.seconds
    return traced / counted if counted > 0 else None


def _together(io: IoView) -> DeviceView | None:
    """The device that has both data and WAL."""
    return next((view for view in io.devices if "data" in view.roles and "wal" in view.roles), None)


def _cost(results: Sequence[TrialResult]) -> list[str]:
    """What tracing took, and what it missed."""
    phases: list[PhaseResult] = [result.phases[0] for result in results if result.phases]
    costs = [phase.io.trace for phase in phases if phase.io is not None and phase.io.trace is not None]
    if not costs:
        return []
    events, lost = sum(cost.events for cost in costs), sum(cost.lost for cost in costs)
    cpu = [cost.cpu for cost in costs if cost.cpu is not None]
    share = lost / (events + lost) if events + lost else 0.0
    words = (
        f"I/O view: tracing took {statistics.fmean(cpu):.3f} cores of CPU by itself" if cpu else "I/O view: tracing's own CPU is not known"
    )
    words += f", {events} events in {len(costs)} trial{'' if len(costs) == 1 else 's'}; {lost} events were lost ({100 * share:.2g} %)"
    covered = _covered(results)
    if covered is not None:
        words += f"; the trace has about {min(100.0, 100 * covered):.0f} % of the reads and writes that /proc/diskstats counted"
    incomplete = sum(cost.incomplete for cost in costs)
    if incomplete:
        words += f"; {incomplete} requests were seen only to begin or only to end, and have no latency"
    if share > 0.01 or (covered is not None and covered < MIN_TRACE_COVERAGE):
        words += ": shares and histograms rest on what was left"
    return [words + ". What an event costs the process that causes it is not among that, and is in the results"]


SIZES_TABLE = "io_sizes"
MIN_SIZE_PERCENT = 1.0
"""Per cent of a direction's requests: sizes that fewer have are taken together."""
DIRECTIONS: tuple[Direction, ...] = ("read", "write")
SIZES_METHOD = "traced requests as the device got them, after merging; mean over trials, Student's t interval"


def size_rows(point: str, trials: Sequence[TrialResult], devices: Mapping[str, DeviceView], roles: Mapping[str, str]) -> list[Row]:
    """The rows of one point, the most frequent size first; ``request_bytes`` is None in the row of all rarer sizes. A direction with hardly
    any requests has none.

    Args:
        point: in words.
        trials: those that count.
        devices: number → a device.
        roles: number → what lies on the device, in words.
    """
    rows: list[Row] = []
    for number, device in devices.items():
        for direction in DIRECTIONS:
            counts = [found for trial in trials if (found := _counts(trial, number, direction))]
            together = sum(counts, Counter[int]())
            if together.total() < ENOUGH:
                continue
            shown = [size for size, count in together.most_common() if size and 100 * count >= MIN_SIZE_PERCENT * together.total()]
            of = {size: [100 * found[size] / found.total() for found in counts] for size in shown}
            rest = [100 * sum(many for size, many in found.items() if size not in of) / found.total() for found in counts]
            shares_of: list[tuple[int | None, list[float]]] = [*of.items()]
            for size, shares in [*shares_of, *([(None, rest)] if len(shown) < len(together) else [])]:
                mean = mean_interval(shares)
                if mean.low is not None and mean.high is not None:  # no share lies beyond these, and so neither does an end
                    mean = replace(mean, low=max(mean.low, 0.0), high=min(mean.high, 100.0))
                share = as_finding(mean, "%", method=SIZES_METHOD)
                many = together.total() - sum(together[one] for one in shown) if size is None else together[size]
                head: Row = {"point": point, "device": device.name, "number": number, "roles": roles[number]}
                rows.append({**head, "direction": direction, "request_bytes": size, "requests": many, "share": share})
    return rows


def _counts(result: TrialResult, number: str, direction: Direction) -> Counter[int]:
    """Size in bytes → requests of one trial; under 0 what was not counted by its size."""
    found: Counter[int] = Counter()
    for phase in result.phases:
        for view in phase.io.devices if phase.io is not None else ():
            if view.number == number and view.trace is not None and direction in view.trace:
                found.update(view.trace[direction].sizes)
    return found
