"""Analysis of a run with a changing memory limit: what each change costs each pool, and the steady state after it. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pgherd.analysis.block_ratios import paired_ratio
from pgherd.analysis.intervals import LEAST, mean_interval, ratio_of_means
from pgherd.model.analysis import Analysis, Finding, Grade
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.studies.balloon_limits.options import BALLOON, SERVER, BalloonLimitsOptions, Pool
from pgherd.study.findings import as_finding, labelled_name, missing
from pgherd.study.grade import fallback_warnings, grade_of, qualify_answer, trial_warnings

Row = dict[str, Finding | str | int | float | None]
RECOVERED = 0.9
"""Share of the steady throughput at which a server has recovered from a change."""
SMOOTH_S = 3
MB = 2**20


@dataclass(frozen=True)
class PoolTrials:
    """Trials of a pool: those that count, those that an OOM kill ended, and whether those that count are clean."""

    pool: Pool
    used: tuple[TrialResult, ...]
    killed: int
    tried: int
    clean: bool

    def phases(self, number: int) -> list[PhaseResult]:
        """Return a phase of each trial."""
        return [result.phases[number] for result in self.used]

    def compared(self, number: int, without: int, take: Callable[[PhaseResult], float | None]) -> list[tuple[float, float]]:
        """Return a value of a phase and of the phase ``without`` a change, for each trial that has both, above zero."""
        pairs = [(take(result.phases[number]), take(result.phases[without])) for result in self.used]
        return [(value, other) for value, other in pairs if value and other]

    def refused(self, number: int) -> int:
        """Return in how many trials the kernel refused a phase's limit for half of the phase or longer."""
        return sum(limited_after(phase) is None for phase in self.phases(number))


def trials_of(results: Sequence[TrialResult], pool: Pool) -> PoolTrials:
    """Return the trials of a pool. Tainted ones count if there are no others."""
    tried = [result for result in results if result.trial.point == {"pool": pool}]
    finished = [result for result in tried if result.error is None]
    clean = [result for result in finished if not result.tainted]
    killed = sum(bool(result.oom_kills) for result in tried)
    return PoolTrials(pool, tuple(clean or finished), killed, len(tried), bool(clean) or not finished)


def series(phase: PhaseResult) -> list[float]:
    """Return the throughput of each whole second of a phase."""
    return phase.targets[0].per_second


