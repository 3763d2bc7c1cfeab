"""I/O of the block devices of servers and loaded volumes, for every study: one row per point and device. Pure.

Each number is the mean over trials of one number per trial, with a Student's t interval. Traced trials also have a table of request sizes.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pgherd.analysis import histogram, io_pattern
from pgherd.analysis.intervals import mean_interval
from pgherd.analysis.io_pattern import MIN_REQUESTS
from pgherd.model.analysis import Analysis, Finding
from pgherd.model.device_io import DeviceIo, DeviceSeries, DeviceView, Direction, Pattern
from pgherd.model.result import PhaseResult, TrialResult, clean_or_all
from pgherd.model.units import MB_PER_SECOND
from pgherd.study.findings import as_finding, missing

MEMORY_FILESYSTEMS = ("tmpfs", "ramfs")
"""File systems that keep files in memory."""

Row = dict[str, Finding | str | int | float | None]
TABLE = "io"
KB = 1024
MIN_REQUEST_RATE = 1.0
"""Requests per second below which a device counts as idle, so that it has no sizes or bursts."""

MIN_TRACE_COVERAGE = 0.97
"""Share of the counted requests below which a trace is reported as incomplete."""

UNITS: Mapping[str, str] = {
    "reads": "requests/s",
    "writes": "requests/s",
    "flushes": "requests/s",
    "read_rate": "MB/s",
    "write_rate": "MB/s",
    "read_request_size": "kB",
    "write_request_size": "kB",
    "queue_depth": "requests",
    "read_await": "ms",
    "write_await": "ms",
    "flush_await": "ms",
    "peak_to_mean": "",
    "rate_cv": "",
    "bursts": "bursts/min",
    "burst_write_await": "ms",
    "data_burst_to_wal_ratio": "",
    "reads_per_tx": "reads/tx",
    "sequential_share": "%",
    "adjacent_share": "%",
    "read_p99": "ms",
    "write_p50": "ms",
    "write_p99": "ms",
    "inter_request_gap_p50": "ms",
}
"""Unit by column. kB is 2^10 bytes."""
_COUNTERS = "/proc/diskstats"
_HYPERVISORS = "guest-drive:"
"""Prefix of the number of a guest's drive in the hypervisor's view."""
METHODS: Mapping[str, str] = {
    "writes": "/proc/diskstats, without flushes",
    "queue_depth": "/proc/diskstats: mean requests in flight",
    "read_await": "/proc/diskstats: from issue to completion",
    "write_await": "/proc/diskstats: from issue to completion, without flushes",
    "flush_await": "/proc/diskstats: from issue to completion",
    "peak_to_mean": "bytes written per interval of about one second: highest ÷ mean",
    "rate_cv": "bytes written per interval of about one second: standard deviation ÷ mean",
    "bursts": f"consecutive intervals with more than {io_pattern.BURST_FACTOR:g} × the mean of bytes written",
    "burst_write_await": "/proc/diskstats, in bursts only",
    "data_burst_to_wal_ratio": "mean rate of write bursts ÷ mean rate of the same servers' WAL on another device",
    "reads_per_tx": "/proc/diskstats; reads of the device ÷ transactions of all databases whose servers have files on it",
    "sequential_share": f"traced reads and writes; window rule: {io_pattern.RULE}",
    "adjacent_share": "traced reads and writes that start where the previous request ended",
    "read_p99": "traced, from issue to completion",
    "write_p50": "traced, from issue to completion",
    "write_p99": "traced, from issue to completion",
    "inter_request_gap_p50": "traced reads and writes, from issue to the issue of the next one",
}


def with_device_io(analysis: Analysis, results: Sequence[TrialResult]) -> Analysis:
    """Return the analysis with the table ``io``, the table ``io_sizes`` of traced requests, and warnings about missing data.

    With a single point, the findings include the numbers of each device. Trials without device I/O (external servers, probes) are skipped.
    An analysis that has the table already is returned unchanged.
    """
    observed = [result for result in results if result.error is None and any(phase.io is not None for phase in result.phases)]
    if not observed or TABLE in analysis.tables:
        return analysis
    rows, sizes = io_rows(observed)
    warnings = [*analysis.warnings, *_warnings(observed)]
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
    """Return the rows of the tables ``io`` and ``io_sizes``. A point uses its clean trials, or all its trials if none is clean."""
    rows: list[Row] = []
    sizes: list[Row] = []
    points: dict[str, list[TrialResult]] = {}
    for result in results:
        points.setdefault(point_name(result), []).append(result)
    for point, trials in points.items():
        used = clean_or_all(trials)
        devices: dict[str, DeviceView] = {}
        for trial in used:
            for view in device_views(trial):
                devices.setdefault(view.number, view)
        roles = {number: role_text(device, devices) for number, device in devices.items()}
        sizes += size_rows(point, used, devices, roles)
        for number, device in devices.items():
            cells = [_trial_numbers(trial, number) for trial in used]
            row: Row = {"point": point, "device": device.name, "device_number": number, "roles": roles[number]}
            row["label"] = _label(used, number)
            for name, unit in UNITS.items():
                method = METHODS.get(name, _COUNTERS)
                if number.startswith(_HYPERVISORS):
                    method = method.replace(_COUNTERS, "QEMU's query-blockstats")
                row[name] = _mean([cell.get(name) for cell in cells], unit, method)
            rows.append(row)
    return [{name: cell for name, cell in row.items() if _has_values(name, rows)} for row in rows], sizes


def _has_values(name: str, rows: Sequence[Row]) -> bool:
    cells = [row[name] for row in rows]
    return any(cell.value is not None if isinstance(cell, Finding) else cell not in (None, "") for cell in cells)


def point_name(result: TrialResult) -> str:
    """Return a trial's point as text, such as ``databases 4``."""
    return ", ".join(f"{name} {value}" for name, value in result.trial.point.items())


