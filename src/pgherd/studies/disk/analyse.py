"""Answer, findings, tables, warnings and grade of a disk run. Missing, failed and tainted trials give warnings, not errors."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from pgherd.analysis.intervals import LEAST, mean_interval
from pgherd.analysis.stability import RANGE, ROUNDS, SLOPE
from pgherd.model.analysis import Analysis, Finding, Grade
from pgherd.model.result import TrialResult
from pgherd.model.units import MB_PER_SECOND, format_bytes
from pgherd.studies.disk.measurements import (
    DiskMeasurement,
    DiskTestGroup,
    HostDiskResult,
    bottleneck,
    concurrent_vs_sum,
    group_trials,
    is_cached,
    rate_achieved,
)
from pgherd.studies.disk.options import ALL, MAX_JOBS, MIX, PUBLISHED, TESTS, DiskOptions, DiskVolume, published_fields
from pgherd.study import per_host
from pgherd.study.device_io import MEMORY_FILESYSTEMS
from pgherd.study.findings import as_finding, missing
from pgherd.study.grade import fallback_warnings, grade_of, qualify_answer, shortened_list, trial_warnings, worst

Row = dict[str, Finding | str | int | float | None]

SLOW_HOST_SHARE = 0.9
"""A host below this share of the hosts' mean, with an interval below 1, is named in the answer."""

_TAINTED_NOTE = "only tainted trials: an indication"
_TOO_FEW_IOS = "fewer than ten I/Os beyond it"
_RATE_TEXT = "I/Os per second of the same test"
_FIXED_RATES = "the hosts' rates are fixed"


def analyse(options: DiskOptions, results: Sequence[TrialResult]) -> Analysis:
    """Return all findings, tables and figures of a disk run, its answer in one sentence, and its grade."""
    warnings = trial_warnings(results)
    groups = group_trials(options, results)
    if not groups:
        reason = f"none of {len(results)} trials finished" if results else "no trial was run"
        return Analysis(answer=f"No result: {reason}.", grade="C", warnings=warnings)
    findings: dict[str, Finding] = {}
    for group in groups:
        suffix = f".{group.volume}" if len(options.volume_names()) > 1 else ""
        findings[group.name + suffix] = headline_finding(options, group, single_volume_groups(groups, group))
    findings |= _rate_findings(options, groups)
    findings |= host_findings(options, groups) if options.hosts else {}
    grade = _grade(options, groups, results)
    answer = _answer(options, groups, findings)
    return Analysis(
        answer=qualify_answer(answer, grade),
        grade=grade,
        findings=findings,
        tables={
            "disk": with_imbalance(options, groups, disk_rows(options, groups)) if options.hosts else disk_rows(options, groups),
            "summary": summary_rows(options, groups),
            "depth": depth_rows(options, groups),
            **({"hosts": host_rows(options, groups)} if options.hosts else {}),
            "volumes": volume_rows(options),
        },
        warnings=[*warnings, *_warnings(options, groups)],
        next_steps=_next_steps(options, groups),
        figures={"series": _series(groups)},
    )


def _rate_findings(options: DiskOptions, groups: Sequence[DiskTestGroup]) -> dict[str, Finding]:
    findings: dict[str, Finding] = {}
    for group in groups:
        share = rate_achieved(options, group)
        if share is not None:
            suffix = f".{group.volume}" if len(options.volume_names()) > 1 else ""
            findings |= {f"mixed_{direction}_iops{suffix}": mixed_direction(group, direction) for direction in ("read", "write")}
            findings[f"rate_achieved{suffix}"] = Finding(
                value=share,
                unit="ratio",
                n=len(group.used),
                method="median over the trials of the direction and volume that reached least",
                note="no interval: it only shows whether the rates were met",
            )
    return findings


