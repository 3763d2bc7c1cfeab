"""Knees, headroom and the largest honest rate as findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pgherd.analysis.knee import CLIFF, METHOD
from pgherd.analysis.overcommitment import honest_rate
from pgherd.model.finding import Finding
from pgherd.studies.working_set import published
from pgherd.studies.working_set.curves import Measured
from pgherd.studies.working_set.options import WorkingSetOptions
from pgherd.study.findings import missing

RULE = "E7: configured memory less the working sets of all databases"


def knee_finding(options: WorkingSetOptions, measured: Measured) -> Finding:
    """The working set of one curve in MB, or why there is none."""
    knee, beside = measured.knee, published.working_set(measured.curve)
    experiment = None if beside is None else "E7"
    if not measured.lived:
        return missing("MB", "the server lived at no size measured", method=METHOD, experiment=experiment, published=beside)
    if knee.at is None:
        return missing("MB", knee.note, method=METHOD, experiment=experiment, published=beside)
    open_ = knee.low is None or knee.high is None
    tainted = all(result.tainted for result in measured.used)
    what = f"with shared buffers of {options.buffers} MB" if measured.curve.sweep == "memory" else ""
    notes = (what, knee.note, "no interval" if open_ else "", "only tainted trials: an indication" if tainted else "")
    return Finding(
        value=knee.at,
        unit="MB",
        low=None if open_ else knee.low,
        high=None if open_ else knee.high,
        confidence=None if open_ or knee.kind == "cliff" else knee.confidence,
        n=knee.n,
        method=CLIFF if knee.kind == "cliff" else METHOD,
        note="; ".join(filter(None, notes)),
        experiment=experiment,
        published=beside,
    )


def room_findings(options: WorkingSetOptions, sets: Mapping[int, Finding]) -> dict[str, Finding]:
    """``configured``, ``headroom`` and ``honest_rate`` of one database for each load; ``sets`` are containers' working sets by clients."""
    loads = options.clients
    configured = options.configured * len(loads)
    asked = Finding(
        value=configured,
        unit="MB",
        n=0,
        method=f"{len(loads)} × {options.configured} MB, as given",
        note="no interval: it is a choice",
    )
    absent = [clients for clients in loads if sets[clients].value is None]
    beside = {"published": published.headroom(loads), "experiment": "E7"}
    rate_beside = {"published": published.rate(loads), "experiment": "E7"}
    if absent:
        why = f"no working set with {', '.join(map(str, absent))} clients"
        return {
            "configured": asked,
            "headroom": missing("MB", why, method=RULE, **beside),
            "honest_rate": missing("share", why, method=RULE, **rate_beside),
        }
    values = [sets[clients].value or 0.0 for clients in loads]
    lows = _ends([sets[clients].low for clients in loads])
    highs = _ends([sets[clients].high for clients in loads])
    bounds = lows is not None and highs is not None
    room, share = headroom(configured, values)
    n = sum(sets[clients].n for clients in loads)
    low = headroom(configured, highs) if bounds and highs is not None else None
    high = headroom(configured, lows) if bounds and lows is not None else None
    note = "interval from the ends of the working sets' own" if bounds else "no interval: a working set has none"
    if room < 0:
        note = f"the working sets need more than is configured; {note}"
    return {
        "configured": asked,
        "headroom": Finding(value=room, unit="MB", low=low and low[0], high=high and high[0], n=n, method=RULE, note=note, **beside),
        "honest_rate": Finding(
            value=share,
            unit="share",
            low=low and low[1],
            high=high and high[1],
            n=n,
            method=f"headroom ÷ configured memory, at least 0 ({RULE})",
            note=f"overcommitting by more measures a lack of memory, not consolidation; {note}",
            **rate_beside,
        ),
    }


def headroom(configured: float, working_sets: Sequence[float]) -> tuple[float, float]:
    """(MB to spare, largest honest overcommitment rate), as E7 computes them: 2 × 4096 − (1376 + 1152) = 5664 MB, which is 69 %."""
    return configured - sum(working_sets), honest_rate(round(configured), [round(size) for size in working_sets])


def _ends(values: Sequence[float | None]) -> list[float] | None:
    seen = [value for value in values if value is not None]
    return seen if len(seen) == len(values) else None