def device_views(result: TrialResult) -> list[DeviceView]:
    """Return the devices of all phases of a trial."""
    return [view for phase in result.phases if phase.io is not None for view in phase.io.devices]


def role_text(device: DeviceView, devices: Mapping[str, DeviceView]) -> str:
    """Return the use of a device: ``data, WAL`` or ``volume NAME``. A device that only holds other devices is ``below loop0``."""
    names = {"data": "data", "wal": "WAL", "tablespace": "tablespaces", "volume": f"volume {', '.join(device.roles.get('volume', ()))}"}
    if device.roles:
        return ", ".join(names[role] for role in names if role in device.roles)
    upper = [other.name for other in devices.values() if device.number in other.below]
    return f"below {', '.join(upper)}" if upper else ""


def _mean(values: Sequence[float | None], unit: str, method: str) -> Finding:
    measured = [value for value in values if value is not None]
    if not measured:
        return missing(unit, "not measured", method=method)
    return as_finding(mean_interval(measured), unit, method=f"{method}; mean over trials, Student's t interval")


def _trial_numbers(result: TrialResult, number: str) -> dict[str, float | None]:
    """Return all numbers of one device in one trial, over its phases."""
    parts = [(phase, view) for phase in result.phases if phase.io for view in phase.io.devices if view.number == number]
    series = concatenated_series([view.series for _, view in parts])
    numbers: dict[str, float | None] = dict(series_numbers(series))
    transactions = math.fsum(_transactions(phase, view) for phase, view in parts)
    seconds = math.fsum(phase.seconds for phase, _ in parts)
    reads = numbers.get("reads")
    if transactions > 0 and reads is not None:
        numbers["reads_per_tx"] = reads * seconds / transactions
    numbers["data_burst_to_wal_ratio"] = burst_ratio(series, separate_wal_series(parts))
    return numbers | _traced_numbers([view for _, view in parts])


def _transactions(phase: PhaseResult, view: DeviceView) -> float:
    """Return the transactions of the databases whose servers have files on a device."""
    local = {server for role, servers in view.roles.items() for server in servers if role != "volume"}
    return math.fsum(target.transactions for target in phase.targets if "/".join(target.target.split("/")[1:3]) in local)


