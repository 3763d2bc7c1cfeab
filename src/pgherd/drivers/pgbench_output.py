"""Parser of the output of pgbench 15 to 18: progress lines, the final report, the transaction log and its latencies. Pure.

Formats: PostgreSQL documentation, pgbench, "Per-Transaction Logging"; the functions printProgressReport, printResults and doLog of
pgbench.c.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import floor

from pgherd.model.result import Latency

_PROGRESS = re.compile(
    r"^progress: (?P<at>\d+\.\d+) s, (?P<tps>\d+\.\d+) tps, lat (?P<latency>[\d.]+) ms stddev \S+, (?P<failed>\d+) failed"
    r"(?:, lag (?P<lag>[\d.]+) ms)?(?:, (?P<skipped>\d+) skipped)?(?:, \d+ retried, \d+ retries)?$",
    re.MULTILINE,
)
_LOG_NAME = re.compile(r"log\.\d+(?:\.\d+)?")
_ERROR = re.compile(r"^pgbench: (?:error|fatal): .*|^(?:FATAL|PANIC): .*|^Run was aborted.*", re.MULTILINE)


@dataclass(frozen=True)
class ProgressLine:
    """One progress line.

    ``at`` is the end of its interval (seconds since the epoch). ``latency`` and ``lag`` are means over the interval's
    transactions in milliseconds. With --rate, latency is counted from the scheduled start.
    """

    at: float
    tps: float
    latency: float
    failed: int
    lag: float | None = None
    skipped: int = 0


@dataclass(frozen=True)
class PgbenchReport:
    """The final report over pgbench's complete run. Latencies and lags are milliseconds.

    ``seconds`` is the duration of the load (transactions ÷ tps), None without transactions. ``connecting`` is the time to
    connect in seconds.
    """

    transactions: int
    failed: int = 0
    seconds: float | None = None
    connecting: float = 0.0
    latency: float | None = None
    lag: float | None = None
    lag_max: float | None = None


@dataclass(frozen=True, slots=True)
class LoggedTransaction:
    """One logged transaction that succeeded.

    ``at`` is its end (seconds since the epoch). ``latency`` and ``lag`` (open loop only) are milliseconds. ``script`` is
    the index of its script among pgbench's -f and -b options.
    """

    at: float
    latency: float
    lag: float | None = None
    script: int = 0


def read_progress(stderr: str) -> list[ProgressLine]:
    """Parse all progress lines (written with --progress-timestamp), in order."""
    return [
        ProgressLine(
            at=float(match["at"]),
            tps=float(match["tps"]),
            latency=float(match["latency"]),
            failed=int(match["failed"]),
            lag=None if match["lag"] is None else float(match["lag"]),
            skipped=int(match["skipped"] or 0),
        )
        for match in _PROGRESS.finditer(stderr)
    ]


def moved_progress(stderr: str, ahead: float) -> str:
    """Return the progress lines with their instants moved back by ``ahead`` seconds."""
    lines = []
    for match in _PROGRESS.finditer(stderr):
        start, end = match.start("at") - match.start(), match.end("at") - match.start()
        lines.append(f"{match[0][:start]}{float(match['at']) - ahead:.3f}{match[0][end:]}\n")
    return "".join(lines)


def read_report(files: Mapping[str, str]) -> PgbenchReport:
    """Parse the final report in ``stdout``.

    Raises:
        ValueError: there is no report, it is incomplete, or pgbench failed. The message has pgbench's last messages.
    """
    stdout, stderr = files.get("stdout", ""), files.get("stderr", "")
    if _ERROR.search(stderr) or "Run was aborted" in stdout:
        raise ValueError(f"pgbench failed: {last_messages(stdout, stderr)}")
    transactions = _number(r"number of transactions actually processed: (\d+)", stdout)
    failed = _number(r"number of failed transactions: (\d+) ", stdout)
    if transactions == 0 and failed is None:  # without transactions the report ends here
        failed = 0.0
    if transactions is None or failed is None:
        raise ValueError(f"pgbench wrote no final report; its last messages: {last_messages(stdout, stderr)}")
    tps = _number(r"tps = (\d+\.\d+) \(", stdout)
    if transactions and tps is None:
        raise ValueError(f"pgbench's final report is truncated; its last messages: {last_messages(stdout, stderr)}")
    return PgbenchReport(
        transactions=int(transactions),
        failed=int(failed),
        seconds=transactions / tps if tps else None,
        connecting=(_number(r"initial connection time = (\d+\.\d+) ms", stdout) or 0.0) / 1000,
        latency=_number(r"latency average = (\d+\.\d+) ms", stdout),
        lag=_number(r"rate limit schedule lag: avg (\d+\.\d+) \(max", stdout),
        lag_max=_number(r"rate limit schedule lag: avg \S+ \(max (\d+\.\d+)\) ms", stdout),
    )


def read_logs(files: Mapping[str, str], rate: bool) -> Iterator[LoggedTransaction]:
    """Yield the successful transactions of all log files: ``log.PID``, and ``log.PID.THREAD`` of each further thread.

    Columns: client, transaction number, latency in µs (or 'failed', 'skipped', 'serialization', 'deadlock': left out),
    script, epoch seconds, microseconds, then the schedule lag in µs if ``rate``, then retries with --max-tries. Truncated
    or malformed lines are left out.
    """
    for name, text in files.items():
        if _LOG_NAME.fullmatch(name):
            yield from _read_log(text, rate)


def first_logged(files: Mapping[str, str], rate: bool) -> float | None:
    """Return the earliest start among the first transactions of the logs, or None if nothing was logged."""
    heads = {name: text[: text.find("\n") + 1] for name, text in files.items()}
    starts = [logged.at - (logged.latency - (logged.lag or 0.0)) / 1000 for logged in read_logs(heads, rate)]
    return min(starts, default=None)


def _read_log(text: str, rate: bool) -> Iterator[LoggedTransaction]:
    column_count = 7 if rate else 6
    for line in text[: text.rfind("\n") + 1].splitlines():
        columns = line.split(" ")
        if len(columns) < column_count:
            continue
        try:
            at = int(columns[4]) + int(columns[5]) / 1e6
            yield LoggedTransaction(at, int(columns[2]) / 1000, int(columns[6]) / 1000 if rate else None, int(columns[3]))
        except ValueError:
            continue


def last_messages(stdout: str, stderr: str) -> str:
    """Return the lines with errors, or the last two lines of output."""
    errors = [match[0].strip() for match in _ERROR.finditer(stderr)]
    if errors:
        return " | ".join(dict.fromkeys([*errors[:2], *errors[-1:]]))
    lines = [line.strip() for line in (stderr + "\n" + stdout).splitlines() if line.strip()]
    messages = [line for line in lines if not line.startswith("progress: ")] or lines
    return " | ".join(messages[-2:]) if messages else "no output"


def _number(pattern: str, text: str) -> float | None:
    match = re.search(pattern, text, re.MULTILINE)
    return float(match[1]) if match else None


MIN_BEYOND = 10
"""Minimum number of sampled transactions above a percentile. Otherwise the percentile is None."""


def latency(values: Sequence[float], mean: float | None) -> Latency:
    """Return the latency of a target: percentiles and maximum of sampled transactions (ms), and the ``mean`` of all."""
    ordered = sorted(values)
    return Latency(
        mean=mean,
        p50=percentile(ordered, 0.5),
        p95=percentile(ordered, 0.95),
        p99=percentile(ordered, 0.99),
        maximum=ordered[-1] if ordered else None,
        under_50us=bisect_left(ordered, 0.05) / len(ordered) if ordered else None,
        sampled=len(ordered),
    )


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Return the quantile of sorted values, linear between neighbours (Hyndman and Fan's type 7).

    It is None if fewer than ten values are above it: a p99 needs 1000 values.
    """
    if len(ordered) * (1 - share) < MIN_BEYOND - 1e-9:
        return None
    position = (len(ordered) - 1) * share
    low = floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)
