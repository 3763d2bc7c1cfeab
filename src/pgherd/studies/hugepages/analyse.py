"""Analysis of the huge pages study: the comparison, and per page size TLB misses, page walks, page faults and page tables. Pure.

E9 is the published reference (Gary Little, n0derunner.com): PostgreSQL 11, 32 GB of memory, shared_buffers 16 GB, scale 500, 10 clients.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from pgherd.analysis.intervals import mean_interval
from pgherd.model.analysis import Analysis, Finding
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.studies.hugepages.options import NONE, HugepagesOptions
from pgherd.study.comparison import analyse as compare
from pgherd.study.comparison.blocks import complete_blocks, used_blocks
from pgherd.study.comparison.time_slices import VARIANT
from pgherd.study.findings import as_finding, missing
from pgherd.study.trial_schedule import throughput

SOURCE = "E9, Gary Little, n0derunner.com"
PUBLISHED_TPS = {"none": 62190.0, "2MB": 66864.0, "1GB": 69702.0}
"""Page size → transactions per second in E9, SELECT-only, one run of 600 s each."""
PUBLISHED_RESERVED = "8400 pages of 2 MB for shared_buffers of 16 GB"

MIN_EXTRA_FAULTS = 0.5
"""Extra page faults per transaction from which on the filling of page tables explains a part of the difference. A fault costs about a
microsecond, so half a fault is 1 % of a transaction of 50 µs."""
PER_TX = {
    "tlb_misses": ("tlb.load_misses", "tlb.store_misses"),
    "page_walks": ("tlb.walks",),
    "page_walk_cycles": ("tlb.walk_cycles",),
}
"""Finding → counters of the servers whose sum, per transaction, is its value."""
_UNITS = {"tlb_misses": "misses", "page_walks": "walks", "page_walk_cycles": "cycles"}
_MB = 2**20

PhaseValue = Callable[[PhaseResult], float | None]


def published_gain(kind: str) -> float | None:
    """Throughput gain over ordinary pages in E9, percent. None: E9 did not measure this page size."""
    return 100 * (PUBLISHED_TPS[kind] / PUBLISHED_TPS["none"] - 1) if kind in PUBLISHED_TPS else None


def published_text(kind: str) -> str | None:
    """The published gain with both throughputs and the source. None for ordinary pages and for sizes that E9 did not measure."""
    gain = published_gain(kind)
    if gain is None or kind == "none":
        return None
    return f"{gain:+.3g} % ({PUBLISHED_TPS['none']:,.0f} → {PUBLISHED_TPS[kind]:,.0f} tps; {SOURCE})"


def analyse(options: HugepagesOptions, results: Sequence[TrialResult]) -> Analysis:
    """Return the analysis of the comparison, with the table and the findings of each variant's pages put first."""
    comparison = compare.analyse(options, results)
    blocks = used_blocks(complete_blocks(options, results), options.max_blocks)
    finished = [result for block in blocks for result in block.all if result.error is None]
    variants = (options.baseline, *options.other_variants)
    by_variant = {variant: [result for result in finished if result.trial.point[VARIANT] == variant] for variant in variants}
    findings: dict[str, Finding] = {}
    rows: list[dict[str, Finding | str | int | float | None]] = []
    conclusions = {row["variant"]: row["conclusion"] for row in comparison.tables.get("comparison", []) if row.get("primary")}
    for variant in variants:
        cells = _page_findings(options, variant, by_variant[variant], comparison)
        findings |= {f"{name}:{variant}": finding for name, finding in cells.items()}
        rows.append(
            {"pages": variant, **cells, "conclusion": conclusions.get(variant, "baseline" if variant == options.baseline else None)}
        )
    return comparison.model_copy(
        update={
            "findings": {**findings, **comparison.findings},
            "tables": {"hugepages": rows, **comparison.tables},
            "warnings": [*comparison.warnings, *_warnings(options, findings, by_variant)],
        }
    )


def _page_findings(options: HugepagesOptions, variant: str, results: Sequence[TrialResult], comparison: Analysis) -> dict[str, Finding]:
    """Return the findings of one variant, by the name of their column."""
    kind = options.variant(variant).name
    reserved_size = options.page_sizes.get(kind)
    unit = f"pages of {kind}" if reserved_size else "pages"
    note = f"for one server; published: {PUBLISHED_RESERVED}" if reserved_size else "this variant reserves no pages"
    cells = {
        "throughput": _mean([throughput(result) for result in results], "tps", "no trial finished"),
        "gain": _gain(variant, options, comparison),
        "pages_reserved": Finding(
            value=options.reserved_pages(variant), unit=unit, method="postgres -C shared_memory_size_in_huge_pages", note=note
        ),
        "huge_page_share": _mean([_huge_page_share(result) for result in results], "share", "the server's memory map could not be read"),
    }
    for name, metrics in PER_TX.items():
        reason = options.counters_unavailable or "the processor's counters gave no value"
        values = [_per_tx(result, _server_sum(*metrics)) for result in results]
        cells[name] = _mean(values, f"{_UNITS[name]}/tx", f"unknown: {reason}", _left_out(results, *metrics))
    cells["page_walk_cycle_share"] = _mean(
        [_walk_share(result) for result in results], "share", f"unknown: {options.counters_unavailable or 'no such counter'}"
    )
    cells["page_faults"] = _mean(
        [_per_tx(result, _faults) for result in results], "faults/tx", "neither the cgroup nor /proc/vmstat could be read"
    )
    page_tables = [_average(result, _host_value("memory.page_tables")) for result in results]
    cells["page_tables"] = _mean([None if size is None else size / _MB for size in page_tables], "MB", "/proc/meminfo could not be read")
    return cells


