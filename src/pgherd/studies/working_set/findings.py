"""Findings of a working-set run: knees, headroom, safe overcommitment, double-buffering dip, and indirect estimates.

Indirect estimates use other metrics than throughput, so that they may differ from the knee and do not replace it. For a guest they use
its kernel's counters, because the host sees only the hypervisor.

- *Misses*: pages that the container reads or swaps in again after eviction (the kernel's workingset_refault), or blocks that were not in
  shared buffers, per transaction. The estimate is the smallest size from which on at most MAX_MISSES_SHARE of them remain.
- *Memory in use* at the largest size: memory of the container less its inactive file pages, which Kubernetes calls the working set. In a
  guest it is total less available memory. For shared buffers it is the buffers with a usage count above 1 (pg_buffercache).
- *Pressure*: the smallest size from which on tasks wait for memory or I/O at most MAX_PRESSURE of the time (PSI).

Double buffering: where shared buffers are about half of the memory, the same pages tend to be in shared buffers and in the page cache,
so that less of the database is cached. Throughput of sizes within the published 45–55 % is compared with the curve through their
neighbours, because a fitted line differs from a curve that bends there, with or without a dip.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pgherd.analysis.intervals import mean_interval
from pgherd.analysis.knee import CLIFF, METHOD
from pgherd.analysis.neighbours import Contrast, mean_contrast, neighbour_contrast
from pgherd.analysis.overcommitment import max_safe_overcommit
from pgherd.model.analysis import Finding
from pgherd.model.capabilities import capabilities_of
from pgherd.model.result import TrialResult
from pgherd.studies.working_set.curves import SweepTrials
from pgherd.studies.working_set.options import CONTAINER, MB, SweepCurve, WorkingSetOptions
from pgherd.study.findings import as_finding, missing
from pgherd.study.trial_schedule import throughput

HEADROOM_RULE = "E7: configured memory less the working sets of all databases"
MIN_DIP = 0.03
"""Smallest relevant dip, as a share of throughput."""
DIP_METHOD = "throughput of sizes at 45–55 % ÷ the curve through two neighbouring sizes on each side, t interval on logarithms"
MAX_PRESSURE = 0.05
"""Share of the time in which some task may wait for memory or I/O if there is enough memory."""
MAX_MISSES_SHARE = 0.05
"""Share of the misses at the smallest size that may remain if there is enough memory."""
MIN_MISSES = 0.02
"""Misses per transaction at the smallest size below which they give no estimate."""

MetricOf = Callable[[TrialResult], float | None]


# ---- published results of E7: an order-entry load on 30 warehouses in virtual machines with swap. They come from another machine and
# another program, so they predict the shape of the results but not the sizes.

SOURCE = "VMware vFabric Postgres 9.2, DBT-2 with 30 warehouses, shared_buffers 1 GB, virtual machines; another machine"

PUBLISHED_SIZES: Mapping[str, Mapping[int, int]] = {"memory": {30: 1376, 2: 1152}, "shared-buffers": {30: 984, 2: 524}}
"""Sweep → clients → MB. The 1152 MB include a small safety margin."""

PUBLISHED_CONFIGURED, PUBLISHED_HEADROOM, PUBLISHED_RATE = 4096, 5664, 0.69
"""MB of each of the two databases, MB of headroom of both, and the resulting safe overcommitment."""

DIP_RANGE = (0.45, 0.55)
"""Shared buffers as shares of the container's memory that E7 recommends to avoid, because throughput dips there."""


def published_working_set(curve: SweepCurve) -> str | None:
    """Return E7's working set for the same load."""
    size = PUBLISHED_SIZES[curve.sweep].get(curve.clients)
    return None if size is None else f"{size} MB ({SOURCE})"


def published_headroom(clients: tuple[int, ...]) -> str | None:
    """Return E7's headroom if the loads are the same."""
    return f"{PUBLISHED_HEADROOM} MB of 2 × {PUBLISHED_CONFIGURED} MB ({SOURCE})" if sorted(clients) == [2, 30] else None


def published_rate(clients: tuple[int, ...]) -> str | None:
    """Return E7's safe overcommitment if the loads are the same."""
    return f"{100 * PUBLISHED_RATE:.0f} % ({SOURCE})" if sorted(clients) == [2, 30] else None


