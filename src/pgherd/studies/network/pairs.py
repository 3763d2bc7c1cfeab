"""What the links between all pairs of a cluster's hosts come to: a matrix, its slowest and fastest ends, and what each host gets. Pure.

A pair is a direction: the link from one host to another. Each is measured alone, so the figures are of links that nothing of ours
shares; what all of them carry at once is another question.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from pgherd.analysis.streams import Limit
from pgherd.model.deployment import Link
from pgherd.model.finding import Finding
from pgherd.studies.network.groups import GBIT, Groups, Row, enough, in_megabytes, round_trips, speed
from pgherd.studies.network.options import IDLE, NetworkOptions
from pgherd.study.findings import missing

BEHIND = 0.9
"""A host whose links carry less than this share of what the hosts' carry on average is named in the answer."""

Conclusions = tuple[str, dict[str, Finding], dict[str, list[Row]], list[str]]
"""Answer, findings, tables, what to look at."""


def conclusions(options: NetworkOptions, groups: Mapping[str, Groups], limits: Mapping[str, Limit]) -> Conclusions:
    """All that is said of the pairs: link's target → its groups, and → its limit where it has one."""
    links = [link for link in options.links if link.target in limits]
    if not links:
        return "", {}, {}, []
    best = {link.target: groups[link.target][limits[link.target].at].throughput for link in links}
    hosts = _hosts(options, links, best)
    findings = {**_ends(links, groups, limits, best), **_balance(options, hosts, best)}
    tables = {
        "matrix": _matrix(options, best),
        "pairs": [_pair(link, groups[link.target], limits[link.target], best[link.target]) for link in links],
        "hosts": hosts,
    }
    return _sentence(options, links, limits, best, groups, findings), findings, tables, _meaning(findings)


def shown(link: Link) -> str:
    """``a → b``."""
    return f"{link.near} → {link.name}"


def _value(finding: Finding) -> float:
    return finding.value if finding.value is not None else math.nan


def _extreme(
    pick: Callable[..., Link], links: Sequence[Link], of: Mapping[str, Finding], notes: Mapping[str, str] | None = None
) -> Finding | None:
    """The least or greatest of a quantity over the links, with the name of its link in the note; None where no link has it."""
    known = [link for link in links if link.target in of and of[link.target].value is not None]
    if not known:
        return None
    link = pick(known, key=lambda one: _value(of[one.target]))
    found = of[link.target]
    note = "; ".join(text for text in (shown(link), (notes or {}).get(link.target, ""), found.note) if text)
    return found.model_copy(update={"note": note})


def _ends(
    links: Sequence[Link], groups: Mapping[str, Groups], limits: Mapping[str, Limit], best: Mapping[str, Finding]
) -> dict[str, Finding]:
    """The slowest and fastest pair, and of round trips and retransmits the worst: what every pair can count on."""
    streams = {link.target: f"with {limits[link.target].at} streams" for link in links}
    alone = {link.target: groups[link.target][1].throughput for link in links}
    idle = {link.target: groups[link.target][IDLE].rtt for link in links if IDLE in groups[link.target]}
    at_best = {link.target: groups[link.target][limits[link.target].at] for link in links}
    told = {
        "pair_slowest": _extreme(min, links, best, streams),
        "pair_fastest": _extreme(max, links, best, streams),
        "one_stream_slowest": _extreme(min, links, alone),
        "one_stream_fastest": _extreme(max, links, alone),
        "rtt_idle": _extreme(max, links, idle),
        "rtt_loaded": _extreme(max, links, {target: group.rtt for target, group in at_best.items()}, streams),
        "retransmits": _extreme(max, links, {target: group.retransmits for target, group in at_best.items()}, streams),
    }
    found = {name: finding for name, finding in told.items() if finding is not None}
    for name in ("pair_slowest", "pair_fastest", "one_stream_slowest", "one_stream_fastest"):
        if name in found:
            found[name] = found[name].model_copy(update={"experiment": "E14"})
    if "one_stream_slowest" in found:
        found["replication_limit"] = in_megabytes(found["one_stream_slowest"]).model_copy(update={"experiment": None})
    trips = round_trips(found["rtt_idle"]) if "rtt_idle" in found else None
    return found | ({} if trips is None else {"round_trips_per_second": trips})


def _balance(options: NetworkOptions, hosts: Sequence[Row], best: Mapping[str, Finding]) -> dict[str, Finding]:
    values, n = [_value(finding) for finding in best.values()], min(finding.n for finding in best.values())
    imbalance = Finding(
        value=1 - min(values) / max(values),
        unit="ratio",
        n=n,
        method="1 − slowest pair ÷ fastest pair, of the means with each one's best number of streams",
        note="no interval: pairs that are alike differ by chance too, so that it is never quite 0",
    )
    absent = [shown(link) for link in options.links if link.kind == "hosts" and link.target not in best]
    if absent:  # the hosts' means would be over pairs of different kinds
        return {"pair_imbalance": imbalance, "host_slowest": missing("ratio", f"not measured: {', '.join(absent)}")}
    relative = {str(row["host"]): one for row in hosts if isinstance(one := row["relative"], Finding) and one.value is not None}
    slowest = min(relative, key=lambda host: _value(relative[host]))
    named = relative[slowest].model_copy(update={"note": f"host {slowest}; {relative[slowest].note}"})
    return {"pair_imbalance": imbalance, "host_slowest": named}


