"""fio as a driver: I/O on one file of a volume, ended early by SIGINT, on which it writes its whole report.

A load's ``clients`` are the I/Os that each job keeps in flight, its ``threads`` the jobs. ``Load.options``: ``rw`` (read, write,
randread, randwrite, rw, randrw), ``bs`` and ``size`` (bytes; the file must be there and as large), ``direct`` (1 or 0), ``engine``,
``ramp`` (seconds at the start that fio leaves out of its report), ``read_rate`` and ``write_rate`` (I/Os per second: a mix at
fixed rates is stated as two of them), ``rwmixread`` (per cent of reads, for a mix without rates), ``seed``.

**Counting.** I/Os are counted on a cumulative curve for each direction through fio's log of I/Os per second, which the
report's total closes; a window's I/Os are the difference of the curve at its borders, linear between two points.

**Latency** is of every I/O after fio's own ramp, percentiles by fio's histogram (its bins are at most 1.6 % wide). At a fixed
rate fio counts latency from when it creates an I/O, not from when that was due: where the rate is not met latency hides the
delay, and the rate that was reached shows it.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil

from pgherd.drivers.curve import CumulativeCurve
from pgherd.drivers.driver import Endpoint, Span, Window
from pgherd.drivers.fio_output import DIRECTIONS, LOG, REPORT, Direction, Logged, Report, Side, read_logs, read_report
from pgherd.model.errors import UsageError
from pgherd.model.load import Load
from pgherd.model.result import Latency, TargetResult

FILE = "pgherd.data"
"""The file in a volume's directory on which all jobs of a load work."""
PERIOD = 1.0
"""Seconds between lines of the log."""
PERCENTILES = (0.5, 0.95, 0.99, 0.999)
BEYOND = 10
"""So many I/Os must lie beyond a percentile for it to be told."""
SETTLING = 1.0
"""fio's own ramp is so many seconds shorter than the phase's: it needs a part of that to start."""

_MODES = ("read", "write", "randread", "randwrite", "rw", "randrw")
_KNOWN = {"rw", "bs", "size", "direct", "engine", "ramp", "read_rate", "write_rate", "rwmixread", "seed"}
INTERRUPTED = 128
"""Its exit code when a signal ended it and its report is whole."""


class FioDriver:
    """See the module."""

    name = "fio"
    stop_signal: int = signal.SIGINT
    exit_codes: tuple[int, ...] = (0, INTERRUPTED)

    def argv(self, load: Load, endpoint: Endpoint, seconds: float) -> list[str]:
        """The command line; it writes ``report.json`` and ``log_iops.N.log`` into ``endpoint.output``.

        Raises:
            UsageError: an unknown option or mode, or rates together with ``rwmixread``.
        """
        options = load.options
        unknown = sorted(set(options) - _KNOWN)
        if unknown:
            raise UsageError(f"a fio load has no option '{unknown[0]}'; known: {', '.join(sorted(_KNOWN))}")
        mode, size = options.get("rw", ""), int(options.get("size", 0))
        if mode not in _MODES:
            raise UsageError(f"a fio load needs rw, one of {', '.join(_MODES)}, not '{mode}'")
        if size <= 0:
            raise UsageError("a fio load needs size, the bytes of its file")
        argv = [
            "fio",
            "--name=load",
            f"--filename={endpoint.directory}/{FILE}",
            f"--size={size // load.threads}",
            f"--rw={mode}",
            f"--bs={options.get('bs', '8192')}",
            f"--ioengine={options.get('engine', 'psync')}",
            f"--iodepth={load.clients}",
            f"--numjobs={load.threads}",
            # Jobs that are processes of their own would outlive a fio that is killed, until their time is over.
            "--thread=1",
            f"--direct={options.get('direct', '1')}",
            "--group_reporting=1",
            # The file is there: it is neither made longer nor its blocks allocated anew.
            "--overwrite=1",
            "--fallocate=none",
            "--time_based=1",
            f"--runtime={max(1, ceil(seconds))}",
            f"--ramp_time={round(1000 * max(0.0, float(options.get('ramp', 0)) - SETTLING))}ms",
            "--refill_buffers=1",
            "--randrepeat=0",
            f"--randseed={options.get('seed', '1')}",
        ]
        if load.threads > 1:
            argv.append(f"--offset_increment={size // load.threads}")
        argv += _rates(options)
        argv += ["--lat_percentiles=1", "--clat_percentiles=0", f"--percentile_list={':'.join(f'{100 * p:g}' for p in PERCENTILES)}"]
        argv += ["--output-format=json", f"--output={endpoint.output}/{REPORT}", "--eta=never"]
        return [*argv, f"--write_iops_log={endpoint.output}/{LOG}", f"--log_avg_msec={round(1000 * PERIOD)}", "--log_unix_epoch=1"]

    def span(self, files: Mapping[str, str], started: float, stop: float) -> Span:
        """From the end of fio's own ramp to the instant it was told to stop, or to its own end if that came first.

        Raises:
            ValueError: fio failed or wrote no report.
        """
        report = read_report(files)
        first = _first(report, read_logs(files), started)
        return Span(first, max(first, min(stop, first + report.seconds)))

    def result(self, load: Load, files: Mapping[str, str], started: float, window: Window, target: str) -> TargetResult:
        """The target's result over the common window; ``client_cpu`` and ``raw`` are left to the caller.

        ``values`` are, for each direction that made I/Os: ``read_iops``, ``read_bytes_per_second``, ``read_mean_ms``,
        ``read_p50_ms``, ``read_p95_ms``, ``read_p99_ms``, ``read_p99_9_ms``; and ``job_cpu``, the share of one CPU that the busiest
        job used. ``series`` are ``read_iops`` and ``write_iops`` by second.

        Raises:
            ValueError: fio failed or wrote no report, or the window is empty.
        """
        if window.end <= window.start:
            raise ValueError(f"the window of {target} is empty: it ends {window.start - window.end:.3f} s before it starts")
        report, logs = read_report(files), read_logs(files)
        span, seconds = self.span(files, started, window.stop), window.end - window.start
        curves = {side: curve(report, logs, side, span) for side in DIRECTIONS if report.sides[side].ios}
        done = {side: one.between(window.start, window.end) for side, one in curves.items()}
        series = {f"{side}_iops": one.per_second(window.start, window.end) for side, one in curves.items()}
        values = {"job_cpu": report.cpu}
        for side, ios in done.items():
            values |= _values(side, report.sides[side], ios / seconds)
        return TargetResult(
            target=target,
            driver=self.name,
            transactions=sum(done.values()),
            throughput=sum(done.values()) / seconds,
            per_second=[sum(each) for each in zip(*series.values(), strict=True)],
            latency=_latency([report.sides[side] for side in done]),
            values=values,
            series=series,
            first=span.first,
            last=span.last,
        )


