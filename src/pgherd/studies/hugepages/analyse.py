"""What the comparison of pages says, and why: pages reserved and seen, TLB misses, page walks, page faults, page tables. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from pgherd.analysis.intervals import mean_interval
from pgherd.model.finding import Analysis, Finding
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.studies.hugepages import published
from pgherd.studies.hugepages.options import NONE, HugepagesOptions
from pgherd.study.comparison import analyse as compare
from pgherd.study.comparison.blocks import complete_blocks, used_blocks
from pgherd.study.comparison.time_slices import VARIANT
from pgherd.study.findings import as_finding, missing
from pgherd.study.trial_schedule import throughput

FILLING = 0.5
"""More page faults per transaction from which on a part of the difference is the filling of page tables, not their use: a fault costs
about a microsecond, so this many are a per cent of a transaction of 50 µs."""
PER_TX = {
    "tlb_misses": ("tlb.load_misses", "tlb.store_misses"),
    "walks": ("tlb.walks",),
    "walk_cycles": ("tlb.walk_cycles",),
}
"""Finding → counters of the servers that are added up for it, per transaction."""
_UNITS = {"tlb_misses": "misses", "walks": "walks", "walk_cycles": "cycles", "faults": "faults"}
_MB = 2**20

Take = Callable[[PhaseResult], float | None]


def analyse(options: HugepagesOptions, results: Sequence[TrialResult]) -> Analysis:
    """The comparison's own analysis, with what is known of the pages of each arm before its tables."""
    found = compare.analyse(options, results)
    blocks = used_blocks(complete_blocks(options, results), options.most)
    used = [result for block in blocks for result in block.all if result.error is None]
    sides = (options.baseline, *options.variants)
    by_side = {side: [result for result in used if result.trial.point[VARIANT] == side] for side in sides}
    findings: dict[str, Finding] = {}
    rows: list[dict[str, Finding | str | int | float | None]] = []
    verdicts = {row["variant"]: row["verdict"] for row in found.tables.get("comparison", []) if row.get("primary")}
    for side in sides:
        own = _of(options, side, by_side[side], found)
        findings |= {f"{name}:{side}": finding for name, finding in own.items()}
        rows.append({"pages": side, **own, "verdict": verdicts.get(side, "baseline" if side == options.baseline else None)})
    return found.model_copy(
        update={
            "findings": {**findings, **found.findings},
            "tables": {"hugepages": rows, **found.tables},
            "warnings": [*found.warnings, *_warnings(options, findings, by_side)],
        }
    )


def _of(options: HugepagesOptions, side: str, results: Sequence[TrialResult], found: Analysis) -> dict[str, Finding]:
    """All that is known of one arm."""
    size = options.page_sizes.get(options.arm(side).name)
    unit = f"pages of {options.arm(side).name}" if size else "pages"
    note = "no kind of pages that is reserved" if not size else f"for one server; published: {published.RESERVED}"
    per_tx: dict[str, Take] = {name: _servers(*metrics) for name, metrics in PER_TX.items()}
    own = {
        "throughput": _mean([throughput(result) for result in results], "tps", "nothing was measured"),
        "gain": _gain(side, options, found),
        "reserved": Finding(value=options.reserved(side), unit=unit, method="postgres -C shared_memory_size_in_huge_pages", note=note),
        "backed": _mean([_backed(result) for result in results], "share", "the server's memory map could not be read"),
    }
    for name, take in per_tx.items():
        reason = options.uncounted or "the processor's counters gave no number"
        own[name] = _mean([_per_tx(result, take) for result in results], f"{_UNITS[name]}/tx", f"unknown: {reason}")
    own["walking"] = _mean([_walking(result) for result in results], "share", f"unknown: {options.uncounted or 'no such counter'}")
    own["faults"] = _mean(
        [_per_tx(result, _faults) for result in results], "faults/tx", "neither the control group nor /proc/vmstat was seen"
    )
    tables = [_average(result, _host("memory.page_tables")) for result in results]
    own["page_tables"] = _mean([None if one is None else one / _MB for one in tables], "MB", "/proc/meminfo was not seen")
    return own


