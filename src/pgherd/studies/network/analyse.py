"""From results to an answer with a grade. Pure; never raises for missing, failed or tainted trials: it says so."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pgherd.analysis.streams import Limit
from pgherd.model.finding import Analysis, Finding
from pgherd.model.result import TrialResult
from pgherd.studies.network import pairs, published
from pgherd.studies.network.groups import (
    GBIT,
    Groups,
    enough,
    grade,
    grouped,
    in_megabytes,
    limit_of,
    round_trips,
    rows,
    speed,
    tainted_warnings,
)
from pgherd.studies.network.options import IDLE, NetworkOptions
from pgherd.study.grade import qualify_answer, trial_warnings

BOUNDS = {"latency": "latency", "bandwidth": "bandwidth", "cpu": "iperf3's CPU"}


def analyse(options: NetworkOptions, results: Sequence[TrialResult]) -> Analysis:
    """All findings, tables and figures of a network run, one sentence as its answer, and its grade."""
    groups = {link.target: grouped(results, link.target) for link in options.links}
    warnings = trial_warnings(results)
    if not any(streams != IDLE for found in groups.values() for streams in found):
        said = f"{len(results)} trials were run and none of them finished" if results else "no trial was run"
        return Analysis(answer=f"Nothing can be said: {said}.", grade="C", warnings=warnings)
    limits = {link: known for link, found in groups.items() if (known := limit_of(found, options.iperf3_version)) is not None}
    graded = grade(options, groups, results)
    if options.hosts:
        text, findings, tables, look_at = pairs.conclusions(options, groups, limits)
    else:
        text = " ".join(_sentence(link, groups[link], known, len(groups) > 1) for link, known in limits.items())
        findings = {}
        for link, known in limits.items():
            suffix = f".{link}" if len(groups) > 1 else ""
            findings |= {name + suffix: finding for name, finding in _findings(groups[link], known).items()}
        tables, look_at = {}, _meaning(groups, limits)
    text = text or "Throughput was measured, but not of one stream, without which nothing is said of what bounds it."
    return Analysis(
        answer=qualify_answer(text, graded),
        grade=graded,
        findings=findings,
        tables={**tables, "network": [row for link, found in groups.items() for row in rows(link, found, options)]},
        warnings=[*warnings, *tainted_warnings(groups), *_warnings(options, limits)],
        look_at=look_at,
        figures={
            "limits": {link: {"best": known.best / GBIT, "bound": known.bound, "enough": known.enough} for link, known in limits.items()}
        },
    )


def _findings(found: Groups, known: Limit) -> dict[str, Finding]:
    """Throughputs, streams, round trips, and what they mean for replication and clients."""
    alone, best = found[1].throughput, found[known.at].throughput
    bound = "what bounds it cannot be told" if known.bound == "undecided" else f"bound by {BOUNDS[known.bound]}"
    told = {
        "best": best.model_copy(update={"note": _joined(f"with {known.at} streams", best.note), "experiment": "E14"}),
        "one_stream": alone.model_copy(update={"note": _joined(bound, alone.note), "experiment": "E14", "published": published.beside(1)}),
        "streams_for_90": enough(found, known),
        "replication_limit": in_megabytes(alone),
    }
    loaded = found[known.at].rtt
    told["rtt_loaded"] = loaded.model_copy(update={"note": _joined(f"under {known.at} streams at full speed", loaded.note)})
    if IDLE in found:
        idle = found[IDLE].rtt
        told["rtt_idle"] = idle.model_copy(update={"note": _joined("one stream of 1 Mbit/s", idle.note)})
        trips = round_trips(idle)
        told |= {} if trips is None else {"round_trips_per_second": trips}
    return told


def _sentence(link: str, found: Groups, known: Limit, named: bool) -> str:
    alone = found[1].throughput.value or math.nan
    who = f"{link} carries" if named else "The link carries"
    text = f"{who} {speed(known.best / GBIT)} with "
    several = any(streams > 1 for streams in found)
    best = "one stream" + (", and no more with several" if several else ", and several were not measured")
    text += best if known.at == 1 else f"{known.at} streams, and {speed(alone)} with one"
    text += f"; {known.enough} make 90 % of the best" if known.enough > 1 else ""
    bound = {
        "latency": "one stream is bound by latency, not by the link's bandwidth",
        "bandwidth": "it is bound by bandwidth: one stream nearly fills it",
        "cpu": "iperf3's own CPU may be what bounds it",
        "undecided": "what bounds one stream cannot be told",
    }
    return f"{text}; {bound[known.bound]}."


def _warnings(options: NetworkOptions, limits: Mapping[str, Limit]) -> list[str]:
    found = []
    if any(link.kind == "namespaces" for link in options.links):
        found.append(
            "Both ends are namespaces of this host: its memory and CPUs are the link. "
            "That shows that the tools work; it says nothing of a network"
        )
    absent = [link.target for link in options.links if link.target not in limits]
    if absent:
        found.append(f"Nothing is said of {', '.join(absent)}: no trial of one stream was finished there")
    busy = {link: known.why for link, known in limits.items() if known.bound == "cpu"}
    for why in dict.fromkeys(busy.values()):
        names = ", ".join(link for link, one in busy.items() if one == why)
        found.append(f"{names}: {why}. iperf3 before 3.16 drives all streams from one thread; what is here is {options.iperf3_version}")
    most = max(options.streams)
    grew = [link for link, known in limits.items() if known.at == known.enough == most > 1 and known.bound == "latency"]
    if grew:
        found.append(f"{', '.join(grew)}: throughput still grew at {most} streams, the most that were measured: give more with --streams")
    if any(link.kind != "namespaces" for link in options.links):
        found.append(
            "What others sent over the same links meanwhile is not seen; the order of trials was shuffled, and the repeats show the spread"
        )
    return found


def _meaning(groups: Mapping[str, Groups], limits: Mapping[str, Limit]) -> list[str]:
    """What it means for replication and for clients."""
    said = []
    for link, known in limits.items():
        alone = groups[link][1].throughput.value
        if alone:
            text = f"{link}: a standby receives WAL by one stream, so by {125 * alone:,.0f} MB/s at most ({known.why})"
            more = "; base backups and copies gain from several streams at once" if known.bound == "latency" else ""
            said.append(text + more)
        idle = groups[link].get(IDLE)
        rtt = None if idle is None else idle.rtt.value
        if rtt:
            said.append(
                f"{link}: each round trip takes {rtt:.3g} ms, so one client makes {1000 / rtt:,.0f} statements a second at most; "
                "a commit that waits for a synchronous standby takes one more"
            )
    return said


def _joined(*texts: str) -> str:
    return "; ".join(text for text in texts if text)
