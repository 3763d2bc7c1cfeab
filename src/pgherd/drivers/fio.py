"""Driver for fio: I/O on one file of a volume. SIGINT ends fio early with its full report.

A load's ``clients`` are the I/Os that each job keeps in flight. Its ``threads`` are the jobs. ``Load.options``:

- ``rw``: read, write, randread, randwrite, rw or randrw;
- ``bs`` and ``size``: bytes. The file must exist and have this size;
- ``direct``: 1 or 0; ``engine``; ``seed``;
- ``ramp``: seconds at the start that fio leaves out of its report;
- ``read_rate`` and ``write_rate``: I/Os per second. A mix at fixed rates needs both;
- ``rwmixread``: percentage of reads, for a mix without rates.

**Counting.** I/Os are counted on a cumulative curve per direction. Its points are from fio's log of I/Os per second, and the report's
total is its last point. The I/Os of a window are the difference of the curve at its borders, linear between two points.

**Latency** covers every I/O after fio's ramp. Percentiles are from fio's histogram, whose bins are at most 1.6 % wide. At a fixed rate fio
counts latency from the creation of an I/O, not from its scheduled time. If the rate is not met, latency hides the delay, but the
achieved rate shows it.

**Output.** fio 3 writes the JSON report, and the log of I/Os per second. Formats: fio's documentation, "JSON output" and "Log File
Formats"; show_thread_status_json of stat.c. The report has latencies in nanoseconds and run times in milliseconds. fio 2 is not
supported: it has microseconds under other names.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil
from typing import Any, Literal

from pgherd.drivers.driver import CumulativeCurve, DriverSpan, Endpoint, MeasuredWindow, amount
from pgherd.model.errors import UsageError
from pgherd.model.load import Load
from pgherd.model.result import Latency, TargetResult

FILE = "pgherd.data"
"""Name of the file in a volume's directory that all jobs of a load use."""
PERIOD = 1.0
"""Seconds between lines of the log."""
GAP = 1.25 * PERIOD
"""A longer time in seconds between two lines has periods without an I/O, for which fio writes no line."""
PERCENTILES = (0.5, 0.95, 0.99, 0.999)
MIN_BEYOND = 10
"""Minimum number of I/Os above a percentile. Otherwise the percentile is not reported."""
STARTUP_S = 1.0
"""Difference between the phase's warm-up and fio's ramp, because fio needs part of the warm-up to start."""

_MODES = ("read", "write", "randread", "randwrite", "rw", "randrw")
_OPTIONS = {"rw", "bs", "size", "direct", "engine", "ramp", "read_rate", "write_rate", "rwmixread", "seed"}
INTERRUPTED = 128
"""Exit code of fio after a signal with a complete report."""


