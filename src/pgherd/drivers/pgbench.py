"""Driver for pgbench.

``Load.options``: ``define:NAME`` (pgbench's -D NAME=value), ``connect`` (-C), ``transactions`` (-t), ``delay`` (seconds before
pgbench starts).

**Counting.** Transactions are counted on a cumulative curve through pgbench's progress lines. Each line adds its rate times the time since
the line before, and the total of the final report is the last point. The transactions of a window are the difference of the curve at
its borders, linear between two points. Progress lines are one second apart, so a window's border inside a second assumes a steady
rate within that second.

After the stop, each client only finishes its current transaction, and pgbench then takes time to exit, much of it if its CPU quota is used
up. So all transactions except those in progress, whose number follows from Little's law, are counted before the stop.

**Latency.** The mean is from the progress lines, which cover every transaction, weighted by their overlap with the window. Percentiles are
from the sampled transactions that ended in the window. A percentile is None unless at least ten of them are above it. With a rate,
pgbench counts latency from the scheduled start, in the log and in its reports ("the reported latency … includes the schedule lag
time": documentation of --rate), so queueing is not hidden.

**Slices.** If loads run in interleaved time slices (``MeasuredWindow.turns``), pgbench is paused between its slices. A progress line may
span any number of pauses, so progress lines cannot be assigned to a slice. The log has the end of each sampled transaction. The number
of transactions in a span is the total of the final report, which is exact, times the fraction of logged transactions in the span. So
the sample only determines fractions, and the larger the span, the smaller their random error.

A transaction in progress at a pause ends soon after the start of the next slice, and is counted there. Its latency includes the pause, so
only latencies that start and end within one slice are used. The mean is that of a closed loop by Little's law: clients ÷
throughput (Little, Operations Research 9, 1961).

Each slice starts with the transactions in progress, which synchronizes the clients. The effect lasts for a few transactions. If these take
long compared with the counted part of a slice, the count would reflect the slices more than the load, so there is none.

**Transactions.** A load with a number of transactions ends by itself. All of them count, whether they ended in the window or not, and
``connect_ms`` is the time to connect before them.

**Scripts.** If a load's scripts have names, transactions that ended in the window are also counted by name, using the script's number in
the log. The count is exact if every transaction is logged (``sampling`` 1). Otherwise it is the script's fraction of the logged
transactions times all transactions. Failed transactions are in neither. NOPM is the number of transactions of the script
``new-order`` per minute. New orders that roll back on purpose belong to another script.
"""

from __future__ import annotations

import re
import signal
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import ceil, floor
from statistics import fmean, median
from typing import Any

from pgherd.drivers.driver import CumulativeCurve, DriverSpan, Endpoint, MeasuredWindow
from pgherd.drivers.pgbench_output import (
    LoggedTransaction,
    PgbenchReport,
    ProgressLine,
    first_logged,
    latency,
    percentile,
    read_logs,
    read_progress,
    read_report,
)
from pgherd.model.errors import UsageError
from pgherd.model.load import NEW_ORDER, LatencyObjective, Load
from pgherd.model.result import Latency, TargetResult

PERIOD = 1.0
"""Seconds between progress lines."""
_LAG_PARTS = 30
"""Maximum number of parts of a window whose mean lags give the lag's growth."""
_MIN_LAG_PARTS = 4

_IN_ARGV = ("transactions", "delay")
"""Options that ``argv`` adds."""


