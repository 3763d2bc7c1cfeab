"""Analysis of the I/O profile: its tables and findings, the answer, and the warnings. Pure.

E11 and E13 are the published references (Gary Little, n0derunner.com).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from pgherd.analysis import histogram
from pgherd.analysis.checkpoints import RULE
from pgherd.analysis.intervals import LEAST, Estimate, mean_interval
from pgherd.model.analysis import Analysis, Finding
from pgherd.model.result import TrialResult, clean_or_all
from pgherd.studies.io_profile import external_server
from pgherd.studies.io_profile.options import IoProfileOptions
from pgherd.studies.io_profile.trial_profile import TrialProfile, profile_of, quantile_ms
from pgherd.study.comparison import analyse as compare
from pgherd.study.comparison.time_slices import VARIANT
from pgherd.study.device_io import series_numbers
from pgherd.study.findings import as_finding, missing
from pgherd.study.grade import fallback_warnings, grade_of, judge_answer, qualify_answer, trial_warnings

SOURCE = "Gary Little, n0derunner.com"
BURST_RATIO = f"bursts of data writes at about 10 × the WAL's rate ({SOURCE})"
WAL_SIZE = f"16–32 kB, steady, sequential, low concurrency ({SOURCE})"
WRITE_AWAIT = f"1.5 ms on average, even in bursts ({SOURCE})"
STALLS = f"at a completion target of 0.5 WAL writes stalled in checkpoints, at 0.9 they did not ({SOURCE})"
IOPS = f"more than 500,000 IOPS under 1 ms: 32 PostgreSQL VMs on 4 hosts ({SOURCE})"
"""From E13. The others are from E11."""
MANY_DISKS = f"one database spread over several disks made more than 2 × what it made on one ({SOURCE})"

DISAGREEMENT_RATIO = 1.25
"""Ratio of the views of PostgreSQL and the device from which on their difference is a warning."""
MIN_CHECKPOINTS = 2
"""Checkpoints that a trial needs for conclusions on them."""

Row = dict[str, Finding | str | int | float | None]
_MEAN = "mean over trials, Student's t interval"
_LOGS = "logged transactions of the trials that count; during: the transaction overlaps a checkpoint"
_NO_PG_STAT_IO = "pg_stat_io needs PostgreSQL 16"
_NO_STALL_DATA = "too few seconds or too few writes to detect stalls"


def analyse(options: IoProfileOptions, results: Sequence[TrialResult]) -> Analysis:
    """Return the analysis of the run. With several variants it is the comparison's, with the I/O tables and findings put first."""
    by_variant = _by_variant(options, results)
    rows = [_row(options, variant, trials) for variant, trials in by_variant.items() if trials]
    findings: dict[str, Finding] = {}
    for row in rows:
        suffix = "" if options.single else f":{row['server']}"
        findings |= {f"{name}{suffix}": cell for name, cell in row.items() if isinstance(cell, Finding)}
    tables = {"io_profile": rows}
    if not external_server.is_profiled(by_variant):
        tables |= {
            "stalls": [row for variant, trials in by_variant.items() for row in _stall_rows(variant, trials)],
            "checkpoints": [row for variant, trials in by_variant.items() for row in _checkpoint_rows(variant, trials)],
        }
    io_warnings = warnings_of(options, by_variant)
    if options.trace_unavailable:
        io_warnings.insert(0, f"The share of requests under 1 ms is unknown: {options.trace_unavailable}")
    if options.single:
        return _single(options, results, by_variant[options.baseline], findings, tables, io_warnings)
    comparison = compare.analyse(options, results)
    answer = comparison.answer.removesuffix(".")
    extra = _extra(options, by_variant, rows)
    return comparison.model_copy(
        update={
            "answer": f"{answer}; {extra}." if extra else comparison.answer,
            "findings": {**findings, **comparison.findings},
            "tables": {**tables, **comparison.tables},
            "warnings": [*comparison.warnings, *io_warnings],
        }
    )