def separate_wal_series(parts: Sequence[tuple[PhaseResult, DeviceView]]) -> DeviceSeries | None:
    """Return the I/O of the separate WAL device of the servers whose data is on a device, over the same phases.

    None if the WAL is on the same device (also through a loop device), on a device with other files, on several devices, or not measured.
    ``parts`` holds each phase with its view of the data device.
    """
    wal_series: dict[str, list[DeviceSeries]] = {}
    for phase, view in parts:
        servers = {server for role in ("data", "tablespace") for server in view.roles.get(role, ())}
        devices = phase.io.devices if phase.io is not None else []
        for wal_device in (device for device in devices if servers.intersection(device.roles.get("wal", ()))):
            if view.number in underlying_devices(wal_device.number, devices) or not has_only_wal(wal_device, devices):
                return None
            wal_series.setdefault(wal_device.number, []).append(wal_device.series)
    return concatenated_series(next(iter(wal_series.values()))) if len(wal_series) == 1 else None


def has_only_wal(device: DeviceView, devices: Sequence[DeviceView]) -> bool:
    """Return True if only WAL is known to reach a device, directly or through another device such as a loop device."""
    reaching = [device, *(view for view in devices if device.number in underlying_devices(view.number, devices))]
    return {role for view in reaching for role in view.roles} == {"wal"}


def underlying_devices(number: str, devices: Sequence[DeviceView]) -> set[str]:
    """Return the numbers of all devices that receive the requests of a device, on all levels."""
    below = {view.number: view.below for view in devices}
    underlying: set[str] = set()
    level = [number]
    while level:
        level = [lower for upper in level for lower in below.get(upper, ()) if lower not in underlying]
        underlying.update(level)
    return underlying


def burst_ratio(device: DeviceSeries, wal: DeviceSeries | None) -> float | None:
    """Return the mean rate of a device's write bursts ÷ the mean rate of its servers' WAL (E11: about 10). None without either."""
    bursts = io_pattern.burstiness(device.write_bytes, device.seconds)
    rate = None if wal is None else series_numbers(wal).get("write_rate")
    return None if bursts is None or bursts.burst_rate is None or not rate else bursts.burst_rate / MB_PER_SECOND / rate


def concatenated_series(parts: Sequence[DeviceSeries]) -> DeviceSeries:
    """Return the series of several phases as one."""
    names = list(DeviceSeries.model_fields)
    return DeviceSeries(**{name: [value for part in parts for value in getattr(part, name)] for name in names})


def series_numbers(series: DeviceSeries) -> dict[str, float | None]:
    """Return the numbers of a device's series, by column."""
    total = math.fsum(series.seconds)
    if total <= 0:
        return {}

    def mean(values: Sequence[float]) -> float:
        return math.fsum(value * length for value, length in zip(values, series.seconds, strict=True)) / total

    queue = [value for value in series.queue if value is not None]

    reads, writes = mean(series.reads), mean(series.writes)
    numbers: dict[str, float | None] = {
        "reads": reads,
        "writes": writes,
        "flushes": mean(series.flushes),
        "read_rate": mean(series.read_bytes) / MB_PER_SECOND,
        "write_rate": mean(series.write_bytes) / MB_PER_SECOND,
        "read_request_size": mean(series.read_bytes) / reads / KB if reads >= MIN_REQUEST_RATE else None,
        "write_request_size": mean(series.write_bytes) / writes / KB if writes >= MIN_REQUEST_RATE else None,
        "queue_depth": mean(queue) if len(queue) == len(series.queue) else None,
        "read_await": _mean_await(series.read_await, series.reads, series.seconds),
        "write_await": _mean_await(series.write_await, series.writes, series.seconds),
        "flush_await": _mean_await(series.flush_await, series.flushes, series.seconds),
    }
    burstiness = io_pattern.burstiness(series.write_bytes, series.seconds) if writes >= MIN_REQUEST_RATE else None
    if burstiness is not None:
        within = sorted({i for burst in burstiness.bursts for i in range(burst.first, burst.last + 1)})
        numbers |= {
            "peak_to_mean": burstiness.peak_to_mean,
            "rate_cv": burstiness.rate_cv,
            "bursts": 60 * len(burstiness.bursts) / total,
        }
        in_bursts = [[values[i] for i in within] for values in (series.write_await, series.writes, series.seconds)]
        numbers["burst_write_await"] = _mean_await(*in_bursts) if within else None
    return numbers