def published_dip() -> str:
    return f"a dip where shared_buffers are {100 * DIP_RANGE[0]:.0f}–{100 * DIP_RANGE[1]:.0f} % of the memory ({SOURCE})"


# ---- knee, headroom, overcommitment


def knee_finding(options: WorkingSetOptions, trials: SweepTrials) -> Finding:
    """Return the working set of one curve in MB, or the reason why there is none."""
    knee, reference = trials.knee, published_working_set(trials.curve)
    experiment = None if reference is None else "E7"
    if not trials.measured_sizes:
        return missing("MB", "no trial finished at any size", method=METHOD, experiment=experiment, published=reference)
    if knee.at is None:
        return missing("MB", knee.note, method=METHOD, experiment=experiment, published=reference)
    no_interval = knee.low is None or knee.high is None
    tainted = all(result.tainted for result in trials.used)
    fixed = f"with shared buffers of {options.shared_buffers} MB" if trials.curve.sweep == "memory" else ""
    notes = (fixed, knee.note, "no interval" if no_interval else "", "only tainted trials: an indication" if tainted else "")
    return Finding(
        value=knee.at,
        unit="MB",
        low=None if no_interval else knee.low,
        high=None if no_interval else knee.high,
        confidence=None if no_interval or knee.kind == "cliff" else knee.confidence,
        n=knee.n,
        method=CLIFF if knee.kind == "cliff" else METHOD,
        note="; ".join(filter(None, notes)),
        experiment=experiment,
        published=reference,
    )


def headroom_findings(options: WorkingSetOptions, sets: Mapping[int, Finding]) -> dict[str, Finding]:
    """Return ``configured``, ``headroom`` and ``max_safe_overcommit`` with one database per load.

    ``sets`` are container working sets by number of clients.
    """
    loads = options.clients
    configured = options.configured_memory * len(loads)
    configured_finding = Finding(
        value=configured,
        unit="MB",
        n=0,
        method=f"{len(loads)} × {options.configured_memory} MB, as configured",
        note="no interval: it is an option",
    )
    absent = [clients for clients in loads if sets[clients].value is None]
    reference = {"published": published_headroom(loads), "experiment": "E7"}
    rate_reference = {"published": published_rate(loads), "experiment": "E7"}
    if absent:
        reason = f"no working set with {', '.join(map(str, absent))} clients"
        return {
            "configured": configured_finding,
            "headroom": missing("MB", reason, method=HEADROOM_RULE, **reference),
            "max_safe_overcommit": missing("share", reason, method=HEADROOM_RULE, **rate_reference),
        }
    values = [sets[clients].value or 0.0 for clients in loads]
    lows = _all_or_none([sets[clients].low for clients in loads])
    highs = _all_or_none([sets[clients].high for clients in loads])
    bounds = lows is not None and highs is not None
    room, rate = headroom(configured, values)
    n = sum(sets[clients].n for clients in loads)
    low = headroom(configured, highs) if bounds and highs is not None else None
    high = headroom(configured, lows) if bounds and lows is not None else None
    note = "interval from the bounds of the working sets" if bounds else "no interval: a working set has none"
    if room < 0:
        note = f"the working sets need more than is configured; {note}"
    return {
        "configured": configured_finding,
        "headroom": Finding(
            value=room, unit="MB", low=low and low[0], high=high and high[0], n=n, method=HEADROOM_RULE, note=note, **reference
        ),
        "max_safe_overcommit": Finding(
            value=rate,
            unit="share",
            low=low and low[1],
            high=high and high[1],
            n=n,
            method=f"headroom ÷ configured memory, at least 0 ({HEADROOM_RULE})",
            note=f"higher overcommitment measures a lack of memory, not consolidation; {note}",
            **rate_reference,
        ),
    }


def headroom(configured: float, working_sets: Sequence[float]) -> tuple[float, float]:
    """Return (headroom in MB, safe overcommitment), as in E7: 2 × 4096 − (1376 + 1152) = 5664 MB, which is 69 %."""
    return configured - sum(working_sets), max_safe_overcommit(round(configured), [round(size) for size in working_sets])


def _all_or_none(values: Sequence[float | None]) -> list[float] | None:
    present = [value for value in values if value is not None]
    return present if len(present) == len(values) else None