def file_argv(directory: str, size: int, *, direct: bool) -> list[str]:
    """The command line that writes a load's file whole, with data that does not compress, and onto the device."""
    argv = ["fio", "--name=fill", f"--filename={directory}/{FILE}", f"--size={size}", "--rw=write", "--bs=1m", "--refill_buffers=1"]
    return [*argv, "--thread=1", "--ioengine=psync", f"--direct={int(direct)}", "--end_fsync=1", "--output-format=json", "--eta=never"]


def curve(report: Report, logs: Sequence[Logged], direction: Direction, span: Span) -> CumulativeCurve:
    """The I/Os of a direction over time. Several jobs log for themselves; a line counts its rate times the time since the job's
    line before it."""
    points: list[tuple[float, float]] = []
    before: dict[str, float] = {}
    for line in logs:
        if line.direction == direction:
            points.append((line.at, line.iops * max(0.0, line.at - before.get(line.job, span.first))))
            before[line.job] = line.at
    total, count = report.sides[direction].ios, 0.0
    found = [(span.first, 0.0)]
    for at, ios in points:
        count = min(count + ios, total)
        found.append((max(at, found[-1][0]), count))
    return CumulativeCurve([*found, (max(found[-1][0], span.first + report.seconds), total)])


def _first(report: Report, logs: Sequence[Logged], started: float) -> float:
    """When fio began to count. The log's lines are due each whole period after that and can only be late, so the earliest within
    its period tells it best; without a log it is the report's instant less the time it covers."""
    about = report.at - report.seconds
    if not logs:
        return max(started, about)
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
    "rwmixread and a rate do not go together: fio limits reads and writes each for itself, so that a share of reads would hold one of "
    "them back and neither the share nor the rate would come out; state the mix as two rates, such as --rate 70,30"
)


def _values(direction: Direction, side: Side, iops: float) -> dict[str, float]:
    found = {f"{direction}_iops": iops, f"{direction}_bytes_per_second": iops * side.bytes / side.ios}
    if side.mean is not None:
        found[f"{direction}_mean_ms"] = side.mean
    for share in PERCENTILES:
        value = percentile(side, share)
        if value is not None:
            found[f"{direction}_p{100 * share:g}_ms".replace(".", "_")] = value
    return found


def percentile(side: Side, share: float) -> float | None:
    """A percentile in ms; None where fewer than ten I/Os lie beyond it, or fio did not tell it."""
    return side.percentiles.get(share) if side.counted * (1 - share) >= BEYOND - 1e-9 else None


def _latency(sides: Sequence[Side]) -> Latency:
    """Of all I/Os; of a mix only mean and maximum, since fio tells percentiles for each direction."""
    ios = sum(side.ios for side in sides)
    means = [(side.mean, side.ios) for side in sides if side.mean is not None]
    found = Latency(
        mean=sum(mean * n for mean, n in means) / ios if means and ios else None,
        maximum=max((side.maximum for side in sides if side.maximum is not None), default=None),
        sampled=sum(side.counted for side in sides),
    )
    if len(sides) != 1:
        return found
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return found.model_copy(update={name: percentile(sides[0], share) for name, share in shares.items()})


DRIVER = FioDriver()