class PgbenchDriver:
    """pgbench, stopped by SIGALRM. pgbench ends a -T run with the same signal, so the final report is complete.

    Each client first finishes its current transaction. SIGTERM would end pgbench without a report.
    """

    name = "pgbench"
    stop_signal: int = signal.SIGALRM
    exit_codes: tuple[int, ...] = (0,)

    def argv(self, load: Load, endpoint: Endpoint, seconds: float) -> list[str]:
        """Return the command line. pgbench writes ``log.PID[.THREAD]`` into ``endpoint.output``.

        -s is only used with scripts: with a builtin script pgbench reads the scale from the database.

        Raises:
            UsageError: an unknown option, a variable name that pgbench does not accept, or no script.
        """
        argv = [f"{endpoint.bin}/pgbench", "-n", "-M", load.protocol, "-c", str(load.clients), "-j", str(load.threads)]
        length = ["-t", load.options["transactions"]] if load.ends_itself else ["-T", str(max(1, ceil(seconds)))]
        argv += [*length, "-P", "1", "--progress-timestamp"]
        argv += ["-l", f"--log-prefix={endpoint.output}/log"]
        if load.sampling < 1:
            argv.append(f"--sampling-rate={load.sampling:g}")
        if load.rate is not None:
            argv += ["-R", f"{load.rate:g}"]
        argv += _options(load)
        if not load.scripts:
            raise UsageError("a pgbench load needs at least one script, such as builtin:select-only")
        builtin = False
        for script in load.scripts:
            kind, _, name = script.source.partition(":")
            if kind == "builtin":
                builtin = True
                argv += ["-b", f"{name}@{script.weight}"]
            else:
                argv += ["-f", f"{script.source}@{script.weight}"]
        if not builtin:
            argv += ["-s", str(endpoint.scale)]
        argv += ["-h", endpoint.host, "-p", str(endpoint.port), "-U", endpoint.user, endpoint.database]
        return ["sh", "-c", 'sleep "$0" && exec "$@"', load.options["delay"], *argv] if "delay" in load.options else argv

    def span(self, files: Mapping[str, str], started: float, stop: float) -> DriverSpan:
        """Return the interval from the first transaction's start, with all clients connected, to the stop.

        It ends with pgbench if that ended earlier.

        Raises:
            ValueError: pgbench failed or wrote no report.
        """
        report, progress = read_report(files), read_progress(files.get("stderr", ""))
        first = _first(report, progress, started)
        logged = first_logged(files, False)
        if logged is not None:  # a progress line is late if pgbench or pgherd was not scheduled
            first = max(started, min(first, logged))
        end = stop if report.seconds is None else min(stop, first + report.seconds)
        return DriverSpan(first, max(first, end))

    def result(self, load: Load, files: Mapping[str, str], started: float, window: MeasuredWindow, target: str) -> TargetResult:
        """Return the target's result over the common window.

        Raises:
            ValueError: pgbench failed or wrote no report, or the window is empty.
        """
        if window.end <= window.start:
            raise ValueError(f"the window of {target} is empty: it ends {window.start - window.end:.3f} s before it starts")
        report, progress = read_report(files), read_progress(files.get("stderr", ""))
        span = self.span(files, started, window.stop)
        logged = list(read_logs(files, load.rate is not None))
        if load.ends_itself:
            return _all_transactions(report, logged, span, window, target)
        if window.turns:
            counted = count_in_slices(report, logged, window, load.clients, target)
        else:
            counted = _count(report, progress, logged, started, window, load.clients)
        scripts = by_script(load, counted.sample, counted.transactions)
        return TargetResult(
            target=target,
            driver=self.name,
            transactions=counted.transactions,
            throughput=counted.throughput,
            per_second=counted.per_second,
            latency=counted.latency,
            failed=counted.failed,
            scripts=scripts,
            nopm=60 * scripts[NEW_ORDER] / counted.seconds if NEW_ORDER in scripts else None,
            first=span.first,
            last=span.last,
            **late_counts(load.objectives, counted.sample, window.start, window.end),
        )


def _all_transactions(
    report: PgbenchReport, logged: Sequence[LoggedTransaction], span: DriverSpan, window: MeasuredWindow, target: str
) -> TargetResult:
    """Return the result of a load that ended by itself."""
    seconds = window.end - window.start
    per_second = [0.0] * floor(seconds + 1e-6)
    for transaction in logged:
        if 0 <= (second := floor(transaction.at - window.start)) < len(per_second):
            per_second[second] += 1
    return TargetResult(
        target=target,
        driver=PgbenchDriver.name,
        transactions=report.transactions,
        throughput=report.transactions / seconds,
        per_second=per_second,
        latency=latency([transaction.latency for transaction in logged], report.latency),
        failed=report.failed,
        first=min((_start(transaction) for transaction in logged), default=span.first),
        last=max((transaction.at for transaction in logged), default=span.last),
        values={"connect_ms": 1000 * report.connecting},
    )


