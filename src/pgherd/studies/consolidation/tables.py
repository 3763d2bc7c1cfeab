"""Tables of a consolidation: layouts, periods, OOM kills, memory, and the published references of E4, E5 and E6. Pure.

Reference: VMware, "VMware vFabric Postgres 9.2: Performance and Best Practices", vSphere 5.1. DBT-2 with 30 warehouses per database,
30 and 2 clients, 4 periods of 10 minutes, 3 vCPUs and 8 or 4 GB per virtual machine, 8 cores.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pgherd.analysis import guest_memory_breakdown, memory_accounting, overcommitment
from pgherd.model.analysis import Finding
from pgherd.model.capabilities import capabilities_of
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.consolidation.options import (
    BALLOON,
    DEDICATED,
    PLAIN,
    SHARED_CONTAINER,
    SHARED_DATABASE,
    SHARED_SERVER,
    ConsolidationOptions,
)
from pgherd.studies.consolidation.propose import points
from pgherd.studies.consolidation.trials import ConsolidationTrial, TrialsByPoint, of_containers, shares_cpu, summed
from pgherd.study.findings import as_finding, labelled_name, missing
from pgherd.study.trial_schedule import Point

Row = dict[str, Finding | str | int | float | None]
MB = 2**20

# ---- published references

SOURCE = "E4, VMware, vFabric Postgres 9.2: Performance and Best Practices"
SOURCE_E5 = "E5, VMware, vFabric Postgres 9.2: Performance and Best Practices; virtual machines"
SOURCE_E6 = "E6, VMware, vFabric Postgres 9.2: Performance and Best Practices"


@dataclass(frozen=True)
class PublishedBaseline:
    """One undercommitted layout in E4: new orders per minute, CPU used (100 % is one core), new orders per minute and used core."""

    nopm: float
    cpu: float
    per_core: float


BASELINES: Mapping[tuple[int, str], PublishedBaseline] = {
    (25, SHARED_SERVER): PublishedBaseline(45303.41, 297.66, 15219.85),
    (25, SHARED_CONTAINER): PublishedBaseline(40790.49, 282.43, 14442.69),
    (25, PLAIN): PublishedBaseline(52647.45, 370.95, 14192.60),
    (25, BALLOON): PublishedBaseline(52398.71, 372.95, 14049.79),
    (75, SHARED_SERVER): PublishedBaseline(44595.37, 296.20, 15055.83),
    (75, SHARED_CONTAINER): PublishedBaseline(44257.74, 293.73, 15067.49),
    (75, PLAIN): PublishedBaseline(58993.92, 383.04, 15401.50),
    (75, BALLOON): PublishedBaseline(59295.53, 389.49, 15223.89),
}
"""(shared buffers in percent, layout) → measured values."""

CV: Mapping[tuple[int, str], float] = {(25, PLAIN): 3.8, (75, PLAIN): 1.1, (25, BALLOON): 5.2, (75, BALLOON): 1.0}
"""(shared buffers in percent, layout) → coefficient of variation across periods, %."""

READINGS_E5 = (
    (25, "separate containers hold up better beyond 20 %; at 55 % they are at 3 × the others (+200 %); the database balloon adds nothing"),
    (75, "at 55 % separate containers are at +60 % with the guest's balloon alone, and at +140 % with the database balloon too"),
)
"""(shared buffers in percent, reading of E5's curves)."""

OVERCOMMIT_E5 = 0.55
"""Overcommitment level of the readings of E5's curves."""
_RETAINED_RATIOS: Mapping[tuple[int, str], str] = {
    (25, PLAIN): "about 3",
    (25, BALLOON): "about 3",
    (75, PLAIN): "about 1.6",
    (75, BALLOON): "about 2.4",
}
_CORRECTED_RATIOS: Mapping[str, str] = {SHARED_SERVER: "about 1", SHARED_CONTAINER: "slightly above 1"}
_BALLOON_RATIOS = {25: "about 1", 75: "about 1.5"}

TENANTS = 10
"""Tenants in bexhoma's comparison of a container, a database and a schema for each."""
EDBT = "EDBT 2026"
_SOURCE_EDBT = "Erdelt and Rabl, Benchmarking Multi-Tenant Architectures in PostgreSQL, doi:10.48786/edbt.2026.46"
READING_OF_TENANTS = (
    "ten tenants: containers reached 2.7 times the throughput of databases and 3.3 times that of schemas, with 1.5 times the memory "
    f"({_SOURCE_EDBT})"
)
TENANT_RATIOS: Mapping[str, float] = {SHARED_DATABASE: 1.0, SHARED_SERVER: 3.3 / 2.7, PLAIN: 3.3}
"""Layout → throughput relative to that of schemas."""

OVERCOMMIT_E6 = 0.3
"""Overcommitment level at which E6 examined the memory."""

READINGS_E6 = (
    (25, "at 30 % separate containers balloon about 8 % more memory, and compress and swap less than half as much"),
    (75, "at 30 % the database balloon cuts another 20 % of what is compressed and swapped"),
)
"""(shared buffers in percent, reading of E6's memory over time)."""


def published_retained_ratio(percent: int, layout: str, level: float) -> str | None:
    """Return E5's ratio of the retained throughput of separate containers to that of shared ones. None: not published."""
    text = _RETAINED_RATIOS.get((percent, layout)) if level == OVERCOMMIT_E5 else None
    return None if text is None else f"{text} ({SOURCE_E5})"


def published_balloon_ratio(percent: int, level: float) -> str | None:
    """Return E5's ratio of throughput with the database balloon to that without. None: not published."""
    text = _BALLOON_RATIOS.get(percent) if level == OVERCOMMIT_E5 else None
    return None if text is None else f"{text} ({SOURCE_E5})"


def published_swapped(percent: int, level: float) -> str | None:
    """Return E6's ratio of memory swapped by separate containers to that of a shared one. None: not published."""
    return f"below 0.5 ({SOURCE_E6})" if (percent, level) == (25, OVERCOMMIT_E6) else None


def published_swapped_with_balloon(percent: int, level: float) -> str | None:
    """Return E6's ratio of memory swapped with the database balloon to that without. None: not published."""
    return f"about 0.8 ({SOURCE_E6})" if (percent, level) == (75, OVERCOMMIT_E6) else None


def published_ratio(percent: int, layout: str, base_layout: str) -> str | None:
    """Return E4's ratio of the throughputs of two layouts. None: one of them was not measured."""
    baseline, base = BASELINES.get((percent, layout)), BASELINES.get((percent, base_layout))
    return None if baseline is None or base is None else f"{baseline.nopm / base.nopm:.3f} ({SOURCE})"


def published_tenant_ratio(options: ConsolidationOptions, layout: str, base_layout: str) -> str | None:
    """Return bexhoma's ratio of the throughputs of two layouts. None: not published, or for another number of databases."""
    if options.databases != TENANTS or not {layout, base_layout} <= set(TENANT_RATIOS):
        return None
    return f"{TENANT_RATIOS[layout] / TENANT_RATIOS[base_layout]:.2g} ({EDBT}, {_SOURCE_EDBT})"


def published_corrected_ratio(layout: str, base_layout: str) -> str | None:
    """Return the same ratio with E4's correction, in E4's words. None: not published."""
    text = _CORRECTED_RATIOS.get(base_layout) if layout in DEDICATED else None
    return None if text is None else f"{text} ({SOURCE})"


def published_buffers_gain(layout: str) -> float | None:
    """Return E4's ratio of throughput with 75 % buffers to that with 25 %. None: not measured."""
    low, high = BASELINES.get((25, layout)), BASELINES.get((75, layout))
    return None if low is None or high is None else high.nopm / low.nopm


_NOT_JUDGED = "for reference only: other hardware and workload"


def published_rows(options: ConsolidationOptions) -> list[Row]:
    """Return E4's table for the workload orders, readings of E5 and E6 if memory is overcommitted, and bexhoma's if there are schemas.

    ``judged`` has the reason why the results are not judged by these readings.
    """
    rows = _published_by_vmware(options) if options.enters_orders else []
    if SHARED_DATABASE in options.runnable:
        rows += [{"experiment": EDBT, "layout": layout, "ratio_to_schemas": round(ratio, 2)} for layout, ratio in TENANT_RATIOS.items()]
        rows.append({"experiment": EDBT, "reading": READING_OF_TENANTS, "judged": _NOT_JUDGED})
    return rows


def _published_by_vmware(options: ConsolidationOptions) -> list[Row]:
    rows: list[Row] = [
        {
            "experiment": "E4",
            "shared_buffers_percent": percent,
            "layout": layout,
            "nopm": baseline.nopm,
            "cpu_percent": baseline.cpu,
            "throughput_per_core": baseline.per_core,
            "cv": CV.get((percent, layout)),
        }
        for (percent, layout), baseline in BASELINES.items()
    ]
    own_kernel = capabilities_of(options.runtime).own_kernel
    reason = _NOT_JUDGED if own_kernel else "no: containers share one kernel"
    for experiment, readings in (("E5", READINGS_E5), ("E6", READINGS_E6)) if any(options.overcommit) else ():
        rows += [
            {"experiment": experiment, "shared_buffers_percent": percent, "reading": text, "judged": reason}
            for percent, text in readings
            if percent in options.shared_buffers_percent
        ]
    return rows


# ---- layouts and periods

CONFIDENCE = 0.95
NOT_RUN = "no trial of it finished"
OOM_KILLED = "OOM kill of servers"
_CHARGED = "all memory charged to the containers, with shared memory and page cache"
_NO_CPU = "the CPU of the containers was not measured; runtime cgroup measures it"
_NO_MEMORY = "the memory of the containers was not measured; runtime cgroup measures it"


def mean(values: Sequence[float | None], unit: str, absent: str, note: str = "") -> Finding:
    """Return the mean over blocks as a finding. Without a value: a finding with the reason ``absent``."""
    present = [value for value in values if value is not None]
    return as_finding(overcommitment.block_mean(present), unit, note) if present else missing(unit, absent)


def layout_rows(options: ConsolidationOptions, trials: TrialsByPoint) -> list[Row]:
    """Return a row for each combination of buffers, level and layout, with the columns of E4's table and more."""
    rows: list[Row] = []
    for point in points(options):
        rows.append(_layout_row(options, trials, point))
    for layout, reason in options.unavailable.items():
        rows.append({"layout": layout, "throughput": missing(options.unit, f"not available: {reason}")})
    return rows


def _layout_row(options: ConsolidationOptions, trials: TrialsByPoint, point: Point) -> Row:
    layout, percent, level = str(point["layout"]), int(point["shared_buffers_percent"]), float(point["overcommit"])
    results = trials.all_at(point)
    killed = sum(bool(result.oom_kills) for result in results)
    absent = OOM_KILLED if killed else NOT_RUN
    died = trials.blocks_died(point)
    dead = f"{died} of {options.repeats}" if died else None
    survivors = f"{dead} blocks died of OOM kills: the mean of the others" if died else ""
    published = BASELINES.get((percent, layout)) if level == 0 and options.enters_orders else None
    published_cv = CV.get((percent, layout))
    finished = any(trial is not None for trial in trials.by_block(point))
    no_cpu, no_memory = (_NO_CPU, _NO_MEMORY) if finished else (absent, absent)
    no_correction = "each database has dedicated vCPUs" if layout in DEDICATED else "the vCPUs of a container are not limited"

    def cell(value_of: Callable[[ConsolidationTrial], float | None], unit: str, reason: str = absent, note: str = "") -> Finding:
        return mean(trials.values(point, value_of), unit, reason, note)

    def with_published(finding: Finding, text: str | None) -> Finding:
        return finding if text is None else finding.model_copy(update={"experiment": "E4", "published": text})

    row: Row = {
        "shared_buffers_percent": percent,
        "overcommit": level,
        "layout": layout,
        **({"memory_available": round(options.available_memory(level) / 2**20) if level > 0 else None} if any(options.overcommit) else {}),
        "throughput": with_published(
            cell(lambda trial: trial.throughput, options.unit, note=survivors),
            f"{published.nopm:,.2f} {options.unit}" if published else None,
        ),
        "vcpu_corrected": cell(lambda trial: trial.vcpu_corrected, options.unit, note="quiet databases' throughput counts twice, as in E4")
        if shares_cpu(options, layout)
        else missing(options.unit, f"no correction: {no_correction}"),
        "ratio": ratio_to_first(options, trials, point),
        **({"vcpu_corrected_ratio": ratio_to_first(options, trials, point, correct=True)} if different_vcpus(options) else {}),
        **({"relative_to_undercommitted": relative_to_undercommitted(options, trials, point)} if any(options.overcommit) else {}),
        "cv": with_published(
            cell(lambda trial: None if trial.cv is None else 100 * trial.cv, "%"),
            f"{published_cv} %" if published and published_cv is not None else None,
        ),
        "cpu_percent": with_published(
            cell(lambda trial: None if trial.cores_used is None else 100 * trial.cores_used, "%", no_cpu),
            f"{published.cpu:,.2f} %" if published else None,
        ),
        "throughput_per_core": with_published(
            cell(lambda trial: trial.throughput_per_core, f"{options.unit}/core", no_cpu),
            f"{published.per_core:,.2f} {options.unit}/core" if published else None,
        ),
        "memory_charged": cell(lambda trial: None if trial.memory is None else trial.memory / MB, "MB", no_memory, _CHARGED),
        "throughput_per_gb": cell(lambda trial: trial.throughput_per_gb, f"{options.unit}/GB", no_memory, _CHARGED),
        "trials": len(results),
        "tainted_trials": sum(result.tainted for result in results),
        "trials_with_oom_kill": killed,
        "blocks_died": dead,
    }
    return row


def different_vcpus(options: ConsolidationOptions) -> bool:
    """Return True if some layouts share vCPUs and others do not. A ratio of their throughputs then is one of CPUs, too."""
    return len({shares_cpu(options, layout) for layout in options.runnable}) > 1


def ratio_to_first(
    options: ConsolidationOptions, trials: TrialsByPoint, point: Point, *, correct: bool = False, confidence: float = CONFIDENCE
) -> Finding:
    """Return a layout's throughput over the first layout's at the same buffers and level, by block.

    ``correct`` applies E4's correction to those of the two that share vCPUs.
    """
    layout, first = str(point["layout"]), options.runnable[0]
    if layout == first:
        return missing("ratio", "the first layout")
    reference, experiment = None, None
    if float(point["overcommit"]) == 0:
        percent = int(point["shared_buffers_percent"])
        reference, experiment = None if correct else published_tenant_ratio(options, layout, first), EDBT
        if reference is None and options.enters_orders:
            reference = published_corrected_ratio(layout, first) if correct else published_ratio(percent, layout, first)
            experiment = "E4"

    def values(of_layout: str) -> list[float | None]:
        corrects = correct and shares_cpu(options, of_layout)
        return trials.values({**point, "layout": of_layout}, lambda trial: trial.vcpu_corrected if corrects else trial.throughput)

    experiment = experiment if reference else None
    ratio = overcommitment.block_ratio(values(layout), values(first), confidence)
    if ratio is None:
        return missing("ratio", "no block has a value of both", experiment=experiment, published=reference)
    note = f"against {first}" + (", with E4's correction for shared vCPUs" if correct else "")
    return as_finding(ratio, "ratio", note, experiment=experiment, published=reference)


def relative_to_undercommitted(options: ConsolidationOptions, trials: TrialsByPoint, point: Point) -> Finding:
    """Return the throughput over that of the same layout undercommitted, by block (E5)."""
    if float(point["overcommit"]) == 0:
        return missing("ratio", "the baseline")
    ratio = overcommitment.block_ratio(trials.values(point, throughput_of), trials.values({**point, "overcommit": 0.0}, throughput_of))
    if ratio is None:
        killed = any(result.oom_kills for result in trials.all_at(point))
        return missing("ratio", OOM_KILLED if killed else "no block has a value of both")
    return as_finding(ratio, "ratio", "against the same layout undercommitted")


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
                        "shared_buffers_percent": point["shared_buffers_percent"],
                        "overcommit": point["overcommit"],
                        "layout": point["layout"],
                        "period": period + 1,
                        "database": f"DB_{database + 1}",
                        "clients": options.plan[database][period],
                        "throughput": mean(throughputs, options.unit, NOT_RUN),
                        "cpu_percent": mean(cpu, "%", _NO_CPU, "of all containers") if database == 0 else None,
                    }
                )
    return rows


