"""Reading what fio 3 writes: the JSON report, and the log of I/Os per second. Everything here is pure.

Formats: fio's documentation, "JSON output" and "Log File Formats"; show_thread_status_json of stat.c. Latencies in the report
are nanoseconds (fio 2 gave microseconds under other names, and is not understood), run times milliseconds.
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
"""The file of the JSON report, where fio was told to write one; else it is on stdout."""
LOG = "log"
"""Prefix of the logs: ``log_iops.1.log`` for the first job."""

_LOG_NAME = re.compile(rf"{LOG}_iops\.\d+\.log")
_VERSION = re.compile(r"fio-(\d+)\.(\d+)")


@dataclass(frozen=True)
class Side:
    """All I/Os of one direction: how many, how many bytes, for how long (seconds), and their latency in ms.

    ``percentiles`` maps a share (0.99) to the latency below which it lies; ``counted`` is how many I/Os they rest on.
    Latency is fio's ``lat``, from the I/O's creation to its completion; where a report has percentiles of ``clat`` alone
    (from submission on) those are taken.
    """

    ios: float = 0.0
    bytes: float = 0.0
    seconds: float = 0.0
    mean: float | None = None
    maximum: float | None = None
    percentiles: Mapping[float, float] = field(default_factory=dict)
    counted: int = 0


@dataclass(frozen=True)
class Report:
    """fio's report over its life after the ramp. ``at`` is when it was written (seconds since the epoch), ``cpu`` the share
    of one CPU that the busiest job used (user and system)."""

    version: str
    at: float
    sides: Mapping[Direction, Side]
    cpu: float

    @property
    def seconds(self) -> float:
        """For how long I/Os were made."""
        return max((side.seconds for side in self.sides.values()), default=0.0)


@dataclass(frozen=True, slots=True)
class Logged:
    """I/Os per second over the interval that ended ``at`` (seconds since the epoch), of one job and direction."""

    at: float
    iops: float
    direction: Direction
    job: str = ""


def read_report(files: Mapping[str, str]) -> Report:
    """The report; jobs that fio did not put together are added up, their percentiles being those of the slowest.

    Raises:
        ValueError: there is none, it is torn, a job met an error, or it is of a version before 3; with fio's last words.
    """
    text = files.get(REPORT) or files.get("stdout", "")
    begin = text.find("{\n")
    if begin < 0:
        raise ValueError(f"fio wrote no report; its last words: {last_words(files)}")
    try:
        found, _ = json.JSONDecoder().raw_decode(text[begin:])
    except ValueError:
        raise ValueError(f"fio's report is torn; its last words: {last_words(files)}") from None
    version = str(found.get("fio version", "")) if isinstance(found, dict) else ""
    numbers = _VERSION.match(version)
    if numbers is None or int(numbers[1]) < 3:
        raise ValueError(f"the report is of {version or 'an unknown fio'}, but fio 3.0 or later is needed; install a newer fio")
    jobs = found.get("jobs")
    if not isinstance(jobs, list) or not jobs:
        raise ValueError(f"fio's report names no job; its last words: {last_words(files)}")
    failed = [job for job in jobs if job.get("error")]
    if failed:
        raise ValueError(f"fio failed with error {failed[0]['error']} in job '{failed[0].get('jobname', '')}': {last_words(files)}")
    return Report(
        version=version.removeprefix("fio-"),
        at=float(found.get("timestamp_ms", 1000 * found.get("timestamp", 0))) / 1000,
        sides={direction: _side(jobs, direction) for direction in DIRECTIONS},
        cpu=max((float(job.get("usr_cpu", 0.0)) + float(job.get("sys_cpu", 0.0))) / 100 for job in jobs),
    )


def _side(jobs: list[dict[str, Any]], direction: Direction) -> Side:
    parts = [job.get(direction) or {} for job in jobs]
    ios = sum(float(part.get("total_ios", 0)) for part in parts)
    if not ios:
        return Side()
    total = sum(float(part.get("total_ios", 0)) * _lat(part, "mean") for part in parts)
    percentiles: dict[float, float] = {}
    for part in parts:
        for name, value in _percentiles(part).items():
            percentiles[name] = max(percentiles.get(name, 0.0), value)
    return Side(
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
    """Share → ms. Very old reports of fio 3 repeat a name '0.00' for what was not asked for."""
    for name in ("lat_ns", "clat_ns"):
        found = (part.get(name) or {}).get("percentile")
        if found:
            return {round(float(share) / 100, 6): float(value) / 1e6 for share, value in found.items() if float(share) > 0}
    return {}


def read_logs(files: Mapping[str, str]) -> list[Logged]:
    """The lines of all logs of I/Os, by time.

    Columns: time in ms (since the epoch, under --log_unix_epoch), value, direction (0 read, 1 write, 2 trim), block size,
    offset, and in later versions priority. What is torn or of another shape is left out.
    """
    found = []
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
                found.append(Logged(at, value, DIRECTIONS[direction], name))
    return sorted(found, key=lambda one: one.at)


def last_words(files: Mapping[str, str]) -> str:
    """The last lines that tell what went wrong."""
    lines = [line.strip() for name in ("stderr", "stdout") for line in files.get(name, "").splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("fio:") and "terminating on signal" not in line]
    return " | ".join((told or lines)[-2:]) or "nothing at all"
