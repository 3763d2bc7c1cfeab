"""Tables of a consolidation: schemes, periods, OOM kills, memory, and the published references of E4, E5 and E6. Pure.

Reference: VMware, "VMware vFabric Postgres 9.2: Performance and Best Practices", vSphere 5.1. DBT-2 with 30 warehouses per database,
30 and 2 clients, 4 periods of 10 minutes, 3 vCPUs and 8 or 4 GB per virtual machine, 8 cores.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pgherd.analysis import memory_accounting, memory_effects, overcommitment
from pgherd.model.capabilities import capabilities_of
from pgherd.model.finding import Finding
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.studies.consolidation.options import APART, BALLOON, SCHEMES, ConsolidationOptions
from pgherd.studies.consolidation.propose import points
from pgherd.studies.consolidation.trials import ConsolidationTrial, TrialsByPoint, shares_cpu
from pgherd.study.findings import as_finding, missing
from pgherd.study.trial_schedule import Point

Row = dict[str, Finding | str | int | float | None]
MB = 2**20

# ---- published references

SOURCE = "E4, VMware, vFabric Postgres 9.2: Performance and Best Practices"
SOURCE_E5 = "E5, VMware, vFabric Postgres 9.2: Performance and Best Practices; virtual machines"
SOURCE_E6 = "E6, VMware, vFabric Postgres 9.2: Performance and Best Practices"


@dataclass(frozen=True)
class PublishedBaseline:
    """One undercommitted scheme in E4: new orders per minute, CPU used (100 % is one core), new orders per minute and used core."""

    notpm: float
    cpu: float
    per_core: float


BASELINES = {
    (25, 1): PublishedBaseline(45303.41, 297.66, 15219.85),
    (25, 2): PublishedBaseline(40790.49, 282.43, 14442.69),
    (25, 3): PublishedBaseline(52647.45, 370.95, 14192.60),
    (25, 4): PublishedBaseline(52398.71, 372.95, 14049.79),
    (75, 1): PublishedBaseline(44595.37, 296.20, 15055.83),
    (75, 2): PublishedBaseline(44257.74, 293.73, 15067.49),
    (75, 3): PublishedBaseline(58993.92, 383.04, 15401.50),
    (75, 4): PublishedBaseline(59295.53, 389.49, 15223.89),
}
"""(shared buffers in percent, scheme) → measured values."""

VARIATION = {(25, 3): 3.8, (75, 3): 1.1, (25, 4): 5.2, (75, 4): 1.0}
"""(shared buffers in percent, scheme) → coefficient of variation across periods, %."""

READINGS_E5 = (
    (25, "separate containers hold up better beyond 20 %; at 55 % they are at 3 × the others (+200 %); the database balloon adds nothing"),
    (75, "at 55 % separate containers are at +60 % with the guest's balloon alone, and at +140 % with the database balloon too"),
)
"""(shared buffers in percent, reading of E5's curves)."""

RATE_E5 = 0.55
"""Overcommitment rate of the readings of E5's curves."""
_RETAINED_RATIOS = {(25, 3): "about 3", (25, 4): "about 3", (75, 3): "about 1.6", (75, 4): "about 2.4"}
_BALLOON_RATIOS = {25: "about 1", 75: "about 1.5"}

RATE_E6 = 0.3
"""Overcommitment rate at which E6 examined the memory."""

READINGS_E6 = (
    (25, "at 30 % separate containers balloon about 8 % more memory, and compress and swap less than half as much"),
    (75, "at 30 % the database balloon cuts another 20 % of what is compressed and swapped"),
)
"""(shared buffers in percent, reading of E6's memory over time)."""


def published_retained_ratio(percent: int, scheme: int, rate: float) -> str | None:
    """Return E5's ratio of the retained throughput of separate containers to that of shared ones. None: not published."""
    text = _RETAINED_RATIOS.get((percent, scheme)) if rate == RATE_E5 else None
    return None if text is None else f"{text} ({SOURCE_E5})"


def published_balloon_ratio(percent: int, rate: float) -> str | None:
    """Return E5's ratio of throughput with the database balloon to that without. None: not published."""
    text = _BALLOON_RATIOS.get(percent) if rate == RATE_E5 else None
    return None if text is None else f"{text} ({SOURCE_E5})"


def published_swapped(percent: int, rate: float) -> str | None:
    """Return E6's ratio of memory swapped by separate containers to that of a shared one. None: not published."""
    return f"below 0.5 ({SOURCE_E6})" if (percent, rate) == (25, RATE_E6) else None


def published_swapped_with_balloon(percent: int, rate: float) -> str | None:
    """Return E6's ratio of memory swapped with the database balloon to that without. None: not published."""
    return f"about 0.8 ({SOURCE_E6})" if (percent, rate) == (75, RATE_E6) else None


def published_ratio(percent: int, scheme: int, base_scheme: int) -> str | None:
    """Return E4's ratio of the throughputs of two schemes. None: one of them was not measured."""
    baseline, base = BASELINES.get((percent, scheme)), BASELINES.get((percent, base_scheme))
    return None if baseline is None or base is None else f"{baseline.notpm / base.notpm:.3f} ({SOURCE})"


def published_corrected_ratio(scheme: int, base_scheme: int) -> str | None:
    """Return the same ratio with E4's correction, in E4's words. None: not published."""
    text = {1: "about 1", 2: "slightly above 1"}.get(base_scheme) if scheme in (3, 4) else None
    return None if text is None else f"{text} ({SOURCE})"


def published_buffers_gain(scheme: int) -> float | None:
    """Return E4's ratio of throughput with 75 % buffers to that with 25 %. None: not measured."""
    low, high = BASELINES.get((25, scheme)), BASELINES.get((75, scheme))
    return None if low is None or high is None else high.notpm / low.notpm


def published_rows() -> list[Row]:
    """Return E4's table."""
    return [
        {
            "buffers": percent,
            "scheme": scheme,
            "what": SCHEMES[scheme],
            "notpm": baseline.notpm,
            "cpu_used": baseline.cpu,
            "per_core": baseline.per_core,
            "variation": VARIATION.get((percent, scheme)),
        }
        for (percent, scheme), baseline in BASELINES.items()
    ]


def reading_rows(options: ConsolidationOptions, readings: Sequence[tuple[int, str]]) -> list[Row]:
    """Return the readings of E5's or E6's curves for the measured sizes of buffers, and why results are not judged by them."""
    reason = (
        "no: containers share one kernel"
        if not capabilities_of(options.runtime).own_kernel
        else "for reference only: other hardware and workload"
    )
    return [{"buffers": percent, "reading": text, "judged": reason} for percent, text in readings if percent in options.buffers]


# ---- schemes and periods

NOT_RUN = "no trial of it finished"
OOM_KILLED = "OOM kill of servers"
_NO_CPU = "the CPU of the containers was not measured; runtime cgroup measures it"


def mean(values: Sequence[float | None], unit: str, absent: str, note: str = "") -> Finding:
    """Return the mean over blocks as a finding. Without a value: a finding with the reason ``absent``."""
    present = [value for value in values if value is not None]
    return as_finding(overcommitment.block_mean(present), unit, note) if present else missing(unit, absent)


def scheme_rows(options: ConsolidationOptions, trials: TrialsByPoint) -> list[Row]:
    """Return a row for each combination of buffers, rate and scheme, with the columns of E4's table and more."""
    rows: list[Row] = []
    for point in points(options):
        rows.append(_scheme_row(options, trials, point))
    for scheme, reason in options.unavailable.items():
        rows.append({"scheme": scheme, "what": SCHEMES[scheme], "throughput": missing(options.unit, f"not available: {reason}")})
    return rows


def _scheme_row(options: ConsolidationOptions, trials: TrialsByPoint, point: Point) -> Row:
    scheme, percent, rate = int(point["scheme"]), int(point["buffers"]), float(point["rate"])
    results = trials.all_at(point)
    killed = sum(bool(result.memory_kills) for result in results)
    absent = OOM_KILLED if killed else NOT_RUN
    published = BASELINES.get((percent, scheme)) if rate == 0 and options.enters_orders else None
    published_variation = VARIATION.get((percent, scheme))
    no_cpu = _NO_CPU if any(trial is not None for trial in trials.by_block(point)) else absent
    no_correction = "each database has dedicated vCPUs" if scheme in APART else "the vCPUs of a container are not limited"

    def cell(value_of: Callable[[ConsolidationTrial], float | None], unit: str, reason: str = absent, note: str = "") -> Finding:
        return mean(trials.values(point, value_of), unit, reason, note)

    def with_published(finding: Finding, text: str | None) -> Finding:
        return finding if text is None else finding.model_copy(update={"experiment": "E4", "published": text})

    row: Row = {
        "buffers": percent,
        "rate": rate,
        "scheme": scheme,
        "what": SCHEMES[scheme],
        **({"available": round(options.available(rate) / 2**20) if rate > 0 else None} if any(options.rates) else {}),
        "throughput": with_published(
            cell(lambda trial: trial.throughput, options.unit), f"{published.notpm:,.2f} {options.unit}" if published else None
        ),
        "corrected": cell(lambda trial: trial.corrected, options.unit, note="the quiet databases' throughput counts twice, as in E4")
        if shares_cpu(options, scheme)
        else missing(options.unit, f"no correction: {no_correction}"),
        "ratio": ratio_to_first(options, trials, point),
        **({"corrected_ratio": ratio_to_first(options, trials, point, correct=True)} if different_vcpus(options) else {}),
        **({"normalised": normalised(options, trials, point)} if any(options.rates) else {}),
        "variation": with_published(
            cell(lambda trial: None if trial.variation is None else 100 * trial.variation, "%"),
            f"{published_variation} %" if published and published_variation is not None else None,
        ),
        "cpu_used": with_published(
            cell(lambda trial: None if trial.cores_used is None else 100 * trial.cores_used, "%", no_cpu),
            f"{published.cpu:,.2f} %" if published else None,
        ),
        "per_core": with_published(
            cell(lambda trial: trial.per_core, f"{options.unit}/core", no_cpu),
            f"{published.per_core:,.2f} {options.unit}/core" if published else None,
        ),
        "trials": len(results),
        "tainted": sum(result.tainted for result in results),
        "killed": killed,
    }
    return row


def different_vcpus(options: ConsolidationOptions) -> bool:
    """Return True if some schemes share vCPUs and others do not. A ratio of their throughputs then is one of CPUs, too."""
    return len({shares_cpu(options, scheme) for scheme in options.runnable}) > 1


def ratio_to_first(options: ConsolidationOptions, trials: TrialsByPoint, point: Point, *, correct: bool = False) -> Finding:
    """Return a scheme's throughput over the first scheme's at the same buffers and rate, by block.

    ``correct`` applies E4's correction to those of the two that share vCPUs.
    """
    scheme, first = int(point["scheme"]), options.runnable[0]
    if scheme == first:
        return missing("ratio", "the first scheme")
    reference = None
    if float(point["rate"]) == 0 and options.enters_orders:
        reference = published_corrected_ratio(scheme, first) if correct else published_ratio(int(point["buffers"]), scheme, first)

    def values(of_scheme: int) -> list[float | None]:
        corrects = correct and shares_cpu(options, of_scheme)
        return trials.values({**point, "scheme": of_scheme}, lambda trial: trial.corrected if corrects else trial.throughput)

    experiment = "E4" if reference else None
    ratio = overcommitment.block_ratio(values(scheme), values(first))
    if ratio is None:
        return missing("ratio", "no block has a value of both", experiment=experiment, published=reference)
    note = f"against scheme {first}" + (", with E4's correction for shared vCPUs" if correct else "")
    return as_finding(ratio, "ratio", note, experiment=experiment, published=reference)


def normalised(options: ConsolidationOptions, trials: TrialsByPoint, point: Point) -> Finding:
    """Return the throughput over that of the same scheme undercommitted, by block (E5)."""
    if float(point["rate"]) == 0:
        return missing("ratio", "the baseline")
    ratio = overcommitment.block_ratio(trials.values(point, throughput_of), trials.values({**point, "rate": 0.0}, throughput_of))
    if ratio is None:
        killed = any(result.memory_kills for result in trials.all_at(point))
        return missing("ratio", OOM_KILLED if killed else "no block has a value of both")
    return as_finding(ratio, "ratio", "against the same scheme undercommitted")


def throughput_of(trial: ConsolidationTrial) -> float | None:
    return trial.throughput


def period_rows(options: ConsolidationOptions, trials: TrialsByPoint) -> list[Row]:
    """Return the throughput of each database in each period, and the CPU of all containers."""
    rows: list[Row] = []
    for point in points(options):
        blocks = [trial for trial in trials.by_block(point) if trial is not None]
        if not blocks:
            continue
        for period in range(len(options.plan[0])):
            cpu = [None if trial.cores is None else 100 * trial.cores[period] for trial in blocks]
            for database in range(options.databases):
                throughputs = [trial.periods[period][database].throughput for trial in blocks]
                rows.append(
                    {
                        "buffers": point["buffers"],
                        "rate": point["rate"],
                        "scheme": point["scheme"],
                        "period": period + 1,
                        "database": f"DB_{database + 1}",
                        "clients": options.plan[database][period],
                        "throughput": mean(throughputs, options.unit, NOT_RUN),
                        "cpu_used": mean(cpu, "%", _NO_CPU, "of all containers") if database == 0 else None,
                    }
                )
    return rows


def kill_rows(trials: TrialsByPoint) -> list[Row]:
    """Return the OOM kills: container, processes, trial and time."""
    rows: list[Row] = []
    for result in trials.results:
        for kill in result.memory_kills:
            rows.append(
                {
                    "trial": result.trial.key(),
                    "container": kill.container,
                    "processes": kill.processes,
                    "who": ", ".join(kill.names) or None,
                    "limit": kill.limit,
                    "seconds_into_trial": round(kill.at - result.started, 1),
                    "said": (result.error or "").split("\n")[0],
                }
            )
    return rows


# ---- memory (E6)

# Values are means over a trial's periods of the sum over its containers, then over blocks. Swap and paging are those of the whole host.
# Memory in a database's balloon is missing from its container's shared memory and is never added to it. For its host a guest is one
# process: all memory of the guest, including shared buffers, is private memory of that process.

_CONTAINER, _SERVER, _ZRAM, _GUEST, _HOST = "container:", "server:", "zram:", "guest:", "host"
_NOT_MEASURED = "not measured"
MIN_SWAPPED_MB = 1.0
"""MB swapped out that the base of a ratio needs, since a few pages give no meaningful ratio. A smaller numerator counts as this, and the
ratio is reported as an upper bound."""
UNITS = {
    "charged": "MB",
    "shared": "MB",
    "page_cache": "MB",
    "private": "MB",
    "ballooned": "MB",
    "guest_balloons": "MB",
    "swapped": "MB",
    "compressed": "MB",
    "compressed_to": "MB",
    "compression": "ratio",
    "refaults": "pages/s",
    "swapped_in": "pages/s",
    "swapped_out": "pages/s",
    "waiting": "%",
}
"""Quantity → unit."""
_NOTES = {
    "shared": "mostly shared buffers",
    "page_cache": "without shared memory",
    "ballooned": "in the database balloons; not part of the shared memory",
    "compressed": "in compressed swap of the host, before compression",
    "compressed_to": "host memory used by compressed swap, in addition to the containers' memory",
    "refaults": "file and anonymous pages that were read again after eviction",
    "swapped_in": "of the whole host",
    "swapped_out": "of the whole host",
    "waiting": "memory pressure (PSI some) of the container with the most",
}
_GUEST_NOTES = {
    "page_cache": "host files of the hypervisors; the guests' page cache is part of their private memory",
    "private": "guest memory, including shared buffers, and the hypervisors' memory",
    "ballooned": "returned by the databases to their guests' kernels; not to be added to the guest balloons",
    "guest_balloons": "in the guest kernels' balloons; the table guest_memory lists each guest",
    "refaults": "host file pages and guest memory that were read again after eviction",
    "waiting": "memory pressure (PSI some) of the hypervisor with the most",
}
"""Notes that differ if the containers are guests. Their shared memory is close to zero and is not shown."""


def memory_use(result: TrialResult) -> dict[str, float]:
    """Return the means over a trial's periods, in the units of ``UNITS``. Quantities that a period lacks are absent."""
    periods = [_phase_memory(phase) for phase in result.phases]
    complete = [name for name in UNITS if periods and all(name in period for period in periods)]
    use = {name: statistics.fmean(period[name] for period in periods) for name in complete}
    if use.get("compressed", 0.0) >= MIN_SWAPPED_MB and "compressed_to" in use:
        ratio = memory_accounting.ratio(use["compressed"], use["compressed_to"])
        use |= {} if ratio is None else {"compression": ratio}
    return use


def _phase_memory(phase: PhaseResult) -> dict[str, float]:
    containers, servers, zram = (_with_prefix(phase, prefix) for prefix in (_CONTAINER, _SERVER, _ZRAM))
    balloons = [memory_effects.of_means(phase.metrics, entity.removeprefix(_GUEST)) for entity in _with_prefix(phase, _GUEST)]
    guest_balloons = [balloon.ballooned / MB for balloon in balloons if balloon is not None]
    host = phase.metrics.get(_HOST, {})
    shared, files = _sum(containers, "memory.shmem"), _sum(containers, "memory.file")
    refaults = [rate for kind in ("file", "anon") if (rate := _sum(containers, f"memory.refaults_{kind}")) is not None]
    pressures = [metrics["psi.memory.some"] for metrics in containers.values() if "psi.memory.some" in metrics]
    values = {
        "charged": _sum(containers, "memory.usage", MB),
        "shared": None if shared is None else shared / MB,
        "page_cache": None if shared is None or files is None else max(files - shared, 0.0) / MB,
        "private": _sum(containers, "memory.anon", MB),
        "ballooned": _sum(servers, "balloon.bytes", MB),
        "guest_balloons": sum(guest_balloons) if guest_balloons and len(guest_balloons) == len(balloons) else None,
        "swapped": _sum(containers, "memory.swap", MB),
        "compressed": _first(_sum(zram, "zram.orig_data", MB), _sum(containers, "memory.zswapped", MB)),
        "compressed_to": _first(_sum(zram, "zram.mem_used", MB), _sum(containers, "memory.zswap", MB)),
        "refaults": sum(refaults) if refaults else None,
        "swapped_in": host.get("vm.pswpin"),
        "swapped_out": host.get("vm.pswpout"),
        "waiting": 100 * max(pressures) if pressures else None,
    }
    return {name: value for name, value in values.items() if value is not None}


def _with_prefix(phase: PhaseResult, prefix: str) -> dict[str, Mapping[str, float]]:
    return {entity: metrics for entity, metrics in phase.metrics.items() if entity.startswith(prefix)}


def _sum(entities: Mapping[str, Mapping[str, float]], name: str, divisor: float = 1.0) -> float | None:
    values = [metrics[name] for metrics in entities.values() if name in metrics]
    return sum(values) / divisor if values else None


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def memory_rows(options: ConsolidationOptions, trials: TrialsByPoint) -> list[Row]:
    """Return a row for each combination of buffers, rate and scheme with a finished trial that measured the containers' memory."""
    guests = capabilities_of(options.runtime).own_kernel
    units = {name: unit for name, unit in UNITS.items() if not (guests and name == "shared")}
    notes = {**_NOTES, **(_GUEST_NOTES if guests else {})}
    rows: list[Row] = []
    for point in points(options):
        blocks = _memory_by_block(trials, point)
        if not any("charged" in use for use in blocks):
            continue
        row: Row = {"buffers": point["buffers"], "rate": point["rate"], "scheme": point["scheme"], "what": SCHEMES[int(point["scheme"])]}
        for name, unit in units.items():
            if any(name in use for use in blocks):
                row[name] = mean([use.get(name) for use in blocks], unit, _NOT_MEASURED, notes.get(name, ""))
        rows.append(row)
    return rows


def swap_findings(options: ConsolidationOptions, trials: TrialsByPoint) -> dict[str, Finding]:
    """Return ratios of swapped memory at each rate, by block, as E6 read them off its curves.

    They compare separate containers with the first shared one, and the database balloon with its absence.
    """
    findings: dict[str, Finding] = {}
    shared = next((scheme for scheme in options.runnable if scheme not in APART), None)
    for point in points(options):
        scheme, percent, rate = int(point["scheme"]), int(point["buffers"]), float(point["rate"])
        if not rate or scheme not in APART:
            continue
        suffix = f"buffers{percent}.rate{rate:g}"
        if shared is not None:
            reference = published_swapped(percent, rate) if options.enters_orders else None
            findings |= _swap_ratio(f"swapped_ratio.scheme{scheme}.{suffix}", trials, point, shared, reference)
        if scheme == BALLOON and 3 in options.runnable:
            reference = published_swapped_with_balloon(percent, rate) if options.enters_orders else None
            findings |= _swap_ratio(f"swapped_balloon_ratio.{suffix}", trials, point, 3, reference)
    return findings


def _swap_ratio(name: str, trials: TrialsByPoint, point: Point, base_scheme: int, reference: str | None) -> dict[str, Finding]:
    """Return the finding of a ratio over another scheme.

    Blocks in which the base scheme swapped less than ``MIN_SWAPPED_MB`` are left out. Blocks in which only this scheme did are not,
    because that is a result.
    """
    pairs = zip(_swapped(trials, point), _swapped(trials, {**point, "scheme": base_scheme}), strict=True)
    used = [(value, base) for value, base in pairs if value is not None and base is not None and base >= MIN_SWAPPED_MB]
    ratio = overcommitment.block_ratio([max(value, MIN_SWAPPED_MB) for value, _ in used], [base for _, base in used])
    if ratio is None:
        return {}
    note = f"swapped out of all containers, scheme {int(point['scheme'])} over scheme {base_scheme}"
    raised = sum(value < MIN_SWAPPED_MB for value, _ in used)
    if raised:
        note += f"; at most: in {raised} of {len(used)} blocks it was below {MIN_SWAPPED_MB:g} MB, and counts as that"
    return {name: as_finding(ratio, "ratio", note, experiment="E6" if reference else None, published=reference)}


def _swapped(trials: TrialsByPoint, point: Point) -> list[float | None]:
    return [use.get("swapped") for use in _memory_by_block(trials, point)]


def _memory_by_block(trials: TrialsByPoint, point: Point) -> list[dict[str, float]]:
    return [{} if result is None else memory_use(result) for result in trials.chosen(point)]