def late_counts(
    objectives: Sequence[LatencyObjective], sample: Sequence[LoggedTransaction], start: float, end: float
) -> dict[str, dict[str, Any]]:
    """Return values and series of the logged transactions for latency objectives. Empty without an objective.

    ``logged_tx`` is their number, ``late_p99_10ms_tx`` the number of those beyond an objective's limit, both in total and by whole
    seconds, ``p99_ms`` the percentile, and ``p99_least_ms`` the smallest limit that the transactions keep.
    """
    if not objectives:
        return {}
    latencies = sorted(transaction.latency for transaction in sample)
    values: dict[str, float] = {"logged_tx": len(latencies)}
    seconds = floor(end - start + 1e-6)
    series = {"logged_tx": [0.0] * seconds, **{f"late_{objective.key}_tx": [0.0] * seconds for objective in objectives}}
    by_second: list[list[float]] = [[] for _ in range(seconds)]
    for transaction in sample:
        second = min(int(transaction.at - start), seconds)
        if second < seconds:
            by_second[second].append(transaction.latency)
            series["logged_tx"][second] += 1
            for objective in objectives:
                series[f"late_{objective.key}_tx"][second] += transaction.latency > objective.limit_ms
    in_seconds = [sorted(part) for part in by_second if part]
    for objective in objectives:
        values[f"late_{objective.key}_tx"] = len(latencies) - bisect_right(latencies, objective.limit_ms)
        found = percentile(latencies, objective.percentile / 100)
        if found is not None:
            values[f"{objective.name}_ms"] = found
        if latencies:
            values[f"{objective.name}_least_ms"] = _least_limit(objective, latencies, in_seconds)
    return {"values": values, "series": series}


def _least_limit(objective: LatencyObjective, ordered: Sequence[float], in_seconds: Sequence[Sequence[float]]) -> float:
    """Return the smallest limit of the percentile that sorted latencies keep, in total and in each second."""

    def least(latencies: Sequence[float], late: float) -> float:
        return latencies[max(len(latencies) - 1 - floor(late), 0)]

    total = least(ordered, objective.allowed * len(ordered))
    return max([total, *(least(part, objective.most_late(len(part))) for part in in_seconds)])


def _count(
    report: PgbenchReport,
    progress: Sequence[ProgressLine],
    logged: Sequence[LoggedTransaction],
    started: float,
    window: MeasuredWindow,
    clients: int,
) -> SliceCounts:
    """Count the transactions in a window without pauses."""
    curve, failures = curves(report, progress, started, window.stop, clients)
    transactions, seconds = curve.between(window.start, window.end), window.end - window.start
    sample = [transaction for transaction in logged if window.start < transaction.at <= window.end]
    return SliceCounts(
        transactions=transactions,
        failed=round(failures.between(window.start, window.end)),
        throughput=transactions / seconds,
        seconds=seconds,
        per_second=curve.per_second(window.start, window.end),
        latency=_latency(report, progress, window, sample, started),
        sample=sample,
    )


def curves(
    report: PgbenchReport, progress: Sequence[ProgressLine], started: float, stop: float, clients: int
) -> tuple[CumulativeCurve, CumulativeCurve]:
    """Return processed and failed transactions over time.

    The last point is the end of pgbench with the totals of the final report. The end is start + duration, or ``stop`` if
    the report has no duration. Sums of progress lines may exceed the total by rounding, and are limited to it. If the end
    is after the stop, all transactions except those in progress, at most one per client, ended before the stop.
    """
    first = _first(report, progress, started)
    before = _clock_start(report, progress, started)
    processed, failed = [(first, 0.0)], [(first, 0.0)]
    count = failures = 0.0
    for line in progress:
        if line.at > stop:
            break
        count = min(count + line.tps * max(0.0, line.at - before), report.transactions)
        failures = min(failures + line.failed, report.failed)
        processed.append((line.at, count))
        failed.append((line.at, failures))
        before = line.at
    end = max(before, first, stop if report.seconds is None else first + report.seconds)
    if stop > before and first < stop < end:
        processed.append((stop, max(count, report.transactions - _in_progress(report, clients))))
    processed.append((end, report.transactions))
    failed.append((end, report.failed))
    return CumulativeCurve(processed), CumulativeCurve(failed)