class FioDriver:
    """Driver for fio. The module's docstring has the details."""

    name = "fio"
    stop_signal: int = signal.SIGINT
    exit_codes: tuple[int, ...] = (0, INTERRUPTED)

    def argv(self, load: Load, endpoint: Endpoint, seconds: float) -> list[str]:
        """Return the command line. fio writes ``report.json`` and ``log_iops.N.log`` into ``endpoint.output``.

        Raises:
            UsageError: an unknown option or mode, or rates together with ``rwmixread``.
        """
        options = load.options
        unknown = sorted(set(options) - _OPTIONS)
        if unknown:
            raise UsageError(f"a fio load has no option '{unknown[0]}'; known: {', '.join(sorted(_OPTIONS))}")
        mode, size = options.get("rw", ""), int(options.get("size", 0))
        if mode not in _MODES:
            raise UsageError(f"a fio load needs rw, one of {', '.join(_MODES)}, not '{mode}'")
        block = int(options.get("bs", 8192))
        # Direct I/O needs aligned offsets.
        share = size // load.threads // block * block
        if share <= 0:
            raise UsageError("a fio load needs size, the bytes of its file, with at least one block for each job")
        argv = [
            "fio",
            "--name=load",
            _filename(endpoint.directory),
            f"--size={share}",
            f"--rw={mode}",
            f"--bs={block}",
            f"--ioengine={options.get('engine', 'psync')}",
            f"--iodepth={load.clients}",
            f"--numjobs={load.threads}",
            # Jobs as processes would outlive a killed fio until the end of their run time.
            "--thread=1",
            f"--direct={options.get('direct', '1')}",
            "--group_reporting=1",
            # The file exists, so fio must neither extend nor reallocate it.
            "--overwrite=1",
            "--fallocate=none",
            "--time_based=1",
            f"--runtime={max(1, ceil(seconds))}",
            f"--ramp_time={round(1000 * max(0.0, float(options.get('ramp', 0)) - STARTUP_S))}ms",
            "--refill_buffers=1",
            "--randrepeat=0",
            f"--randseed={options.get('seed', '1')}",
        ]
        if load.threads > 1:
            argv.append(f"--offset_increment={share}")
        argv += _rates(options)
        argv += ["--lat_percentiles=1", "--clat_percentiles=0", f"--percentile_list={':'.join(f'{100 * p:g}' for p in PERCENTILES)}"]
        argv += ["--output-format=json", f"--output={endpoint.output}/{REPORT}", "--eta=never"]
        return [*argv, f"--write_iops_log={endpoint.output}/{LOG}", f"--log_avg_msec={round(1000 * PERIOD)}", "--log_unix_epoch=1"]

    def span(self, files: Mapping[str, str], started: float, stop: float) -> DriverSpan:
        """Return the interval from the end of fio's ramp to the stop, or to fio's end if that is earlier.

        Raises:
            ValueError: fio failed or wrote no report.
        """
        report = read_report(files)
        first = _first(report, read_logs(files), started)
        return DriverSpan(first, max(first, min(stop, first + report.seconds)))

    def result(self, load: Load, files: Mapping[str, str], started: float, window: MeasuredWindow, target: str) -> TargetResult:
        """Return the target's result over the common window.

        ``values`` are, for each direction with I/Os: ``read_iops``, ``read_bytes_per_second``, ``read_mean_ms``,
        ``read_p50_ms``, ``read_p95_ms``, ``read_p99_ms``, ``read_p99_9_ms``. ``job_cpu`` is the mean CPU usage of the jobs
        as a fraction of one CPU. ``series`` are ``read_iops`` and ``write_iops`` by second.

        Raises:
            ValueError: fio failed or wrote no report, or the window is empty.
        """
        if window.end <= window.start:
            raise ValueError(f"the window of {target} is empty: it ends {window.start - window.end:.3f} s before it starts")
        report, logs = read_report(files), read_logs(files)
        span, seconds = self.span(files, started, window.stop), window.end - window.start
        curves = {direction: curve(report, logs, direction, span) for direction in DIRECTIONS if report.directions[direction].ios}
        counts = {direction: cumulative.between(window.start, window.end) for direction, cumulative in curves.items()}
        series = {f"{direction}_iops": cumulative.per_second(window.start, window.end) for direction, cumulative in curves.items()}
        values = {"job_cpu": report.cpu}
        for direction, ios in counts.items():
            values |= _values(direction, report.directions[direction], ios / seconds)
        return TargetResult(
            target=target,
            driver=self.name,
            transactions=sum(counts.values()),
            throughput=sum(counts.values()) / seconds,
            per_second=[sum(second) for second in zip(*series.values(), strict=True)],
            latency=_latency([report.directions[direction] for direction in counts]),
            values=values,
            series=series,
            first=span.first,
            last=span.last,
        )


def _filename(directory: str) -> str:
    r"""Return fio's option for a load's file. fio takes ``:`` for the end of one file's name, and ``\:`` for a part of it."""
    return "--filename=" + f"{directory}/{FILE}".replace(":", r"\:")


def file_argv(directory: str, size: int, *, direct: bool) -> list[str]:
    """Return the command line that fills a load's file with incompressible data and syncs it.

    Space is not allocated in advance, so that an unfinished file is not as large as a finished one.
    """
    argv = ["fio", "--name=fill", _filename(directory), f"--size={size}", "--rw=write", "--bs=1m", "--refill_buffers=1"]
    return [
        *argv,
        "--fallocate=none",
        "--thread=1",
        "--ioengine=psync",
        f"--direct={int(direct)}",
        "--end_fsync=1",
        "--output-format=json",
        "--eta=never",
    ]