def _extra(options: IoProfileOptions, by_variant: Mapping[str, Sequence[TrialProfile]], rows: Sequence[Row]) -> str:
    """Return the part of a comparison's answer on I/O."""
    if external_server.is_profiled(by_variant):
        return external_server.wal_text(rows)
    return stalls_text(by_variant) if options.memory_ratio is None else iops_text(rows)


def _by_variant(options: IoProfileOptions, results: Sequence[TrialResult]) -> dict[str, list[TrialProfile]]:
    """Return variant → profiles of its clean trials, or of its tainted ones if none is clean.

    Both trials of the baseline in a block count as the baseline's.
    """
    by_variant: dict[str, list[TrialProfile]] = {}
    for variant in options.variants:
        names = {variant.name, options.aa_variant} if variant.name == options.baseline else {variant.name}
        trials = [result for result in results if options.single or result.trial.point.get(VARIANT) in names]
        by_variant[variant.name] = [profile for result in clean_or_all(trials) if (profile := profile_of(result)) is not None]
    return by_variant


# ---- tables


def _row(options: IoProfileOptions, variant: str, trials: Sequence[TrialProfile]) -> Row:
    """Return a variant's row of the table ``io_profile``."""
    row: Row = {"server": variant, "throughput": _mean(trials, lambda trial: trial.throughput, "tps", "no trial finished")}
    shared = "data and WAL share a device, or their devices are not visible"
    if options.memory_ratio is not None:
        disk_counts = {max(1, len(variant.options.get("tablespaces", ()))) for variant in options.variants}
        disks = MANY_DISKS if len(disk_counts) > 1 else None
        row["iops"] = _mean(
            trials, lambda trial: trial.iops, "requests/s", "the data's devices are not visible", reference=disks, experiment="E13"
        )
        row["share_under_1ms"] = _mean(
            trials,
            lambda trial: None if trial.share_under_1ms is None else 100 * trial.share_under_1ms,
            "%",
            f"unknown without a trace{f': {options.trace_unavailable}' if options.trace_unavailable else ''}",
            method=f"traced reads and writes of the data's devices; {_MEAN}",
            reference=IOPS,
            experiment="E13",
        )
    external = all(trial.external for trial in trials)
    row |= _checkpoint_counts(trials, external)
    row["stalls"] = _mean(
        trials,
        lambda trial: None if trial.stalls is None else len(trial.stalls),
        "per trial",
        _NO_STALL_DATA,
        method=f"{RULE}; {_MEAN}",
        reference=STALLS,
        experiment="E11",
    )
    row["stalls_in_checkpoints"] = _mean(
        trials,
        lambda trial: None if trial.stalls is None else sum(stall.checkpoint is not None for stall in trial.stalls),
        "per trial",
        _NO_STALL_DATA,
        method=f"{RULE}; {_MEAN}",
    )
    row["stall_time_share"] = _mean(trials, _stall_percent, "%", _NO_STALL_DATA, method=f"{RULE}; {_MEAN}")
    wal = [series_numbers(trial.wal.series) if trial.wal is not None and trial.wal_separate else {} for trial in trials]
    data = [series_numbers(trial.data.series) if trial.data is not None else {} for trial in trials]
    row["wal_request_size"] = _device_mean(wal, "write_request_size", "kB", shared, WAL_SIZE)
    row["wal_queue_depth"] = _device_mean(wal, "queue_depth", "requests", shared)
    row["wal_await"] = _device_mean(wal, "write_await", "ms", shared)
    row["data_burst_to_wal_ratio"] = _mean(
        trials, lambda trial: trial.burst_ratio, "", f"{shared}, or there are no bursts", reference=BURST_RATIO, experiment="E11"
    )
    row["burst_write_await"] = _device_mean(data, "burst_write_await", "ms", "no bursts of data writes", WRITE_AWAIT)
    row |= _latencies(trials)
    row |= _write_rates(trials, shared, external)
    return external_server.with_reasons(row) if external else row