def kill_rows(trials: TrialsByPoint) -> list[Row]:
    """Return the OOM kills: container, processes, trial and ``time`` (seconds from its start)."""
    rows: list[Row] = []
    for result in trials.results:
        for kill in result.oom_kills:
            rows.append(
                {
                    "trial": result.trial.key(),
                    "container": kill.container,
                    "processes": kill.processes,
                    "process_names": ", ".join(kill.names) or None,
                    "limit": kill.limit,
                    "time": round(kill.time - result.started, 1),
                    "message": (result.error or "").split("\n")[0],
                }
            )
    return rows


# ---- memory (E6)

# Values are means over a trial's periods of the sum over its containers, then over blocks. Swap and paging are those of the whole host.
# Memory in a database's balloon is missing from its container's shared memory and is never added to it. For its host a guest is one
# process: all memory of the guest, including shared buffers, is private memory of that process.

_SERVER, _ZRAM, _GUEST, _HOST = "server:", "zram:", "guest:", "host"
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
    "compressed_size": "MB",
    "compression_ratio": "ratio",
    "refaults": "pages/s",
    "swapped_in": "pages/s",
    "swapped_out": "pages/s",
    "memory_pressure": "%",
}
"""Quantity → unit."""
_NOTES = {
    "shared": "mostly shared buffers",
    "page_cache": "without shared memory",
    "ballooned": "in the database balloons; not part of the shared memory",
    "compressed": "in compressed swap of the host, before compression",
    "compressed_size": "host memory used by compressed swap, in addition to the containers' memory",
    "refaults": "file and anonymous pages that were read again after eviction",
    "swapped_in": "of the whole host",
    "swapped_out": "of the whole host",
    "memory_pressure": "memory pressure (PSI some) of the container with the most",
}
_GUEST_NOTES = {
    "page_cache": "host files of the hypervisors; the guests' page cache is part of their private memory",
    "private": "guest memory, including shared buffers, and the hypervisors' memory",
    "ballooned": "returned by the databases to their guests' kernels; not to be added to the guest balloons",
    "guest_balloons": "in the guest kernels' balloons; the table guest_memory lists each guest",
    "refaults": "host file pages and guest memory that were read again after eviction",
    "memory_pressure": "memory pressure (PSI some) of the hypervisor with the most",
}
"""Notes that differ if the containers are guests. Their shared memory is close to zero and is not shown."""


