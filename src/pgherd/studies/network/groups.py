"""Trials grouped by link and number of streams, and what they say of one link: its limit, its rows, the grade of all. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pgherd.analysis.intervals import LEAST, mean_interval
from pgherd.analysis.streams import Limit, limit, surely_enough
from pgherd.model.finding import Finding, Grade
from pgherd.model.result import TargetResult, TrialResult
from pgherd.studies.network import published
from pgherd.studies.network.options import IDLE, NetworkOptions
from pgherd.study.findings import as_finding, missing
from pgherd.study.grade import fallback_warnings, grade_of, shortened_list, worst

GBIT = 1e9
THREADED = (3, 16)
"""The first iperf3 that drives each stream from a thread of its own."""
ONE_THREAD = 1.05
"""CPUs, to within how exactly they are counted, that one thread can use."""
SENDER_ONLY = "known to the sender only"
Row = dict[str, Finding | str | int | float | None]
Take = Callable[[TargetResult], float | None]


@dataclass(frozen=True)
class Group:
    """The trials of one link with one number of streams. ``used`` are the clean ones, or the tainted ones where none is clean."""

    used: tuple[TargetResult, ...]
    keys: tuple[str, ...]
    tainted: int
    tried: int
    clean: bool

    def mean(self, take: Take, unit: str, absent: str) -> Finding:
        """Mean over the trials with its interval, or why there is none."""
        values = [value for one in self.used if (value := take(one)) is not None]
        note = "" if self.clean else "only tainted trials: an indication"
        return as_finding(mean_interval(values), unit, note) if values else missing(unit, absent)

    @property
    def throughput(self) -> Finding:
        """What the senders handed to their sockets, Gbit/s."""
        return self.mean(_gbits, "Gbit/s", "iperf3 told no throughput")

    @property
    def rtt(self) -> Finding:
        """Round trip time, ms."""
        return self.mean(_rtt, "ms", SENDER_ONLY)

    @property
    def retransmits(self) -> Finding:
        """Segments sent again, 1/s."""
        return self.mean(lambda one: one.values.get("retransmits_per_second"), "1/s", SENDER_ONLY)


Groups = Mapping[int, Group]
"""Number of streams (IDLE: the trickle) → its trials, ascending; of one link."""


def grouped(results: Sequence[TrialResult], link: str) -> dict[int, Group]:
    """The groups of a link (by its target's name) that have a finished trial."""
    found: dict[int, list[TrialResult]] = {}
    for result in results:
        if result.trial.point.get("link") == link:
            found.setdefault(int(result.trial.point["streams"]), []).append(result)
    groups = {}
    for streams, trials in sorted(found.items()):
        finished = [trial for trial in trials if trial.error is None and trial.phases and trial.phases[0].targets]
        clean = [trial for trial in finished if not trial.tainted]
        used = clean or finished
        if used:
            targets, keys = tuple(one.phases[0].targets[0] for one in used), tuple(one.trial.key() for one in used)
            groups[streams] = Group(targets, keys, sum(trial.tainted for trial in trials), len(trials), bool(clean))
    return groups


def _gbits(one: TargetResult) -> float | None:
    value = one.values.get("bits_per_second")
    return None if value is None else value / GBIT


def _rtt(one: TargetResult) -> float | None:
    return one.values.get("rtt_ms")


def threads_of(version: str, streams: int) -> int:
    """How many threads iperf3 drives so many streams with: one before 3.16, one for each since. Of several hosts' versions the lowest
    counts."""
    found = [(int(major), int(minor)) for major, minor in re.findall(r"(?:^|, )(\d+)\.(\d+)", version)]
    return streams if found and min(found) >= THREADED else 1


def _cpu(one: TargetResult, streams: int, version: str) -> float | None:
    """What a thread of the busier end used of its CPU; the far end's is over its whole run. Of which version that one is nobody says: it
    has one thread unless it used more than one CPU."""
    far = one.values.get("remote_cpu")
    shares = [
        None if one.client_cpu is None else one.client_cpu / threads_of(version, streams),
        None if far is None else far / streams if far > ONE_THREAD else far,
    ]
    return max((share for share in shares if share is not None), default=None)


def limit_of(found: Groups, version: str) -> Limit | None:
    """What bounds one stream of a link; None where one stream was not measured. ``version`` is iperf3's."""
    throughput: dict[int, float] = {}
    cpu: dict[int, float] = {}
    for streams, group in found.items():
        value = group.throughput.value
        if streams != IDLE and value:
            throughput[streams] = value * GBIT
            known = [share for one in group.used if (share := _cpu(one, streams, version)) is not None]
            cpu |= {streams: math.fsum(known) / len(known)} if known else {}
    try:
        return limit(throughput, cpu)
    except ValueError:
        return None


def enough(found: Groups, known: Limit) -> Finding:
    """The fewest streams with 90 % of the best, and the range that the intervals leave open."""
    method = "fewest streams whose mean throughput is 90 % of the best mean; the range is what the intervals leave open"
    ends = {streams: group.throughput for streams, group in found.items() if streams != IDLE}
    if len(ends) == 1:
        return missing("streams", known.why, method=method)
    low = {streams: one.low for streams, one in ends.items() if one.low is not None}
    high = {streams: one.high for streams, one in ends.items() if one.high is not None}
    n = min(one.n for one in ends.values())
    if set(low) != set(ends) or set(high) != set(ends):
        return Finding(value=known.enough, unit="streams", n=n, method=method, note=f"no range: fewer than {LEAST} trials each")
    open_ = surely_enough(low, high) or [known.enough]
    first, last = min(*open_, known.enough), max(*open_, known.enough)
    return Finding(value=known.enough, unit="streams", low=first, high=last, confidence=0.95, n=n, method=method)


def rows(link: str, found: Groups, options: NetworkOptions) -> list[Row]:
    """One row for each number of streams."""
    made: list[Row] = []
    best = max((value for streams, group in found.items() if streams != IDLE and (value := group.throughput.value)), default=None)
    for streams, group in found.items():
        throughput = group.throughput
        row: Row = {"link": link} if len(options.links) > 1 else {}
        row["streams"] = streams if streams != IDLE else "idle (1 Mbit/s)"
        row["throughput"] = throughput.model_copy(update={"experiment": "E14", "published": published.beside(streams)})
        row["of_best"] = None if streams == IDLE or not best or throughput.value is None else f"{throughput.value / best:.0%}"
        row["retransmits"] = group.retransmits
        row["rtt"] = group.rtt
        row["iperf3_cpu"] = group.mean(lambda one: one.client_cpu, "CPUs", "not told")
        row["published"] = published.beside(streams) if streams != IDLE else None
        row |= {"trials": group.tried, "tainted": group.tainted}
        made.append(row)
    return made


def grade(options: NetworkOptions, groups: Mapping[str, Groups], results: Sequence[TrialResult]) -> Grade:
    """A: every number of streams, and the trickle, has clean trials enough on every link, all verdicts passed. C: some link has no clean
    trial of one stream, or of half of its numbers of streams or more. B: everything between."""
    if not all(1 in found and found[1].clean for found in groups.values()):
        return "C"
    complete = all(set(found) == {IDLE, *options.streams} for found in groups.values())
    plenty = all(len(group.used) >= min(LEAST, options.repeats) and group.clean for found in groups.values() for group in found.values())
    used = {key for found in groups.values() for group in found.values() for key in group.keys}
    own = any(link.kind == "namespaces" for link in options.links)
    whole = complete and plenty and not own
    return worst([grade_of([group.clean for group in _loaded(found).values()], used, results, whole=whole) for found in groups.values()])


def tainted_warnings(groups: Mapping[str, Groups]) -> list[str]:
    """Of each link, what rests on tainted trials alone."""
    said = []
    for link, found in groups.items():
        loaded, over = _loaded(found), f"over the link {link}"
        only = [str(streams) for streams, group in loaded.items() if not group.clean]
        missed = "what bounds a link is told by one stream" if 1 in found and not found[1].clean else ""
        what = f"{shortened_list(only)} stream{'' if only == ['1'] else 's'} {over}"
        said += fallback_warnings([group.clean for group in loaded.values()], what, missed)
        if IDLE in found and not found[IDLE].clean:
            said.append(f"Only tainted trials for the idle round trip {over}: this number is an indication")
    return said


def _loaded(found: Groups) -> Groups:
    """The numbers of streams that were measured; the trickle is none of them."""
    return {streams: group for streams, group in found.items() if streams != IDLE}


def speed(gbits: float) -> str:
    """``9.4 Gbit/s``, ``200 Mbit/s``."""
    return f"{gbits:.3g} Gbit/s" if gbits >= 1 else f"{1000 * gbits:.3g} Mbit/s"


def in_megabytes(throughput: Finding) -> Finding:
    """A throughput in Gbit/s as MB/s, for replication."""

    def times(value: float | None) -> float | None:
        return None if value is None else 125 * value

    note = "; ".join(text for text in ("a standby's WAL comes by one stream; 1 MB is 10^6 bytes", throughput.note) if text)
    changes = {"value": times(throughput.value), "low": times(throughput.low), "high": times(throughput.high), "unit": "MB/s", "note": note}
    return throughput.model_copy(update=changes)


def round_trips(idle: Finding) -> Finding | None:
    """How many round trips follow one another in a second; None where an idle one's time is not known."""
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
        method="1 ÷ idle round trip time",
        note="at most so many statements, or synchronous commits, of one client that waits for each",
    )
