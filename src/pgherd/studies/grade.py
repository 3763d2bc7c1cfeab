"""How much weight an answer bears: its grade, and what must be said of the trials behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from pgherd.analysis.intervals import LEAST
from pgherd.model.finding import Grade
from pgherd.model.result import TrialResult
from pgherd.studies.points import Repeats


def grade(
    points: Sequence[Repeats],
    results: Sequence[TrialResult],
    *,
    complete: bool,
    wanted: int,
    essential: Sequence[Repeats] = (),
    least: int = 1,
) -> Grade:
    """The grade of a curve through these points.

    A: every taint verdict passed in all trials that the numbers rest on, every point that was asked for has such trials, and none
    has too few for an interval, be it by taints, failures or by plan: a number without an interval is no A.
    C: no point, or no more than one of several, has a clean trial, or one that is ``essential`` has none. B: everything between.

    Args:
        points: the points that have at least one finished trial.
        results: all trials of the run.
        complete: whether every point that was asked for has a clean trial.
        wanted: trials that were planned for each point.
        essential: points without which nothing else can be said.
        least: trials of a point that an interval needs.
    """
    if not all(point.clean for point in essential):
        return "C"
    used = {observation.key for point in points for observation in point.used}
    thinned = any(len(point.used) < max(least, min(LEAST, wanted, point.tried)) for point in points)
    return weighed([point.clean for point in points], used, results, whole=complete and not thinned)


def weighed(clean: Sequence[bool], used: Collection[str], results: Sequence[TrialResult], *, whole: bool) -> Grade:
    """The grade of numbers that rest on trials named ``used`` (their keys).

    C: no point, or no more than one of several, has a clean trial. A: everything that was asked for is there, with trials enough for
    its intervals (``whole``), and every taint verdict passed in the trials that are used. B: everything between.

    Args:
        clean: of each point, whether its numbers rest on clean trials.
        used: keys of the trials that the numbers rest on.
        results: all trials of the run.
        whole: whether nothing is missing.
    """
    if not any(clean) or (len(clean) > 1 and sum(clean) == 1):
        return "C"
    verdicts = [v for result in results if result.trial.key() in used for v in result.verdicts if v.severity == "taint"]
    return "A" if whole and all(v.result == "pass" for v in verdicts) else "B"


def worst(grades: Sequence[Grade]) -> Grade:
    """The grade of an answer that rests on several curves; C without any."""
    return max(grades, default="C")


def trial_warnings(results: Sequence[TrialResult]) -> list[str]:
    """What must be said of the trials: failures, taints, checks that could not be made."""
    found = failure_warnings(results)
    tainted = [result for result in results if result.tainted and result.error is None]
    if tainted:
        checks = Counter(v.check for result in tainted for v in result.verdicts if v.taints)
        why = ", ".join(f"{check} ({count})" for check, count in checks.most_common())
        found.append(f"{len(tainted)} of {len(results)} trials are tainted, by {why}; they count only where a point has no clean trial")
    return found + check_warnings(results)


def failure_warnings(results: Sequence[TrialResult]) -> list[str]:
    """Which trials did not finish, and why."""
    return [f"Trial {result.trial.key()} did not finish: {result.error}" for result in results if result.error is not None]


def check_warnings(results: Sequence[TrialResult]) -> list[str]:
    """What must be said of checks that could not be made, and of those that failed without tainting."""
    found = []
    unknown = Counter(v.check for result in results for v in result.verdicts if v.result == "unknown" and v.severity == "taint")
    if unknown:
        found.append(f"Could not be checked here, and so did not pass: {', '.join(sorted(unknown))}")
    said = Counter(v.check for result in results for v in result.verdicts if v.result == "fail" and v.severity == "warn")
    if said:
        found.append("Seen, though not held against the trials: " + ", ".join(f"{check} ({count})" for check, count in said.most_common()))
    return found