def memory_use(result: TrialResult) -> dict[str, float]:
    """Return the means over a trial's periods, in the units of ``UNITS``. Quantities that a period lacks are absent."""
    periods = [_phase_memory(phase, result.trial) for phase in result.phases]
    complete = [name for name in UNITS if periods and all(name in period for period in periods)]
    use = {name: statistics.fmean(period[name] for period in periods) for name in complete}
    if use.get("compressed", 0.0) >= MIN_SWAPPED_MB and "compressed_size" in use:
        ratio = memory_accounting.compression_ratio(use["compressed"], use["compressed_size"])
        use |= {} if ratio is None else {"compression_ratio": ratio}
    return use


def _phase_memory(phase: PhaseResult, trial: Trial) -> dict[str, float]:
    containers = of_containers(phase, trial)
    servers, zram = (_with_prefix(phase, prefix).values() for prefix in (_SERVER, _ZRAM))
    balloons = [guest_memory_breakdown.from_means(phase.metrics, entity.removeprefix(_GUEST)) for entity in _with_prefix(phase, _GUEST)]
    guest_balloons = [balloon.ballooned / MB for balloon in balloons if balloon is not None]
    host = phase.metrics.get(_HOST, {})
    shared, files = summed(containers, "memory.shmem"), summed(containers, "memory.file")
    refaults = [level for kind in ("file", "anon") if (level := summed(containers, f"memory.refaults_{kind}")) is not None]
    pressures = [metrics["psi.memory.some"] for metrics in containers if "psi.memory.some" in metrics]
    values = {
        "charged": summed(containers, "memory.usage", MB),
        "shared": None if shared is None else shared / MB,
        "page_cache": None if shared is None or files is None else max(files - shared, 0.0) / MB,
        "private": summed(containers, "memory.anon", MB),
        "ballooned": summed(servers, "balloon.bytes", MB),
        "guest_balloons": sum(guest_balloons) if guest_balloons and len(guest_balloons) == len(balloons) else None,
        "swapped": summed(containers, "memory.swap", MB),
        "compressed": _first(summed(zram, "zram.orig_data", MB), summed(containers, "memory.zswapped", MB)),
        "compressed_size": _first(summed(zram, "zram.mem_used", MB), summed(containers, "memory.zswap", MB)),
        "refaults": sum(refaults) if refaults else None,
        "swapped_in": host.get("vm.pswpin"),
        "swapped_out": host.get("vm.pswpout"),
        "memory_pressure": 100 * max(pressures) if pressures else None,
    }
    return {name: value for name, value in values.items() if value is not None}