def _grade(options: DiskOptions, groups: Sequence[DiskTestGroup], results: Sequence[TrialResult]) -> Grade:
    """Return the worst grade of all volumes.

    A: every test has enough clean trials on every volume, all of them are steady, no figure comes from a cache, no volume distorts.
    C: on one volume, or on all together, half of the tests or more have only tainted trials, or no test finished. B: all other cases.
    """
    clean_tests = {(group.volume, group.test.name) for group in groups if group.clean}
    complete = clean_tests == {(volume, test) for volume in options.targets() for test in options.tests}
    enough_trials = all(len(group.used) >= LEAST for group in groups)
    steady = all(group.judged and not group.unsteady for group in groups)
    from_devices = all(is_cached(options, group) is False for group in groups) and not any(disk.loopback for disk in options.volumes)
    used_keys = {trial.key for group in groups for trial in group.used}
    whole = complete and enough_trials and steady and from_devices
    return worst(
        [
            grade_of([group.clean for group in groups if group.volume == volume], used_keys, results, whole=whole)
            for volume in options.targets()
        ]
    )


def _answer(options: DiskOptions, groups: Sequence[DiskTestGroup], findings: Mapping[str, Finding]) -> str:
    """Return the figures of all volumes together, or of the only volume."""
    volume = options.targets()[-1]
    by_test = {group.test.name: group for group in groups if group.volume == volume}
    parts = []
    for name in ("random-read", "random-write", "sequential-read", "sequential-write", "qd1-read", "qd1-write", MIX):
        if name not in by_test:
            continue
        _, unit, values = by_test[name].headline
        if values:
            note = " (from a cache)" if is_cached(options, by_test[name]) else ""
            if name == MIX:  # as two rates
                reads, writes = (mixed_direction(by_test[name], direction).value or 0.0 for direction in ("read", "write"))
                parts.append(f"a mix of {_short(reads)} reads and {_short(writes)} writes per second{note}")
                continue
            parts.append(f"{TESTS[name].label} {_short(sum(values) / len(values))} {unit}{note}")
    subject = f"All {len(options.volume_names())} volumes together" if volume == ALL else f"Volume {volume}"
    subject += f", {len(options.hosts)} hosts together" if options.hosts else ""
    slow_host = slow_host_text(findings) if options.hosts else None
    text = f"{subject}: {', '.join(parts)}" if parts else f"{subject}: no test finished"
    return f"{text}; {slow_host}." if slow_host else f"{text}."


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _warnings(options: DiskOptions, groups: Sequence[DiskTestGroup]) -> list[str]:
    warnings = [*_tainted_warnings(options, groups), *_volume_warnings(options)]
    cached = [
        group
        for group in groups
        if is_cached(options, group) and not any(disk.filesystem in MEMORY_FILESYSTEMS for disk in options.volumes_of(group.volume))
    ]
    if cached:
        names = ", ".join(f"{group.test.label} on {group.volume} ({group.device_io_share or 0:.0%})" for group in cached)
        warnings.append(f"Results from a cache, because the devices moved less than fio requested: {names}")
    small = [disk for disk in options.volumes if disk.direct and disk.size < options.memory and disk.filesystem not in MEMORY_FILESYSTEMS]
    if small:
        names = ", ".join(dict.fromkeys(disk.name for disk in small))
        warnings.append(
            f"Caches below this host (of a controller or a hypervisor) are invisible here. A cache of {format_bytes(small[0].size)} "
            f"could hold the whole file of {names}. If there may be one, raise --file-size"
        )
    unsteady = [f"{group.test.label} on {group.volume} ({group.unsteady} of {group.judged})" for group in groups if group.unsteady]
    if unsteady:
        warnings.append(
            f"Unsteady trials: {', '.join(unsteady)}. Over {ROUNDS} parts of a trial, the range must be at most {RANGE:.0%} of the mean "
            f"and the slope at most {SLOPE:.0%}; increase --duration or --warmup"
        )
    if any(not group.judged for group in groups):
        warnings.append(f"Trials of {options.duration:g} s are too short to judge steadiness; use --duration 6s or more")
    for group in groups:
        share = rate_achieved(options, group)
        if share is not None and share < options.thresholds.min_rate_achieved:
            warnings.append(
                f"Rates not met on {group.volume}: {share:.0%} of them. fio's latency does not include the time that I/Os waited to start"
            )
        single_volumes = single_volume_groups(groups, group)
        ratio = concurrent_vs_sum(group, single_volumes) if group.volume == ALL else None
        if ratio is not None and bottleneck(options, group, single_volumes) == "contention":
            warnings.append(f"{group.test.label}: all volumes together reach {ratio:.0%} of their sum, so they share a bottleneck")
    finished = {(group.volume, group.test.name) for group in groups}
    empty = [volume for volume in options.targets() if not any(group.volume == volume for group in groups)]
    if empty:
        warnings.append(f"No finished trial on {', '.join(empty)}: the whole answer is an indication (grade C)")
    absent = [
        f"{test} on {volume}"
        for volume in options.targets()
        if volume not in empty
        for test in options.tests
        if (volume, test) not in finished
    ]
    return [*warnings, *([f"No finished trial of {', '.join(absent)}"] if absent else [])]