def _checkpoint_counts(trials: Sequence[TrialProfile], external: bool) -> Row:
    """Return the number of checkpoints. For external servers also their rate and that of reads, which a device does not show there."""
    if not external:
        return {"checkpoints": _mean(trials, lambda trial: trial.checkpoint_count, "per trial", "the server's log could not be read")}
    method, absent = f"{external_server.CHECKPOINTER}; {_MEAN}", "the checkpointer's statistics could not be read"
    return {
        "checkpoints": _mean(trials, lambda trial: trial.checkpoint_count, "per trial", absent, method=method),
        "checkpoint_rate": _mean(trials, lambda trial: trial.checkpoint_rate, "1/min", absent, method=method),
        "relation_read_rate": _mean(trials, lambda trial: trial.relation_read_rate, "MB/s", _NO_PG_STAT_IO, method=f"pg_stat_io; {_MEAN}"),
    }


def _stall_percent(trial: TrialProfile) -> float | None:
    return None if trial.stall_seconds is None else 100 * trial.stall_seconds / trial.seconds


def _latencies(trials: Sequence[TrialProfile]) -> Row:
    """Return latency during and between checkpoints over the logged transactions of all trials, and the ratio of their p95."""
    row: Row = {}
    during = histogram.merged(trial.during for trial in trials)
    between = histogram.merged(trial.between for trial in trials)
    for name, counts in (("during_checkpoint", during), ("between_checkpoints", between)):
        for share in (0.5, 0.95, 0.99):
            value = quantile_ms(counts, share)
            key, n = f"p{100 * share:.0f}_{name}", sum(counts.values())
            if value is None:
                row[key] = missing("ms", f"{n} logged transactions are too few", method=_LOGS)
            else:
                row[key] = Finding(
                    value=value, unit="ms", n=n, method=_LOGS, note="no interval: transactions of one trial are not independent"
                )
    row["p95_checkpoint_ratio"] = _p95_ratio(trials)
    return row


def _p95_ratio(trials: Sequence[TrialProfile]) -> Finding:
    """Return the geometric mean over trials of p95 during ÷ p95 between checkpoints, with its interval."""
    logs = []
    for trial in trials:
        during, between = quantile_ms(trial.during, 0.95), quantile_ms(trial.between, 0.95)
        if during and between:
            logs.append(math.log(during / between))
    if not logs:
        return missing("", "no trial has enough logged transactions during and between checkpoints")
    mean = mean_interval(logs, signed=True)
    ends = {name: None if (end := getattr(mean, name)) is None else math.exp(end) for name in ("low", "high")}
    ratio = Estimate(math.exp(mean.value), ends["low"], ends["high"], mean.confidence, mean.n, mean.method, mean.note)
    return as_finding(ratio, "", method="p95 during ÷ between checkpoints; geometric mean over trials, Student's t interval of the logs")


def _write_rates(trials: Sequence[TrialProfile], shared: str, external: bool) -> Row:
    """Return the write rates that PostgreSQL reports and those of the devices."""
    per_tx = "pg_stat_wal of the whole server ÷ transactions of the load" if external else "pg_stat_wal ÷ transactions"
    return {
        "wal_rate_postgres": _mean(
            trials, lambda trial: trial.wal_rate_postgres, "MB/s", "pg_stat_wal could not be read", method=f"pg_stat_wal; {_MEAN}"
        ),
        "wal_per_tx": _mean(trials, lambda trial: trial.wal_per_tx, "kB", "pg_stat_wal could not be read", method=f"{per_tx}; {_MEAN}"),
        "wal_rate_device": _mean(trials, lambda trial: trial.wal_rate_device, "MB/s", shared, method=f"/proc/diskstats; {_MEAN}"),
        "relation_write_rate": _mean(
            trials, lambda trial: trial.relation_write_rate, "MB/s", _NO_PG_STAT_IO, method=f"pg_stat_io; {_MEAN}"
        ),
        "checkpoint_write_rate": _mean(
            trials,
            lambda trial: trial.checkpoint_write_rate,
            "MB/s",
            "the checkpointer's statistics could not be read",
            method=f"pg_stat_checkpointer; {_MEAN}",
        ),
        "data_rate_device": _mean(trials, lambda trial: trial.data_rate_device, "MB/s", shared, method=f"/proc/diskstats; {_MEAN}"),
    }


