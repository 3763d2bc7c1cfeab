"""Results of one link by number of streams: trials, bottleneck, table rows, grade. Also the throughputs that E14 published.

One TCP stream sends at most one window per round trip, so its throughput is at most window ÷ round-trip time. If that is below
the link's capacity, throughput grows in proportion to the streams until the link is full (E14: 4.8, 9, 18, 23 Gbit/s with 1, 2,
4, 8 streams). If one stream fills the link, more streams gain nothing (21.4, 22, 22.5, 23).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pgherd.analysis.best_load import best_load, contradictions
from pgherd.analysis.bootstrap import draw_means
from pgherd.analysis.intervals import LEAST, Estimate, mean_interval
from pgherd.model.analysis import Finding, Grade
from pgherd.model.result import TargetResult, TrialResult
from pgherd.studies.network.options import IDLE, NetworkOptions
from pgherd.study.findings import as_finding, missing
from pgherd.study.grade import fallback_warnings, grade_of, shortened_list, worst

GBIT = 1e9
SOURCE = "E14, Gary Little, n0derunner.com"
PUBLISHED_STREAMS = (1, 2, 4, 8)
CLOUD_GBITS = (4.8, 9.0, 18.0, 23.0)
"""Throughput between racks of a cloud. Latency prevents one stream from filling the link."""
PREMISES_GBITS = (21.4, 22.0, 22.5, 23.0)
"""Throughput on premises."""
PUBLISHED_SERIES = {"E14: cloud": CLOUD_GBITS, "E14: on premises": PREMISES_GBITS}

_FIRST_THREADED_VERSION = (3, 16)
"""First iperf3 version with a thread per stream."""
_ONE_THREAD_CPUS = 1.05
"""Most CPUs that one thread uses, including the error of the measurement."""
_SENDER_ONLY = "known to the sender only"

Row = dict[str, Finding | str | int | float | None]
Extract = Callable[[TargetResult], float | None]

BottleneckKind = Literal["latency", "bandwidth", "cpu", "unknown"]
NEAR_PEAK_SHARE = 0.9
"""Share of the peak throughput from which a link counts as full."""
PROPORTIONAL_SHARE = 0.7
"""Share of proportional growth from which one stream counts as limited by its round trips."""
FULL_THREAD_SHARE = 0.9
"""Share of one CPU from which a thread of the tool counts as the bottleneck."""


def published_text(streams: int) -> str | None:
    """Return both throughputs that E14 published for a number of streams, or None."""
    if streams not in PUBLISHED_STREAMS:
        return None
    index = PUBLISHED_STREAMS.index(streams)
    return f"{CLOUD_GBITS[index]:g} Gbit/s (cloud), {PREMISES_GBITS[index]:g} Gbit/s (on premises) ({SOURCE})"


@dataclass(frozen=True)
class StreamGroup:
    """Trials of one link with one number of streams. ``used`` are the clean ones, or the tainted ones if none is clean."""

    used: tuple[TargetResult, ...]
    keys: tuple[str, ...]
    tainted: int
    tried: int
    clean: bool

    def mean(self, extract: Extract, unit: str, absent: str) -> Finding:
        """Return the mean over the trials with its interval, or the reason ``absent`` if no trial has a value."""
        values = [value for target in self.used if (value := extract(target)) is not None]
        note = "" if self.clean else "only tainted trials: an indication"
        return as_finding(mean_interval(values), unit, note) if values else missing(unit, absent)

    @property
    def throughput(self) -> Finding:
        """Throughput that the senders passed to their sockets, in Gbit/s."""
        return self.mean(_gbits, "Gbit/s", "iperf3 reported no throughput")

    @property
    def rtt(self) -> Finding:
        """Round-trip time in ms."""
        return self.mean(_rtt, "ms", _SENDER_ONLY)

    @property
    def retransmits(self) -> Finding:
        """Retransmitted segments per second."""
        return self.mean(lambda target: target.values.get("retransmits_per_second"), "1/s", _SENDER_ONLY)


Groups = Mapping[int, StreamGroup]
"""Groups of one link by number of streams, ascending. IDLE is the trial with an almost idle link."""


def group_trials(results: Sequence[TrialResult], link: str) -> dict[int, StreamGroup]:
    """Return the groups of a link (the name of its target) that have a finished trial."""
    trials_by_streams: dict[int, list[TrialResult]] = {}
    for result in results:
        if result.trial.point.get("link") == link:
            trials_by_streams.setdefault(int(result.trial.point["streams"]), []).append(result)
    groups = {}
    for streams, trials in sorted(trials_by_streams.items()):
        finished = [trial for trial in trials if trial.error is None and trial.phases and trial.phases[0].targets]
        clean = [trial for trial in finished if not trial.tainted]
        used = clean or finished
        if used:
            targets, keys = tuple(trial.phases[0].targets[0] for trial in used), tuple(trial.trial.key() for trial in used)
            groups[streams] = StreamGroup(targets, keys, sum(trial.tainted for trial in trials), len(trials), bool(clean))
    return groups


def _gbits(target: TargetResult) -> float | None:
    value = target.values.get("bits_per_second")
    return None if value is None else value / GBIT


def _rtt(target: TargetResult) -> float | None:
    return target.values.get("rtt_ms")


def threads_of(version: str, streams: int) -> int:
    """Return the number of threads of an iperf3 version: one before 3.16, one per stream since.

    ``version`` may list the versions of several hosts. The lowest counts.
    """
    versions = [(int(major), int(minor)) for major, minor in re.findall(r"(?:^|, )(\d+)\.(\d+)", version)]
    return streams if versions and min(versions) >= _FIRST_THREADED_VERSION else 1


def _thread_cpu(target: TargetResult, streams: int, version: str) -> float | None:
    """Return the CPU share of a thread at the busier end.

    iperf3 reports the remote CPU over its whole run. The remote version is unknown: one thread unless it used more than one CPU.
    """
    remote = target.values.get("remote_cpu")
    shares = [
        None if target.client_cpu is None else target.client_cpu / threads_of(version, streams),
        None if remote is None else remote / streams if remote > _ONE_THREAD_CPUS else remote,
    ]
    return max((share for share in shares if share is not None), default=None)


def link_bottleneck(groups: Groups, version: str) -> LinkBottleneck | None:
    """Return the bottleneck of one stream of a link, or None if one stream was not measured. ``version`` is iperf3's."""
    throughput: dict[int, float] = {}
    cpu: dict[int, float] = {}
    for streams, group in groups.items():
        value = group.throughput.value
        if streams != IDLE and value:
            throughput[streams] = value * GBIT
            shares = [share for target in group.used if (share := _thread_cpu(target, streams, version)) is not None]
            cpu |= {streams: math.fsum(shares) / len(shares)} if shares else {}
    try:
        return find_bottleneck(throughput, cpu)
    except ValueError:
        return None


