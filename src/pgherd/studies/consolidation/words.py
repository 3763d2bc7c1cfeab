"""The answer in one sentence. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.analysis.overcommitment import ONE_BLOCK
from pgherd.model.finding import Finding
from pgherd.studies.consolidation.options import SCHEMES, ConsolidationOptions
from pgherd.studies.consolidation.seen import Trials, shares_cpu
from pgherd.studies.consolidation.tables import Row

_FEW = {1: ONE_BLOCK, 2: "two blocks: no interval"}
"""Blocks → what is said of them where they are too few for an interval."""


def answer(options: ConsolidationOptions, trials: Trials, rows: Sequence[Row]) -> str:
    """What each scheme does undercommitted, what it keeps at the highest rate, and where its servers were ended for want of memory;
    no difference is claimed without an interval."""
    measured = [row for row in rows if _value(row.get("throughput")) is not None]
    if not measured:
        killed = any(result.memory_kills for result in trials.results)
        why = "the kernel ended servers for want of memory in every trial" if killed else "no trial finished"
        return f"No scheme has a number: {why}."
    parts, held = [], False
    for percent in options.buffers:
        own = [row for row in measured if row["buffers"] == percent]
        base = [row for row in own if row["rate"] == 0]
        said = [_baseline(options, base) if base else "", _overcommitted(own)]
        held = held or any(said)
        said.append(ended_words([row for row in rows if row.get("buffers") == percent]))
        if any(said):
            parts.append(f"with {percent} % buffers " + "; ".join(filter(None, said)))
    if not held:
        parts.insert(0, "no scheme has an undercommitted baseline, so nothing can be held against it")
    text = "; ".join(parts)
    few = _FEW.get(options.blocks)
    ending = f" ({few}, so no difference is claimed)" if few and len(measured) > 1 else ""
    return f"{text[0].upper()}{text[1:]}{ending}."


def _baseline(options: ConsolidationOptions, rows: Sequence[Row]) -> str:
    """``M/M/M does 5,210 new orders/min, 1.12 (1.08 … 1.17) × 1/1/M``."""
    best = max(rows, key=lambda row: _value(row["throughput"]) or 0.0)
    number = f"{_value(best['throughput']):,.0f} {options.unit}"
    if len(rows) == 1:
        return f"{best['what']} does {number}"
    first = SCHEMES[options.runnable[0]]
    ratios = [(row, found) for row in rows if isinstance(found := row.get("ratio"), Finding) and found.value is not None]
    sure = [(row, found) for row, found in ratios if found.low is not None and found.high is not None and not found.low <= 1 <= found.high]
    if sure:
        return "; ".join(f"{row['what']} does {_times(found)} × {first}{_corrected(options, row)}" for row, found in sure)
    if any(found.low is not None for _, found in ratios):
        return f"no scheme differs from {first} beyond doubt; {best['what']} came to the most, {number}"
    ratio = next((found for row, found in ratios if row is best), None)
    against = "" if ratio is None else f", {_times(ratio)} × {first}{_corrected(options, best)}"
    if against and options.blocks not in _FEW:  # there were blocks enough, and too few have both
        against += " (no interval)"
    return f"{best['what']} came to the most, {number}{against}"


def _corrected(options: ConsolidationOptions, row: Row) -> str:
    """``, 1.06 × with E4's correction for vCPUs``, where one of the two compared shares vCPUs and the other does not."""
    found = row.get("corrected_ratio")
    if not isinstance(found, Finding) or found.value is None:
        return ""
    first, scheme = options.runnable[0], int(str(row["scheme"]))
    if shares_cpu(options, first) == shares_cpu(options, scheme):
        return ""
    return f", {_times(found)} × with E4's correction for vCPUs"


def ended_words(rows: Sequence[Row]) -> str:
    """``the kernel ended servers for want of memory: 1/1/M at 55 %, M/M/M at 40 % and 55 %``: combinations that have no number
    for that reason; empty where there is none."""
    found: dict[str, list[str]] = {}
    for row in rows:
        rate = row.get("rate")
        if row.get("killed") and isinstance(rate, int | float) and _value(row.get("throughput")) is None:
            found.setdefault(str(row["what"]), []).append(f"at {100 * rate:g} %" if rate else "undercommitted")
    told = ", ".join(f"{what} {' and '.join(rates)}" for what, rates in found.items())
    return f"the kernel ended servers for want of memory: {told}" if told else ""


def _overcommitted(rows: Sequence[Row]) -> str:
    """``at 55 % overcommitment they keep of their own baselines: 1/1/M 41 %, M/M/M 62 %``."""
    rates = sorted({rate for row in rows if isinstance(rate := row["rate"], float) and rate > 0 and _value(row["normalised"]) is not None})
    if not rates:
        return ""
    kept = [row for row in rows if row["rate"] == rates[-1] and _value(row["normalised"]) is not None]
    told = ", ".join(f"{row['what']} {_percent(row['normalised'])}" for row in kept)
    return f"at {100 * rates[-1]:g} % overcommitment they keep of their own baselines: {told}"


def _times(found: Finding) -> str:
    return f"{found.value:.2f}" + ("" if found.low is None or found.high is None else f" ({found.low:.2f} … {found.high:.2f})")


def _percent(cell: object) -> str:
    assert isinstance(cell, Finding) and cell.value is not None
    between = "" if cell.low is None or cell.high is None else f" ({100 * cell.low:.0f} … {100 * cell.high:.0f})"
    return f"{100 * cell.value:.0f} %{between}"


def _value(cell: object) -> float | None:
    return cell.value if isinstance(cell, Finding) else None
