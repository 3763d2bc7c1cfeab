"""Memory overcommitment of a host by a consolidation run: how far working sets may exceed its memory, by layout. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.analysis.host_class import ResourceCapacity
from pgherd.analysis.host_measurement import HostMeasurement, HostRun
from pgherd.model.analysis import Finding
from pgherd.model.errors import UsageError
from pgherd.studies.consolidation.options import BALLOON, PLAIN, ConsolidationOptions
from pgherd.studies.consolidation.tables import Row

KEPT = 0.9
"""Share of the undercommitted throughput that a safe level keeps, as the lower bound of its interval."""


def measure_host(run: HostRun) -> HostMeasurement:
    """Return the factor by which the memory of a host is multiplied: working sets ÷ available memory at the highest safe level.

    The demand of a plan is the working sets, so memory that is configured beyond them is no overcommitment of a plan.

    Raises:
        UsageError: the working sets are unknown, no level is safe, or the working sets fit at the highest safe one.
    """
    options = ConsolidationOptions.model_validate(run.record.options)
    layout, needed = BALLOON if run.balloon else PLAIN, options.needed()
    if needed is None:
        raise UsageError(f"{run.option}: run {run.name} does not have the working sets of its databases; repeat it with --working-set-size")
    safe = _safe_level(run.rows("consolidation"), layout)
    if safe is None:
        raise UsageError(
            f"{run.option}: at no overcommitment of run {run.name} the layout {layout} certainly keeps {KEPT:.0%} of its throughput; "
            "give a run with at least 3 repeats and lower levels"
        )
    level, blocks = safe
    factor = needed / options.available_memory(level)
    if factor <= 1:
        raise UsageError(
            f"{run.option}: at {level:.0%}, the highest safe overcommitment of run {run.name}, the working sets still fit into the memory, "
            "so a plan by working sets gains nothing; leave the run out, or repeat it with higher levels"
        )
    note = (
        f"Memory by {run.source} is multiplied by {factor:.2f}, because databases in the layout {layout} kept {KEPT:.0%} of their "
        "throughput when their working sets exceeded the memory by this factor"
    )
    return HostMeasurement(memory_factor=ResourceCapacity(value=factor, n=blocks, source=run.source), notes=(note,))


def _safe_level(rows: Sequence[Row], layout: str) -> tuple[float, int] | None:
    """Return the highest level up to which every level is safe, and its number of blocks. None: the lowest one is not."""
    levels: dict[float, list[Row]] = {}
    for row in rows:
        if row.get("layout") == layout and row.get("overcommit"):
            levels.setdefault(float(str(row["overcommit"])), []).append(row)
    safe = None
    for level, of_level in sorted(levels.items()):
        ratios = [row.get("relative_to_undercommitted") for row in of_level]
        kept = [ratio for ratio in ratios if isinstance(ratio, Finding) and ratio.low is not None and ratio.low >= KEPT]
        if len(kept) < len(of_level) or any(row.get("trials_with_oom_kill") for row in of_level):
            break
        safe = level, min(ratio.n for ratio in kept)
    return safe