def best_streams(groups: Groups) -> tuple[Estimate, list[int]]:
    """Return the peak throughput in Gbit/s, and the numbers of streams that cannot be told from the best. Only it without a spread."""
    loaded = _gbits_by_streams(groups)
    means = [math.fsum(found) / len(found) for found in loaded.values()]
    best = best_load(means, draw_means(list(loaded.values())), sum(map(len, loaded.values())))
    streams = list(loaded)
    return best.value, [streams[i] for i in best.candidates or (best.index,)]


def throughputs_by_streams(groups: Groups, only: int | None = None) -> list[list[float]]:
    """Return the throughputs in Gbit/s of the trials of each number of streams, or of ``only`` one number."""
    return [found for streams, found in _gbits_by_streams(groups).items() if only in (None, streams)]


def _gbits_by_streams(groups: Groups) -> dict[int, list[float]]:
    values = {streams: [gbits for target in group.used if (gbits := _gbits(target)) is not None] for streams, group in groups.items()}
    return {streams: found for streams, found in values.items() if streams != IDLE and math.fsum(found) > 0}


def contradicting_streams(groups: Groups) -> list[int]:
    """Return the numbers of streams with far less throughput than the next smaller and the next larger number."""
    means = {streams: value for streams, group in _loaded(groups).items() if (value := group.throughput.value) is not None}
    return [list(means)[i] for i in contradictions(list(means.values()))]


def streams_text(streams: Sequence[int]) -> str:
    """Return ``8 streams``, or ``2, 4 or 8 streams (not distinguishable)``."""
    if len(streams) == 1:
        return "one stream" if streams[0] == 1 else f"{streams[0]} streams"
    return f"{', '.join(map(str, streams[:-1]))} or {streams[-1]} streams (not distinguishable)"


