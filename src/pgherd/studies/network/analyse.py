"""Answer, findings, tables, warnings and grade of a network run. Missing, failed and tainted trials give warnings, not errors.

Between the hosts of a cluster, a pair is a direction: the link from one host to another. Each pair is measured alone, so the results
do not show what all links carry at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from pgherd.analysis.best_load import contradiction_text
from pgherd.model.analysis import Analysis, Finding
from pgherd.model.deployment import Link
from pgherd.model.result import TrialResult
from pgherd.studies.network.link_results import (
    GBIT,
    Groups,
    LinkBottleneck,
    Row,
    best_streams,
    contradicting_streams,
    format_speed,
    group_trials,
    link_bottleneck,
    link_rows,
    published_text,
    replication_bandwidth,
    round_trips,
    run_grade,
    streams_for_90pct,
    streams_text,
    tainted_warnings,
    throughputs_by_streams,
)
from pgherd.studies.network.options import IDLE, NetworkOptions
from pgherd.studies.network.pair_extremes import LinkChoice, extreme_link
from pgherd.study.findings import as_finding, missing
from pgherd.study.grade import qualify_answer, trial_warnings

BOTTLENECKS = {"latency": "latency", "bandwidth": "bandwidth", "cpu": "iperf3's CPU"}

SLOW_HOST_SHARE = 0.9
"""A host whose links carry less than this share of the hosts' mean is named in the answer."""

PairResults = tuple[str, dict[str, Finding], dict[str, list[Row]], list[str]]
"""Answer, findings, tables, next steps."""


def analyse(options: NetworkOptions, results: Sequence[TrialResult]) -> Analysis:
    """Return all findings, tables and figures of a network run, its answer in one sentence, and its grade."""
    groups = {link.target: group_trials(results, link.target) for link in options.links}
    warnings = trial_warnings(results)
    if not any(streams != IDLE for link_groups in groups.values() for streams in link_groups):
        reason = f"none of {len(results)} trials finished" if results else "no trial was run"
        return Analysis(answer=f"No result: {reason}.", grade="C", warnings=warnings)
    bottlenecks = {
        link: bottleneck
        for link, link_groups in groups.items()
        if (bottleneck := link_bottleneck(link_groups, options.iperf3_version)) is not None
    }
    grade = run_grade(options, groups, results)
    if options.hosts:
        text, findings, tables, next_steps = pair_results(options, groups, bottlenecks)
    else:
        text = " ".join(_sentence(link, groups[link], bottleneck, len(groups) > 1) for link, bottleneck in bottlenecks.items())
        findings = {}
        for link, bottleneck in bottlenecks.items():
            suffix = f".{link}" if len(groups) > 1 else ""
            findings |= {name + suffix: finding for name, finding in _findings(groups[link], bottleneck).items()}
        tables, next_steps = {}, _consequences(groups, bottlenecks)
    text = text or "No bottleneck found: throughput was measured, but not with one stream."
    return Analysis(
        answer=qualify_answer(text, grade),
        grade=grade,
        findings=findings,
        tables={**tables, "network": [row for link, link_groups in groups.items() for row in link_rows(link, link_groups, options)]},
        warnings=[*warnings, *tainted_warnings(groups), *_warnings(options, groups, bottlenecks)],
        next_steps=next_steps,
        figures={
            "bottlenecks": {
                link: {
                    "peak_throughput": bottleneck.peak_throughput / GBIT,
                    "bottleneck": bottleneck.kind,
                    "streams_for_90pct": bottleneck.streams_for_90pct,
                }
                for link, bottleneck in bottlenecks.items()
            }
        },
    )