def curve(report: FioReport, logs: Sequence[IopsSample], direction: Direction, span: DriverSpan) -> CumulativeCurve:
    """Return the I/Os of a direction over time.

    Each job has its log. A line counts its rate since the job's previous line. After a gap it counts one period, because nothing was done
    before: fio writes no line for a period without an I/O (__add_samples of stat.c). A fio that was stopped itself has such a gap, too.
    fio rounds the rate of a line down to an integer. What the lines lack of the total for this reason is added to each of them,
    unless a job's last lines are missing.
    """
    parts: list[tuple[float, float, float]] = []
    last: dict[str, IopsSample] = {}
    for line in logs:
        if line.direction == direction:
            start = max(last[line.job].at if line.job in last else span.first, span.first)
            last[line.job] = line
            if line.at > start:
                parts.append((line.at - PERIOD if line.at - start > GAP else start, line.at, line.iops))
    total, count, rate, end = report.directions[direction].ios, 0.0, 0.0, span.first + report.seconds
    rest = [(line.at, end, line.iops) for line in last.values() if line.at < end]
    is_complete = all(end - line.at <= GAP for line in last.values())
    rounded = _rounded_off(total, [*parts, *rest], len(last)) if is_complete else 0.0
    changes = [change for start, at, iops in parts for change in ((start, iops + rounded), (at, -iops - rounded))]
    cumulative = [(span.first, 0.0)]
    for at, change in sorted(changes):
        count = min(count + max(0.0, rate) * (at - cumulative[-1][0]), total)
        rate += change
        cumulative.append((at, count))
    return CumulativeCurve([*cumulative, (max(cumulative[-1][0], end), total)])


def _rounded_off(total: float, parts: Sequence[tuple[float, float, float]], jobs: int) -> float:
    """Return what the rates of parts (start, end, rate) lack on average of the total: 0 to 1, because fio rounds down to integers.

    A job can do one more I/O after its last line. If more are lacking, rounding is not the reason.
    """
    seconds = sum(end - start for start, end, _ in parts)
    lacking = total - sum(rate * (end - start) for start, end, rate in parts)
    return min(1.0, lacking / seconds) if 0 < lacking <= seconds + jobs else 0.0


def _first(report: FioReport, logs: Sequence[IopsSample], started: float) -> float:
    """Return the start of fio's counting.

    Log lines are due at each whole period after the start and can only be late, so the earliest within its period is
    the best estimate. Without a log it is the instant of the report minus the time that it covers.
    """
    if not logs:
        return max(started, report.at - report.seconds)
    first = logs[0].at - PERIOD
    for before, after in pairwise(line.at for line in logs):
        early = (first - after) % PERIOD
        if after > before and 0 < early < PERIOD / 2:
            first -= early
    return max(started, first)


def _rates(options: Mapping[str, str]) -> list[str]:
    rates = [options.get("read_rate"), options.get("write_rate")]
    mix = options.get("rwmixread")
    if any(rates) and mix is not None:
        raise UsageError(MIX_WITH_RATE)
    if any(rates):
        return [f"--rate_iops={rates[0] or ''},{rates[1] or ''}"]
    return [] if mix is None else [f"--rwmixread={mix}"]


MIX_WITH_RATE = (
    "rwmixread and a rate exclude each other: fio limits reads and writes separately, so the share of reads would slow down one of "
    "them, and neither the share nor the rate would be met; state the mix as two rates, such as --rate-iops 70,30"
)


def _values(direction: Direction, stats: DirectionStats, iops: float) -> dict[str, float]:
    values = {f"{direction}_iops": iops, f"{direction}_bytes_per_second": iops * stats.bytes / stats.ios}
    if stats.mean is not None:
        values[f"{direction}_mean_ms"] = stats.mean
    for share in PERCENTILES:
        value = percentile(stats, share)
        if value is not None:
            values[f"{direction}_p{100 * share:g}_ms".replace(".", "_")] = value
    return values


def percentile(stats: DirectionStats, share: float) -> float | None:
    """Return a percentile in ms, or None if fewer than ten I/Os are above it or fio does not report it."""
    return stats.percentiles.get(share) if stats.counted * (1 - share) >= MIN_BEYOND - 1e-9 else None