def _with_prefix(phase: PhaseResult, prefix: str) -> dict[str, Mapping[str, float]]:
    return {entity: metrics for entity, metrics in phase.metrics.items() if entity.startswith(prefix)}


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def memory_rows(options: ConsolidationOptions, trials: TrialsByPoint) -> list[Row]:
    """Return a row for each combination of buffers, level and layout with a finished trial that measured the containers' memory."""
    guests = capabilities_of(options.runtime).own_kernel
    units = {name: unit for name, unit in UNITS.items() if not (guests and name == "shared")}
    notes = {**_NOTES, **(_GUEST_NOTES if guests else {})}
    rows: list[Row] = []
    for point in points(options):
        blocks = _memory_by_block(trials, point)
        if not any("charged" in use for use in blocks):
            continue
        row: Row = {"shared_buffers_percent": point["shared_buffers_percent"], "overcommit": point["overcommit"], "layout": point["layout"]}
        for name, unit in units.items():
            if any(name in use for use in blocks):
                row[name] = mean([use.get(name) for use in blocks], unit, _NOT_MEASURED, notes.get(name, ""))
        rows.append(row)
    return rows


def swap_findings(options: ConsolidationOptions, trials: TrialsByPoint) -> dict[str, Finding]:
    """Return ratios of swapped memory at each level, by block, as E6 read them off its curves.

    They compare separate containers with the first shared one, and the database balloon with its absence.
    """
    findings: dict[str, Finding] = {}
    shared = options.shared_of_e4
    for point in points(options):
        layout, percent, level = str(point["layout"]), int(point["shared_buffers_percent"]), float(point["overcommit"])
        if not level or layout not in DEDICATED:
            continue
        labels = {"shared_buffers_percent": percent, "overcommit": level}
        if shared is not None:
            reference = published_swapped(percent, level) if options.enters_orders else None
            findings |= _swap_ratio(labelled_name("swapped_ratio", layout=layout, **labels), trials, point, shared, reference)
        if layout == BALLOON and PLAIN in options.runnable:
            reference = published_swapped_with_balloon(percent, level) if options.enters_orders else None
            findings |= _swap_ratio(labelled_name("swapped_balloon_ratio", **labels), trials, point, PLAIN, reference)
    return findings