def _tainted_warnings(options: DiskOptions, groups: Sequence[DiskTestGroup]) -> list[str]:
    """Return the warnings about tests with only tainted trials, for each volume and for all together."""
    warnings = []
    for volume in options.targets():
        volume_groups = [group for group in groups if group.volume == volume]
        tainted = [group.test.label for group in volume_groups if not group.clean]
        warnings += fallback_warnings([group.clean for group in volume_groups], f"{shortened_list(tainted)} on {volume}")
    return warnings


def _volume_warnings(options: DiskOptions) -> list[str]:
    """Return the warnings about the volumes. One warning covers all hosts on which volumes of one name are alike."""
    warnings = []
    for name in options.volume_names():
        hosts_by_predicate: dict[str, list[str]] = {}
        for disk in options.volumes_of(name):
            for predicate in _volume_predicates(options, disk):
                hosts_by_predicate.setdefault(predicate, []).append(disk.volume.host or "")
        for predicate, hosts in hosts_by_predicate.items():
            location = f" on {', '.join(hosts)}" if options.hosts else ""
            warnings.append(f"{name}{location}{predicate}")
    return warnings


def _volume_predicates(options: DiskOptions, disk: DiskVolume) -> list[str]:
    """Return warnings without their subject, which is the volume's name."""
    predicates = []
    if disk.filesystem in MEMORY_FILESYSTEMS:
        predicates.append(f" is in memory ({disk.filesystem}): its figures do not describe a disk")
    elif not disk.direct:
        in_memory = (
            f"; its file of {format_bytes(disk.size)} fits into the host's memory of {format_bytes(options.memory)}"
            if disk.size < options.memory
            else ""
        )
        predicates.append(f" ({disk.filesystem}) is accessed through the page cache, which affects every figure{in_memory}")
    if disk.loopback:
        predicates.append(" is a loop device on a file: the file system below it makes every figure too low")
    if not disk.devices and disk.filesystem not in MEMORY_FILESYSTEMS:
        predicates.append(": its block device is unknown, so a cache cannot be ruled out")
    return predicates


