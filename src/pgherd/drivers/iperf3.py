"""Driver for iperf3: TCP streams over a link. SIGINT ends iperf3 early with its full report.

A load's ``clients`` are the parallel streams. ``Load.options``: ``reverse`` (1: the remote end sends), ``rate`` (bits/s per stream,
default unlimited), ``length`` (bytes of a write, which is sent at once; default 128 KiB), ``window`` (bytes of the socket buffers, default
tuned by the kernel), ``congestion`` (the algorithm).

**Counting.** A transaction is a byte that the sender passes to its socket. iperf3 reports bytes by intervals of one second from the start
of its test. That start is uncertain by the time that its streams need to connect, a few round trips. Windows are cut from the
cumulative curve of the intervals.

**Round trip times** are the kernel's smoothed values of each stream (tcp_info), so they include the queues of this load. Only the sender
has them, so they are absent in reverse tests. **CPU**: before 3.16 iperf3 drives all streams from one thread.
"""

from __future__ import annotations

import json
import math
import re
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pgherd.drivers.driver import CumulativeCurve, DriverSpan, Endpoint, MeasuredWindow, amount
from pgherd.model.errors import UsageError
from pgherd.model.load import Load
from pgherd.model.result import TargetResult

CONNECT_MS = 5000
INTERRUPTED = re.compile(r"interrupt\b(?!.*\bserver\b)(?!.*\bsignal (?!Interrupt|SIGINT|2\b))", re.IGNORECASE)
"""Error of a client that SIGINT ended, by pgherd. Its wording differs between versions. The end of the server is another error."""
MAX_STREAMS = 128
"""Largest number of streams that iperf3 accepts."""
_OPTIONS = {"reverse", "rate", "length", "window", "congestion"}


@dataclass(frozen=True)
class _Interval:
    """One interval of a report.

    ``start`` and ``end`` are seconds since the start of the test. ``bytes`` and ``retransmits`` (segments) are over all
    streams. ``rtts`` (ms) and ``windows`` (congestion windows in bytes) are per stream.
    """

    start: float
    end: float
    bytes: float
    retransmits: float | None
    rtts: tuple[float, ...]
    windows: tuple[float, ...]


class Iperf3Driver:
    """Driver for iperf3. The module's docstring has the details."""

    name = "iperf3"
    stop_signal: int = signal.SIGINT
    exit_codes: tuple[int, ...] = (0, 1)

    def argv(self, load: Load, endpoint: Endpoint, seconds: float) -> list[str]:
        """Return the command line. iperf3 writes its report to stdout.

        Raises:
            UsageError: an unknown option, or more streams than iperf3 accepts.
        """
        options = load.options
        unknown = sorted(set(options) - _OPTIONS)
        if unknown:
            raise UsageError(f"an iperf3 load has no option '{unknown[0]}'; known: {', '.join(sorted(_OPTIONS))}")
        if load.clients > MAX_STREAMS:
            raise UsageError(f"iperf3 accepts at most {MAX_STREAMS} streams, not {load.clients}")
        argv = ["iperf3", "--client", endpoint.host, "--port", str(endpoint.port), "--parallel", str(load.clients)]
        argv += ["--time", str(max(1, math.ceil(seconds))), "--interval", "1", "--connect-timeout", str(CONNECT_MS), "--json"]
        argv += ["--reverse"] if options.get("reverse", "0") == "1" else []
        argv += ["--bitrate", options["rate"]] if "rate" in options else []
        argv += ["--length", options["length"], "--no-delay"] if "length" in options else []
        argv += ["--window", options["window"]] if "window" in options else []
        return argv + (["--congestion", options["congestion"]] if "congestion" in options else [])

    def span(self, files: Mapping[str, str], started: float, stop: float) -> DriverSpan:
        """Return the interval from the start of the test to the end of its last interval.

        Raises:
            ValueError: iperf3 failed or wrote no report.
        """
        report = read_report(files)
        first, intervals = _first(report, started), list(_intervals(report))
        return DriverSpan(first, max(first, min(stop, first + intervals[-1].end)))

    def result(self, load: Load, files: Mapping[str, str], started: float, window: MeasuredWindow, target: str) -> TargetResult:
        """Return the target's result over the common window.

        ``values``: ``bits_per_second``, ``retransmits_per_second``, ``rtt_ms`` (mean over streams and seconds), ``rtt_max_ms``,
        ``window_bytes`` (mean congestion window of a stream), ``remote_cpu`` (CPU usage of the remote end over its complete
        run, as a fraction of one CPU, if it reported it).
        ``series``: ``bits_per_second`` and ``rtt_ms``.

        Raises:
            ValueError: iperf3 failed or wrote no report, or the window is empty.
        """
        if window.end <= window.start:
            raise ValueError(f"the window of {target} is empty: it ends {window.start - window.end:.3f} s before it starts")
        report = read_report(files)
        first, intervals = _first(report, started), list(_intervals(report))
        seconds = window.end - window.start
        curve = _curve(first, [(interval.end, interval.bytes) for interval in intervals])
        sent = curve.between(window.start, window.end)
        inside = [
            interval for interval in intervals if window.start <= first + interval.start and first + interval.end <= window.end + 1e-6
        ] or intervals
        values = {"bits_per_second": 8 * sent / seconds}
        if all(interval.retransmits is not None for interval in intervals):
            retransmits = _curve(first, [(interval.end, interval.retransmits or 0.0) for interval in intervals])
            values["retransmits_per_second"] = retransmits.between(window.start, window.end) / seconds
        rtts = [rtt for interval in inside for rtt in interval.rtts]
        windows = [size for interval in inside for size in interval.windows]
        if rtts:
            values |= {"rtt_ms": math.fsum(rtts) / len(rtts), "rtt_max_ms": max(rtts)}
        if windows:
            values["window_bytes"] = math.fsum(windows) / len(windows)
        remote = _remote_cpu(report)
        if remote:
            values["remote_cpu"] = remote
        per_second = curve.per_second(window.start, window.end)
        return TargetResult(
            target=target,
            driver=self.name,
            transactions=sent,
            throughput=sent / seconds,
            per_second=per_second,
            first=first,
            last=min(window.stop, first + intervals[-1].end),
            values=values,
            series={
                "bits_per_second": [8 * count for count in per_second],
                "rtt_ms": [math.fsum(interval.rtts) / len(interval.rtts) for interval in inside if interval.rtts],
            },
        )