def _in_progress(report: PgbenchReport, clients: int) -> float:
    """Return the mean number of transactions in progress: rate times time in the system (Little 1961)."""
    if not report.seconds or report.latency is None:
        return float(clients)
    return min(clients, report.transactions / report.seconds * max(0.0, report.latency - (report.lag or 0.0)) / 1000)


def by_script(load: Load, sample: Sequence[LoggedTransaction], transactions: float) -> dict[str, float]:
    """Return the window's committed transactions by the names of the load's scripts, or nothing if none has a name.

    ``sample`` has the logged transactions of the window. ``transactions`` is the number of all.
    """
    logged = Counter(transaction.script for transaction in sample)
    weight = 1.0 if load.sampling >= 1 or not sample else transactions / len(sample)
    counts: dict[str, float] = {}
    for number, script in enumerate(load.scripts):
        if script.name is not None:
            counts[script.name] = counts.get(script.name, 0.0) + logged[number] * weight
    return counts


def _clock_start(report: PgbenchReport, progress: Sequence[ProgressLine], started: float) -> float:
    """Return the start of pgbench's progress clock, just before its clients connect.

    A progress line is due at each whole second after that, once all clients are connected. It can only be late, so the
    earliest within its second, counted back, is the best estimate. It is never before the start of the process.
    """
    if not progress:
        return started
    start = progress[0].at - max(PERIOD, report.connecting)
    for line in progress[1:]:
        early = (start - line.at) % PERIOD
        if 0 < early < PERIOD / 2:
            start -= early
    return max(start, started)


def _first(report: PgbenchReport, progress: Sequence[ProgressLine], started: float) -> float:
    return _clock_start(report, progress, started) + report.connecting


def _latency(
    report: PgbenchReport, progress: Sequence[ProgressLine], window: MeasuredWindow, sample: Sequence[LoggedTransaction], started: float
) -> Latency:
    lags = [transaction.lag for transaction in sample if transaction.lag is not None]
    weights: list[tuple[float, ProgressLine]] = []
    before = _clock_start(report, progress, started)
    for line in progress:
        overlap = min(line.at, window.end) - max(before, window.start)
        if overlap > 0:
            weights.append((line.tps * overlap, line))
        before = line.at
    total = sum(weight for weight, _ in weights)
    mean, lag = report.latency, report.lag
    if total > 0:
        mean = sum(weight * line.latency for weight, line in weights) / total
        if lag is not None:
            lag = sum(weight * (line.lag or 0.0) for weight, line in weights) / total
    result = latency([transaction.latency for transaction in sample], mean)
    growth = None if lag is None else lag_growth([line for weight, line in weights if weight > 0])
    return result.model_copy(update={"lag_mean": lag, "lag_max": max(lags) if lags else report.lag_max, "lag_growth": growth})


