"""A soak: one point for hours. Does throughput drift, and how bad is the worst minute?"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pgherd.analysis.stability import Steadiness, steadiness
from pgherd.model.finding import Finding, Grade
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.model.units import format_seconds
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.points import plural
from pgherd.studies.density.tables import Row
from pgherd.study.findings import as_finding, missing
from pgherd.study.grade import majority_clean
from pgherd.study.repeats import failed_phases

STEADY_DRIFT = 0.02
"""Drift per hour below which a soak counts as steady."""

LONGEST_GAP = 60.0
"""Seconds between two trials of a soak up to which it counts as one load without a break."""

_DESCRIBES = "no interval: it says what these windows had, and nothing of others"

# Metrics of servers shown per window, as marks of what happened in it: counters become counts, gauges stay.
_CHECKPOINTS = ("ckpt.timed", "ckpt.requested")


@dataclass(frozen=True)
class Window:
    """One window: ``at`` is its start in soaked seconds, which do not count what lies between trials (nor the hours until a run was
    resumed), and ``failed`` the checks that taint and failed in it, or in its trial as a whole."""

    phase: PhaseResult
    at: float
    failed: tuple[str, ...] = ()

    @property
    def end(self) -> float:
        """Soaked seconds at its end."""
        return self.at + self.phase.end - self.phase.start


def soak_windows(results: Sequence[TrialResult]) -> list[Window]:
    """The windows of all finished trials, in order."""
    found: list[Window] = []
    for result in results:
        if result.error is not None or not result.phases:
            continue
        begun = (found[-1].end if found else 0.0) - result.phases[0].start
        taints = [v for v in result.verdicts if v.taints]
        for phase in result.phases:
            failed = tuple(v.check for v in taints if phase.phase in failed_phases(result, v))
            found.append(Window(phase, begun + phase.start, failed))
    return found


def soak_rows(windows: Sequence[Window]) -> list[Row]:
    """One row per window: start (soaked hours), throughput, relative (to the median), p95, checkpoints, vacuum workers, iowait, and the
    checks that it failed."""
    median = statistics.median(window.phase.throughput for window in windows)
    return [
        {
            "window": index,
            "hours": window.at / 3600,
            "throughput": window.phase.throughput,
            "relative": window.phase.throughput / median if median > 0 else None,
            "p95": _worst_p95(window.phase),
            "checkpoints": _checkpoints(window.phase),
            "vacuum_workers": _servers(window.phase, "vacuum.workers"),
            "iowait": window.phase.metrics.get("host", {}).get("cpu.iowait"),
            "failed_checks": ", ".join(window.failed) or None,
        }
        for index, window in enumerate(windows)
    ]


def _worst_p95(phase: PhaseResult) -> float | None:
    values = [target.latency.p95 for target in phase.targets if target.latency.p95 is not None]
    return max(values, default=None)


def _checkpoints(phase: PhaseResult) -> float | None:
    rates = [rate for name in _CHECKPOINTS if (rate := _servers(phase, name)) is not None]
    return round(sum(rates) * phase.seconds) if rates else None


def _servers(phase: PhaseResult, name: str) -> float | None:
    values = [m[name] for entity, m in phase.metrics.items() if entity.startswith("server:") and name in m]
    return sum(values) if values else None


def soak_grade(given: Grade, windows: Sequence[Window]) -> Grade:
    """The windows of a soak are its repeats, and all of them count: where some failed a check it is B, and C where half of them did."""
    clean = [not window.failed for window in windows]
    if all(clean):
        return given
    return "B" if majority_clean(clean) else "C"


def soak_warnings(options: DensityOptions, results: Sequence[TrialResult], windows: Sequence[Window]) -> list[str]:
    """How many windows are missing; how many are noisy, and by what; and where the soak was broken off."""
    found = []
    if len(windows) < options.soak_count:
        found.append(f"{len(windows)} of {options.soak_count} windows were measured")
    noisy = [window for window in windows if window.failed]
    if noisy:
        checks = Counter(check for window in noisy for check in window.failed)
        why = ", ".join(f"{check} ({count})" for check, count in checks.most_common())
        count = "They count: what they add to the spread is in the drift's interval; the table 'soak' names them"
        if not majority_clean([not window.failed for window in windows]):
            count += ". They are half of all or more: the whole answer is an indication (grade C)"
        found.append(f"{len(noisy)} of {len(windows)} windows failed a check: {why}. {count}")
    finished = [result for result in results if result.error is None and result.phases]
    gaps = [(later.phases[0].start - before.phases[-1].end, _anew(later)) for before, later in pairwise(finished)]
    broken = [(gap, anew) for gap, anew in gaps if anew or gap > LONGEST_GAP]
    if broken:
        times = "once" if len(broken) == 1 else f"{len(broken)} times"
        text = f"The soak was broken off {times}, for at most {format_seconds(max(broken)[0])}, which its hours do not count"
        if any(anew for _, anew in broken):
            text += (
                "; its servers began anew, without what had built up in them (bloat, caches): drift over that border is not one of theirs"
            )
        found.append(text)
    return found


def _anew(result: TrialResult) -> bool:
    """Whether servers were made or started anew for a trial."""
    return "restored" in result.transition or "restarted" in result.transition


def hours(windows: Sequence[Window]) -> float:
    """How long was soaked, the ramps between windows included."""
    return windows[-1].end / 3600


def soak_findings(windows: Sequence[Window]) -> dict[str, Finding]:
    """soak_throughput, soak_drift (relative, per hour), soak_worst_window (ratio to the median), soak_variation."""
    judged = _judge(windows)
    if judged is None:
        units = {"soak_throughput": "tps", "soak_drift": "per hour", "soak_worst_window": "ratio", "soak_variation": "ratio"}
        return {name: missing(unit, "fewer than two windows with throughput") for name, unit in units.items()}
    phases = [window.phase for window in windows]
    mean = sum(phase.throughput * phase.seconds for phase in phases) / sum(phase.seconds for phase in phases)
    at = windows[judged.worst_at].at / 3600
    extrapolated = "" if hours(windows) >= 1 else "; extrapolated from less than an hour"
    return {
        "soak_throughput": Finding(
            value=mean,
            unit="tps",
            n=len(windows),
            method="mean over all windows",
            note=f"over {format_seconds(3600 * hours(windows))}; {_DESCRIBES}",
        ),
        "soak_drift": as_finding(judged.drift, "per hour", "relative change; 0.01 is +1 % per hour" + extrapolated),
        "soak_worst_window": Finding(
            value=judged.worst,
            unit="ratio",
            n=len(windows),
            method=f"worst window of {format_seconds(phases[0].seconds)} ÷ median window",
            note=f"{at:.2f} h after the start; {_DESCRIBES}",
        ),
        "soak_variation": Finding(
            value=judged.variation,
            unit="ratio",
            n=len(windows),
            method="coefficient of variation of the windows",
            note=f"lag-1 autocorrelation {judged.autocorrelation:.2f}; {_DESCRIBES}",
        ),
    }


def _judge(windows: Sequence[Window]) -> Steadiness | None:
    if len(windows) < 2 or sum(window.phase.throughput for window in windows) <= 0:
        return None
    return steadiness([(window.at + window.end) / 7200 for window in windows], [window.phase.throughput for window in windows])


def soak_answer(options: DensityOptions, windows: Sequence[Window]) -> str:
    """One sentence: how many databases ran for how long, how throughput drifted, and its worst window."""
    judged = _judge(windows)
    if judged is None:
        return "The soak has fewer than two windows with throughput: nothing can be said of its steadiness."
    drift = judged.drift
    # Of less than an hour nothing is said per hour: what some minutes show is not what an hour would.
    share, over = min(hours(windows), 1.0), " per hour" if hours(windows) >= 1 else " over that time"
    text = f"{plural(options.soak_point)} of {options.vcpus:g} vCPU ran for {format_seconds(3600 * hours(windows))}"
    text += f"; throughput drifted by {100 * share * drift.value:+.1f} %{over}"
    if drift.low is None or drift.high is None:
        text += ", and too few windows were measured to tell that from noise"
    else:
        text += f" ({100 * share * drift.low:+.1f} % to {100 * share * drift.high:+.1f} %)"
        steady = drift.low >= -STEADY_DRIFT and drift.high <= STEADY_DRIFT
        text += (
            ", which is steady"
            if steady
            else ", which cannot be told from steady"
            if drift.low <= 0 <= drift.high
            else ", which is not steady"
        )
    failed = windows[judged.worst_at].failed
    why = f", and failed the check {' and '.join(failed)}" if failed else ""
    return f"{text}; the worst {format_seconds(windows[0].phase.seconds)} had {100 * judged.worst:.0f} % of the median{why}."
