"""From results to an answer with a grade. Pure; never raises for missing, failed or tainted trials: it says so."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pgherd.analysis.intervals import LEAST, mean_interval
from pgherd.analysis.streams import Limit, limit, surely_enough
from pgherd.model.finding import Analysis, Finding, Grade
from pgherd.model.result import TargetResult, TrialResult
from pgherd.studies.findings import as_finding, missing
from pgherd.studies.grade import trial_warnings
from pgherd.studies.network import published
from pgherd.studies.network.options import IDLE, NetworkOptions

GBIT = 1e9
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


def analyse(options: NetworkOptions, results: Sequence[TrialResult]) -> Analysis:
    """All findings, tables and figures of a network run, one sentence as its answer, and its grade."""
    groups = {link.name: _groups(results, link.name) for link in options.links}
    warnings = trial_warnings(results)
    if not any(streams != IDLE for found in groups.values() for streams in found):
        said = f"{len(results)} trials were run and none of them finished" if results else "no trial was run"
        return Analysis(answer=f"Nothing can be said: {said}.", grade="C", warnings=warnings)
    findings: dict[str, Finding] = {}
    limits: dict[str, Limit] = {}
    for link, found in groups.items():
        suffix = f".{link}" if len(groups) > 1 else ""
        known = _limit(found)
        if known is not None:
            limits[link] = known
            findings |= {name + suffix: finding for name, finding in _findings(found, known).items()}
    grade = _grade(options, groups, results)
    text = " ".join(_sentence(link, groups[link], known, len(groups) > 1) for link, known in limits.items())
    text = text or "Throughput was measured, but not of one stream, without which nothing is said of what bounds it."
    return Analysis(
        answer=text if grade != "C" else f"Indication only: {text}",
        grade=grade,
        findings=findings,
        tables={"network": [row for link, found in groups.items() for row in _rows(link, found, options)]},
        warnings=[*warnings, *_warnings(options, limits)],
        look_at=_meaning(groups, limits),
        figures={
            "limits": {link: {"best": known.best / GBIT, "bound": known.bound, "enough": known.enough} for link, known in limits.items()}
        },
    )


def _groups(results: Sequence[TrialResult], link: str) -> dict[int, Group]:
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


def _cpu(one: TargetResult) -> float | None:
    """Of the busier end; the far end's is over its whole run."""
    known = [value for value in (one.client_cpu, one.values.get("remote_cpu")) if value is not None]
    return max(known) if known else None


def _throughput(group: Group) -> Finding:
    return group.mean(_gbits, "Gbit/s", "iperf3 told no throughput")


def _limit(found: dict[int, Group]) -> Limit | None:
    throughput: dict[int, float] = {}
    cpu: dict[int, float] = {}
    for streams, group in found.items():
        value = _throughput(group).value
        if streams != IDLE and value:
            throughput[streams] = value * GBIT
            busy = group.mean(_cpu, "", "").value
            cpu |= {} if busy is None else {streams: busy}
    try:
        return limit(throughput, cpu)
    except ValueError:
        return None


def _findings(found: dict[int, Group], known: Limit) -> dict[str, Finding]:
    """Throughputs, streams, round trips, and what they mean for replication and clients."""
    alone, best = _throughput(found[1]), _throughput(found[known.at])
    told = {
        "best": best.model_copy(update={"note": _joined(f"with {known.at} streams", best.note), "experiment": "E14"}),
        "one_stream": alone.model_copy(update={"experiment": "E14", "published": published.beside(1)}),
        "streams_for_90": _enough(found, known),
    }
    megabytes = alone.model_copy(
        update={
            "value": _times(alone.value, 125), "low": _times(alone.low, 125), "high": _times(alone.high, 125), "unit": "MB/s",
            "note": _joined("a standby's WAL comes by one stream; 1 MB is 10^6 bytes", alone.note),
        }
    )  # fmt: skip
    told["replication_limit"] = megabytes
    loaded = found[known.at].mean(_rtt, "ms", "round trip times are known to the sender only")
    told["rtt_loaded"] = loaded.model_copy(update={"note": _joined(f"under {known.at} streams at full speed", loaded.note)})
    if IDLE in found:
        idle = found[IDLE].mean(_rtt, "ms", "round trip times are known to the sender only")
        told["rtt_idle"] = idle.model_copy(update={"note": _joined("one stream of 1 Mbit/s", idle.note)})
        if idle.value:
            low, high = (None if end is None or end <= 0 else 1000 / end for end in (idle.high, idle.low))
            both = low is not None and high is not None
            told["round_trips_per_second"] = Finding(
                value=1000 / idle.value,
                unit="1/s",
                low=low if both else None,
                high=high if both else None,
                confidence=idle.confidence if both else None,
                n=idle.n,
                method="1 ÷ idle round trip time",
                note="at most so many statements, or synchronous commits, of one client that waits for each",
            )
    return told


def _enough(found: dict[int, Group], known: Limit) -> Finding:
    method = "fewest streams whose mean throughput is 90 % of the best mean; the range is what the intervals leave open"
    ends = {streams: _throughput(group) for streams, group in found.items() if streams != IDLE}
    low = {streams: one.low for streams, one in ends.items() if one.low is not None}
    high = {streams: one.high for streams, one in ends.items() if one.high is not None}
    n = min(one.n for one in ends.values())
    if set(low) != set(ends) or set(high) != set(ends):
        return Finding(value=known.enough, unit="streams", n=n, method=method, note=f"no range: fewer than {LEAST} trials each")
    open_ = surely_enough(low, high) or [known.enough]
    first, last = min(*open_, known.enough), max(*open_, known.enough)
    return Finding(value=known.enough, unit="streams", low=first, high=last, confidence=0.95, n=n, method=method)