def _gain(variant: str, options: HugepagesOptions, comparison: Analysis) -> Finding:
    """Return the change in throughput against the baseline in percent, with the published figure if the baseline is ordinary pages."""
    reference = published_text(options.variant(variant).name) if options.baseline == NONE else None
    experiment = "E9" if reference else None
    ratio = comparison.findings.get(f"ratio:{variant}:throughput")
    if variant == options.baseline:
        return missing("%", "the baseline")
    if ratio is None or ratio.value is None:
        return missing("%", ratio.note if ratio else "no comparison was possible", experiment=experiment, published=reference)
    percent = {name: None if (end := getattr(ratio, name)) is None else 100 * (end - 1) for name in ("value", "low", "high")}
    return ratio.model_copy(update={**percent, "unit": "%", "experiment": experiment, "published": reference})


def _mean(values: Sequence[float | None], unit: str, absent: str, note: str = "") -> Finding:
    present = [value for value in values if value is not None]
    if not present:
        return missing(unit, absent)
    return as_finding(mean_interval(present), unit, note, method="mean over trials, Student's t interval")


def _server_sum(*metrics: str) -> PhaseValue:
    """Return a function that adds up the servers' rates of these metrics. Its result is None if no server has the first metric."""

    def server_sum(phase: PhaseResult) -> float | None:
        servers = _servers_with(metrics[0], phase)
        return sum(values.get(metric, 0.0) for values in servers for metric in metrics) if servers else None

    return server_sum


def _servers_with(metric: str, phase: PhaseResult) -> list[dict[str, float]]:
    return [values for entity, values in phase.metrics.items() if entity.startswith("server:") and metric in values]


def _left_out(results: Sequence[TrialResult], *metrics: str) -> str:
    """Return the note about metrics that a server with the first one lacks, so that sums are without them. Empty: there is none."""
    servers = [values for result in results for phase in result.phases for values in _servers_with(metrics[0], phase)]
    lacking = [metric for metric in metrics[1:] if any(metric not in values for values in servers)]
    return f"without {', '.join(lacking)}, which the processor's counters did not give" if lacking else ""


def _faults(phase: PhaseResult) -> float | None:
    """Return the page faults per second of the containers, or of the whole host if there are no cgroups."""
    faults = [
        values["memory.page_faults"]
        for entity, values in phase.metrics.items()
        if entity.startswith("container:") and "memory.page_faults" in values
    ]
    return sum(faults) if faults else _host_value("vm.pgfault")(phase)


def _host_value(metric: str) -> PhaseValue:
    return lambda phase: phase.metrics.get("host", {}).get(metric)


def _average(result: TrialResult, phase_value: PhaseValue) -> float | None:
    """Return the mean over the phases, weighted by their lengths. None if a phase has no value."""
    seconds = sum(phase.seconds for phase in result.phases)
    values = [(phase_value(phase), phase.seconds) for phase in result.phases]
    if seconds <= 0 or any(value is None for value, _ in values):
        return None
    return sum(value * length for value, length in values if value is not None) / seconds


def _per_tx(result: TrialResult, phase_value: PhaseValue) -> float | None:
    rate, tps = _average(result, phase_value), throughput(result)
    return None if rate is None or tps <= 0 else rate / tps


def _huge_page_share(result: TrialResult) -> float | None:
    """Return the share of the servers' used shared memory that huge pages hold."""
    huge, mapped = (_average(result, _server_sum(metric)) for metric in ("pages.huge", "pages.mapped"))
    return None if huge is None or not mapped else huge / mapped


def _walk_share(result: TrialResult) -> float | None:
    """Return the share of the servers' CPU cycles in which the processor walked page tables for data."""
    walk_cycles, cycles = (_average(result, _server_sum(metric)) for metric in ("tlb.walk_cycles", "tlb.cycles"))
    return None if walk_cycles is None or not cycles else walk_cycles / cycles


def _warnings(options: HugepagesOptions, findings: dict[str, Finding], by_variant: dict[str, list[TrialResult]]) -> list[str]:
    warnings = []
    if options.counters_unavailable:
        warnings.append(f"TLB misses and page walks are unknown: {options.counters_unavailable}")
    faults = {variant: value for variant in by_variant if (value := findings[f"page_faults:{variant}"].value) is not None}
    base = faults.get(options.baseline)
    fewest = min(faults, key=lambda variant: faults[variant], default="")
    if base is not None and base - faults[fewest] >= MIN_EXTRA_FAULTS:
        warnings.append(
            f"A part of the difference is the filling of page tables by new connections: {base:.2g} page faults per transaction with "
            f"'{options.baseline}', {faults[fewest]:.2g} with '{fewest}'. A longer --warmup excludes it"
        )
    baseline = options.of(options.baseline)
    if any(options.reserved_pages(variant) for variant in options.other_variants):
        limit = ", so each container's limit is lowered by its server's pages" if baseline.get("container_memory") else ""
        warnings.append(f"cgroups do not count reserved huge pages{limit}. The memory compared is the charged memory plus the pages in use")
    seconds = [phase.seconds for results in by_variant.values() for result in results for phase in result.phases]
    if seconds and options.baseline == NONE and any(published_text(options.variant(variant).name) for variant in options.other_variants):
        shared_buffers = baseline.get("settings", {}).get("shared_buffers", "the default")
        warnings.append(
            "The published gains are from single runs of 600 s with shared_buffers of 16 GB. "
            f"Trials here took {statistics.median(seconds):.3g} s with {shared_buffers}. Larger buffers miss the TLB more"
        )
    return warnings