def streams_for_90pct(groups: Groups, bottleneck: LinkBottleneck) -> Finding:
    """Return the fewest streams with 90 % of the peak throughput, with the range that the intervals allow."""
    method = "fewest streams whose mean throughput is 90 % of the highest mean; the range is what the intervals allow"
    throughputs = {streams: group.throughput for streams, group in groups.items() if streams != IDLE}
    if len(throughputs) == 1:
        return missing("streams", bottleneck.reason, method=method)
    low = {streams: finding.low for streams, finding in throughputs.items() if finding.low is not None}
    high = {streams: finding.high for streams, finding in throughputs.items() if finding.high is not None}
    n = min(finding.n for finding in throughputs.values())
    if set(low) != set(throughputs) or set(high) != set(throughputs):
        return Finding(
            value=bottleneck.streams_for_90pct, unit="streams", n=n, method=method, note=f"no range: fewer than {LEAST} trials each"
        )
    possible = possible_streams(low, high) or [bottleneck.streams_for_90pct]
    first, last = min(*possible, bottleneck.streams_for_90pct), max(*possible, bottleneck.streams_for_90pct)
    return Finding(value=bottleneck.streams_for_90pct, unit="streams", low=first, high=last, confidence=0.95, n=n, method=method)


def link_rows(link: str, groups: Groups, options: NetworkOptions) -> list[Row]:
    """Return one row per number of streams."""
    rows: list[Row] = []
    peak = max((value for streams, group in groups.items() if streams != IDLE and (value := group.throughput.value)), default=None)
    for streams, group in groups.items():
        throughput = group.throughput
        row: Row = {"link": link} if len(options.links) > 1 else {}
        row["streams"] = streams if streams != IDLE else "idle (1 Mbit/s)"
        row["throughput"] = throughput.model_copy(update={"experiment": "E14", "published": published_text(streams)})
        row["relative_to_peak"] = None if streams == IDLE or not peak or throughput.value is None else f"{throughput.value / peak:.0%}"
        row["retransmits"] = group.retransmits
        row["rtt"] = group.rtt
        row["iperf3_cpu"] = group.mean(lambda target: target.client_cpu, "CPUs", "not reported")
        row["published"] = published_text(streams) if streams != IDLE else None
        row |= {"trials": group.tried, "tainted_trials": group.tainted}
        rows.append(row)
    return rows


def run_grade(options: NetworkOptions, groups: Mapping[str, Groups], results: Sequence[TrialResult]) -> Grade:
    """Return the worst grade of all links.

    A: every number of streams, and the idle link, has enough clean trials on every link, and all checks passed. C: a link has no clean
    trial of one stream, or none for half of its numbers of streams or more. B: all other cases.
    """
    if not all(1 in link_groups and link_groups[1].clean for link_groups in groups.values()):
        return "C"
    every_group = [group for link_groups in groups.values() for group in link_groups.values()]
    complete = all(set(link_groups) == {IDLE, *options.streams} for link_groups in groups.values())
    enough_trials = all(len(group.used) >= LEAST and group.clean for group in every_group)
    used_keys = {key for group in every_group for key in group.keys}
    namespaces = any(link.kind == "namespaces" for link in options.links)
    whole = complete and enough_trials and not namespaces
    return worst(
        [
            grade_of([group.clean for group in _loaded(link_groups).values()], used_keys, results, whole=whole)
            for link_groups in groups.values()
        ]
    )


def tainted_warnings(groups: Mapping[str, Groups]) -> list[str]:
    """Return the warnings about numbers of streams with only tainted trials, for each link."""
    warnings = []
    for link, link_groups in groups.items():
        loaded, location = _loaded(link_groups), f"over the link {link}"
        tainted = [str(streams) for streams, group in loaded.items() if not group.clean]
        reason = "one stream shows the bottleneck of a link" if 1 in link_groups and not link_groups[1].clean else ""
        subject = f"{shortened_list(tainted)} stream{'' if tainted == ['1'] else 's'} {location}"
        warnings += fallback_warnings([group.clean for group in loaded.values()], subject, reason)
        if IDLE in link_groups and not link_groups[IDLE].clean:
            warnings.append(f"Only tainted trials for the idle round trip {location}: this number is an indication")
    return warnings


def _loaded(groups: Groups) -> Groups:
    """Return the groups without the one of the idle link."""
    return {streams: group for streams, group in groups.items() if streams != IDLE}


def format_speed(gbits: float) -> str:
    """Format a throughput: ``9.4 Gbit/s``, ``200 Mbit/s``."""
    return f"{gbits:.3g} Gbit/s" if gbits >= 1 else f"{1000 * gbits:.3g} Mbit/s"