def _swap_ratio(name: str, trials: TrialsByPoint, point: Point, base_layout: str, reference: str | None) -> dict[str, Finding]:
    """Return the finding of a ratio over another layout.

    Blocks in which the base layout swapped less than ``MIN_SWAPPED_MB`` are left out. Blocks in which only this layout did are not,
    because that is a result.
    """
    pairs = zip(_swapped(trials, point), _swapped(trials, {**point, "layout": base_layout}), strict=True)
    used = [(value, base) for value, base in pairs if value is not None and base is not None and base >= MIN_SWAPPED_MB]
    ratio = overcommitment.block_ratio([max(value, MIN_SWAPPED_MB) for value, _ in used], [base for _, base in used])
    if ratio is None:
        return {}
    note = f"swapped out of all containers, {point['layout']} over {base_layout}"
    raised = sum(value < MIN_SWAPPED_MB for value, _ in used)
    if raised:
        note += f"; at most: in {raised} of {len(used)} blocks it was below {MIN_SWAPPED_MB:g} MB, and counts as that"
    return {name: as_finding(ratio, "ratio", note, experiment="E6" if reference else None, published=reference)}


def _swapped(trials: TrialsByPoint, point: Point) -> list[float | None]:
    return [use.get("swapped") for use in _memory_by_block(trials, point)]


def _memory_by_block(trials: TrialsByPoint, point: Point) -> list[dict[str, float]]:
    return [{} if result is None else memory_use(result) for result in trials.chosen(point)]