def _latency(directions: Sequence[DirectionStats]) -> Latency:
    """Return the latency of all I/Os. A mix has only mean and maximum, because fio reports percentiles per direction."""
    ios = sum(stats.ios for stats in directions)
    means = [(stats.mean, stats.ios) for stats in directions if stats.mean is not None]
    latency = Latency(
        mean=sum(mean * n for mean, n in means) / ios if means and ios else None,
        maximum=max((stats.maximum for stats in directions if stats.maximum is not None), default=None),
        sampled=sum(stats.counted for stats in directions),
    )
    if len(directions) != 1:
        return latency
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return latency.model_copy(update={name: percentile(directions[0], share) for name, share in shares.items()})


DRIVER = FioDriver()


# ---- output


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

    ``at`` is the instant of the report (seconds since the epoch). ``cpu`` is the CPU usage of a job, user and system, as a
    fraction of one CPU: the mean of jobs that fio groups, the largest of others.
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
        document, _ = json.JSONDecoder(parse_constant=_no_number).raw_decode(text[start:])
    except (RecursionError, ValueError):
        raise ValueError(f"fio's report is truncated; its last messages: {last_messages(files)}") from None
    version = str(document.get("fio version", "")) if isinstance(document, dict) else ""
    numbers = _VERSION.match(version)
    if numbers is None or int(numbers[1]) < 3:
        raise ValueError(f"the report is of {version or 'an unknown fio'}, but fio 3.0 or later is needed; install a newer fio")
    jobs = document.get("jobs")
    if not isinstance(jobs, list) or not jobs:
        raise ValueError(f"fio's report has no job; its last messages: {last_messages(files)}")
    try:
        return _report(document, jobs, version, files)
    except (AttributeError, KeyError, OverflowError, TypeError) as error:
        raise ValueError(f"fio's report has an unexpected form ({error}); its last messages: {last_messages(files)}") from None


def _no_number(constant: str) -> float:
    raise ValueError(f"{constant} is no number of fio")


def _report(document: Mapping[str, Any], jobs: list[dict[str, Any]], version: str, files: Mapping[str, str]) -> FioReport:
    failed = [job for job in jobs if job.get("error")]
    if failed:
        raise ValueError(f"fio failed with error {failed[0]['error']} in job '{failed[0].get('jobname', '')}': {last_messages(files)}")
    return FioReport(
        version=version.removeprefix("fio-"),
        at=amount(document.get("timestamp_ms", 1000 * document.get("timestamp", 0))) / 1000,
        directions={direction: _direction_stats(jobs, direction) for direction in DIRECTIONS},
        cpu=max((amount(job.get("usr_cpu", 0.0)) + amount(job.get("sys_cpu", 0.0))) / 100 for job in jobs),
    )


def _direction_stats(jobs: list[dict[str, Any]], direction: Direction) -> DirectionStats:
    parts = [job.get(direction) or {} for job in jobs]
    ios = sum(amount(part.get("total_ios", 0)) for part in parts)
    if not ios:
        return DirectionStats()
    total = sum(amount(part.get("total_ios", 0)) * _lat(part, "mean") for part in parts)
    percentiles: dict[float, float] = {}
    for part in parts:
        for name, value in _percentiles(part).items():
            percentiles[name] = max(percentiles.get(name, 0.0), value)
    return DirectionStats(
        ios=ios,
        bytes=sum(amount(part.get("io_bytes", 0)) for part in parts),
        seconds=max(amount(part.get("runtime", 0)) for part in parts) / 1000,
        mean=total / ios / 1e6,
        maximum=max(_lat(part, "max") for part in parts) / 1e6,
        percentiles=percentiles,
        counted=int(ios),
    )


def _lat(part: Mapping[str, Any], name: str) -> float:
    return amount((part.get("lat_ns") or {}).get(name, 0.0))


def _percentiles(part: Mapping[str, Any]) -> dict[float, float]:
    """Return fraction → ms. Very old reports of fio 3 repeat the name '0.00' for percentiles that were not requested."""
    for name in ("lat_ns", "clat_ns"):
        percentiles = (part.get(name) or {}).get("percentile")
        if percentiles:
            return {round(amount(share) / 100, 6): amount(value) / 1e6 for share, value in percentiles.items() if amount(share) > 0}
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
                at, value, direction = amount(int(columns[0])) / 1000, amount(columns[1]), int(columns[2])
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