def read_report(files: Mapping[str, str]) -> dict[str, Any]:
    """Return iperf3's JSON document. Raises ValueError with its error message if it failed or reported no interval.

    An interrupted client reports the interruption as an error, but its report is complete.
    """
    text = files.get("stdout", "")
    try:
        report = json.loads(text, parse_constant=_no_number)
    except (RecursionError, ValueError):
        lines = (files.get("stderr", "").strip() or text.strip()[-200:]).splitlines()
        raise ValueError(f"iperf3 wrote no report: {lines[-1] if lines else 'no output'}") from None
    if not isinstance(report, dict):
        raise ValueError("iperf3 wrote no report: its output is no JSON object")
    error = report.get("error")
    if error and not INTERRUPTED.match(str(error)):
        raise ValueError(f"iperf3: {error}")
    try:
        intervals = list(_intervals(report))
        _remote_cpu(report)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"iperf3's report has an unexpected form: {error}") from None
    if not intervals:
        raise ValueError("iperf3's report has no interval: it ended within its first second")
    return report


def _no_number(constant: str) -> float:
    raise ValueError(f"{constant} is no number of iperf3")


def _remote_cpu(report: Mapping[str, Any]) -> float | None:
    """Return the CPU usage of the remote end as a fraction of one CPU, if it reported it."""
    remote = report.get("end", {}).get("cpu_utilization_percent", {}).get("remote_total")
    return amount(remote) / 100 if remote else None


def _first(report: Mapping[str, Any], started: float) -> float:
    """Return the start of the test, within a few round trips.

    It is neither before the start of the process nor before the whole second that iperf3 reports.
    """
    try:
        reported = amount(report["start"]["timestamp"]["timesecs"])
    except (KeyError, TypeError, ValueError):
        return started
    return max(started, reported) if reported < started + 60 else started


def _intervals(report: Mapping[str, Any]) -> Iterator[_Interval]:
    for interval in report.get("intervals", ()):
        total, streams = interval.get("sum", {}), interval.get("streams", ())
        if total.get("omitted") or amount(total.get("end", 0)) <= amount(total.get("start", 0)):
            continue
        yield _Interval(
            start=amount(total["start"]),
            end=amount(total["end"]),
            bytes=amount(total["bytes"]),
            retransmits=_retransmits(total),
            rtts=tuple(amount(stream["rtt"]) / 1000 for stream in streams if stream.get("rtt")),
            windows=tuple(amount(stream["snd_cwnd"]) for stream in streams if stream.get("snd_cwnd")),
        )


def _retransmits(total: Mapping[str, Any]) -> float | None:
    """Return the retransmits of an interval. Where the kernel reports none, iperf3 may write -1 or 2^32 - 2 (its issue 725)."""
    count = total.get("retransmits")
    return amount(count) if count is not None and 0 <= count < 2**31 else None


def _curve(first: float, counts: list[tuple[float, float]]) -> CumulativeCurve:
    points, level = [(first, 0.0)], 0.0
    for end, count in counts:
        level += count
        points.append((first + end, level))
    return CumulativeCurve(points)


DRIVER = Iperf3Driver()