def _next_steps(options: DiskOptions, groups: Sequence[DiskTestGroup]) -> list[str]:
    steps = []
    deep = [group for group in groups if group.volume != ALL and bottleneck(options, group) == "iodepth"]
    if deep:
        names = ", ".join(f"{group.test.label} on {group.volume} (×{group.double_depth_ratio:.2f})" for group in deep)
        steps.append(f"I/O depth: a larger depth is faster for {names}; raise --iodepth or --sequential-iodepth")
    busy = [group for group in groups if bottleneck(options, group, single_volume_groups(groups, group)) == "fio-cpu"]
    if any(not options.synchronous(disk) for group in busy for disk in options.volumes_of(group.volume)):
        steps.append("CPU of fio: one job reached its maximum; use more jobs with --numjobs")
    elif options_of_depth := {
        "--iodepth" if g.test.random else "--sequential-iodepth" for g in busy if options.depth_of(g.test) < MAX_JOBS
    }:
        steps.append(f"CPU of fio: one job reached its maximum; use more jobs with {' and '.join(sorted(options_of_depth))}")
    return steps


def _series(groups: Sequence[DiskTestGroup]) -> list[dict[str, float | str]]:
    """Return the figure of every used trial, for a plot of the spread."""
    rows: list[dict[str, float | str]] = []
    for group in groups:
        name, unit, values = group.headline
        rows += [
            {"test": group.test.label, "volume": group.volume, "value": value, "unit": unit, "headline_column": name} for value in values
        ]
    return rows


# ---- tables


def headline_finding(options: DiskOptions, group: DiskTestGroup, single_volumes: Sequence[DiskTestGroup]) -> Finding:
    """Return a group's main result. Its note has the bottleneck, and whether a cache or a loop device distorts it."""
    _, unit, values = group.headline
    if not values:
        return missing(unit, "fio reported no latency")
    notes = [f"bottleneck: {bottleneck(options, group, single_volumes)}", *([] if group.clean else [_TAINTED_NOTE])]
    if is_cached(options, group):
        notes.append("from a cache of this host")
    if any(disk.loopback for disk in options.volumes_of(group.volume)):
        notes.append("on a loop device, which distorts")
    return as_finding(mean_interval(values), unit, "; ".join(notes), **published_fields(group.test.name))


def disk_rows(options: DiskOptions, groups: Sequence[DiskTestGroup]) -> list[Row]:
    """Return one row per volume and test."""
    rows: list[Row] = []
    for group in groups:
        single_volumes = single_volume_groups(groups, group)
        note = "" if group.clean else _TAINTED_NOTE
        name, _, _ = group.headline
        row: Row = {"volume": group.volume, "test": group.test.label}
        row["iops"] = _mean(group, lambda trial: trial.iops, "IOPS", note)
        row["bandwidth"] = _mean(group, lambda trial: trial.bytes / MB_PER_SECOND, "MB/s", note)
        row["latency_mean"] = _mean(group, lambda trial: trial.latency.get("mean"), "ms", note)
        for percentile in ("p50", "p99", "p99_9"):
            notes = "; ".join(filter(None, (_write_latency_note(group, percentile), note)))
            row[percentile] = _mean(group, _latency_of(percentile), "ms", notes)
        if group.test.name == MIX:
            row["reads"], row["writes"] = (mixed_direction(group, direction) for direction in ("read", "write"))
        row["bottleneck"] = bottleneck(options, group, single_volumes)
        row["from_cache"] = _yes_no(is_cached(options, group))
        device_io_shares = group.values(lambda trial: trial.device_io_share)
        row["device_io_share"] = (
            as_finding(mean_interval(device_io_shares), "ratio", note)
            if device_io_shares
            else missing("ratio", "its block devices were not sampled")
        )
        row["steady_state"] = f"{group.judged - group.unsteady} of {group.judged}" if group.judged else "not judged"
        share = rate_achieved(options, group)
        if share is not None:
            row["rate_achieved"] = share
        ratio = concurrent_vs_sum(group, single_volumes) if group.volume == ALL else None
        if ratio is not None:
            row["concurrent_vs_sum"] = ratio
        row["headline_column"] = name
        row["trials"] = group.tried
        row["tainted_trials"] = group.tainted
        rows.append(row)
    return rows


def mixed_direction(group: DiskTestGroup, direction: str) -> Finding:
    """Return the I/Os per second of one direction of a mix."""
    return _mean(group, lambda trial: trial.by_direction.get(direction), "IOPS", "" if group.clean else _TAINTED_NOTE)


