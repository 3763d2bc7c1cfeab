"""What the trials of a study of the storage mean. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from pgherd.analysis import histogram
from pgherd.analysis.checkpoints import RULE
from pgherd.analysis.intervals import LEAST, Estimate, mean_interval
from pgherd.model.finding import Analysis, Finding
from pgherd.model.result import TrialResult
from pgherd.studies.io_profile import published, words
from pgherd.studies.io_profile.observed import Observed, observe, quantile_ms
from pgherd.studies.io_profile.options import StorageOptions
from pgherd.study.comparison import analyse as compare
from pgherd.study.comparison.time_slices import VARIANT
from pgherd.study.device_io import series_numbers
from pgherd.study.findings import as_finding, missing
from pgherd.study.grade import fallback_warnings, grade_of, qualify_answer, trial_warnings

Row = dict[str, Finding | str | int | float | None]
_MEAN = "mean over trials, Student's t interval"
_LOGS = "logged transactions of all trials; inside: any part of it lies in a checkpoint"


def analyse(options: StorageOptions, results: Sequence[TrialResult]) -> Analysis:
    """The comparison's analysis where something is compared, with the storage's own before it."""
    by_side = _by_side(options, results)
    rows = [row for side, trials in by_side.items() if trials for row in [_row(options, side, trials)]]
    findings: dict[str, Finding] = {}
    for row in rows:
        suffix = "" if options.single else f":{row['server']}"
        findings |= {f"{name}{suffix}": cell for name, cell in row.items() if isinstance(cell, Finding)}
    tables = {
        "storage": rows,
        "stalls": [row for side, trials in by_side.items() for row in _stall_rows(side, trials)],
        "checkpoints": [row for side, trials in by_side.items() for row in _checkpoint_rows(side, trials)],
    }
    said = words.warnings(options, by_side)
    if options.untraced:
        said.insert(0, f"The share of requests under 1 ms is unknown: {options.untraced}")
    if options.single:
        return _alone(options, results, findings, tables, said)
    found = compare.analyse(options, results)
    answer = found.answer.removesuffix(".")
    more = words.stalls_of(by_side) if options.io_bound is None else words.served_of(rows)
    return found.model_copy(
        update={
            "answer": f"{answer}; {more}." if more else found.answer,
            "findings": {**findings, **found.findings},
            "tables": {**tables, **found.tables},
            "warnings": [*found.warnings, *said],
        }
    )


def _by_side(options: StorageOptions, results: Sequence[TrialResult]) -> dict[str, list[Observed]]:
    """Observed trials by arm, the baseline's second trial of each block with its first; clean ones where there are any."""
    found: dict[str, list[Observed]] = {}
    for arm in options.arms:
        names = {arm.name, options.again} if arm.name == options.baseline else {arm.name}
        own = [result for result in results if options.single or result.trial.point.get(VARIANT) in names]
        used = [result for result in own if not result.tainted] or own
        found[arm.name] = [seen for result in used if (seen := observe(result)) is not None]
    return found