def _mean(
    trials: Sequence[TrialProfile],
    value_of: Callable[[TrialProfile], float | None],
    unit: str,
    absent: str,
    *,
    method: str = _MEAN,
    reference: str | None = None,
    experiment: str | None = None,
) -> Finding:
    values = [value for trial in trials if (value := value_of(trial)) is not None]
    if not values:
        return missing(unit, absent, method=method, experiment=experiment, published=reference)
    return as_finding(mean_interval(values), unit, method=method, experiment=experiment, published=reference)


def _device_mean(numbers: Sequence[Mapping[str, float | None]], name: str, unit: str, absent: str, reference: str | None = None) -> Finding:
    """Return the mean over trials of one number of a device."""
    values = [value for by_name in numbers if (value := by_name.get(name)) is not None]
    experiment = "E11" if reference else None
    if not values:
        return missing(unit, absent, method="/proc/diskstats", experiment=experiment, published=reference)
    method = f"/proc/diskstats; {_MEAN}"
    return as_finding(mean_interval(values), unit, method=method, experiment=experiment, published=reference)


def _stall_rows(variant: str, trials: Sequence[TrialProfile]) -> list[Row]:
    rows: list[Row] = []
    for trial in trials:
        for stall in trial.stalls or ():
            checkpoint = stall.checkpoint
            rows.append(
                {
                    "server": variant,
                    "trial": trial.trial,
                    "start_s": round(stall.start, 2),
                    "end_s": round(stall.end, 2),
                    "wal_of_median": round(stall.wal, 3),
                    "transactions_of_median": round(stall.transactions, 3),
                    "checkpoint": None if checkpoint is None else f"started at {checkpoint.start:.1f} s ({checkpoint.cause})",
                }
            )
    return rows


def _checkpoint_rows(variant: str, trials: Sequence[TrialProfile]) -> list[Row]:
    return [
        {
            "server": variant,
            "trial": trial.trial,
            "start_s": round(checkpoint.start, 2),
            "end_s": None if checkpoint.end is None else round(checkpoint.end, 2),
            "cause": checkpoint.cause,
            "buffers": checkpoint.buffers,
            "write_s": checkpoint.write_seconds,
            "sync_s": checkpoint.sync_seconds,
            "wal_mb": None if checkpoint.distance_bytes is None else round(checkpoint.distance_bytes / 2**20, 1),
        }
        for trial in trials
        for checkpoint in trial.checkpoints
    ]


# ---- answer


def _single(
    options: IoProfileOptions,
    results: Sequence[TrialResult],
    trials: Sequence[TrialProfile],
    findings: dict[str, Finding],
    tables: dict[str, list[Row]],
    io_warnings: list[str],
) -> Analysis:
    """Return the analysis of a run with one variant, from the profiles of the trials that count."""
    warnings = trial_warnings(results)
    if not tables["io_profile"]:
        return Analysis(answer="No result: no trial finished with an I/O view.", grade="C", warnings=warnings + io_warnings)
    clean = {result.trial.key() for result in results if not result.tainted}
    few = _too_few_checkpoints(options, trials)
    grade, reason = judge_answer(grade_of([bool(clean)], clean, results, whole=len(clean) >= LEAST), [few] if few else [])
    warnings += fallback_warnings([bool(clean)])
    if len(trials) < LEAST:
        warnings.append(f"No interval: fewer than {LEAST} usable trials")
    if "checkpoints" in tables:
        answer = answer_of(options, findings, few)
        next_steps = ["the table 'io': each device separately", "the table 'checkpoints': each checkpoint in the server's log"]
    else:
        answer = external_server.answer_of(findings)
        next_steps = ["the table 'server_activity': WAL, I/O operations and replication of the server"]
    return Analysis(
        answer=qualify_answer(answer, grade),
        grade=grade,
        grade_reason=reason,
        findings=findings,
        tables=tables,
        warnings=[*warnings, *io_warnings],
        next_steps=next_steps,
    )


