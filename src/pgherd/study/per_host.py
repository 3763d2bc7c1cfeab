"""Findings on each host of a run that was spread over several: is one slower, and how uneven are they? Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pgherd.analysis.intervals import mean_interval
from pgherd.model.deployment import Host
from pgherd.model.finding import Analysis, Finding
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.study.findings import as_finding, missing

Row = dict[str, Finding | str | int | float | None]

_WHAT = "throughput per loaded database"


def with_hosts(analysis: Analysis, results: Sequence[TrialResult], hosts: Sequence[Host], client: str | None = None) -> Analysis:
    """The analysis of a study with a table ``hosts``, the findings ``host_imbalance`` and ``host_slowest``, and warnings on hosts that
    were missing. ``results`` are the trials as they were placed.

    Where nothing was deployed there are the warnings alone: a study of hosts has its own table of them.

    A trial says something of the hosts when it loaded all of them but ``client``, on which the clients alone run: that one has a row, and
    is compared with none. Its hosts are compared by throughput per loaded database, each relative to the mean of the hosts in the same
    trial, so that trials of all points count alike. Where every trial ran on one host (and its clients perhaps on another), each host's
    row is of its own trials, and nothing is said of one host beside another. Where no trial is clean, rows are of the tainted ones and say
    so; the findings need clean ones.
    """
    warnings = [*analysis.warnings, *_absent(results)]
    if not any(host.containers for result in results for host in result.trial.deployment.hosts):
        return analysis.model_copy(update={"warnings": warnings})
    if all(sum(bool(host.containers) for host in result.trial.deployment.hosts) <= 1 for result in results):
        rows = [_row(host, _trials_of(host, results), {}, results, alone=True) for host in hosts]
        return analysis.model_copy(update={"warnings": warnings, "tables": {**analysis.tables, "hosts": rows}})
    names = [host.name for host in hosts if host.name != client]
    whole = [result for result in results if _loaded(result) == set(names)]
    rates = [_throughputs(result) for result in whole if not result.tainted]
    counted = _counted(whole)
    shares = [relative_rates(_throughputs(result)) for result in counted]
    relative = {name: [found[name] for found in shares if found] for name in names}
    findings = {
        **analysis.findings,
        "host_imbalance": imbalance(rates, _WHAT),
        "host_slowest": slowest(rates, _WHAT),
    }
    rows = [_row(host, counted, relative, results, alone=host.name == client) for host in hosts]
    return analysis.model_copy(update={"findings": findings, "warnings": warnings, "tables": {**analysis.tables, "hosts": rows}})


def database_throughput(phase: PhaseResult) -> dict[str, float]:
    """Host → mean throughput of its loaded databases, per second."""
    shares: dict[str, list[float]] = {}
    for target in phase.targets:
        shares.setdefault(target.target.split("/", 1)[0], []).append(target.throughput)
    return {host: sum(values) / len(values) for host, values in shares.items()}


def _loaded(result: TrialResult) -> set[str]:
    return {target.target.split("/", 1)[0] for phase in result.phases for target in phase.targets}


def _throughputs(result: TrialResult) -> dict[str, float]:
    """Host → throughput per loaded database, averaged over the phases in which all hosts were loaded."""
    everywhere = _loaded(result)
    means = [found for phase in result.phases if set(found := database_throughput(phase)) == everywhere]
    return {host: sum(mean[host] for mean in means) / len(means) for host in sorted(everywhere)} if means else {}


def _trials_of(host: Host, results: Sequence[TrialResult]) -> list[TrialResult]:
    """The trials that count of those in which a host had a part."""
    return _counted([result for result in results if host.name in {one.name for one in result.trial.deployment.hosts}])


def _counted(results: Sequence[TrialResult]) -> list[TrialResult]:
    """The clean ones; where there are none, the tainted ones that have finished."""
    return [one for one in results if not one.tainted] or [one for one in results if one.phases]


def _row(
    host: Host, counted: Sequence[TrialResult], relative: Mapping[str, Sequence[float]], results: Sequence[TrialResult], *, alone: bool
) -> Row:
    """``counted`` are the trials that count, ``relative`` each host's shares in them; ``alone``: none of them loaded databases here and on
    another host."""
    name, none, of = host.name, NO_CLEAN_TRIAL, "over all points that loaded every host"
    if alone:
        none, of = "no clean trial loaded a database here", "over all points that were measured here"
    tainted = "; only tainted trials: an indication" if any(one.tainted for one in counted) else ""
    throughput = [found[name] for result in counted if name in (found := _throughputs(result))]
    busy = [cores for result in counted for phase in result.phases if (cores := phase.busy_cores(f"host:{name}")) is not None]
    return {
        "host": name,
        "cores_given": host.cores,
        "containers": max((_containers(result, name) for result in results), default=0),
        "per_database": _mean(throughput, "tps", of + tainted, none),
        "relative": _mean(
            relative.get(name, ()),
            "ratio",
            f"of the hosts' mean in the same trial{tainted}",
            "no trial loaded databases here and on another host" if alone else none,
        ),
        "cpu_used": _mean(busy, "cores", f"of the whole host{tainted}", "the host's CPU was not seen" if counted else none),
    }


def _mean(values: Sequence[float], unit: str, note: str, absent: str) -> Finding:
    return as_finding(mean_interval(values), unit, note) if values else missing(unit, absent)


def _containers(result: TrialResult, name: str) -> int:
    return next((len(host.containers) for host in result.trial.deployment.hosts if host.name == name), 0)


def _absent(results: Sequence[TrialResult]) -> list[str]:
    missed = [result for result in results if any(v.check == "all-hosts" and v.result == "fail" for v in result.verdicts)]
    if not missed:
        return []
    reasons = sorted({v.observed for result in missed for v in result.verdicts if v.check == "all-hosts" and v.result == "fail"})
    return [f"{len(missed)} of {len(results)} trials ran without all hosts ({'; '.join(reasons)}); they are tainted"]


NO_CLEAN_TRIAL = "no clean trial loaded every host"
CONFIDENCE = 0.95


def relative_rates(rates: Mapping[str, float]) -> dict[str, float]:
    """Each host's rate in one trial over the hosts' mean; empty where nothing was done."""
    mean = sum(rates.values()) / len(rates) if rates else 0.0
    return {host: rate / mean for host, rate in rates.items()} if mean > 0 else {}


def imbalance(trials: Sequence[Mapping[str, float]], what: str) -> Finding:
    """1 − slowest ÷ fastest host. ``trials``: of each that loaded every host, host → rate; ``what`` the rate is, in words."""
    method = f"1 − slowest host ÷ fastest host, in {what}; mean over the trials that loaded every host"
    values = [1 - min(rates.values()) / max(rates.values()) for rates in trials if rates and max(rates.values()) > 0]
    if not values:
        return missing("ratio", NO_CLEAN_TRIAL, method=method)
    return as_finding(mean_interval(values), "ratio", "hosts that are alike differ by chance too: it is never quite 0", method=method)


def slowest(trials: Sequence[Mapping[str, float]], what: str) -> Finding:
    """The host whose rate over the hosts' mean is least, named in the note. Arguments as of ``imbalance``.

    Which host that is the same trials say: of many equal hosts one is always far below the mean by chance, and an interval of that host
    alone would show it. So the interval is one of those that hold for all hosts together (Bonferroni; two hosts' shares mirror each other).
    """
    method = f"{what} of the slowest host ÷ the hosts' mean"
    shares: dict[str, list[float]] = {}
    for rates in trials:
        for host, share in relative_rates(rates).items():
            shares.setdefault(host, []).append(share)
    if not shares:
        return missing("ratio", NO_CLEAN_TRIAL, method=method)
    host = min(shares, key=lambda name: sum(shares[name]) / len(shares[name]))
    together = len(shares) if len(shares) > 2 else 1
    if together > 1:
        method += f"; its interval is one of those that hold for all {together} hosts together (Bonferroni)"
    estimate = mean_interval(shares[host], 1 - (1 - CONFIDENCE) / together)
    if estimate.confidence is not None:
        estimate = replace(estimate, confidence=CONFIDENCE)
    sure = estimate.high is not None and estimate.high < 1
    note = f"host {host}" + ("" if sure else "; not shown to be slower than the others")
    return as_finding(estimate, "ratio", note, method=method)