def _hosts(options: NetworkOptions, links: Sequence[Link], best: Mapping[str, Finding]) -> list[Row]:
    """Each host's mean over the pairs in which it sends and receives, and over both to the mean of the hosts."""

    def mean(of: Sequence[Link]) -> Finding:
        values = [best[link.target] for link in of]
        if not values:
            return missing("Gbit/s", "none of its pairs was measured")
        return Finding(
            value=math.fsum(map(_value, values)) / len(values),
            unit="Gbit/s",
            n=min(one.n for one in values),
            method="mean over its pairs of their means",
            note=f"no interval: {len(values)} different pairs are no repeats of each other",
        )

    whole = {host: mean([link for link in links if host in (link.near, link.name)]) for host in options.hosts}
    known = [one.value for one in whole.values() if one.value is not None]
    average = math.fsum(known) / len(known)
    method = "mean over all pairs that it is in ÷ the hosts' mean of that"
    return [
        {
            "host": host,
            "sends": mean([link for link in links if link.near == host]),
            "receives": mean([link for link in links if link.name == host]),
            "relative": own.model_copy(
                update={"value": None if own.value is None else own.value / average, "unit": "ratio", "method": method}
            ),
        }
        for host, own in whole.items()
    ]


def _matrix(options: NetworkOptions, best: Mapping[str, Finding]) -> list[Row]:
    """A row for each sender, a column for each receiver."""
    return [{"from": near, **{f"to {far}": best.get(f"{near}/{far}") for far in options.hosts}} for near in options.hosts]


def _pair(link: Link, found: Groups, known: Limit, best: Finding) -> Row:
    at_best = found[known.at]
    return {
        "from": link.near,
        "to": link.name,
        "best": best.model_copy(update={"experiment": "E14"}),
        "streams": known.at,
        "one_stream": found[1].throughput,
        "streams_for_90": enough(found, known),
        "bound": known.bound,
        "retransmits": at_best.retransmits,
        "rtt_idle": found[IDLE].rtt if IDLE in found else missing("ms", "no finished trial of the idle link"),
        "rtt_loaded": at_best.rtt,
        "trials": sum(group.tried for group in found.values()),
        "tainted": sum(group.tainted for group in found.values()),
    }


def _sentence(
    options: NetworkOptions,
    links: Sequence[Link],
    limits: Mapping[str, Limit],
    best: Mapping[str, Finding],
    groups: Mapping[str, Groups],
    findings: Mapping[str, Finding],
) -> str:
    slow, fast = (pick(links, key=lambda link: _value(best[link.target])) for pick in (min, max))
    text = f"{len(links)} pairs of {len(options.hosts)} hosts, each alone, carry {speed(limits[slow.target].best / GBIT)} ({shown(slow)})"
    text += f" to {speed(limits[fast.target].best / GBIT)} ({shown(fast)})"
    alone = sorted(_value(groups[link.target][1].throughput) for link in links)
    least, most = speed(alone[0]), speed(alone[-1])
    text += f"; one stream carries {least}" + ("" if least == most else f" to {most}")
    counts = {bound: sum(limits[link.target].bound == bound for link in links) for bound in ("latency", "bandwidth", "cpu", "undecided")}
    words = {"latency": "is bound by latency", "bandwidth": "nearly fills the link", "cpu": "may be bound by iperf3's CPU"}
    said = [f"{words[bound]} in {count} of them" for bound, count in counts.items() if count and bound in words]
    text += f", and {', '.join(said)}" if said else ""
    slowest = findings["host_slowest"]
    if slowest.value is not None and slowest.value < BEHIND:
        text += f"; {slowest.note.partition(';')[0]} has the slowest links, {slowest.value:.0%} of the hosts' mean (no interval shows it)"
    return f"{text}."


def _meaning(findings: Mapping[str, Finding]) -> list[str]:
    """What it means for replication and clients, whichever hosts they are on."""
    said = []
    limit = findings.get("replication_limit")
    if limit is not None and limit.value:
        said.append(
            f"Replication: a standby receives WAL by one stream, so by {limit.value:,.0f} MB/s at most where it comes by the slowest pair; "
            "base backups and copies gain from several streams where a stream is bound by latency"
        )
    idle, loaded = findings.get("rtt_idle"), findings.get("rtt_loaded")
    if idle is not None and idle.value:
        most = 1000 / idle.value
        text = (
            f"Clients: the longest idle round trip takes {idle.value:.3g} ms, so one client makes {most:,.0f} statements a second at most"
        )
        text += "; a commit that waits for a synchronous standby takes one more"
        if loaded is not None and loaded.value:
            text += f"; while a link is full a round trip takes up to {loaded.value:.3g} ms"
        said.append(text)
    return said