# ---- double-buffering dip


def dip_finding(options: WorkingSetOptions, curves: Sequence[SweepTrials]) -> Finding:
    """Return the dip as a ratio over all curves of one sweep, with the conclusion that the data support."""
    low, high = DIP_RANGE
    reference = {"experiment": "E7", "published": published_dip()}
    contrasts = [contrast for trials in curves if (contrast := _curve_contrast(trials)) is not None]
    if not contrasts:
        reason = f"no trial with shared buffers at {100 * low:.0f}–{100 * high:.0f} % of the container's memory and at sizes on both sides"
        return missing("ratio", reason, method=DIP_METHOD, **reference)
    estimate = mean_contrast(contrasts)
    note = _dip_conclusion(estimate.low, estimate.high)
    if any(contrast.neighbours < 2 for contrast in contrasts):
        note += "; with one neighbour on a side a bend of the curve looks like a dip"
    return as_finding(estimate, "ratio", note, method=DIP_METHOD, **reference)


def _curve_contrast(trials: SweepTrials) -> Contrast | None:
    """Compare the sizes of one curve in the range of the dip with their neighbours. None: no such size, or no neighbours."""
    low, high = DIP_RANGE
    values: dict[int, list[float]] = {}
    shares: dict[int, float] = {}
    for result in trials.used:
        size = trials.size(result)
        values.setdefault(size, []).append(throughput(result))
        shares[size] = int(result.trial.point["shared_buffers"]) / int(result.trial.point["memory"])
    sizes = sorted(values)
    within = [i for i, size in enumerate(sizes) if low <= shares[size] <= high]
    return neighbour_contrast(sizes, [values[size] for size in sizes], within) if within else None


