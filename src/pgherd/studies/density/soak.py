"""Soak: one point under load for hours, its throughput drift and its worst window."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pgherd.analysis.stability import Steadiness, steadiness
from pgherd.model.analysis import Finding, Grade
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.model.units import format_seconds
from pgherd.studies.density.curve import plural
from pgherd.studies.density.findings import Row
from pgherd.studies.density.options import DensityOptions
from pgherd.study.findings import as_finding, missing
from pgherd.study.grade import majority_clean
from pgherd.study.observation import host_sum
from pgherd.study.repeats import failed_phases

STEADY_DRIFT = 0.02
"""Drift per hour below which a soak counts as steady."""

MAX_GAP_S = 60.0
"""Longest pause between two trials of a soak, in seconds, that still counts as continuous load."""

_DESCRIPTIVE = "no interval: it describes these windows only"

_CHECKPOINT_RATES = ("checkpoint.timed", "checkpoint.requested")


@dataclass(frozen=True)
class SoakWindow:
    """One window of a soak.

    ``at`` is its start in soaked seconds. Time between trials does not count, nor do the hours until a run was resumed.
    ``failed`` are the checks that taint and failed in the window, or in its trial as a whole. ``iowait`` is that of the servers' hosts.
    """

    phase: PhaseResult
    at: float
    failed: tuple[str, ...] = ()
    iowait: float | None = None

    @property
    def end(self) -> float:
        """Its end in soaked seconds."""
        return self.at + self.phase.end - self.phase.start


def soak_windows(results: Sequence[TrialResult]) -> list[SoakWindow]:
    """Return the windows of all finished trials, in order."""
    windows: list[SoakWindow] = []
    for result in results:
        if result.error is not None or not result.phases:
            continue
        offset = (windows[-1].end if windows else 0.0) - result.phases[0].start
        taints = [check for check in result.checks if check.taints]
        for number, phase in enumerate(result.phases):
            failed = tuple(check.name for check in taints if phase.phase in failed_phases(result, check))
            windows.append(SoakWindow(phase, offset + phase.start, failed, host_sum(result.trial, number, phase, "cpu.iowait")))
    return windows


def soak_rows(windows: Sequence[SoakWindow]) -> list[Row]:
    """One row per window: start in soaked hours, throughput, its ratio to the median, p95, and events in the window."""
    median = statistics.median(window.phase.throughput for window in windows)
    return [
        {
            "window": index,
            "hours": window.at / 3600,
            "throughput": window.phase.throughput,
            "relative_to_median": window.phase.throughput / median if median > 0 else None,
            "p95": _worst_p95(window.phase),
            "checkpoints": _checkpoints(window.phase),
            "vacuum_workers": _server_sum(window.phase, "vacuum.workers"),
            "iowait": window.iowait,
            "failed_checks": ", ".join(window.failed) or None,
        }
        for index, window in enumerate(windows)
    ]


def _worst_p95(phase: PhaseResult) -> float | None:
    values = [target.latency.p95 for target in phase.targets if target.latency.p95 is not None]
    return max(values, default=None)


def _checkpoints(phase: PhaseResult) -> float | None:
    """The number of checkpoints, from their rate per second."""
    rates = [rate for name in _CHECKPOINT_RATES if (rate := _server_sum(phase, name)) is not None]
    return round(sum(rates) * phase.seconds) if rates else None


def _server_sum(phase: PhaseResult, name: str) -> float | None:
    values = [metrics[name] for entity, metrics in phase.metrics.items() if entity.startswith("server:") and name in metrics]
    return sum(values) if values else None


def soak_grade(grade: Grade, windows: Sequence[SoakWindow]) -> Grade:
    """Lower the grade to B if some windows failed a check, and to C if half of them did.

    The windows of a soak are its repeats, and all of them count.
    """
    clean = [not window.failed for window in windows]
    if all(clean):
        return grade
    return "B" if majority_clean(clean) else "C"


def soak_warnings(options: DensityOptions, results: Sequence[TrialResult], windows: Sequence[SoakWindow]) -> list[str]:
    """Report missing windows, windows with failed checks, and interruptions."""
    warnings = []
    if len(windows) < options.soak_count:
        warnings.append(f"{len(windows)} of {options.soak_count} windows were measured")
    noisy = [window for window in windows if window.failed]
    if noisy:
        checks = Counter(check for window in noisy for check in window.failed)
        names = ", ".join(f"{check} ({count})" for check, count in checks.most_common())
        effect = "They count: the interval of the drift includes their spread; the table 'soak' names them"
        if not majority_clean([not window.failed for window in windows]):
            effect += ". They are at least half of all: the whole answer is an indication (grade C)"
        warnings.append(f"{len(noisy)} of {len(windows)} windows failed a check: {names}. {effect}")
    finished = [result for result in results if result.error is None and result.phases]
    gaps = [(later.phases[0].start - before.phases[-1].end, _restarted(later)) for before, later in pairwise(finished)]
    breaks = [(gap, restarted) for gap, restarted in gaps if restarted or gap > MAX_GAP_S]
    if breaks:
        times = "once" if len(breaks) == 1 else f"{len(breaks)} times"
        text = f"The soak was interrupted {times}, for at most {format_seconds(max(breaks)[0])}, which its hours do not include"
        if any(restarted for _, restarted in breaks):
            text += "; its servers were restarted without their accumulated state (bloat, caches): drift across that gap is not meaningful"
        warnings.append(text)
    return warnings


def _restarted(result: TrialResult) -> bool:
    """True if servers were restored from the template or restarted for this trial."""
    return "restored" in result.transition or "restarted" in result.transition


def soaked_hours(windows: Sequence[SoakWindow]) -> float:
    """Duration of the soak, including the warm-ups between windows."""
    return windows[-1].end / 3600


def soak_findings(windows: Sequence[SoakWindow]) -> dict[str, Finding]:
    """soak_throughput, soak_drift (relative, per hour), soak_worst_window (ratio to the median), soak_cv."""
    stability = _stability(windows)
    if stability is None:
        units = {"soak_throughput": "tps", "soak_drift": "per hour", "soak_worst_window": "ratio", "soak_cv": "ratio"}
        return {name: missing(unit, "fewer than two windows with throughput") for name, unit in units.items()}
    phases = [window.phase for window in windows]
    mean = sum(phase.throughput * phase.seconds for phase in phases) / sum(phase.seconds for phase in phases)
    at = windows[stability.worst_at].at / 3600
    extrapolated = "" if soaked_hours(windows) >= 1 else "; extrapolated from less than an hour"
    return {
        "soak_throughput": Finding(
            value=mean,
            unit="tps",
            n=len(windows),
            method="mean over all windows",
            note=f"over {format_seconds(3600 * soaked_hours(windows))}; {_DESCRIPTIVE}",
        ),
        "soak_drift": as_finding(stability.drift, "per hour", "relative change; 0.01 is +1 % per hour" + extrapolated),
        "soak_worst_window": Finding(
            value=stability.worst,
            unit="ratio",
            n=len(windows),
            method=f"worst window of {format_seconds(phases[0].seconds)} ÷ median window",
            note=f"{at:.2f} h after the start; {_DESCRIPTIVE}",
        ),
        "soak_cv": Finding(
            value=stability.variation,
            unit="ratio",
            n=len(windows),
            method="coefficient of variation of the windows",
            note=f"lag-1 autocorrelation {stability.autocorrelation:.2f}; {_DESCRIPTIVE}",
        ),
    }


def _stability(windows: Sequence[SoakWindow]) -> Steadiness | None:
    if len(windows) < 2 or sum(window.phase.throughput for window in windows) <= 0:
        return None
    return steadiness([(window.at + window.end) / 7200 for window in windows], [window.phase.throughput for window in windows])


def soak_answer(options: DensityOptions, windows: Sequence[SoakWindow]) -> str:
    """Return number of databases, duration and whether throughput was steady, in one sentence of at most 20 words."""
    stability = _stability(windows)
    if stability is None:
        return "No result for stability: the soak has fewer than two windows with throughput."
    drift = stability.drift
    text = f"{plural(options.soak_point)} {options.each} ran for {format_seconds(3600 * soaked_hours(windows))}"
    if drift.low is None or drift.high is None:
        return f"{text}; the drift of throughput is unknown."
    if drift.low >= -STEADY_DRIFT and drift.high <= STEADY_DRIFT:
        return f"{text}; throughput was steady."
    unsteady = drift.low > STEADY_DRIFT or drift.high < -STEADY_DRIFT
    return f"{text}; {'throughput was not steady' if unsteady else 'the drift of throughput is inconclusive'}."


def soak_details(windows: Sequence[SoakWindow]) -> list[str]:
    """Return sentences on the drift and the worst window."""
    stability = _stability(windows)
    if stability is None:
        return []
    drift = stability.drift
    # A soak of less than an hour has no rate per hour in its sentences: that would be an extrapolation.
    share, period = min(soaked_hours(windows), 1.0), " per hour" if soaked_hours(windows) >= 1 else " over that time"
    text = f"Throughput drifted by {100 * share * drift.value:+.1f} %{period}"
    if drift.low is None or drift.high is None:
        text += ", with too few windows to distinguish it from noise"
    else:
        text += f" ({100 * share * drift.low:+.1f} % to {100 * share * drift.high:+.1f} %)"
    failed = windows[stability.worst_at].failed
    checks = f", and failed the check {' and '.join(failed)}" if failed else ""
    worst = f"The worst {format_seconds(windows[0].phase.seconds)} had {100 * stability.worst:.0f} % of the median{checks}"
    return [f"{text}.", f"{worst}."]