def _findings(groups: Groups, bottleneck: LinkBottleneck) -> dict[str, Finding]:
    """Return throughputs, streams and round trips of a link, and their meaning for replication and clients."""
    single, (peak, best) = groups[1].throughput, best_streams(groups)
    limited_by = "bottleneck unknown" if bottleneck.kind == "unknown" else f"limited by {BOTTLENECKS[bottleneck.kind]}"
    findings = {
        "peak_throughput": as_finding(peak, "Gbit/s", f"with {streams_text(best)}", experiment="E14"),
        "single_stream_throughput": single.model_copy(
            update={"note": _join_notes(limited_by, single.note), "experiment": "E14", "published": published_text(1)}
        ),
        "streams_for_90pct": streams_for_90pct(groups, bottleneck),
        "single_stream_mb_per_s": replication_bandwidth(single),
    }
    loaded = groups[bottleneck.peak_streams].rtt
    findings["rtt_loaded"] = loaded.model_copy(
        update={"note": _join_notes(f"under {bottleneck.peak_streams} streams at full speed", loaded.note)}
    )
    if IDLE in groups:
        idle = groups[IDLE].rtt
        findings["rtt_idle"] = idle.model_copy(update={"note": _join_notes("one stream of 1 Mbit/s", idle.note)})
        trips = round_trips(idle)
        findings |= {} if trips is None else {"round_trips_per_second": trips}
    return findings


def _sentence(link: str, groups: Groups, bottleneck: LinkBottleneck, named: bool) -> str:
    single = groups[1].throughput.value or math.nan
    subject = f"{link} carries" if named else "The link carries"
    peak, best = best_streams(groups)
    text = f"{subject} {format_speed(peak.value)}"
    if peak.low is not None and peak.high is not None and f"{peak.low:.3g}" != f"{peak.high:.3g}":
        text += f" ({peak.low:.3g}–{peak.high:.3g})" if peak.value >= 1 else f" ({1000 * peak.low:.3g}–{1000 * peak.high:.3g})"
    several = any(streams > 1 for streams in groups)
    one_stream = ", and no more with several" if several else " (several were not measured)"
    text += f" with {streams_text(best)}" + (one_stream if best == [1] else f", and {format_speed(single)} with one")
    text += f"; {bottleneck.streams_for_90pct} streams reach 90 % of the peak" if bottleneck.streams_for_90pct > 1 else ""
    clauses = {
        "latency": "one stream is limited by latency, not by the link's bandwidth",
        "bandwidth": "one stream is limited by bandwidth and nearly fills the link",
        "cpu": "iperf3's own CPU may be the bottleneck",
        "unknown": "the bottleneck of one stream is unknown",
    }
    return f"{text}; {clauses[bottleneck.kind]}."


def _warnings(options: NetworkOptions, groups: Mapping[str, Groups], bottlenecks: Mapping[str, LinkBottleneck]) -> list[str]:
    warnings = []
    if any(link.kind == "namespaces" for link in options.links):
        warnings.append(
            "Both ends are namespaces of this host, so memory and CPUs are the link. "
            "The result shows that the tools work. It does not describe a network"
        )
    for link, link_groups in groups.items():
        if contradicting := contradicting_streams(link_groups):
            warnings.append(contradiction_text(f"{link}, {', '.join(map(str, contradicting))} streams"))
    absent = [link.target for link in options.links if link.target not in bottlenecks]
    if absent:
        warnings.append(f"No result for {', '.join(absent)}: no trial with one stream finished there")
    reasons = {link: bottleneck.reason for link, bottleneck in bottlenecks.items() if bottleneck.kind == "cpu"}
    for reason in dict.fromkeys(reasons.values()):
        names = ", ".join(link for link, link_reason in reasons.items() if link_reason == reason)
        warnings.append(
            f"{names}: {reason}. iperf3 before 3.16 runs all streams in one thread; the version in use is {options.iperf3_version}"
        )
    maximum = max(options.streams)
    growing = [
        link
        for link, bottleneck in bottlenecks.items()
        if bottleneck.peak_streams == bottleneck.streams_for_90pct == maximum > 1 and bottleneck.kind == "latency"
    ]
    if growing:
        warnings.append(f"{', '.join(growing)}: throughput still grew at {maximum} streams, the largest number; add more with --streams")
    if any(link.kind != "namespaces" for link in options.links):
        warnings.append("Other traffic on the links is not measured. The order of trials was shuffled, and the repeats show the spread")
    return warnings