def steady(phase: PhaseResult) -> float:
    """Return the mean throughput in the second half of a phase."""
    values = series(phase)
    half = values[len(values) // 2 :]
    return math.fsum(half) / len(half) if half else phase.throughput


def limited_after(phase: PhaseResult) -> float | None:
    """Return the seconds until the kernel took the limit. None: in the second half, whose throughput counts, or never."""
    after = phase.limited_after.get(SERVER)
    return None if after is None or after > phase.seconds / 2 else after


def recovered_after(phase: PhaseResult) -> float | None:
    """Return the seconds until throughput is back at ``RECOVERED`` of its steady value, after its lowest ``SMOOTH_S`` seconds in the first
    half of the phase. 0: it was never below. None: there is no steady throughput.

    Means are compared, because single seconds vary by more than a tenth on a shared host, also without a change. After a lower limit,
    throughput is above its new steady value at first, so the first seconds above it show no recovery.
    """
    least, values = RECOVERED * steady(phase), series(phase)
    means = [math.fsum(values[second : second + SMOOTH_S]) / SMOOTH_S for second in range(len(values) - SMOOTH_S + 1)]
    half = means[: max(1, len(values) // 2)]
    if least <= 0 or not means:
        return None
    lowest = half.index(min(half))
    if means[lowest] >= least:
        return 0.0
    return float(next((second for second in range(lowest, len(means)) if means[second] >= least), len(values)))


def _lowest_share(phase: PhaseResult) -> float | None:
    level = steady(phase)
    return min(series(phase), default=level) / level if level > 0 else None


def p99_of(phase: PhaseResult) -> float | None:
    return phase.targets[0].latency.p99


def slowest(phase: PhaseResult) -> float | None:
    return phase.targets[0].latency.maximum


def _swap(phase: PhaseResult) -> float | None:
    value = phase.metrics.get(f"container:{SERVER}", {}).get("memory.swap")
    return None if value is None else value / MB


def zram(phase: PhaseResult) -> float | None:
    """Return the memory (MB) of the compressed swap, which is charged to no limit."""
    used = [values["zram.mem_used"] / MB for entity, values in phase.metrics.items() if entity.startswith("zram:")]
    return used[0] if used else None


_MEANS: dict[str, tuple[Callable[[PhaseResult], float | None], str, str]] = {
    "throughput": (steady, "tps", "no trial"),
    "limited_after": (limited_after, "s", "the kernel refused the limit for half of the phase"),
    "recovered_after": (recovered_after, "s", "no throughput"),
    "p99": (p99_of, "ms", "too few transactions"),
    "lowest_share": (_lowest_share, "ratio", "no throughput"),
    "swap_mb": (_swap, "MB", "the kernel does not count swap"),
    "zram_mb": (zram, "MB", "no compressed swap"),
}
"""Column → its value in a phase, its unit, and the reason if no trial has a value."""


def analyse(options: BalloonLimitsOptions, results: Sequence[TrialResult]) -> Analysis:
    """Return the numbers of every pool and change. Missing, failed and killed trials never raise."""
    pools = [trials_of(results, pool) for pool in options.pools]
    changes = range(1, len(options.limits))
    rows = [_row(options, pools, pool, number) for pool in pools for number in changes]
    lowest = min(changes, key=lambda number: options.limits[number])
    used = {result.trial.key() for pool in pools for result in pool.used}
    measured = [pool for pool in pools if pool.tried]
    grade: Grade = grade_of(
        [pool.clean for pool in measured] if used else [],
        used,
        results,
        whole=all(len(pool.used) >= LEAST or pool.killed for pool in pools),
    )
    findings = {
        labelled_name(name, pool=row["pool"], change=row["number"]): cell
        for row in rows
        for name in ("throughput", "native_ratio", "recovered_after", "p99", "p99_change_ratio", "slowest", "slowest_added")
        if isinstance(cell := row[name], Finding)
    }
    answer = _answer(options, pools, rows, lowest)
    return Analysis(
        answer=qualify_answer(answer, grade) if used else answer,
        details=_details(pools, changes),
        grade=grade,
        findings=findings,
        tables={"balloon-limits": rows, "pools": [_pool_row(options, pool) for pool in pools]},
        warnings=[
            *trial_warnings(results, "a trial"),
            *fallback_warnings([pool.clean for pool in measured], ", ".join(pool.pool for pool in measured if not pool.clean)),
        ],
        next_steps=_next_steps(options, pools),
    )


def _row(options: BalloonLimitsOptions, pools: Sequence[PoolTrials], pool: PoolTrials, number: int) -> Row:
    row: Row = {"pool": pool.pool, "number": number, "change": options.change(number), "limit_mb": options.limit(number) / MB}
    phases = pool.phases(number)
    for name, (take, unit, reason) in _MEANS.items():
        values = [value for phase in phases if (value := take(phase)) is not None]
        row[name] = as_finding(mean_interval(values), unit) if values else missing(unit, reason if phases else _no_trial(pool))
    row["native_ratio"] = _native_ratio(pools, pool, number)
    row |= _because_of_change(pool, number, options.unchanged)
    row["refused"] = f"{pool.refused(number)} of {len(phases)}" if phases else ""
    return row


def _because_of_change(pool: PoolTrials, number: int, unchanged: int) -> Row:
    """Return p99 as a ratio to the same server's phase without a change, the slowest transaction, and what the change added to it.

    The last two are the largest of all trials. The second is a difference within a trial, so a stall that new connections or the host cause
    in every phase is no part of it.
    """
    p99 = pool.compared(number, unchanged, p99_of)
    pairs = pool.compared(number, unchanged, slowest)
    reason = "too few transactions" if pool.used else _no_trial(pool)
    if not p99:
        ratio = missing("ratio", reason)
    elif number == unchanged:
        ratio = Finding(value=1.0, unit="ratio", n=len(p99), method="by definition", note="no interval: it is the phase without a change")
    else:
        values, reference = zip(*p99, strict=True)
        ratio = as_finding(paired_ratio(values, reference), "ratio", "÷ the phase without a change")
    return {
        "p99_change_ratio": ratio,
        "slowest": _largest([value for value, _ in pairs], reason),
        "slowest_added": _largest([max(value - other, 0.0) for value, other in pairs], reason),
    }


def _largest(values: Sequence[float], reason: str) -> Finding:
    if not values:
        return missing("ms", reason)
    return Finding(value=max(values), unit="ms", n=len(values), method="largest of the trials", note="no interval: it is an extreme")


def _no_trial(pool: PoolTrials) -> str:
    return f"an OOM kill ended {pool.killed} of {pool.tried} trials" if pool.killed else "no trial"


def best_native(pools: Sequence[PoolTrials], number: int) -> PoolTrials | None:
    """Return the native pool with the highest steady throughput in a phase, among those whose limit the kernel took in every trial."""
    able = [pool for pool in pools if pool.pool != BALLOON and pool.used and not pool.killed and not pool.refused(number)]
    return max(able, key=lambda pool: math.fsum(map(steady, pool.phases(number))) / len(pool.used), default=None)


def _native_ratio(pools: Sequence[PoolTrials], pool: PoolTrials, number: int) -> Finding:
    if pool.killed:  # the trials that ran to their end may be those that needed the least memory
        return missing("ratio", _no_trial(pool))
    best = best_native(pools, number)
    if best is None or not pool.used:
        return missing("ratio", _no_trial(pool) if best is not None else "no native pool kept to the limit in every trial")
    if refused := pool.refused(number):
        return missing("ratio", f"the kernel refused the limit in {refused} of {len(pool.used)} trials")
    if best is pool:
        return Finding(value=1.0, unit="ratio", n=len(pool.used), method="by definition", note="no interval: it is the best native pool")
    values, reference = ([steady(phase) for phase in one.phases(number)] for one in (pool, best))
    if not any(values) or not any(reference):
        return missing("ratio", "no throughput")
    return as_finding(ratio_of_means(values, reference), "ratio", f"÷ pool {best.pool}")


def _pool_row(options: BalloonLimitsOptions, pool: PoolTrials) -> Row:
    return {
        "pool": pool.pool,
        "shared_buffers_mb": options.pool_sizes[pool.pool] / MB,
        "trials": pool.tried,
        "killed": f"{pool.killed} of {pool.tried}",
    }


def _answer(options: BalloonLimitsOptions, pools: Sequence[PoolTrials], rows: Sequence[Row], lowest: int) -> str:
    """Return what the balloon keeps at the smallest limit, or what happened to the largest native pool."""
    if not any(pool.used for pool in pools):
        return "No result: no trial finished."
    tested = next((pool for pool in pools if pool.pool == BALLOON), pools[-1])
    ratio = next(row["native_ratio"] for row in rows if row["pool"] == tested.pool and row["number"] == lowest)
    assert isinstance(ratio, Finding)
    name = "pg_balloon" if tested.pool == BALLOON else f"Pool {tested.pool}"
    where = f"at {options.limits[lowest]} % of the memory"
    if ratio.value is None:
        return f"{name} {where}: no ratio to a native pool, since {ratio.note}."
    interval = "no interval" if ratio.low is None or ratio.high is None else f"{ratio.low:.2f} to {ratio.high:.2f}"
    return f"{name} has {ratio.value:.2f} times ({interval}) the throughput of the best native pool {where}."


def _details(pools: Sequence[PoolTrials], changes: range) -> list[str]:
    """Return a sentence for each pool whose limit the kernel refused, or that an OOM kill ended."""
    lines = []
    for pool in pools:
        refused = sum(pool.refused(number) for number in changes)
        if refused:
            lines.append(
                f"Pool {pool.pool}: the kernel refused {refused} of {len(pool.used) * len(changes)} changes for half of the phase."
            )
        if pool.killed:
            lines.append(f"Pool {pool.pool}: an OOM kill ended {pool.killed} of {pool.tried} trials.")
    return lines


def _next_steps(options: BalloonLimitsOptions, pools: Sequence[PoolTrials]) -> list[str]:
    if any(len(pool.used) < LEAST and not pool.killed for pool in pools):
        return [f"more trials give intervals: --repeats {max(LEAST, 2 * options.repeats)}"]
    return []
