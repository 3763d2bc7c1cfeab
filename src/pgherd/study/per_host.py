"""Findings and table of the hosts of a cluster run: the slowest host and the imbalance. Pure.

Hosts are compared within each trial, so trials of all points count alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pgherd.analysis.intervals import mean_interval
from pgherd.model.analysis import Analysis, Finding
from pgherd.model.deployment import Host
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.study.findings import as_finding, missing

Row = dict[str, Finding | str | int | float | None]

_RATE_LABEL = "throughput per loaded database"


def with_hosts(analysis: Analysis, results: Sequence[TrialResult], hosts: Sequence[Host], client: str | None = None) -> Analysis:
    """Return the analysis with a table ``hosts``, the findings ``host_imbalance`` and ``slowest_host``, and warnings on missing hosts.

    Hosts are compared in trials that loaded all of them except ``client``. Each host's throughput per loaded database is taken relative to
    the mean of the hosts in the same trial. The findings use clean trials. If there are none, the table uses tainted trials and notes it.

    If every trial ran on a single host, each row covers the host's trials and hosts are not compared. If no containers were deployed, only
    warnings are added, because such studies have a table of hosts.

    Args:
        analysis: analysis of the study.
        results: placed trials.
        hosts: hosts of the cluster.
        client: host that only runs clients. It has a row, but is not compared.
    """
    warnings = [*analysis.warnings, *_missing_host_warnings(results)]
    if not any(host.containers for result in results for host in result.trial.deployment.hosts):
        return analysis.model_copy(update={"warnings": warnings})
    if all(sum(bool(host.containers) for host in result.trial.deployment.hosts) <= 1 for result in results):
        rows = [_row(host, _trials_of(host, results), {}, results, alone=True) for host in hosts]
        return analysis.model_copy(update={"warnings": warnings, "tables": {**analysis.tables, "hosts": rows}})
    names = [host.name for host in hosts if host.name != client]
    complete = [result for result in results if _loaded(result) == set(names)]
    rates = [_throughputs(result) for result in complete if not result.tainted]
    used = _used_trials(complete)
    shares = [relative_rates(_throughputs(result)) for result in used]
    relative = {name: [share[name] for share in shares if share] for name in names}
    findings = {
        **analysis.findings,
        "host_imbalance": imbalance(rates, _RATE_LABEL),
        "slowest_host": slowest(rates, _RATE_LABEL),
    }
    rows = [_row(host, used, relative, results, alone=host.name == client) for host in hosts]
    return analysis.model_copy(update={"findings": findings, "warnings": warnings, "tables": {**analysis.tables, "hosts": rows}})


def database_throughput(phase: PhaseResult) -> dict[str, float]:
    """Return the mean throughput per second of the loaded databases, by host."""
    shares: dict[str, list[float]] = {}
    for target in phase.targets:
        shares.setdefault(target.target.split("/", 1)[0], []).append(target.throughput)
    return {host: sum(values) / len(values) for host, values in shares.items()}


def _loaded(result: TrialResult) -> set[str]:
    return {target.target.split("/", 1)[0] for phase in result.phases for target in phase.targets}


def _throughputs(result: TrialResult) -> dict[str, float]:
    """Return the throughput per loaded database by host, averaged over the phases that loaded all hosts."""
    hosts = _loaded(result)
    means = [by_host for phase in result.phases if set(by_host := database_throughput(phase)) == hosts]
    return {host: sum(mean[host] for mean in means) / len(means) for host in sorted(hosts)} if means else {}


def _trials_of(host: Host, results: Sequence[TrialResult]) -> list[TrialResult]:
    """Return the used trials among those that a host takes part in."""
    return _used_trials([result for result in results if any(other.name == host.name for other in result.trial.deployment.hosts)])


def _used_trials(results: Sequence[TrialResult]) -> list[TrialResult]:
    """Return the clean trials, or the finished tainted ones if none is clean."""
    return [result for result in results if not result.tainted] or [result for result in results if result.phases]


def _row(
    host: Host, used: Sequence[TrialResult], relative: Mapping[str, Sequence[float]], results: Sequence[TrialResult], *, alone: bool
) -> Row:
    """Return a host's row.

    Args:
        host: the host.
        used: used trials.
        relative: throughput of each host relative to the hosts' mean, one number per used trial.
        results: all trials.
        alone: no trial loaded databases on this host and on another one.
    """
    name, absent, scope = host.name, NO_CLEAN_TRIAL, "over all points that loaded every host"
    if alone:
        absent, scope = "no clean trial loaded a database here", "over all points that were measured here"
    tainted = "; only tainted trials: an indication" if any(result.tainted for result in used) else ""
    throughput = [by_host[name] for result in used if name in (by_host := _throughputs(result))]
    busy = [cores for result in used for phase in result.phases if (cores := phase.busy_cores(f"host:{name}")) is not None]
    return {
        "host": name,
        "cores_allocated": host.cores,
        "containers": max((_containers(result, name) for result in results), default=0),
        "throughput_per_database": _mean(throughput, "tps", scope + tainted, absent),
        "relative_to_mean": _mean(
            relative.get(name, ()),
            "ratio",
            f"of the hosts' mean in the same trial{tainted}",
            "no trial loaded databases here and on another host" if alone else absent,
        ),
        "cpu_used": _mean(busy, "cores", f"of the whole host{tainted}", "the host's CPU was not measured" if used else absent),
    }


def _mean(values: Sequence[float], unit: str, note: str, absent: str) -> Finding:
    return as_finding(mean_interval(values), unit, note) if values else missing(unit, absent)


def _containers(result: TrialResult, name: str) -> int:
    return next((len(host.containers) for host in result.trial.deployment.hosts if host.name == name), 0)


def _missing_host_warnings(results: Sequence[TrialResult]) -> list[str]:
    incomplete = [result for result in results if any(v.name == "all-hosts-present" and v.result == "fail" for v in result.checks)]
    if not incomplete:
        return []
    reasons = sorted({v.observed for result in incomplete for v in result.checks if v.name == "all-hosts-present" and v.result == "fail"})
    return [f"{len(incomplete)} of {len(results)} trials ran without all hosts ({'; '.join(reasons)}); they are tainted"]


NO_CLEAN_TRIAL = "no clean trial loaded every host"
CONFIDENCE = 0.95


def relative_rates(rates: Mapping[str, float]) -> dict[str, float]:
    """Return each host's rate in one trial ÷ the hosts' mean. Empty if the mean is 0."""
    mean = sum(rates.values()) / len(rates) if rates else 0.0
    return {host: rate / mean for host, rate in rates.items()} if mean > 0 else {}


def imbalance(trials: Sequence[Mapping[str, float]], what: str) -> Finding:
    """Return 1 − slowest host ÷ fastest host.

    Args:
        trials: rate by host, for each trial that loaded every host.
        what: name of the rate.
    """
    method = f"1 − slowest host ÷ fastest host, in {what}; mean over the trials that loaded every host"
    values = [1 - min(rates.values()) / max(rates.values()) for rates in trials if rates and max(rates.values()) > 0]
    if not values:
        return missing("ratio", NO_CLEAN_TRIAL, method=method)
    return as_finding(mean_interval(values), "ratio", "not 0 for equal hosts either, because of noise", method=method)


def slowest(trials: Sequence[Mapping[str, float]], what: str) -> Finding:
    """Return the lowest rate of a host relative to the hosts' mean. The note names the host. Arguments as of ``imbalance``.

    The same trials select the host, and among many equal hosts one is far below the mean by chance. So the interval holds for all hosts
    jointly (Bonferroni). With two hosts no correction is needed, because their shares mirror each other.
    """
    method = f"{what} of the slowest host ÷ the hosts' mean"
    shares: dict[str, list[float]] = {}
    for rates in trials:
        for host, share in relative_rates(rates).items():
            shares.setdefault(host, []).append(share)
    if not shares:
        return missing("ratio", NO_CLEAN_TRIAL, method=method)
    host = min(shares, key=lambda name: sum(shares[name]) / len(shares[name]))
    intervals = len(shares) if len(shares) > 2 else 1
    if intervals > 1:
        method += f"; interval holds for all {intervals} hosts jointly (Bonferroni)"
    estimate = mean_interval(shares[host], 1 - (1 - CONFIDENCE) / intervals)
    if estimate.confidence is not None:
        estimate = replace(estimate, confidence=CONFIDENCE)
    significant = estimate.high is not None and estimate.high < 1
    note = f"host {host}" + ("" if significant else "; not shown to be slower than the others")
    return as_finding(estimate, "ratio", note, method=method)