def _mean_await(awaits: Sequence[float | None], rates: Sequence[float | None], seconds: Sequence[float | None]) -> float | None:
    """Return the mean response time over requests from response times per interval."""
    parts = [(a, r * s) for a, r, s in zip(awaits, rates, seconds, strict=True) if a is not None and r is not None and s is not None]
    weight = math.fsum(part for _, part in parts)
    return math.fsum(a * part for a, part in parts) / weight if weight > 0 else None


def _traced_numbers(parts: Sequence[DeviceView]) -> dict[str, float | None]:
    """Return traced shares (%) and latencies (ms) of one device, over a trial's phases."""
    numbers: dict[str, float | None] = {}
    both = [view.trace["all"] for view in parts if view.trace and "all" in view.trace]
    numbers["sequential_share"] = _share(both, lambda p: p.window_share)
    numbers["adjacent_share"] = _share(both, lambda p: p.adjacent_share)
    for direction, share, name in (("read", 0.99, "read_p99"), ("write", 0.5, "write_p50"), ("write", 0.99, "write_p99")):
        counts = histogram.merged(view.trace[direction].latency for view in parts if view.trace and direction in view.trace)
        value = histogram.quantile(counts, share)
        numbers[name] = None if value is None else value / 1000
    gap = histogram.quantile(histogram.merged(pattern.gaps for pattern in both), 0.5)
    numbers["inter_request_gap_p50"] = None if gap is None else gap / 1000
    return numbers


def _share(patterns: Sequence[Pattern], take: Callable[[Pattern], float | None]) -> float | None:
    """Return a share in percent, weighted by requests."""
    shares = [(share, pattern.requests) for pattern in patterns if (share := take(pattern)) is not None]
    total = sum(requests for _, requests in shares)
    return 100 * math.fsum(share * requests for share, requests in shares) / total if total else None


def _label(results: Sequence[TrialResult], number: str) -> str:
    """Return 'sequential', 'random' or 'mixed', from all traced trials. '' without a trace."""
    traced = [
        view.trace["all"]
        for result in results
        for view in device_views(result)
        if view.number == number and view.trace and "all" in view.trace
    ]
    if not traced:
        return ""
    share = _share(traced, lambda p: p.window_share)
    return io_pattern.label(None if share is None else share / 100, sum(pattern.requests for pattern in traced))


def _warnings(results: Sequence[TrialResult]) -> list[str]:
    warnings: list[str] = []
    phases = [phase.io for result in results for phase in result.phases if phase.io is not None]
    warnings += list(dict.fromkeys(f"I/O view: {sentence}" for io in phases for sentence in io.missing))
    shared = next((view for io in phases if (view := _shared_device(io)) is not None), None)
    if shared is not None:
        warnings.append(f"I/O view: data and WAL share the device {shared.name}; its numbers are of both together")
    return warnings + _trace_cost(results)


def _trace_coverage(results: Sequence[TrialResult]) -> float | None:
    """Return traced reads and writes ÷ those that the kernel counted, over all devices.

    The kernel does not always report requests that did not fit into the trace buffers as lost.
    """
    traced = counted = 0.0
    for result in results:
        for phase in result.phases:
            for view in phase.io.devices if phase.io is not None else ():
                numbers = series_numbers(view.series)
                if view.trace is not None and numbers:
                    traced += view.trace["all"].requests if "all" in view.trace else 0
                    counted += ((numbers["reads"] or 0.0) + (numbers["writes"] or 0.0)) * phase.seconds
    return traced / counted if counted > 0 else None


def _shared_device(io: DeviceIo) -> DeviceView | None:
    """Return the device that has both data and WAL."""
    return next((view for view in io.devices if "data" in view.roles and "wal" in view.roles), None)