def _write_latency_note(group: DiskTestGroup, percentile: str) -> str:
    """Return the note for a mix, whose percentile is that of the reads because fio reports each direction. Empty for other tests."""
    if group.test.name != MIX:
        return ""
    writes = group.values(lambda trial: trial.latency.get(f"write_{percentile}"))
    return f"of the reads; of the writes {f'{statistics.fmean(writes):.3g} ms' if writes else 'unknown'}"


def single_volume_groups(groups: Sequence[DiskTestGroup], group: DiskTestGroup) -> list[DiskTestGroup]:
    """Return the groups of the same test on each volume alone."""
    return [other for other in groups if other.test == group.test and other.volume != ALL]


def summary_rows(options: DiskOptions, groups: Sequence[DiskTestGroup]) -> list[Row]:
    """Return E12's table: each test's result, of all volumes together if that was measured, its bottleneck, and E12's result."""
    volume = options.targets()[-1]
    return [
        {
            "test": group.test.label,
            "result": headline_finding(options, group, single_volume_groups(groups, group)),
            "published": PUBLISHED.get(group.test.name),
            "bottleneck": bottleneck(options, group, single_volume_groups(groups, group)),
            "from_cache": _yes_no(is_cached(options, group)),
        }
        for group in groups
        if group.volume == volume
    ]


def depth_rows(options: DiskOptions, groups: Sequence[DiskTestGroup]) -> list[Row]:
    """Return the effect of twice the depth on each test with many I/Os in flight."""
    rows: list[Row] = []
    for group in groups:
        if group.double_depth_ratio is None:
            continue
        (disk, *_), depth = options.volumes_of(group.volume), options.depth_of(group.test)
        depth, deeper = (options.in_flight(group.test, disk, number) for number in (depth, 2 * depth))
        ratio = Finding(
            value=group.double_depth_ratio,
            unit="ratio",
            n=len(group.double_depth),
            method="I/Os at the larger depth over the median at the depth",
            note="no interval: measured once, only to find the bottleneck",
        )
        rows.append({"volume": group.volume, "test": group.test.label, "depth": depth, "double_depth": deeper, "ratio": ratio})
    return rows


def volume_rows(options: DiskOptions) -> list[Row]:
    """Return the properties of each volume."""
    return [
        {
            **({} if disk.volume.host is None else {"host": disk.volume.host}),
            "volume": disk.name,
            "kind": disk.volume.kind,
            "path": disk.volume.path,
            "filesystem": disk.filesystem or "unknown",
            "devices": ", ".join(disk.devices) or "unknown",
            "file_bytes": disk.size,
            "direct_io": _yes_no(disk.direct),
            "loopback": _yes_no(disk.loopback),
        }
        for disk in options.volumes
    ]


def _mean(group: DiskTestGroup, extract: Callable[[DiskMeasurement], float | None], unit: str, note: str) -> Finding:
    values = group.values(extract)
    return as_finding(mean_interval(values), unit, note) if values else missing(unit, _TOO_FEW_IOS)


def _latency_of(name: str) -> Callable[[DiskMeasurement], float | None]:
    return lambda trial: trial.latency.get(name, trial.latency.get(f"read_{name}"))


def _yes_no(value: bool | None) -> str:
    return "unknown" if value is None else "yes" if value else "no"


# ---- several hosts, which all do the same at the same time