def answer_of(options: IoProfileOptions, findings: Mapping[str, Finding], few: str = "") -> str:
    """Return the answer for a single server. ``few``: the trials have too few checkpoints ('': they have enough)."""
    tps = _number(findings.get("throughput"), "{:,.0f} tps")
    start = f"At {tps}" if tps else "For this server"
    if options.memory_ratio is not None:
        iops, fast = _number(findings.get("iops"), "{:,.0f} IOPS"), _number(findings.get("share_under_1ms"), "{:.1f} %")
        served = f"{start} the data's devices served {iops or 'an unknown number of IOPS'}"
        return f"{served}, {fast} of them in under 1 ms." if fast else f"{served}. The share under 1 ms is unknown."
    stalls = findings.get("stalls")
    if stalls is None or stalls.value is None:
        parts = [f"{start} stalls of WAL writes are unknown"]
    elif stalls.value == 0:
        parts = [f"{start} WAL writes did not stall"]
    else:
        in_checkpoints = findings["stalls_in_checkpoints"].value or 0.0
        parts = [f"{start} WAL writes stalled {stalls.value:.2g} × per trial, {in_checkpoints:.2g} × in checkpoints"]
    parts += [few] if few else []
    ratio = findings.get("p95_checkpoint_ratio")
    if ratio is not None and ratio.value is not None:
        parts.append(f"p95 latency during checkpoints is {ratio.value:.2f} × the p95 between them")
    burst = findings.get("data_burst_to_wal_ratio")
    if burst is not None and burst.value is not None:
        parts.append(f"bursts of data writes reach {burst.value:.1f} × the WAL's rate")
    return "; ".join(parts) + "."


def stalls_text(by_variant: Mapping[str, Sequence[TrialProfile]]) -> str:
    """Return the number of stalls of each variant. '' if no variant has stall data."""
    texts = []
    for variant, trials in by_variant.items():
        with_stalls = [trial for trial in trials if trial.stalls is not None]
        if not with_stalls:
            continue
        count = sum(len(trial.stalls or ()) for trial in with_stalls)
        in_checkpoints = sum(stall.checkpoint is not None for trial in with_stalls for stall in trial.stalls or ())
        stalls = f"{count} stall{'' if count == 1 else 's'} ({in_checkpoints} in checkpoints)" if count else "no stall"
        texts.append(f"{variant} had {stalls} in {len(with_stalls)} trial{'' if len(with_stalls) == 1 else 's'}")
    return "WAL writes: " + ", ".join(texts) if texts else ""


def iops_text(rows: Sequence[Mapping[str, object]]) -> str:
    """Return the IOPS of each variant and their share under 1 ms. '' if no variant has IOPS."""
    texts = []
    for row in rows:
        iops, fast = row.get("iops"), row.get("share_under_1ms")
        if isinstance(iops, Finding) and iops.value is not None:
            share = _number(fast if isinstance(fast, Finding) else None, ", {:.1f} % of them in under 1 ms")
            texts.append(f"{_number(iops, '{:,.0f} IOPS')} with {row['server']}{share}")
    return "the data's devices served " + "; ".join(texts) if texts else ""


# ---- warnings