def lag_growth(progress: Sequence[ProgressLine]) -> float | None:
    """Return the growth of the schedule lag over progress lines, in seconds of lag per second. None: too few lines.

    It is the median of the slopes between all pairs of parts (Theil and Sen), so that one stall at an end is no growth. In an
    overload it is the share of the rate that is missing: a transaction that starts after t seconds was due at t × achieved ÷
    requested rate.
    """
    lagged = [(line.at, line.lag / 1000) for line in progress if line.lag is not None]
    count = min(len(lagged), _LAG_PARTS)
    if count < _MIN_LAG_PARTS:
        return None
    borders = [i * len(lagged) // count for i in range(count + 1)]
    parts = [lagged[first:last] for first, last in pairwise(borders)]
    means = [(fmean(at for at, _ in part), fmean(lag for _, lag in part)) for part in parts]
    slopes = [(b - a) / (later - earlier) for (earlier, a), (later, b) in combinations(means, 2) if later > earlier]
    return median(slopes) if slopes else None


def _options(load: Load) -> list[str]:
    argv: list[str] = []
    for option, value in load.options.items():
        kind, _, name = option.partition(":")
        if option in _IN_ARGV:
            continue
        if kind == "define" and re.fullmatch(r"[A-Za-z0-9_]+", name):
            argv += ["-D", f"{name}={value}"]
        elif kind == "define":
            raise UsageError(f"'{name}' is not a pgbench variable; use letters, digits and underscores, as in define:rows")
        elif option == "connect":
            argv.append("--connect")
        else:
            raise UsageError(f"pgbench has no option '{option}'; known: connect, define:NAME, {', '.join(_IN_ARGV)}")
    return argv


DRIVER = PgbenchDriver()


# ---- counts in time slices


MAX_TRANSACTION_SHARE = 0.1
"""Largest mean duration of a transaction as a fraction of the counted part of a slice."""


@dataclass(frozen=True)
class SliceCounts:
    """Counts of a pgbench in a window.

    Attributes:
        transactions: committed transactions.
        failed: failed transactions.
        throughput: transactions per second of the time that counts for rates.
        seconds: time for ``transactions`` at that throughput.
        per_second: transactions in each whole second.
        latency: latency of the sampled transactions.
        sample: logged transactions.
    """

    transactions: float
    failed: int
    throughput: float
    seconds: float
    per_second: list[float]
    latency: Latency
    sample: Sequence[LoggedTransaction]


def count_in_slices(
    report: PgbenchReport, logged: Sequence[LoggedTransaction], window: MeasuredWindow, clients: int, target: str
) -> SliceCounts:
    """Count the transactions of a pgbench in the slices of a window.

    Raises:
        ValueError: no transaction was logged in them, or a transaction takes too long for slices.
    """
    ordered = sorted(logged, key=lambda transaction: transaction.at)
    ends = [transaction.at for transaction in ordered]
    parts = [DriverSpan(max(turn.first + window.lead, turn.last - window.counted), turn.last) for turn in window.turns]
    parts = [part for part in parts if part.last > part.first]
    counted = sum(len(_between(ordered, ends, part.first, part.last)) for part in parts)
    per_logged = report.transactions / len(ordered) if ordered else 0.0
    throughput = per_logged * counted / sum(part.last - part.first for part in parts) if counted else 0.0
    if throughput * MAX_TRANSACTION_SHARE * window.counted < clients:
        duration = f"takes {1000 * clients / throughput:.3g} ms" if throughput else "never ended in the counted time"
        raise ValueError(
            f"a transaction of {target} {duration}, too long for time slices of which {1000 * window.counted:g} ms count: compare with "
            "--interleave trials"
        )
    inside = _between(ordered, ends, window.start, window.end)
    within_slice = [
        transaction.latency
        for turn in window.turns
        for transaction in _between(ordered, ends, turn.first, turn.last)
        if _start(transaction) >= turn.first
    ]
    borders = [window.start + second for second in range(floor(window.end - window.start + 1e-6) + 1)]
    return SliceCounts(
        transactions=per_logged * len(inside),
        failed=round(report.failed * len(inside) / len(ordered)),
        throughput=throughput,
        seconds=per_logged * len(inside) / throughput,
        per_second=[per_logged * len(_between(ordered, ends, first, last)) for first, last in pairwise(borders)],
        latency=latency(within_slice, 1000 * clients / throughput),
        sample=inside,
    )


def _between(ordered: Sequence[LoggedTransaction], ends: Sequence[float], first: float, last: float) -> Sequence[LoggedTransaction]:
    """Return the transactions that ended after ``first`` and not after ``last``."""
    return ordered[bisect_right(ends, first) : bisect_right(ends, last)]


def _start(transaction: LoggedTransaction) -> float:
    return transaction.at - transaction.latency / 1000
