"""What each of several hosts did of a disk run's tests, and how evenly: all of them do the same at the same time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pgherd.analysis.intervals import mean_interval
from pgherd.model.finding import Finding
from pgherd.studies.disk.access import MIX
from pgherd.studies.disk.measure import HostShare, Measured
from pgherd.studies.disk.options import DiskOptions
from pgherd.studies.disk.points import Group
from pgherd.studies.disk.tables import TAINTED, Row, positive_mean
from pgherd.study import per_host
from pgherd.study.findings import as_finding, missing

BEHIND = 0.9
"""A host that makes less than this share of the hosts' mean, with an interval below 1, is named in the answer."""
_WHAT = "I/Os per second of the same test"
_ABSENT = "no finished trial had this host"
_FIXED = "the hosts' rates are fixed"


def host_findings(options: DiskOptions, groups: Sequence[Group]) -> dict[str, Finding]:
    """Each test's figure on each host (``NAME.HOST``), and of all tests together the imbalance and the slowest host."""
    found: dict[str, Finding] = {}
    for of in groups:
        place = f".{of.place}" if len(options.names()) > 1 else ""
        for host in options.hosts:
            name, unit, _ = of.figure
            found[f"{of.name}{place}.{host}"] = _mean(of, host, _FIGURES[name], unit, f"host {host}")
    trials = [rates for of in groups for rates in _rates(options, of)]
    return {
        **found,
        "host_imbalance": per_host.imbalance(trials, _WHAT),
        "host_slowest": per_host.slowest(trials, _WHAT),
    }


def host_rows(options: DiskOptions, groups: Sequence[Group]) -> list[Row]:
    """One row for each volume, test and host."""
    rows: list[Row] = []
    for of in groups:
        shares = [per_host.relative_rates(rates) for rates in _rates(options, of)]
        for host in options.hosts:
            relative = [share[host] for share in shares if share]
            rows.append(
                {
                    "volume": of.place,
                    "test": of.test.label,
                    "host": host,
                    "iops": _mean(of, host, _iops, "IOPS"),
                    "bandwidth": _mean(of, host, _bandwidth, "MB/s"),
                    "latency": _mean(of, host, _latency, "ms"),
                    "relative": as_finding(mean_interval(relative), "ratio", "of the hosts' mean in the same trial")
                    if relative
                    else missing("ratio", _FIXED if of.test.name == MIX else per_host.NO_CLEAN_TRIAL),
                    "cpu_share": _mean(of, host, lambda one: one.busy, "ratio", "of the whole host"),
                }
            )
    return rows


def with_imbalance(options: DiskOptions, groups: Sequence[Group], rows: Sequence[Row]) -> list[Row]:
    """The rows of the groups, each with 1 − slowest ÷ fastest host of its test."""
    return [{**row, "imbalance": _imbalance(options, of)} for of, row in zip(groups, rows, strict=True)]


def behind(findings: Mapping[str, Finding]) -> str | None:
    """What the answer says of a host that is shown to be well behind the others."""
    slowest = findings["host_slowest"]
    if slowest.value is None or slowest.value >= BEHIND or slowest.high is None or slowest.high >= 1:
        return None
    return f"{slowest.note.partition(';')[0]} is the slowest, at {slowest.value:.0%} of the hosts' mean"


def _rates(options: DiskOptions, of: Group) -> list[dict[str, float]]:
    """Of the clean trials in which every host took part, host → I/Os per second. The mix's rates are fixed: it compares nothing."""
    if of.test.name == MIX:
        return []
    return [
        {host: share.iops for host, share in one.by_host.items()} for one in of.used if one.clean and len(one.by_host) == len(options.hosts)
    ]


def _imbalance(options: DiskOptions, of: Group) -> Finding:
    return missing("ratio", _FIXED) if of.test.name == MIX else per_host.imbalance(_rates(options, of), _WHAT)


def _iops(one: HostShare) -> float | None:
    return one.iops


def _bandwidth(one: HostShare) -> float | None:
    return one.bytes / 1e6


def _latency(one: HostShare) -> float | None:
    return one.latency


_FIGURES: Mapping[str, Callable[[HostShare], float | None]] = {"iops": _iops, "bandwidth": _bandwidth, "latency": _latency}


def _mean(of: Group, host: str, take: Callable[[HostShare], float | None], unit: str, note: str = "") -> Finding:
    values = of.values(_on(host, take))
    joined = "; ".join(text for text in (note, "" if of.clean else TAINTED) if text)
    return as_finding(positive_mean(values), unit, joined) if values else missing(unit, _ABSENT)


def _on(host: str, take: Callable[[HostShare], float | None]) -> Callable[[Measured], float | None]:
    return lambda one: take(one.by_host[host]) if host in one.by_host else None