def _trace_cost(results: Sequence[TrialResult]) -> list[str]:
    """Return a warning about the CPU cost of the trace and lost events."""
    phases: list[PhaseResult] = [result.phases[0] for result in results if result.phases]
    costs = [phase.io.trace for phase in phases if phase.io is not None and phase.io.trace is not None]
    if not costs:
        return []
    events, lost = sum(cost.events for cost in costs), sum(cost.lost for cost in costs)
    cpu = [cost.cpu for cost in costs if cost.cpu is not None]
    share = lost / (events + lost) if events + lost else 0.0
    text = f"I/O view: tracing used {statistics.fmean(cpu):.3f} cores of CPU" if cpu else "I/O view: the CPU use of tracing is unknown"
    text += f", {events} events in {len(costs)} trial{'' if len(costs) == 1 else 's'}; {lost} events were lost ({100 * share:.2g} %)"
    coverage = _trace_coverage(results)
    if coverage is not None:
        text += f"; the trace has about {min(100.0, 100 * coverage):.0f} % of the reads and writes that /proc/diskstats counted"
    incomplete = sum(cost.incomplete for cost in costs)
    if incomplete:
        text += f"; {incomplete} requests lack their start or end, so they have no latency"
    if share > 0.01 or (coverage is not None and coverage < MIN_TRACE_COVERAGE):
        text += "; shares and histograms use only the recorded ones"
    return [text + ". The cost per event in the traced processes is not included here, but it is part of the results"]


SIZES_TABLE = "io_sizes"
MIN_SIZE_PERCENT = 1.0
"""Minimum percentage of a direction's requests for a row per size. Rarer sizes share one row."""
DIRECTIONS: tuple[Direction, ...] = ("read", "write")
SIZES_METHOD = "traced requests at the device, after merging; mean over trials, Student's t interval"


def size_rows(point: str, trials: Sequence[TrialResult], devices: Mapping[str, DeviceView], roles: Mapping[str, str]) -> list[Row]:
    """Return the request sizes of one point, the most frequent first.

    ``request_bytes`` is None in the row of all rarer sizes. A direction with too few requests has no rows.

    Args:
        point: text of the point.
        trials: used trials of the point.
        devices: devices by number.
        roles: use of each device as text, by number.
    """
    rows: list[Row] = []
    for number, device in devices.items():
        for direction in DIRECTIONS:
            counts = [sizes for trial in trials if (sizes := _size_counts(trial, number, direction))]
            total = sum(counts, Counter[int]())
            if total.total() < MIN_REQUESTS:
                continue
            shown = [size for size, count in total.most_common() if size and 100 * count >= MIN_SIZE_PERCENT * total.total()]
            by_size = {size: [100 * sizes[size] / sizes.total() for sizes in counts] for size in shown}
            others = [100 * sum(count for size, count in sizes.items() if size not in by_size) / sizes.total() for sizes in counts]
            shares_of: list[tuple[int | None, list[float]]] = [*by_size.items()]
            for size, shares in [*shares_of, *([(None, others)] if len(shown) < len(total) else [])]:
                mean = mean_interval(shares)
                if mean.low is not None and mean.high is not None:  # a share cannot be outside this range
                    mean = replace(mean, low=max(mean.low, 0.0), high=min(mean.high, 100.0))
                share = as_finding(mean, "%", method=SIZES_METHOD)
                requests = total.total() - sum(total[shown_size] for shown_size in shown) if size is None else total[size]
                head: Row = {"point": point, "device": device.name, "device_number": number, "roles": roles[number]}
                rows.append({**head, "direction": direction, "request_bytes": size, "requests": requests, "share": share})
    return rows


def _size_counts(result: TrialResult, number: str, direction: Direction) -> Counter[int]:
    """Return the requests of one trial by size in bytes. Size 0 counts requests without a recorded size."""
    counts: Counter[int] = Counter()
    for phase in result.phases:
        for view in phase.io.devices if phase.io is not None else ():
            if view.number == number and view.trace is not None and direction in view.trace:
                counts.update(view.trace[direction].sizes)
    return counts
