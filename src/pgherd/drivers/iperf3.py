"""iperf3 as a driver: TCP streams over a link, ended early by SIGINT, on which it writes its whole report.

A load's ``clients`` are the parallel streams. ``Load.options``: ``reverse`` (1: the far end sends), ``rate`` (bits/s of each
stream; none: as fast as it goes), ``window`` (bytes of the socket buffers; none: the kernel tunes them), ``congestion`` (the
algorithm).

**Counting.** A transaction is a byte that the sender handed to its socket. iperf3 reports bytes by intervals of a second from
the start of its test on; the instant of that start is known to the time that its streams need to connect (a few round trips).
Windows are cut from that curve.

**Round trip times** are the kernel's smoothed ones of each stream (tcp_info), so of segments under this very load; only the
sender knows them: in reverse tests they are absent. **CPU**: before 3.16 iperf3 drives all streams from one thread.
"""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pgherd.drivers.curve import CumulativeCurve
from pgherd.drivers.driver import Endpoint, Span, Window
from pgherd.model.errors import UsageError
from pgherd.model.load import Load
from pgherd.model.result import TargetResult

CONNECT_MS = 5000
INTERRUPTED = "interrupt - the client has terminated"
MOST_STREAMS = 128
"""More of them iperf3 refuses."""
_KNOWN = {"reverse", "rate", "window", "congestion"}


@dataclass(frozen=True)
class _Interval:
    """Seconds from the test's start, bytes of all streams, retransmitted segments, and of the streams the round trip times (ms)
    and congestion windows (bytes)."""

    start: float
    end: float
    bytes: float
    retransmits: float | None
    rtts: tuple[float, ...]
    windows: tuple[float, ...]


class Iperf3Driver:
    """See the module."""

    name = "iperf3"
    stop_signal: int = signal.SIGINT
    exit_codes: tuple[int, ...] = (0, 1)

    def argv(self, load: Load, endpoint: Endpoint, seconds: float) -> list[str]:
        """The command line; its report goes to stdout.

        Raises:
            UsageError: an unknown option, or more streams than iperf3 takes.
        """
        options = load.options
        unknown = sorted(set(options) - _KNOWN)
        if unknown:
            raise UsageError(f"an iperf3 load has no option '{unknown[0]}'; known: {', '.join(sorted(_KNOWN))}")
        if load.clients > MOST_STREAMS:
            raise UsageError(f"iperf3 takes at most {MOST_STREAMS} streams, not {load.clients}")
        argv = ["iperf3", "--client", endpoint.host, "--port", str(endpoint.port), "--parallel", str(load.clients)]
        argv += ["--time", str(max(1, math.ceil(seconds))), "--interval", "1", "--connect-timeout", str(CONNECT_MS), "--json"]
        argv += ["--reverse"] if options.get("reverse", "0") == "1" else []
        argv += ["--bitrate", options["rate"]] if "rate" in options else []
        argv += ["--window", options["window"]] if "window" in options else []
        return argv + (["--congestion", options["congestion"]] if "congestion" in options else [])

    def span(self, files: Mapping[str, str], started: float, stop: float) -> Span:
        """From the start of the test to the end of its last interval.

        Raises:
            ValueError: iperf3 failed or wrote no report.
        """
        report = read_report(files)
        first, intervals = _first(report, started), list(_intervals(report))
        return Span(first, max(first, min(stop, first + intervals[-1].end)))

    def result(self, load: Load, files: Mapping[str, str], started: float, window: Window, target: str) -> TargetResult:
        """The target's result over the common window; ``client_cpu`` and ``raw`` are left to the caller.

        ``values``: ``bits_per_second``, ``retransmits_per_second``, ``rtt_ms`` (mean over streams and seconds), ``rtt_max_ms``,
        ``window_bytes`` (mean congestion window of a stream), ``remote_cpu`` (share of one CPU that the far end used, over its
        whole run, where it told).
        ``series``: ``bits_per_second`` and ``rtt_ms``.

        Raises:
            ValueError: iperf3 failed or wrote no report, or the window is empty.
        """
        if window.end <= window.start:
            raise ValueError(f"the window of {target} is empty: it ends {window.start - window.end:.3f} s before it starts")
        report = read_report(files)
        first, intervals = _first(report, started), list(_intervals(report))
        seconds = window.end - window.start
        curve = _curve(first, [(one.end, one.bytes) for one in intervals])
        sent = curve.between(window.start, window.end)
        inside = [one for one in intervals if window.start <= first + one.start and first + one.end <= window.end + 1e-6] or intervals
        values = {"bits_per_second": 8 * sent / seconds}
        if all(one.retransmits is not None for one in intervals):
            lost = _curve(first, [(one.end, one.retransmits or 0.0) for one in intervals])
            values["retransmits_per_second"] = lost.between(window.start, window.end) / seconds
        rtts = [rtt for one in inside for rtt in one.rtts]
        windows = [size for one in inside for size in one.windows]
        if rtts:
            values |= {"rtt_ms": math.fsum(rtts) / len(rtts), "rtt_max_ms": max(rtts)}
        if windows:
            values["window_bytes"] = math.fsum(windows) / len(windows)
        remote = report.get("end", {}).get("cpu_utilization_percent", {}).get("remote_total")
        if remote:
            values["remote_cpu"] = float(remote) / 100
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
                "rtt_ms": [math.fsum(one.rtts) / len(one.rtts) for one in inside if one.rtts],
            },
        )


def read_report(files: Mapping[str, str]) -> dict[str, Any]:
    """iperf3's JSON document; raises ValueError with its words where it failed or told nothing.

    An interrupted client says so as an error, and its report is whole.
    """
    text = files.get("stdout", "")
    try:
        report = json.loads(text)
    except ValueError:
        said = (files.get("stderr", "").strip() or text.strip()[-200:]).splitlines()
        raise ValueError(f"iperf3 wrote no report: {said[-1] if said else '(it said nothing)'}") from None
    if not isinstance(report, dict):
        raise ValueError("iperf3 wrote no report: what it wrote is no JSON object")
    error = report.get("error")
    if error and error != INTERRUPTED:
        raise ValueError(f"iperf3: {error}")
    if not any(True for _ in _intervals(report)):
        raise ValueError("iperf3's report holds no interval: it ended within its first second")
    return report


def _first(report: Mapping[str, Any], started: float) -> float:
    """When the test began: not before the process, nor before the whole second that iperf3 gives; within a few round trips."""
    try:
        said = float(report["start"]["timestamp"]["timesecs"])
    except (KeyError, TypeError, ValueError):
        return started
    return max(started, said) if said < started + 60 else started


def _intervals(report: Mapping[str, Any]) -> Iterator[_Interval]:
    for one in report.get("intervals", ()):
        total, streams = one.get("sum", {}), one.get("streams", ())
        if total.get("omitted") or float(total.get("end", 0)) <= float(total.get("start", 0)):
            continue
        yield _Interval(
            start=float(total["start"]),
            end=float(total["end"]),
            bytes=float(total["bytes"]),
            retransmits=None if total.get("retransmits") is None else float(total["retransmits"]),
            rtts=tuple(float(stream["rtt"]) / 1000 for stream in streams if stream.get("rtt")),
            windows=tuple(float(stream["snd_cwnd"]) for stream in streams if stream.get("snd_cwnd")),
        )


def _curve(first: float, counts: list[tuple[float, float]]) -> CumulativeCurve:
    points, level = [(first, 0.0)], 0.0
    for end, count in counts:
        level += count
        points.append((first + end, level))
    return CumulativeCurve(points)


DRIVER = Iperf3Driver()