def _consequences(groups: Mapping[str, Groups], bottlenecks: Mapping[str, LinkBottleneck]) -> list[str]:
    """Return the meaning of the results for replication and for clients."""
    lines = []
    for link, bottleneck in bottlenecks.items():
        single = groups[link][1].throughput.value
        if single:
            text = f"{link}: a standby receives WAL over one stream, at most {125 * single:,.0f} MB/s ({bottleneck.reason})"
            lines.append(text + ("; base backups and copies gain from several streams" if bottleneck.kind == "latency" else ""))
        idle = groups[link].get(IDLE)
        rtt = None if idle is None else idle.rtt.value
        if rtt:
            lines.append(
                f"{link}: a round trip takes {rtt:.3g} ms, so one client runs at most {1000 / rtt:,.0f} statements per second; "
                "a commit that waits for a synchronous standby takes one more round trip"
            )
    return lines


def _join_notes(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


# ---- pairs of a cluster's hosts


def pair_results(options: NetworkOptions, groups: Mapping[str, Groups], bottlenecks: Mapping[str, LinkBottleneck]) -> PairResults:
    """Return the results of all pairs. ``groups`` and ``bottlenecks`` are by target. A link without one stream has no bottleneck."""
    links = [link for link in options.links if link.target in bottlenecks]
    if not links:
        return "", {}, {}, []
    peaks = {}
    for link in links:
        peak, best = best_streams(groups[link.target])
        peaks[link.target] = as_finding(peak, "Gbit/s", f"with {streams_text(best)}")
    hosts = _host_rows(options, links, peaks)
    findings = {**_extremes(links, groups, bottlenecks), **_balance(options, hosts, peaks)}
    tables = {
        "matrix": _matrix(options, peaks),
        "pairs": [_pair_row(link, groups[link.target], bottlenecks[link.target], peaks[link.target]) for link in links],
        "hosts": hosts,
    }
    return _pair_answer(options, links, bottlenecks, peaks, groups, findings), findings, tables, _pair_consequences(findings)


def pair_name(link: Link) -> str:
    """Return the name of a pair: ``a → b``."""
    return f"{link.near} → {link.name}"


def _value(finding: Finding) -> float:
    return finding.value if finding.value is not None else math.nan


def _extreme(
    pick: Callable[..., Link], links: Sequence[Link], findings: Mapping[str, Finding], notes: Mapping[str, str] | None = None
) -> Finding | None:
    """Return the minimum or maximum of a quantity over the links, with its link in the note. None if no link has it."""
    candidates = [link for link in links if link.target in findings and findings[link.target].value is not None]
    if not candidates:
        return None
    link = pick(candidates, key=lambda candidate: _value(findings[candidate.target]))
    finding = findings[link.target]
    return finding.model_copy(update={"note": _join_notes(pair_name(link), (notes or {}).get(link.target, ""), finding.note)})


def _extremes(links: Sequence[Link], groups: Mapping[str, Groups], bottlenecks: Mapping[str, LinkBottleneck]) -> dict[str, Finding]:
    """Return the slowest and fastest pair, and the worst round trips and retransmits of all pairs."""
    streams = {link.target: f"with {bottlenecks[link.target].peak_streams} streams" for link in links}
    idle = {link.target: groups[link.target][IDLE].rtt for link in links if IDLE in groups[link.target]}
    at_peak = {link.target: groups[link.target][bottlenecks[link.target].peak_streams] for link in links}
    extremes = {
        "rtt_idle": _extreme(max, links, idle),
        "rtt_loaded": _extreme(max, links, {target: group.rtt for target, group in at_peak.items()}, streams),
        "retransmits": _extreme(max, links, {target: group.retransmits for target, group in at_peak.items()}, streams),
    }
    findings = {name: finding for name, finding in extremes.items() if finding is not None}
    for name, only in (("pair", None), ("single_stream", 1)):
        throughputs = {link.target: throughputs_by_streams(groups[link.target], only) for link in links}
        for end in ("slowest", "fastest"):
            choice = extreme_link(throughputs, end)
            findings[f"{end}_{name}"] = as_finding(choice.value, "Gbit/s", _choice_text(links, choice), experiment="E14")
    findings["single_stream_mb_per_s"] = replication_bandwidth(findings["slowest_single_stream"]).model_copy(update={"experiment": None})
    trips = round_trips(findings["rtt_idle"]) if "rtt_idle" in findings else None
    return findings | ({} if trips is None else {"round_trips_per_second": trips})


def _choice_text(links: Sequence[Link], choice: LinkChoice) -> str:
    """Return the name of the chosen pair, or that of the first of several that cannot be told apart."""
    names = [pair_name(link) for target in choice.links for link in links if link.target == target]
    if not names:
        return "no pair is named without an interval"
    if len(names) < 3:
        return " or ".join(names)
    return f"{names[0]} or {len(names) - 1} others (not distinguishable)"


def _balance(options: NetworkOptions, hosts: Sequence[Row], peaks: Mapping[str, Finding]) -> dict[str, Finding]:
    values, n = [_value(finding) for finding in peaks.values()], min(finding.n for finding in peaks.values())
    imbalance = Finding(
        value=1 - min(values) / max(values),
        unit="ratio",
        n=n,
        method="1 − slowest pair ÷ fastest pair, of the means at each pair's best number of streams",
        note="no interval: equal pairs also differ by chance, so the imbalance is never exactly 0",
    )
    absent = [pair_name(link) for link in options.links if link.kind == "hosts" and link.target not in peaks]
    if absent:  # the hosts' means would be over different kinds of pairs
        return {"pair_imbalance": imbalance, "slowest_host": missing("ratio", f"not measured: {', '.join(absent)}")}
    relative = {
        str(row["host"]): finding for row in hosts if isinstance(finding := row["relative_to_mean"], Finding) and finding.value is not None
    }
    slowest = min(relative, key=lambda host: _value(relative[host]))
    slowest_host = relative[slowest].model_copy(update={"note": f"host {slowest}; {relative[slowest].note}"})
    return {"pair_imbalance": imbalance, "slowest_host": slowest_host}


def _host_rows(options: NetworkOptions, links: Sequence[Link], peaks: Mapping[str, Finding]) -> list[Row]:
    """Return each host's mean over the pairs in which it sends and receives, and the mean of both relative to the mean of the hosts."""

    def mean(host_links: Sequence[Link]) -> Finding:
        findings = [peaks[link.target] for link in host_links]
        if not findings:
            return missing("Gbit/s", "none of its pairs was measured")
        return Finding(
            value=math.fsum(map(_value, findings)) / len(findings),
            unit="Gbit/s",
            n=min(finding.n for finding in findings),
            method="mean over its pairs of their means",
            note=f"no interval: {len(findings)} different pairs are not repeats of each other",
        )

    means = {host: mean([link for link in links if host in (link.near, link.name)]) for host in options.hosts}
    values = [finding.value for finding in means.values() if finding.value is not None]
    average = math.fsum(values) / len(values)
    method = "mean over all pairs of the host ÷ the hosts' mean of it"
    return [
        {
            "host": host,
            "send_throughput": mean([link for link in links if link.near == host]),
            "receive_throughput": mean([link for link in links if link.name == host]),
            "relative_to_mean": finding.model_copy(
                update={"value": None if finding.value is None else finding.value / average, "unit": "ratio", "method": method}
            ),
        }
        for host, finding in means.items()
    ]


def _matrix(options: NetworkOptions, peaks: Mapping[str, Finding]) -> list[Row]:
    """Return a row per sender with a column per receiver."""
    return [
        {"from": sender, **{f"to {receiver}": peaks.get(f"{sender}/{receiver}") for receiver in options.hosts}} for sender in options.hosts
    ]


def _pair_row(link: Link, groups: Groups, bottleneck: LinkBottleneck, peak: Finding) -> Row:
    at_peak = groups[bottleneck.peak_streams]
    return {
        "from": link.near,
        "to": link.name,
        "peak_throughput": peak.model_copy(update={"experiment": "E14"}),
        "streams": bottleneck.peak_streams,
        "single_stream_throughput": groups[1].throughput,
        "streams_for_90pct": streams_for_90pct(groups, bottleneck),
        "bottleneck": bottleneck.kind,
        "retransmits": at_peak.retransmits,
        "rtt_idle": groups[IDLE].rtt if IDLE in groups else missing("ms", "no finished trial of the idle link"),
        "rtt_loaded": at_peak.rtt,
        "trials": sum(group.tried for group in groups.values()),
        "tainted_trials": sum(group.tainted for group in groups.values()),
    }


def _ranged(finding: Finding) -> str:
    """Return ``9.4 Gbit/s (9.31–9.48, b → a)``, or only the value without an interval."""
    speed = format_speed(_value(finding))
    if finding.low is None or finding.high is None:
        return speed
    unit = 1 if _value(finding) >= 1 else 1000
    return f"{speed} ({unit * finding.low:.3g}–{unit * finding.high:.3g}, {finding.note.partition(';')[0]})"


def _pair_answer(
    options: NetworkOptions,
    links: Sequence[Link],
    bottlenecks: Mapping[str, LinkBottleneck],
    peaks: Mapping[str, Finding],
    groups: Mapping[str, Groups],
    findings: Mapping[str, Finding],
) -> str:
    slow, fast = (_ranged(findings[name]) for name in ("slowest_pair", "fastest_pair"))
    text = f"{len(links)} pairs of {len(options.hosts)} hosts, each alone, carry {slow} to {fast}"
    single = sorted(_value(groups[link.target][1].throughput) for link in links)
    minimum, maximum = format_speed(single[0]), format_speed(single[-1])
    text += f"; one stream carries {minimum}" + ("" if minimum == maximum else f" to {maximum}")
    counts = {name: sum(bottlenecks[link.target].kind == name for link in links) for name in ("latency", "bandwidth", "cpu", "unknown")}
    predicates = {"latency": "is limited by latency", "bandwidth": "nearly fills the link", "cpu": "may be limited by iperf3's CPU"}
    clauses = [f"{predicates[name]} in {count} of them" for name, count in counts.items() if count and name in predicates]
    text += f", and {', '.join(clauses)}" if clauses else ""
    slowest = findings["slowest_host"]
    if slowest.value is not None and slowest.value < SLOW_HOST_SHARE:
        text += f"; {slowest.note.partition(';')[0]} has the slowest links (table 'hosts')"
    return f"{text}."


def _pair_consequences(findings: Mapping[str, Finding]) -> list[str]:
    """Return the meaning of the results for replication and clients on any of the hosts."""
    lines = []
    bandwidth = findings.get("single_stream_mb_per_s")
    if bandwidth is not None and bandwidth.value:
        lines.append(
            f"Replication: a standby receives WAL over one stream, at most {bandwidth.value:,.0f} MB/s over the slowest pair; "
            "base backups and copies gain from several streams if a stream is limited by latency"
        )
    idle, loaded = findings.get("rtt_idle"), findings.get("rtt_loaded")
    if idle is not None and idle.value:
        maximum = 1000 / idle.value
        text = f"Clients: the longest idle round trip takes {idle.value:.3g} ms, so one client runs at most {maximum:,.0f} statements "
        text += "per second; a commit that waits for a synchronous standby takes one more round trip"
        if loaded is not None and loaded.value:
            text += f"; under full load a round trip takes up to {loaded.value:.3g} ms"
        lines.append(text)
    return lines
