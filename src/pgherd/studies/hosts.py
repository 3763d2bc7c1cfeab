"""Findings on each host of a run that was spread over several: is one slower, and how uneven are they? Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pgherd.analysis.intervals import mean_interval
from pgherd.model.deployment import Host
from pgherd.model.finding import Analysis, Finding
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.studies.findings import as_finding, missing

Row = dict[str, Finding | str | int | float | None]

_NONE = "no clean trial loaded every host"


def with_hosts(analysis: Analysis, results: Sequence[TrialResult], hosts: Sequence[Host]) -> Analysis:
    """The analysis of a study with a table ``hosts``, the findings ``host_imbalance`` and ``host_slowest``, and warnings on hosts that
    were missing. ``results`` are the trials as they were placed.

    Where nothing was deployed there are the warnings alone: a study of hosts has its own table of them.

    A trial says something of the hosts when it loaded all of them. Its hosts are compared by throughput per loaded database, each
    relative to the mean of the hosts in the same trial, so that trials of all points count alike.
    """
    warnings = [*analysis.warnings, *_absent(results)]
    if not any(host.containers for result in results for host in result.trial.deployment.hosts):
        return analysis.model_copy(update={"warnings": warnings})
    names = [host.name for host in hosts]
    clean = [result for result in results if not result.tainted and _loaded(result) == set(names)]
    relative = {name: [one[name] for result in clean if (one := _relative(result))] for name in names}
    findings = {**analysis.findings, "host_imbalance": _imbalance(clean), "host_slowest": _slowest(relative, clean)}
    rows = [_row(host, clean, relative[host.name], results) for host in hosts]
    return analysis.model_copy(update={"findings": findings, "warnings": warnings, "tables": {**analysis.tables, "hosts": rows}})


def per_database(phase: PhaseResult) -> dict[str, float]:
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
    means = [found for phase in result.phases if set(found := per_database(phase)) == everywhere]
    return {host: sum(mean[host] for mean in means) / len(means) for host in sorted(everywhere)} if means else {}


def _relative(result: TrialResult) -> dict[str, float]:
    found = _throughputs(result)
    mean = sum(found.values()) / len(found) if found else 0.0
    return {host: value / mean for host, value in found.items()} if mean > 0 else {}


def _imbalance(clean: Sequence[TrialResult]) -> Finding:
    method = "1 − slowest host ÷ fastest host, in throughput per loaded database; mean over the trials that loaded every host"
    each = [found for result in clean if (found := _throughputs(result)) and max(found.values()) > 0]
    values = [1 - min(found.values()) / max(found.values()) for found in each]
    if not values:
        return missing("ratio", _NONE, method=method)
    return as_finding(mean_interval(values), "ratio", "hosts that are alike differ by chance too: it is never quite 0", method=method)


def _slowest(relative: Mapping[str, Sequence[float]], clean: Sequence[TrialResult]) -> Finding:
    method = "throughput per loaded database of the slowest host ÷ the hosts' mean"
    known = {host: values for host, values in relative.items() if values}
    if not known:
        return missing("ratio", _NONE, method=method)
    host = min(known, key=lambda name: sum(known[name]) / len(known[name]))
    estimate = mean_interval(known[host])
    sure = estimate.high is not None and estimate.high < 1
    note = f"host {host}" + ("" if sure else "; not shown to be slower than the others")
    return as_finding(estimate, "ratio", note, method=method)


def _row(host: Host, clean: Sequence[TrialResult], relative: Sequence[float], results: Sequence[TrialResult]) -> Row:
    name = host.name
    throughput = [found[name] for result in clean if (found := _throughputs(result))]
    busy = [cores for result in clean for phase in result.phases if (cores := _busy(phase, name)) is not None]
    return {
        "host": name,
        "cores_given": host.cores,
        "containers": max((_containers(result, name) for result in results), default=0),
        "per_database": _mean(throughput, "tps", "over all points that loaded every host", _NONE),
        "relative": _mean(relative, "ratio", "of the hosts' mean in the same trial", _NONE),
        "cpu_used": _mean(busy, "cores", "of the whole host", "the host's CPU was not seen"),
    }


def _mean(values: Sequence[float], unit: str, note: str, absent: str) -> Finding:
    return as_finding(mean_interval(values), unit, note) if values else missing(unit, absent)


def _containers(result: TrialResult, name: str) -> int:
    return next((len(host.containers) for host in result.trial.deployment.hosts if host.name == name), 0)


def _busy(phase: PhaseResult, name: str) -> float | None:
    found = phase.metrics.get(f"host:{name}", {})
    return phase.model_copy(update={"metrics": {"host": found}}).busy_cores() if found else None


def _absent(results: Sequence[TrialResult]) -> list[str]:
    missed = [result for result in results if any(v.check == "all-hosts" and v.result == "fail" for v in result.verdicts)]
    if not missed:
        return []
    reasons = sorted({v.observed for result in missed for v in result.verdicts if v.check == "all-hosts" and v.result == "fail"})
    return [f"{len(missed)} of {len(results)} trials ran without all hosts ({'; '.join(reasons)}); they are tainted"]