def _rows(link: str, found: dict[int, Group], options: NetworkOptions) -> list[Row]:
    rows: list[Row] = []
    best = max((value for streams, group in found.items() if streams != IDLE and (value := _throughput(group).value)), default=None)
    for streams, group in found.items():
        throughput = _throughput(group)
        row: Row = {"link": link} if len(options.links) > 1 else {}
        row["streams"] = streams if streams != IDLE else "idle (1 Mbit/s)"
        row["throughput"] = throughput.model_copy(update={"experiment": "E14", "published": published.beside(streams)})
        row["of_best"] = None if streams == IDLE or not best or throughput.value is None else f"{throughput.value / best:.0%}"
        row["retransmits"] = group.mean(lambda one: one.values.get("retransmits_per_second"), "1/s", "known to the sender only")
        row["rtt"] = group.mean(_rtt, "ms", "known to the sender only")
        row["iperf3_cpu"] = group.mean(lambda one: one.client_cpu, "CPUs", "not told")
        row["published"] = published.beside(streams) if streams != IDLE else None
        row |= {"trials": group.tried, "tainted": group.tainted}
        rows.append(row)
    return rows


def _grade(options: NetworkOptions, groups: dict[str, dict[int, Group]], results: Sequence[TrialResult]) -> Grade:
    """A: every number of streams has clean trials enough on every link, all verdicts passed. C: some link has no clean trial of one
    stream. B: everything between."""
    if not all(1 in found and found[1].clean for found in groups.values()):
        return "C"
    complete = all(set(found) == {IDLE, *options.streams} for found in groups.values())
    enough = all(len(group.used) >= min(LEAST, options.repeats) and group.clean for found in groups.values() for group in found.values())
    used = {key for found in groups.values() for group in found.values() for key in group.keys}
    verdicts = [v for result in results if result.trial.key() in used for v in result.verdicts if v.severity == "taint"]
    own = any(link.kind == "namespaces" for link in options.links)
    return "A" if complete and enough and not own and all(v.result == "pass" for v in verdicts) else "B"


def _sentence(link: str, found: dict[int, Group], known: Limit, named: bool) -> str:
    alone = _throughput(found[1]).value or math.nan
    who = f"{link} carries" if named else "The link carries"
    text = f"{who} {_speed(known.best / GBIT)} with "
    text += "one stream, and no more with several" if known.at == 1 else f"{known.at} streams, and {_speed(alone)} with one"
    text += f"; {known.enough} make 90 % of the best" if known.enough > 1 else ""
    bound = {
        "latency": "one stream is bound by latency, not by the link's bandwidth",
        "bandwidth": "it is bound by bandwidth: one stream nearly fills it",
        "cpu": "iperf3's own CPU may be what bounds it",
        "undecided": "what bounds one stream cannot be told",
    }
    return f"{text}; {bound[known.bound]}."


def _speed(gbits: float) -> str:
    return f"{gbits:.3g} Gbit/s" if gbits >= 1 else f"{1000 * gbits:.3g} Mbit/s"


def _warnings(options: NetworkOptions, limits: dict[str, Limit]) -> list[str]:
    found = []
    if any(link.kind == "namespaces" for link in options.links):
        found.append(
            "Both ends are namespaces of this host: its memory and CPUs are the link. "
            "That shows that the tools work; it says nothing of a network"
        )
    for link, known in limits.items():
        if known.bound == "cpu":
            found.append(
                f"{link}: {known.why}. iperf3 before 3.16 drives all streams from one thread; what is here is {options.iperf3_version}"
            )
        if known.at == max(options.streams) > known.enough:
            continue
        if known.at == max(options.streams) and len(options.streams) > 1 and known.bound == "latency":
            found.append(f"{link}: throughput still grew at {known.at} streams, the most that were measured: give more with --streams")
    if any(link.kind == "remote" for link in options.links):
        found.append(
            "What others sent over the same links meanwhile is not seen; the order of trials was shuffled, and the repeats show the spread"
        )
    return found


def _meaning(groups: dict[str, dict[int, Group]], limits: dict[str, Limit]) -> list[str]:
    """What it means for replication and for clients."""
    said = []
    for link, known in limits.items():
        alone = _throughput(groups[link][1]).value
        if alone:
            text = f"{link}: a standby receives WAL by one stream, so by {125 * alone:,.0f} MB/s at most ({known.why})"
            more = "; base backups and copies gain from several streams at once" if known.bound == "latency" else ""
            said.append(text + more)
        idle = groups[link].get(IDLE)
        rtt = None if idle is None else idle.mean(_rtt, "ms", "").value
        if rtt:
            said.append(
                f"{link}: each round trip takes {rtt:.3g} ms, so one client makes {1000 / rtt:,.0f} statements a second at most; "
                "a commit that waits for a synchronous standby takes one more"
            )
    return said


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _joined(*texts: str) -> str:
    return "; ".join(text for text in texts if text)