def _row(options: StorageOptions, side: str, trials: Sequence[Observed]) -> Row:
    """All that is said of one arm."""
    row: Row = {"server": side, "throughput": _mean(trials, lambda o: o.throughput, "tps", "nothing was measured")}
    alone = "data and WAL lie on one device, or one on the other, or on none that can be seen"
    if options.io_bound is not None:
        spread = {max(1, len(arm.options.get("tablespaces", ()))) for arm in options.arms}
        disks = published.MANY_DISKS if len(spread) > 1 else None
        row["iops"] = _mean(trials, lambda o: o.iops, "requests/s", "the data's devices were not seen", beside=disks, experiment="E13")
        row["under_1ms"] = _mean(
            trials,
            lambda o: None if o.fast_share is None else 100 * o.fast_share,
            "%",
            f"unknown without a trace{f': {options.untraced}' if options.untraced else ''}",
            method=f"traced reads and writes of the data's devices; {_MEAN}",
            beside=published.IOPS,
            experiment="E13",
        )
    row["checkpoints"] = _mean(trials, lambda o: len(o.checkpoints), "per trial", "the server's log was not seen")
    row["stalls"] = _mean(
        trials,
        lambda o: None if o.stalls is None else len(o.stalls),
        "per trial",
        "too few seconds, or no writing, to say",
        method=f"{RULE}; {_MEAN}",
        beside=published.STALLS,
        experiment="E11",
    )
    row["stalls_in_checkpoints"] = _mean(
        trials,
        lambda o: None if o.stalls is None else sum(one.checkpoint is not None for one in o.stalls),
        "per trial",
        "too few seconds, or no writing, to say",
        method=f"{RULE}; {_MEAN}",
    )
    row["stalled"] = _mean(trials, lambda o: _share_stalled(o), "%", "too few seconds, or no writing, to say", method=f"{RULE}; {_MEAN}")
    wal = [series_numbers(o.wal.series) if o.wal is not None and o.apart else {} for o in trials]
    data = [series_numbers(o.data.series) if o.data is not None else {} for o in trials]
    row["wal_size"] = _numbers(wal, "write_size", "kB", alone, published.WAL_SIZE)
    row["wal_queue"] = _numbers(wal, "queue", "requests", alone)
    row["wal_await"] = _numbers(wal, "write_await", "ms", alone)
    row["burst_ratio"] = _mean(
        trials, lambda o: o.burst_ratio, "", f"{alone}, or no bursts", beside=published.BURST_RATIO, experiment="E11"
    )
    row["burst_await"] = _numbers(data, "burst_write_await", "ms", "no bursts of data writes", published.WRITE_AWAIT)
    row |= _latencies(trials)
    row |= _views(trials, alone)
    return row


def _share_stalled(found: Observed) -> float | None:
    return None if found.stalled is None else 100 * found.stalled / found.window


def _latencies(trials: Sequence[Observed]) -> Row:
    """Latency inside and outside of checkpoints, over the logged transactions of all trials, and the ratio of their means."""
    row: Row = {}
    inside = histogram.merged(o.inside for o in trials)
    outside = histogram.merged(o.outside for o in trials)
    for name, counts in (("inside", inside), ("outside", outside)):
        for share in (0.5, 0.95, 0.99):
            value = quantile_ms(counts, share)
            key, n = f"p{100 * share:.0f}_{name}", sum(counts.values())
            if value is None:
                row[key] = missing("ms", f"{n} logged transactions are too few", method=_LOGS)
            else:
                row[key] = Finding(
                    value=value, unit="ms", n=n, method=_LOGS, note="no interval: transactions of one trial are not independent"
                )
    row["p95_ratio"] = _ratio(trials)
    return row


def _ratio(trials: Sequence[Observed]) -> Finding:
    """p95 inside ÷ outside, each trial's own, as a geometric mean with its interval."""
    logs = []
    for one in trials:
        inside, outside = quantile_ms(one.inside, 0.95), quantile_ms(one.outside, 0.95)
        if inside and outside:
            logs.append(math.log(inside / outside))
    if not logs:
        return missing("", "no trial has enough logged transactions inside and outside of checkpoints")
    found = mean_interval(logs)
    ends = {name: None if (end := getattr(found, name)) is None else math.exp(end) for name in ("low", "high")}
    ratio = Estimate(math.exp(found.value), ends["low"], ends["high"], found.confidence, found.n, found.method, found.note)
    return as_finding(ratio, "", method="p95 inside ÷ outside of checkpoints; geometric mean over trials, Student's t interval of the logs")