def _dip_conclusion(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return "inconclusive: too few trials at 45–55 %"
    if high < 1:
        return "a dip" if high < 1 - MIN_DIP else f"lower, but possibly by less than {100 * MIN_DIP:.0f} %"
    if low > 1 - MIN_DIP:
        return f"no dip of {100 * MIN_DIP:.0f} % or more"
    return "inconclusive: the data support neither a dip nor its absence"


# ---- metrics of a trial


def metric(result: TrialResult, entity: str, name: str) -> float | None:
    """Return the mean of a metric over a trial's phases. None if it is missing in a phase."""
    values = [phase.metrics.get(entity, {}).get(name) for phase in result.phases]
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present and len(present) == len(values) else None


def in_guest(result: TrialResult) -> bool:
    """True if the trial's container is a guest."""
    return any(capabilities_of(container.runtime).own_kernel for _, container in result.trial.deployment.containers())


def of_container(name: str, *, guest: str | None = None) -> MetricOf:
    """Return a getter for a metric of the container, or of a guest under its name there."""

    def value(result: TrialResult) -> float | None:
        if in_guest(result):
            return metric(result, f"guest:{CONTAINER}", guest or name)
        return metric(result, f"container:{CONTAINER}", name)

    return value


def of_server(name: str) -> MetricOf:
    """Return a getter for a metric of the server."""
    return lambda result: metric(result, f"server:{CONTAINER}/pg", name)


def per_transaction(take: MetricOf) -> MetricOf:
    """Convert a rate per second to a number per transaction."""

    def value(result: TrialResult) -> float | None:
        rate, tps = take(result), throughput(result)
        return None if rate is None or tps <= 0 else rate / tps

    return value


def _refault_rate(result: TrialResult) -> float | None:
    """File pages read, and anonymous and shared pages swapped in, after eviction, per second."""
    parts = [of_container(f"memory.refaults_{kind}", guest=f"vm.refault_{kind}")(result) for kind in ("file", "anon")]
    return None if parts[0] is None else sum(part or 0.0 for part in parts)


refaults = per_transaction(_refault_rate)
"""Pages of the container read or swapped in again after eviction, per transaction."""
buffer_misses = per_transaction(of_server("db.blks_read"))
"""Blocks that were not in shared buffers, per transaction."""


def pressure(result: TrialResult) -> float | None:
    """Return the larger of the shares of time in which some task of the container waited for memory or for I/O."""
    shares = [of_container(f"psi.{kind}.some")(result) for kind in ("memory", "io")]
    return max((share for share in shares if share is not None), default=None)


def in_use(result: TrialResult) -> float | None:
    """Return memory of the container without inactive file pages, or total less available memory of a guest, in MB."""
    usage = of_container("memory.usage", guest="memory.total")(result)
    inactive = of_container("memory.inactive_file", guest="memory.available")(result)
    return None if usage is None or inactive is None else (usage - inactive) / MB


def hot_buffers(result: TrialResult) -> float | None:
    """Return shared buffers used again after they were read, in MB."""
    reused = of_server("buffers.reused")(result)
    return None if reused is None else reused / MB


# ---- indirect estimates


def from_misses(trials: SweepTrials) -> Finding:
    """Return the smallest size from which on almost no misses remain."""
    memory = trials.curve.sweep == "memory"
    take, misses = (refaults, "pages read again (refaults)") if memory else (buffer_misses, "blocks missed in shared buffers")
    limit = f"at most {100 * MAX_MISSES_SHARE:.0f} % of those at the smallest size"
    method = f"smallest size measured from which on {misses} per transaction are {limit}"
    means = [(size, sum(values) / len(values)) for size, values in _by_size(trials, take)]
    if not means:
        return missing("MB", f"{misses} were not measured{': older kernels do not count them' if memory else ''}", method=method)
    highest = means[0][1]
    if highest < MIN_MISSES:
        return missing("MB", f"only {highest:.2g} {misses} per transaction even at the smallest size", method=method)
    return _first_within(trials, means, MAX_MISSES_SHARE * highest, method, "there are more even at the largest size")


def from_memory_in_use(trials: SweepTrials) -> Finding:
    """Return memory in use at the largest size with a throughput."""
    memory = trials.curve.sweep == "memory"
    take = in_use if memory else hot_buffers
    largest = [result for result in trials.used if trials.size(result) == max(trials.measured_sizes)]
    method = "shared buffers of a usage count above 1 (pg_buffercache) at the largest size"
    if memory:
        method = "memory charged less inactive file pages (the working set of Kubernetes) at the largest size"
        if any(map(in_guest, largest)):
            method = "total less available memory of the guest at the largest size"
    values = [value for result in largest if (value := take(result)) is not None]
    if not values:
        return missing("MB", "it was not measured" if memory else "pg_buffercache is not available", method=method)
    return as_finding(mean_interval(values), "MB", f"at {max(trials.measured_sizes)} MB", method=method)


def from_psi(trials: SweepTrials) -> Finding:
    """Return the smallest size from which on there is almost no memory or I/O pressure."""
    method = f"smallest size measured from which on tasks wait for memory or I/O at most {100 * MAX_PRESSURE:.0f} % of the time (PSI)"
    if trials.curve.sweep != "memory":
        return missing("MB", "too small shared buffers cause no pressure: the page cache serves the reads", method=method)
    shares = [(size, sum(values) / len(values)) for size, values in _by_size(trials, pressure)]
    if not shares:
        return missing("MB", "pressure of the container was not measured (PSI needs a cgroup v2)", method=method)
    return _first_within(trials, shares, MAX_PRESSURE, method, "tasks wait longer than that even at the largest size")


def _first_within(trials: SweepTrials, values: Sequence[tuple[int, float]], limit: float, method: str, never: str) -> Finding:
    """Return the smallest size from which on all values are within the limit. Its low is the next smaller size."""
    enough = [size for index, (size, _) in enumerate(values) if all(value <= limit for _, value in values[index:])]
    if not enough:
        return missing("MB", never, method=method)
    below = [size for size, _ in values if size < enough[0]]
    n = sum(trials.size(result) in (enough[0], *below[-1:]) for result in trials.used)
    return Finding(
        value=float(enough[0]),
        unit="MB",
        low=float(below[-1]) if below else None,
        high=float(enough[0]) if below else None,
        n=n,
        method=method,
        note="low is the next smaller size" if below else "no interval: it is the smallest size measured",
    )


def _by_size(trials: SweepTrials, take: MetricOf) -> Sequence[tuple[int, list[float]]]:
    values: dict[int, list[float]] = {}
    for result in trials.used:
        value = take(result)
        if value is not None:
            values.setdefault(trials.size(result), []).append(value)
    return sorted(values.items())
