"""CPU capacity of a host by a density run, and the CPU up to which it keeps a latency objective. Pure."""

from __future__ import annotations

import math
from dataclasses import replace

from pgherd.analysis.host_class import LatencyLimit, ResourceCapacity, latency_limit
from pgherd.analysis.host_measurement import HostMeasurement, HostRun
from pgherd.analysis.pass_search import PassLimit, Tally, pass_limit
from pgherd.model.analysis import Finding
from pgherd.model.capabilities import is_cpu_limited
from pgherd.model.errors import UsageError
from pgherd.model.load import LatencyObjective
from pgherd.study.objectives import objective_text


def measure_host(run: HostRun) -> HostMeasurement:
    """Return the CPU capacity and the latency limit of a host, and the memory of the run.

    The capacity in cores is that in databases × vCPUs of each × target efficiency: the work that the host delivers there, in cores of an
    unhindered database. Databases with a rate, with --slo, bound by I/O or without a CPU limit do not use their vCPUs, or more. Then it is
    the CPU of their containers at that number of databases. If every number kept the objective, the largest is a bound, and the latency
    above it is unknown. The platform overhead is no part of either capacity, because the databases were measured while the platform used
    its CPU.

    Raises:
        UsageError: the run has no capacity, or its databases differ.
    """
    capacity, limit = _capacity(run)
    memory = run.record.environment.memory if run.record.environment else None
    of_run = {"memory_mb": ResourceCapacity(value=memory / 2**20, source=f"memory of {run.source}")} if memory else {}
    cpu, bounded = {"cpu_cores": capacity}, run.findings["capacity"].value is None
    found = HostMeasurement(bounds=cpu) if bounded else HostMeasurement(capacity=cpu)
    return replace(found, defaults=of_run, latency=limit, notes=_overhead(run))


def _overhead(run: HostRun) -> tuple[str, ...]:
    """Return the sentence on the platform overhead. Empty: it was not measured."""
    overhead = run.findings.get("platform_overhead_measured")
    if overhead is None or overhead.value is None:
        return ()
    return (
        f"The CPU capacity by {run.source} is without the platform overhead: the databases were measured while the rest of the host, "
        f"without pgherd and clients, used {overhead.value:.2g} cores",
    )


def _capacity(run: HostRun) -> tuple[ResourceCapacity, LatencyLimit | None]:
    """Return CPU capacity and latency limit of a host by a run."""
    finding = run.findings.get("capacity")
    kept = _kept(run) if finding is not None and finding.value is None else None
    if finding is None or (finding.value is None and kept is None):
        reason = f"has no capacity: {finding.note if finding else 'no analysis'}"
        raise UsageError(f"{run.option}: run {run.name} {reason}; give a density run with a capacity")
    options = run.record.options
    if options.get("tenants") or options.get("fleet"):
        raise UsageError(f"{run.option}: the databases of run {run.name} differ; give a density run of equal databases")
    objectives = [LatencyObjective.model_validate(one) for one in options.get("objectives") or ()]
    if objectives and run.objective is not None:
        raise UsageError(f"{run.option}: run {run.name} was measured for {objective_text(objectives)}; leave out --slo")
    if kept is not None and kept.value is not None:
        certain, largest = (0.0 if size is None else size * _cores_at(run, size) for size in (kept.low, kept.value))
        capacity = ResourceCapacity(value=largest, low=certain or None, n=kept.blocks, source=run.source)
        return capacity, LatencyLimit(objective=objective_text(objectives), low=certain, source=run.source)
    assert finding.value is not None
    limited = is_cpu_limited(str(options.get("runtime", "cgroup")), str(options.get("cpu_mode", "quota")))
    by_vcpus = limited and not objectives and options.get("rate") is None and options.get("bound_by") != "io"
    cores = float(options["vcpus"]) * float(options["efficiency"]) if by_vcpus else _cores_at(run, finding.value)
    low, high = (None if bound is None else bound * cores for bound in (finding.low, None if finding.is_open else finding.high))
    capacity = ResourceCapacity(value=finding.value * cores, low=low or None, high=high if low else None, n=finding.n, source=run.source)
    if objectives:
        bounds = {"low": low or 0.0, "value": capacity.value, "high": high}
        return capacity, LatencyLimit(objective=objective_text(objectives), source=run.source, **bounds)
    return capacity, None if run.objective is None else _latency_limit(run, run.objective)


def _kept(run: HostRun) -> PassLimit | None:
    """Return the largest number of databases of a search by objective, if none missed it. None: it has another reason for no capacity."""
    tallies = {}
    for row in run.rows("objective"):
        share = row["blocks_kept"]
        if isinstance(share, Finding) and share.value is not None and share.n:
            tallies[float(str(row["databases"]))] = Tally(passed=round(share.value * share.n), blocks=share.n)
    limit = pass_limit(sorted(tallies), tallies)
    return limit if limit.value is not None and limit.failing is None else None


def _cores_at(run: HostRun, databases: float) -> float:
    """Return the CPU of a container at this number of databases, as the mean over the trials. Between two points it is linear.

    Tainted trials count only at a number without a clean one.
    """
    import numpy as np

    found: dict[float, list[float]] = {}
    finished = [trial for trial in run.results if trial.error is None and set(trial.trial.point) == {"databases"}]
    clean = {float(trial.trial.point["databases"]) for trial in finished if not trial.tainted}
    for trial in finished:
        if trial.tainted and float(trial.trial.point["databases"]) in clean:
            continue
        for phase in trial.phases:
            names = {target.target.split("/")[1] for target in phase.targets}
            used = [phase.metrics.get(f"container:{name}", {}).get("cpu.usage") for name in names]
            known = [cores for cores in used if cores is not None and 0 <= cores < math.inf]
            if known and len(known) == len(used):
                found.setdefault(float(trial.trial.point["databases"]), []).append(math.fsum(known) / len(known))
    points = sorted(found)
    if not points or not points[0] <= databases <= points[-1]:
        raise UsageError(f"{run.option}: run {run.name} has no CPU of its containers at {databases:g} databases; give another run")
    return float(np.interp(databases, points, [math.fsum(found[at]) / len(found[at]) for at in points]))


def _latency_limit(run: HostRun, objective: LatencyObjective) -> LatencyLimit:
    """Return the CPU up to which the curve of a run keeps an objective. At a number of databases it is that which they received."""
    vcpus, curve, no_share = float(run.record.options["vcpus"]), [], False
    for row in run.rows("density"):
        latency, share = row.get(objective.name), row.get("cpu_share")
        if not isinstance(latency, Finding) or latency.value is None:
            continue
        if isinstance(share, Finding) and share.value is not None:
            curve.append((int(str(row["databases"])) * vcpus * min(share.value, 1.0), latency))
        else:
            no_share = True
    if not curve and no_share:
        raise UsageError(f"--slo: run {run.name} of {run.option} has no CPU received by its databases; give a run with CPU limits")
    if not curve:
        raise UsageError(f"--slo: run {run.name} of {run.option} has no {objective.name} of its databases; use p50, p95 or p99")
    return latency_limit(sorted(curve, key=lambda point: point[0]), objective.limit_ms, str(objective), run.source)
