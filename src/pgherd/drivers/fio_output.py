"""Parser of the output of fio 3: the JSON report, and the log of I/Os per second. Pure.

Formats: fio's documentation, "JSON output" and "Log File Formats"; show_thread_status_json of stat.c. The report has latencies in
nanoseconds and run times in milliseconds. fio 2 is not supported: it has microseconds under other names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Direction = Literal["read", "write"]
DIRECTIONS: tuple[Direction, Direction] = ("read", "write")

REPORT = "report.json"
"""File of the JSON report. Without it, the report is on stdout."""
LOG = "log"
"""Prefix of the logs: ``log_iops.1.log`` for the first job."""

_LOG_NAME = re.compile(rf"{LOG}_iops\.\d+\.log")
_VERSION = re.compile(r"fio-(\d+)\.(\d+)")


@dataclass(frozen=True)
class DirectionStats:
    """All I/Os of one direction: number, bytes, seconds of run time, and latency in ms.

    ``percentiles`` maps a fraction (0.99) to its latency, over ``counted`` I/Os. Latency is fio's ``lat``, from the
    creation of an I/O to its completion. If a report has percentiles of ``clat`` (from submission) only, those are used.
    """

    ios: float = 0.0
    bytes: float = 0.0
    seconds: float = 0.0
    mean: float | None = None
    maximum: float | None = None
    percentiles: Mapping[float, float] = field(default_factory=dict)
    counted: int = 0


@dataclass(frozen=True)
class FioReport:
    """fio's report over its run after the ramp.

    ``at`` is the instant of the report (seconds since the epoch). ``cpu`` is the CPU usage of the busiest job, user and
    system, as a fraction of one CPU.
    """

    version: str
    at: float
    directions: Mapping[Direction, DirectionStats]
    cpu: float

    @property
    def seconds(self) -> float:
        """Run time of the slower direction."""
        return max((stats.seconds for stats in self.directions.values()), default=0.0)


@dataclass(frozen=True, slots=True)
class IopsSample:
    """I/Os per second of one job and direction over the interval that ended ``at`` (seconds since the epoch)."""

    at: float
    iops: float
    direction: Direction
    job: str = ""


def read_report(files: Mapping[str, str]) -> FioReport:
    """Parse the report. Jobs that fio did not group are added up, with the percentiles of the slowest.

    Raises:
        ValueError: there is no report, it is truncated, a job failed, or fio is older than 3.0. The message has fio's last
            messages.
    """
    text = files.get(REPORT) or files.get("stdout", "")
    start = text.find("{\n")
    if start < 0:
        raise ValueError(f"fio wrote no report; its last messages: {last_messages(files)}")
    try:
        document, _ = json.JSONDecoder().raw_decode(text[start:])
    except ValueError:
        raise ValueError(f"fio's report is truncated; its last messages: {last_messages(files)}") from None
    version = str(document.get("fio version", "")) if isinstance(document, dict) else ""
    numbers = _VERSION.match(version)
    if numbers is None or int(numbers[1]) < 3:
        raise ValueError(f"the report is of {version or 'an unknown fio'}, but fio 3.0 or later is needed; install a newer fio")
    jobs = document.get("jobs")
    if not isinstance(jobs, list) or not jobs:
        raise ValueError(f"fio's report has no job; its last messages: {last_messages(files)}")
    failed = [job for job in jobs if job.get("error")]
    if failed:
        raise ValueError(f"fio failed with error {failed[0]['error']} in job '{failed[0].get('jobname', '')}': {last_messages(files)}")
    return FioReport(
        version=version.removeprefix("fio-"),
        at=float(document.get("timestamp_ms", 1000 * document.get("timestamp", 0))) / 1000,
        directions={direction: _direction_stats(jobs, direction) for direction in DIRECTIONS},
        cpu=max((float(job.get("usr_cpu", 0.0)) + float(job.get("sys_cpu", 0.0))) / 100 for job in jobs),
    )


def _direction_stats(jobs: list[dict[str, Any]], direction: Direction) -> DirectionStats:
    parts = [job.get(direction) or {} for job in jobs]
    ios = sum(float(part.get("total_ios", 0)) for part in parts)
    if not ios:
        return DirectionStats()
    total = sum(float(part.get("total_ios", 0)) * _lat(part, "mean") for part in parts)
    percentiles: dict[float, float] = {}
    for part in parts:
        for name, value in _percentiles(part).items():
            percentiles[name] = max(percentiles.get(name, 0.0), value)
    return DirectionStats(
        ios=ios,
        bytes=sum(float(part.get("io_bytes", 0)) for part in parts),
        seconds=max(float(part.get("runtime", 0)) for part in parts) / 1000,
        mean=total / ios / 1e6,
        maximum=max(_lat(part, "max") for part in parts) / 1e6,
        percentiles=percentiles,
        counted=int(ios),
    )


def _lat(part: Mapping[str, Any], name: str) -> float:
    return float((part.get("lat_ns") or {}).get(name, 0.0))


def _percentiles(part: Mapping[str, Any]) -> dict[float, float]:
    """Return fraction → ms. Very old reports of fio 3 repeat the name '0.00' for percentiles that were not requested."""
    for name in ("lat_ns", "clat_ns"):
        percentiles = (part.get(name) or {}).get("percentile")
        if percentiles:
            return {round(float(share) / 100, 6): float(value) / 1e6 for share, value in percentiles.items() if float(share) > 0}
    return {}


def read_logs(files: Mapping[str, str]) -> list[IopsSample]:
    """Parse the lines of all logs of I/Os, in order of time.

    Columns: time in ms (since the epoch, with --log_unix_epoch), value, direction (0 read, 1 write, 2 trim), block size,
    offset, and in later versions priority. Truncated or malformed lines are left out.
    """
    entries = []
    for name, text in files.items():
        if not _LOG_NAME.fullmatch(name):
            continue
        for line in text[: text.rfind("\n") + 1].splitlines():
            columns = [column.strip() for column in line.split(",")]
            try:
                at, value, direction = int(columns[0]) / 1000, float(columns[1]), int(columns[2])
            except (ValueError, IndexError):
                continue
            if direction in (0, 1):
                entries.append(IopsSample(at, value, DIRECTIONS[direction], name))
    return sorted(entries, key=lambda entry: entry.at)


def last_messages(files: Mapping[str, str]) -> str:
    """Return the last two lines that describe an error, or the last two lines."""
    lines = [line.strip() for name in ("stderr", "stdout") for line in files.get(name, "").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("fio:") and "terminating on signal" not in line]
    return " | ".join((errors or lines)[-2:]) or "no output"