def replication_bandwidth(throughput: Finding) -> Finding:
    """Convert the throughput of one stream from Gbit/s to MB/s, the limit of WAL replication."""

    def megabytes(gbits: float | None) -> float | None:
        return None if gbits is None else 125 * gbits

    note = "; ".join(text for text in ("a standby receives WAL over one stream; 1 MB is 10^6 bytes", throughput.note) if text)
    ends = {name: megabytes(getattr(throughput, name)) for name in ("value", "low", "high")}
    return throughput.model_copy(update={**ends, "unit": "MB/s", "note": note})


def round_trips(idle: Finding) -> Finding | None:
    """Return the number of successive round trips per second, or None if the idle round-trip time is unknown."""
    if not idle.value:
        return None
    low, high = (None if end is None or end <= 0 else 1000 / end for end in (idle.high, idle.low))
    both = low is not None and high is not None
    return Finding(
        value=1000 / idle.value,
        unit="1/s",
        low=low if both else None,
        high=high if both else None,
        confidence=idle.confidence if both else None,
        n=idle.n,
        method="1 ÷ idle round-trip time",
        note="maximum of statements, or of synchronous commits, per second of one client that waits for each",
    )


@dataclass(frozen=True)
class LinkBottleneck:
    """Bottleneck of one stream, with the reason.

    ``peak_throughput`` is in bits/s, with ``peak_streams`` streams. ``streams_for_90pct`` is the fewest streams with 90 % of it.
    """

    peak_throughput: float
    peak_streams: int
    streams_for_90pct: int
    kind: BottleneckKind
    reason: str


def find_bottleneck(throughput: Mapping[int, float], cpu: Mapping[int, float] | None = None) -> LinkBottleneck:
    """Determine the bottleneck of one stream of a link.

    Args:
        throughput: streams → bits/s. It must include 1 stream.
        cpu: streams → share of its CPU that a thread at the busier end of the tool used.

    Raises:
        ValueError: one stream was not measured, or all throughputs are zero.
    """
    if 1 not in throughput or max(throughput.values()) <= 0:
        raise ValueError("the bottleneck of a stream requires the throughput of one stream")
    cpu = cpu or {}
    peak_streams = max(sorted(throughput), key=lambda streams: throughput[streams])
    peak = throughput[peak_streams]
    streams_for_90pct = min(streams for streams, value in throughput.items() if value >= NEAR_PEAK_SHARE * peak)
    single, larger = throughput[1], sorted(streams for streams in throughput if streams > 1)
    thread_share = max(cpu.get(1, 0.0), cpu.get(peak_streams, 0.0))
    if thread_share >= FULL_THREAD_SHARE:
        kind: BottleneckKind = "cpu"
        reason = f"a thread of iperf3 used {thread_share:.0%} of a CPU and may be the bottleneck instead of the link"
    elif not larger:
        kind, reason = "unknown", "only one stream was measured"
    elif single >= NEAR_PEAK_SHARE * peak:
        kind, reason = "bandwidth", f"one stream reaches {single / peak:.0%} of the peak throughput"
    else:
        second = larger[0]
        growth = throughput[second] / single
        # If the second point fills the link, growth is below proportional even though one stream is limited by round trips.
        possible = min(float(second), peak / single)
        if growth >= 1 + PROPORTIONAL_SHARE * (possible - 1):
            kind, reason = (
                "latency",
                f"{second} streams reach {growth:.2g} times the throughput of one: a stream is limited by its round trips",
            )
        else:
            kind, reason = "unknown", f"{second} streams reach {growth:.2g} times the throughput of one, which fits neither case"
    return LinkBottleneck(peak_throughput=peak, peak_streams=peak_streams, streams_for_90pct=streams_for_90pct, kind=kind, reason=reason)


def possible_streams(low: Mapping[int, float], high: Mapping[int, float]) -> Sequence[int]:
    """Return the numbers of streams that may be the fewest with 90 % of the peak throughput, by their intervals (bits/s)."""
    top_low, top_high = max(low.values()), max(high.values())
    possible = [streams for streams in sorted(high) if high[streams] >= NEAR_PEAK_SHARE * top_low]
    sure = [streams for streams in sorted(low) if low[streams] >= NEAR_PEAK_SHARE * top_high]
    last = sure[0] if sure else max(high)
    return [streams for streams in possible if streams <= last]