def warnings_of(options: IoProfileOptions, by_variant: Mapping[str, Sequence[TrialProfile]]) -> list[str]:
    """Return the warnings on missing data and on disagreements between PostgreSQL and the devices.

    A warning that does not apply to all variants starts with the names of those that it applies to.
    """
    variants: dict[str, list[str]] = {}
    for variant, trials in by_variant.items():
        for warning in _variant_warnings(options, trials):
            variants.setdefault(warning, []).append(variant)
    return [warning if len(names) == len(by_variant) else f"{', '.join(names)}: {warning}" for warning, names in variants.items()]


def _variant_warnings(options: IoProfileOptions, trials: Sequence[TrialProfile]) -> list[str]:
    if not trials:
        return ["no trial finished with an I/O view"]
    external, few = all(trial.external for trial in trials), _too_few_checkpoints(options, trials)
    several = "a --duration of several times the server's checkpoint_timeout"
    remedy = several if external else "a longer --duration or a shorter --checkpoint-timeout"
    warnings = [f"{few}. Use {remedy}"] if few else []
    if external:
        return warnings
    if options.memory_ratio is None and not all(trial.wal_separate for trial in trials):
        warnings.append(
            "the WAL has no device to itself, so its device I/O is unknown and stalls are detected by the flushes of data and WAL. "
            "--wal-volume puts the WAL on another device, which must not hold a loop device with data"
        )
    if any(trial.wal_passes_through for trial in trials):
        warnings.append(
            "the WAL's device passes its requests on to the data's device, as a loop device on a file there does. The I/O of the data's "
            "device therefore contains both, and is not compared with the WAL or with PostgreSQL's statistics"
        )
    return warnings + disagreements(trials)


def _too_few_checkpoints(options: IoProfileOptions, trials: Sequence[TrialProfile]) -> str:
    """Return that a trial has fewer checkpoints than conclusions on them need. '' if it has enough, or if none are drawn."""
    counts = [count for trial in trials if (count := trial.checkpoint_count) is not None]
    if options.memory_ratio is not None or not counts or (checkpoints := statistics.median(counts)) >= MIN_CHECKPOINTS:
        return ""
    return f"too few checkpoints for conclusions on them: {checkpoints:.2g} per trial, at least {MIN_CHECKPOINTS} are needed"


def disagreements(trials: Sequence[TrialProfile]) -> list[str]:
    """Return a warning where the writes that PostgreSQL reports and those of the device differ by over ``DISAGREEMENT_RATIO``."""
    warnings = []
    generated, written = _mean_of([trial.wal_rate_postgres for trial in trials]), _mean_of([trial.wal_rate_device for trial in trials])
    if generated and written and not 1 / DISAGREEMENT_RATIO <= written / generated <= DISAGREEMENT_RATIO:
        reason = (
            "each commit writes whole pages of 8 kB and the file system's journal, even for little new WAL"
            if written > generated
            else "WAL stays in the page cache until it is synced"
        )
        warnings.append(
            f"PostgreSQL generated {generated:.2f} MB/s of WAL (pg_stat_wal), its device wrote {written:.2f} MB/s (/proc/diskstats): "
            f"{reason}"
        )
    relations, source = _mean_of([trial.relation_write_rate for trial in trials]), "pg_stat_io"
    if relations is None:
        relations, source = _mean_of([trial.checkpoint_write_rate for trial in trials]), "its checkpointer's statistics"
    device = _mean_of([trial.data_rate_device for trial in trials])
    if relations and device and not 1 / DISAGREEMENT_RATIO <= device / relations <= DISAGREEMENT_RATIO:
        reason = (
            "the page cache combines several writes of a page into one"
            if device < relations
            else "the file system's journal and metadata, other programs, or processes other than the checkpointer write there too"
        )
        warnings.append(
            f"PostgreSQL wrote {relations:.2f} MB/s of relations ({source}), the data's device {device:.2f} MB/s (/proc/diskstats): "
            f"{reason}"
        )
    return warnings


def _mean_of(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return statistics.fmean(present) if present else None


def _number(finding: Finding | None, form: str) -> str:
    return "" if finding is None or finding.value is None else form.format(finding.value)