def _gain(side: str, options: HugepagesOptions, found: Analysis) -> Finding:
    """How much more throughput than the baseline, in percent, beside the published figure."""
    beside = published.words(options.arm(side).name) if options.baseline == NONE else None
    experiment = "E9" if beside else None
    ratio = found.findings.get(f"ratio:{side}:throughput")
    if side == options.baseline:
        return missing("%", "the baseline")
    if ratio is None or ratio.value is None:
        return missing("%", ratio.note if ratio else "nothing could be compared", experiment=experiment, published=beside)
    percent = {name: None if (end := getattr(ratio, name)) is None else 100 * (end - 1) for name in ("value", "low", "high")}
    return ratio.model_copy(update={**percent, "unit": "%", "experiment": experiment, "published": beside})


def _mean(values: Sequence[float | None], unit: str, absent: str) -> Finding:
    seen = [value for value in values if value is not None]
    if not seen:
        return missing(unit, absent)
    return as_finding(mean_interval(seen), unit, method="mean over trials, Student's t interval")


def _servers(*metrics: str) -> Take:
    """The sum of the servers' rates of these metrics; None where no server has the first."""

    def take(phase: PhaseResult) -> float | None:
        servers = [found for entity, found in phase.metrics.items() if entity.startswith("server:") and metrics[0] in found]
        return sum(found.get(metric, 0.0) for found in servers for metric in metrics) if servers else None

    return take


def _faults(phase: PhaseResult) -> float | None:
    """Page faults per second of the containers, or of the whole host where there are no control groups."""
    seen = [found["memory.fault"] for entity, found in phase.metrics.items() if entity.startswith("container:") and "memory.fault" in found]
    return sum(seen) if seen else _host("vm.pgfault")(phase)


def _host(metric: str) -> Take:
    return lambda phase: phase.metrics.get("host", {}).get(metric)


def _average(result: TrialResult, take: Take) -> float | None:
    """A metric's mean over the phases' windows."""
    seconds = sum(phase.seconds for phase in result.phases)
    parts = [(take(phase), phase.seconds) for phase in result.phases]
    if seconds <= 0 or any(part is None for part, _ in parts):
        return None
    return sum(part * length for part, length in parts if part is not None) / seconds


def _per_tx(result: TrialResult, take: Take) -> float | None:
    rate, done = _average(result, take), throughput(result)
    return None if rate is None or done <= 0 else rate / done


def _backed(result: TrialResult) -> float | None:
    """The share of the servers' shared memory in use that lies on huge pages."""
    huge, mapped = (_average(result, _servers(metric)) for metric in ("pages.huge", "pages.mapped"))
    return None if huge is None or not mapped else huge / mapped


def _walking(result: TrialResult) -> float | None:
    """The share of the servers' cycles in which page tables were walked for data."""
    walking, cycles = (_average(result, _servers(metric)) for metric in ("tlb.walk_cycles", "tlb.cycles"))
    return None if walking is None or not cycles else walking / cycles


def _warnings(options: HugepagesOptions, findings: dict[str, Finding], by_side: dict[str, list[TrialResult]]) -> list[str]:
    said = []
    if options.uncounted:
        said.append(f"TLB misses and page walks are unknown: {options.uncounted}")
    faults = {side: value for side in by_side if (value := findings[f"faults:{side}"].value) is not None}
    base = faults.get(options.baseline)
    fewest = min(faults, key=lambda side: faults[side], default="")
    if base is not None and base - faults[fewest] >= FILLING:
        said.append(
            f"There were {base:.2g} page faults per transaction with '{options.baseline}' and {faults[fewest]:.2g} with '{fewest}': new "
            "connections were still filling their page tables, and a part of the difference is that; a longer --ramp leaves it out"
        )
    if any(options.reserved(side) for side in options.variants):
        limit = "; so each container's limit was lowered by its server's" if options.of(options.baseline).get("container_memory") else ""
        said.append(f"No control group counts reserved huge pages{limit}. The memory compared is what was charged and these pages in use")
    seconds = [phase.seconds for results in by_side.values() for result in results for phase in result.phases]
    if seconds and options.baseline == NONE and any(published.words(options.arm(side).name) for side in options.variants):
        said.append(
            f"Published are single runs of 600 s with shared_buffers of 16 GB; ours are trials of {statistics.median(seconds):.3g} s with "
            f"{options.of(options.baseline).get('settings', {}).get('shared_buffers', 'the default')}: larger buffers miss the TLB more"
        )
    return said
