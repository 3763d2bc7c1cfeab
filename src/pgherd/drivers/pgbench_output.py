"""Reading what pgbench 15 to 18 writes: progress lines, the final report, the transaction log.

Formats: PostgreSQL documentation, pgbench, "Per-Transaction Logging"; the functions printProgressReport, printResults
and doLog of pgbench.c. Everything here is pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_PROGRESS = re.compile(
    r"^progress: (?P<at>\d+\.\d+) s, (?P<tps>\d+\.\d+) tps, lat (?P<latency>[\d.]+) ms stddev \S+, (?P<failed>\d+) failed"
    r"(?:, lag (?P<lag>[\d.]+) ms)?(?:, (?P<skipped>\d+) skipped)?(?:, \d+ retried, (?P<retries>\d+) retries)?$",
    re.MULTILINE,
)
_LOG_NAME = re.compile(r"log\.\d+(?:\.\d+)?")
_ERROR = re.compile(r"^pgbench: (?:error|fatal): .*|^(?:FATAL|PANIC): .*|^Run was aborted.*", re.MULTILINE)


@dataclass(frozen=True)
class Progress:
    """One progress line: ``at`` ends its interval (seconds since the epoch); ``latency`` and ``lag`` are means over the
    interval's transactions in milliseconds, the latency counted from the scheduled start under --rate."""

    at: float
    tps: float
    latency: float
    failed: int
    lag: float | None = None
    skipped: int = 0
    retries: int = 0


@dataclass(frozen=True)
class Report:
    """The final report, over pgbench's whole life. ``seconds`` is how long it made load (transactions / tps; None when
    nothing was processed), ``connecting`` the seconds it needed to connect, latencies and lags are milliseconds."""

    transactions: int
    failed: int = 0
    seconds: float | None = None
    connecting: float = 0.0
    latency: float | None = None
    lag: float | None = None
    lag_max: float | None = None
    skipped: int = 0
    retries: int = 0


@dataclass(frozen=True, slots=True)
class Logged:
    """One logged transaction that succeeded: when it ended (seconds since the epoch), its latency and (open loop only)
    its schedule lag in milliseconds; ``script`` counts pgbench's -f and -b from 0."""

    at: float
    latency: float
    lag: float | None = None
    script: int = 0


def read_progress(stderr: str) -> list[Progress]:
    """All progress lines (written with --progress-timestamp), in order."""
    return [
        Progress(
            at=float(match["at"]),
            tps=float(match["tps"]),
            latency=float(match["latency"]),
            failed=int(match["failed"]),
            lag=None if match["lag"] is None else float(match["lag"]),
            skipped=int(match["skipped"] or 0),
            retries=int(match["retries"] or 0),
        )
        for match in _PROGRESS.finditer(stderr)
    ]


def moved_progress(stderr: str, ahead: float) -> str:
    """The progress lines alone, with instants that are so many seconds earlier."""
    lines = []
    for match in _PROGRESS.finditer(stderr):
        start, end = match.start("at") - match.start(), match.end("at") - match.start()
        lines.append(f"{match[0][:start]}{float(match['at']) - ahead:.3f}{match[0][end:]}\n")
    return "".join(lines)


def read_report(files: Mapping[str, str]) -> Report:
    """The final report of ``stdout``.

    Raises:
        ValueError: pgbench wrote none, or an incomplete one, or met an error; the message holds its last words.
    """
    stdout, stderr = files.get("stdout", ""), files.get("stderr", "")
    if _ERROR.search(stderr) or "Run was aborted" in stdout:
        raise ValueError(f"pgbench failed: {last_words(stdout, stderr)}")
    transactions = _number(r"number of transactions actually processed: (\d+)", stdout)
    failed = _number(r"number of failed transactions: (\d+) ", stdout)
    if transactions is None or failed is None:
        raise ValueError(f"pgbench wrote no final report; its last words: {last_words(stdout, stderr)}")
    tps = _number(r"tps = (\d+\.\d+) \(", stdout)
    if transactions and tps is None:
        raise ValueError(f"pgbench's final report is truncated; its last words: {last_words(stdout, stderr)}")
    return Report(
        transactions=int(transactions),
        failed=int(failed),
        seconds=transactions / tps if tps else None,
        connecting=(_number(r"initial connection time = (\d+\.\d+) ms", stdout) or 0.0) / 1000,
        latency=_number(r"latency average = (\d+\.\d+) ms", stdout),
        lag=_number(r"rate limit schedule lag: avg (\d+\.\d+) \(max", stdout),
        lag_max=_number(r"rate limit schedule lag: avg \S+ \(max (\d+\.\d+)\) ms", stdout),
        skipped=int(_number(r"number of transactions skipped: (\d+) ", stdout) or 0),
        retries=int(_number(r"total number of retries: (\d+)$", stdout) or 0),
    )


def read_logs(files: Mapping[str, str], rate: bool) -> Iterator[Logged]:
    """Successful transactions of all log files (``log.PID`` and, one per further thread, ``log.PID.THREAD``).

    Columns: client, transaction number, latency in µs (or 'failed', 'skipped', 'serialization', 'deadlock': left out),
    script, epoch seconds, microseconds, then the schedule lag in µs if ``rate``, then retries under --max-tries. A line
    that is torn or of another shape is left out.
    """
    for name, text in files.items():
        if _LOG_NAME.fullmatch(name):
            yield from _read_log(text, rate)


def first_logged(files: Mapping[str, str], rate: bool) -> float | None:
    """When the earliest of the logged transactions began, of those that stand first in a log; None where nothing was logged."""
    heads = {name: text[: text.find("\n") + 1] for name, text in files.items()}
    begun = [one.at - (one.latency - (one.lag or 0.0)) / 1000 for one in read_logs(heads, rate)]
    return min(begun, default=None)


def _read_log(text: str, rate: bool) -> Iterator[Logged]:
    wanted = 7 if rate else 6
    for line in text[: text.rfind("\n") + 1].splitlines():
        columns = line.split(" ")
        if len(columns) < wanted:
            continue
        try:
            at = int(columns[4]) + int(columns[5]) / 1e6
            yield Logged(at, int(columns[2]) / 1000, int(columns[6]) / 1000 if rate else None, int(columns[3]))
        except ValueError:
            continue


def last_words(stdout: str, stderr: str) -> str:
    """The last lines that tell what went wrong: errors first, else what was written last."""
    errors = [match[0].strip() for match in _ERROR.finditer(stderr)]
    if errors:
        return " | ".join(dict.fromkeys([*errors[:2], *errors[-1:]]))
    other = [line.strip() for line in (stderr + "\n" + stdout).splitlines() if line.strip()]
    told = [line for line in other if not line.startswith("progress: ")] or other
    return " | ".join(told[-2:]) if told else "nothing at all"


def _number(pattern: str, text: str) -> float | None:
    match = re.search(pattern, text, re.MULTILINE)
    return float(match[1]) if match else None