def _views(trials: Sequence[Observed], alone: str) -> Row:
    """PostgreSQL's own view beside the devices'."""
    return {
        "wal_generated": _mean(trials, lambda o: o.wal_generated, "MB/s", "pg_stat_wal was not seen", method=f"pg_stat_wal; {_MEAN}"),
        "wal_per_tx": _mean(
            trials, lambda o: o.wal_per_tx, "kB", "pg_stat_wal was not seen", method=f"pg_stat_wal ÷ transactions; {_MEAN}"
        ),
        "wal_device": _mean(trials, lambda o: o.wal_written, "MB/s", alone, method=f"/proc/diskstats; {_MEAN}"),
        "relations_written": _mean(
            trials, lambda o: o.relations_written, "MB/s", "pg_stat_io is of PostgreSQL 16 and later", method=f"pg_stat_io; {_MEAN}"
        ),
        "checkpoints_written": _mean(
            trials, lambda o: o.checkpoint_written, "MB/s", "its statistics were not seen", method=f"pg_stat_checkpointer; {_MEAN}"
        ),
        "data_device": _mean(trials, lambda o: o.data_written, "MB/s", alone, method=f"/proc/diskstats; {_MEAN}"),
    }


def _mean(
    trials: Sequence[Observed],
    take: Callable[[Observed], float | None],
    unit: str,
    absent: str,
    *,
    method: str = _MEAN,
    beside: str | None = None,
    experiment: str | None = None,
) -> Finding:
    values = [value for one in trials if (value := take(one)) is not None]
    if not values:
        return missing(unit, absent, method=method, experiment=experiment, published=beside)
    return as_finding(mean_interval(values), unit, method=method, experiment=experiment, published=beside)


def _numbers(parts: Sequence[Mapping[str, float | None]], name: str, unit: str, absent: str, beside: str = "") -> Finding:
    values = [value for part in parts if (value := part.get(name)) is not None]
    experiment = "E11" if beside else None
    if not values:
        return missing(unit, absent, method="/proc/diskstats", experiment=experiment, published=beside or None)
    method = f"/proc/diskstats; {_MEAN}"
    return as_finding(mean_interval(values), unit, method=method, experiment=experiment, published=beside or None)


def _stall_rows(side: str, trials: Sequence[Observed]) -> list[Row]:
    rows: list[Row] = []
    for one in trials:
        for stall in one.stalls or ():
            rows.append(
                {
                    "server": side,
                    "trial": one.trial,
                    "start_s": round(stall.start, 2),
                    "end_s": round(stall.end, 2),
                    "wal_of_median": round(stall.wal, 3),
                    "transactions_of_median": round(stall.transactions, 3),
                    "checkpoint": None
                    if stall.checkpoint is None
                    else f"begun at {stall.checkpoint.start:.1f} s ({stall.checkpoint.cause})",
                }
            )
    return rows


def _checkpoint_rows(side: str, trials: Sequence[Observed]) -> list[Row]:
    return [
        {
            "server": side,
            "trial": one.trial,
            "start_s": round(found.start, 2),
            "end_s": None if found.end is None else round(found.end, 2),
            "cause": found.cause,
            "buffers": found.buffers,
            "write_s": found.write_seconds,
            "sync_s": found.sync_seconds,
            "wal_mb": None if found.distance_bytes is None else round(found.distance_bytes / 2**20, 1),
        }
        for one in trials
        for found in one.checkpoints
    ]


def _alone(
    options: StorageOptions,
    results: Sequence[TrialResult],
    findings: dict[str, Finding],
    tables: dict[str, list[Row]],
    said: list[str],
) -> Analysis:
    """One server that was watched."""
    warnings = trial_warnings(results)
    if not tables["storage"]:
        return Analysis(answer="Nothing can be said: no trial finished with an I/O view.", grade="C", warnings=warnings + said)
    clean = {result.trial.key() for result in results if not result.tainted}
    grade = grade_of([bool(clean)], clean, results, whole=len(clean) >= LEAST)
    warnings += fallback_warnings([bool(clean)])
    return Analysis(
        answer=qualify_answer(words.answer(options, findings), grade),
        grade=grade,
        findings=findings,
        tables=tables,
        warnings=[*warnings, *said],
        look_at=["the table 'io': each device by itself", "the table 'checkpoints': what the server's log says of each"],
    )