def host_findings(options: DiskOptions, groups: Sequence[DiskTestGroup]) -> dict[str, Finding]:
    """Return each test's result on each host (``NAME.HOST``), and the imbalance and the slowest host over all tests."""
    findings: dict[str, Finding] = {}
    for group in groups:
        suffix = f".{group.volume}" if len(options.volume_names()) > 1 else ""
        for host in options.hosts:
            name, unit, _ = group.headline
            findings[f"{group.name}{suffix}.{host}"] = _host_mean(group, host, _HOST_RESULTS[name], unit, f"host {host}")
    trials = [rates for group in groups for rates in _host_rates(options, group)]
    return {
        **findings,
        "host_imbalance": per_host.imbalance(trials, _RATE_TEXT),
        "slowest_host": per_host.slowest(trials, _RATE_TEXT),
    }


def host_rows(options: DiskOptions, groups: Sequence[DiskTestGroup]) -> list[Row]:
    """Return one row per volume, test and host."""
    rows: list[Row] = []
    for group in groups:
        shares_by_host = [per_host.relative_rates(rates) for rates in _host_rates(options, group)]
        for host in options.hosts:
            relative = [shares[host] for shares in shares_by_host if shares]
            rows.append(
                {
                    "volume": group.volume,
                    "test": group.test.label,
                    "host": host,
                    "iops": _host_mean(group, host, _iops, "IOPS"),
                    "bandwidth": _host_mean(group, host, _bandwidth, "MB/s"),
                    "latency_mean": _host_mean(group, host, _latency, "ms"),
                    "relative_to_mean": as_finding(mean_interval(relative), "ratio", "of the hosts' mean in the same trial")
                    if relative
                    else missing("ratio", _FIXED_RATES if group.test.name == MIX else per_host.NO_CLEAN_TRIAL),
                    "cpu_share": _host_mean(group, host, lambda result: result.busy, "ratio", "of the whole host"),
                }
            )
    return rows


def with_imbalance(options: DiskOptions, groups: Sequence[DiskTestGroup], rows: Sequence[Row]) -> list[Row]:
    """Add 1 − slowest ÷ fastest host to the row of each group."""
    return [{**row, "imbalance": _imbalance(options, group)} for group, row in zip(groups, rows, strict=True)]


def slow_host_text(findings: Mapping[str, Finding]) -> str | None:
    """Return the answer's clause about a host that is clearly slower than the others, or None."""
    slowest = findings["slowest_host"]
    if slowest.value is None or slowest.value >= SLOW_HOST_SHARE or slowest.high is None or slowest.high >= 1:
        return None
    return f"{slowest.note.partition(';')[0]} is the slowest, at {slowest.value:.0%} of the hosts' mean"


def _host_rates(options: DiskOptions, group: DiskTestGroup) -> list[dict[str, float]]:
    """Return host → I/Os per second for each clean trial with every host. Empty for the mix, because its rates are fixed."""
    if group.test.name == MIX:
        return []
    return [
        {host: result.iops for host, result in trial.by_host.items()}
        for trial in group.used
        if trial.clean and len(trial.by_host) == len(options.hosts)
    ]


def _imbalance(options: DiskOptions, group: DiskTestGroup) -> Finding:
    if group.test.name == MIX:
        return missing("ratio", _FIXED_RATES)
    return per_host.imbalance(_host_rates(options, group), _RATE_TEXT)


def _iops(result: HostDiskResult) -> float | None:
    return result.iops


def _bandwidth(result: HostDiskResult) -> float | None:
    return result.bytes / MB_PER_SECOND


def _latency(result: HostDiskResult) -> float | None:
    return result.latency


_HOST_RESULTS: Mapping[str, Callable[[HostDiskResult], float | None]] = {"iops": _iops, "bandwidth": _bandwidth, "latency_mean": _latency}


def _host_mean(group: DiskTestGroup, host: str, extract: Callable[[HostDiskResult], float | None], unit: str, note: str = "") -> Finding:
    values = group.values(lambda trial: extract(trial.by_host[host]) if host in trial.by_host else None)
    notes = "; ".join(text for text in (note, "" if group.clean else _TAINTED_NOTE) if text)
    return as_finding(mean_interval(values), unit, notes) if values else missing(unit, "no finished trial on this host")
