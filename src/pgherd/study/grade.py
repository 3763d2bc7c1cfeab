"""Grade of an answer, and warnings about the trials that it uses.

One rule separates an answer from an indication (grade C) in every study: more than half of its points are clean (``majority_clean``).
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Sequence

from pgherd.analysis.intervals import LEAST
from pgherd.model.analysis import Grade
from pgherd.model.result import TrialResult
from pgherd.study.repeats import Repeats

EXTERNAL_LOAD_CHECKS = frozenset({"background-cpu", "steal"})
"""Checks that fail because of background load on this machine or its host. The trial would pass on an idle machine."""

_UNPLANNED = ("rerun", "adaptive")
"""Prefixes of the reasons of unplanned trials."""


def majority_clean(clean: Collection[bool]) -> bool:
    """Return True if more than half of these points (or windows, or blocks) are clean.

    If not, tainted trials are the fallback of at least half of them, and the result is an indication (grade C).
    """
    return 2 * sum(clean) > len(clean)


def grade(
    points: Sequence[Repeats],
    results: Sequence[TrialResult],
    *,
    complete: bool,
    wanted: int,
    essential: Sequence[Repeats] = (),
    least: int = 1,
) -> Grade:
    """Return the grade of a curve through these points.

    A: every tainting check passed in all used trials, every requested point has clean trials, and enough of them for an interval.
    C: at least half of the points, or one ``essential`` point, have no clean trial. B: all other cases.

    Args:
        points: the points that have at least one finished trial.
        results: all trials of the run.
        complete: every requested point has a clean trial.
        wanted: planned trials of each point.
        essential: points that all other results depend on.
        least: number of trials that an interval requires.
    """
    if not all(point.clean for point in essential):
        return "C"
    used = {observation.key for point in points for observation in point.used}
    too_few = any(len(point.used) < max(least, min(LEAST, wanted, point.tried)) for point in points)
    return grade_of([point.clean for point in points], used, results, whole=complete and not too_few)


def grade_of(clean: Sequence[bool], used: Collection[str], results: Sequence[TrialResult], *, whole: bool) -> Grade:
    """Return the grade of numbers from the trials with the keys ``used``.

    C: at least half of the points are not clean, or there are none. A: the result is complete (``whole``) and every tainting check passed
    in the used trials. B: all other cases.

    Args:
        clean: for each point, True if it uses clean trials.
        used: keys of the used trials.
        results: all trials of the run.
        whole: every requested number exists, with enough trials for its interval.
    """
    if not majority_clean(clean):
        return "C"
    checks = [check for result in results if result.trial.key() in used for check in result.checks if check.severity == "taint"]
    return "A" if whole and all(check.result == "pass" for check in checks) else "B"


def judge_answer(grade: Grade, reasons: Sequence[str]) -> tuple[Grade, str]:
    """Return the grade of an answer, which is at most B if there are reasons against it, and the first of them.

    A grade of the trials alone would call an answer with a wide or open interval reliable. Grade C needs no further reason.
    """
    if not reasons or grade == "C":
        return grade, ""
    return worst([grade, "B"]), reasons[0]


def worst(grades: Sequence[Grade]) -> Grade:
    """Return the worst of the grades of several curves. C without any."""
    return max(grades, default="C")


def qualify_answer(answer: str, grade: Grade) -> str:
    """Return the answer, marked as an indication if its grade is C."""
    return f"Indication only: {answer}" if grade == "C" else answer


def fallback_warnings(clean: Sequence[bool], only: str = "", missed: str = "", what: str = "Only tainted trials") -> list[str]:
    """Return a warning about points that use tainted trials as fallback, with the reason if the answer is an indication.

    Args:
        clean: for each point, True if it uses clean trials.
        only: text for the points without clean trials, such as ``2, 3 databases``. '' for a single point.
        missed: reason for an indication regardless of the other points. '' if every essential point has clean trials.
        what: text for the trials that they use.
    """
    count = len(clean) - sum(clean)
    if not count:
        return []
    text = f"{what} for {only}" if only else what
    if majority_clean(clean) and not missed:
        return [f"{text}: these numbers are an indication"]
    reason = missed or (f"{count} of {len(clean)} points, half of them or more" if len(clean) > 1 else "")
    return [f"{text}{f' ({reason})' if reason else ''}: the whole answer is an indication (grade C)"]


def shortened_list(names: Sequence[str], limit: int = 6) -> str:
    """Return the first names as text, and the number of the others."""
    extra = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {extra} more" if extra > 0 else "")


def rerun_hints(grade: Grade, results: Sequence[TrialResult], command: Sequence[str], *, goes_on: bool = False) -> list[str]:
    """Return a hint to rerun or resume if background load tainted trials, no clean rerun replaced them, and the grade is not A.

    A finished run is never extended. Its command starts a new run.

    Args:
        grade: grade of the answer.
        results: all trials of the run.
        command: command to execute. Empty if unknown.
        goes_on: the command resumes this run, which reruns tainted trials.
    """
    missed = _unreplaced(results)
    checks = [{v.name for v in result.checks if v.taints and v.name in EXTERNAL_LOAD_CHECKS} for result in missed]
    count = sum(bool(failed) for failed in checks)
    if grade == "A" or not count:
        return []
    tainted = f"{count} of {len(results)} trials" if len(results) > 1 else "the only trial"
    if len(missed) < sum(result.tainted for result in results):
        tainted += " without a clean rerun"
    action = "Resume this run" if goes_on else "Rerun"
    text = f"{action} on an idle machine: background load tainted {tainted} ({', '.join(sorted(set().union(*checks)))})"
    if goes_on:
        text += "; it reruns them within its time budget"
    return [f"{text}: {shlex.join(command)}" if command else f"{text}; use the same command"]


def _unreplaced(results: Sequence[TrialResult]) -> list[TrialResult]:
    """Return the tainted trials of points with more tainted planned trials than clean unplanned trials."""
    points: dict[tuple[tuple[str, object], ...], list[TrialResult]] = {}
    for result in results:
        points.setdefault(tuple(sorted(result.trial.point.items())), []).append(result)
    unreplaced = []
    for trials in points.values():
        tainted = [result for result in trials if result.tainted]
        lost = sum(not result.trial.reason.startswith(_UNPLANNED) and not result.oom_kills for result in tainted)
        if lost > sum(result.trial.reason.startswith(_UNPLANNED) and not result.tainted for result in trials):
            unreplaced += tainted
    return unreplaced


def trial_warnings(results: Sequence[TrialResult], place: str | None = "a point") -> list[str]:
    """Return warnings about failed trials, taints and unknown checks.

    ``place`` is the unit for which tainted trials are the fallback. None: they always count, because no trial is repeated.
    """
    warnings = failure_warnings(results)
    tainted = [result for result in results if result.tainted and result.error is None]
    if tainted:
        checks = Counter(v.name for result in tainted for v in result.checks if v.taints)
        causes = ", ".join(f"{check} ({count})" for check, count in checks.most_common())
        use = f"they count only where {place} has no clean trial" if place else "they count, because no trial is repeated"
        warnings.append(f"{len(tainted)} of {len(results)} trials are tainted, by {causes}; {use}")
    return warnings + check_warnings(results)


def failure_warnings(results: Sequence[TrialResult]) -> list[str]:
    """Return a warning for each failed trial."""
    return [f"Trial {result.trial.key()} did not finish: {result.error}" for result in results if result.error is not None]


def check_warnings(results: Sequence[TrialResult]) -> list[str]:
    """Return warnings about checks with an unknown result, and about failed checks that do not taint a trial."""
    warnings = []
    unknown = Counter(v.name for result in results for v in result.checks if v.result == "unknown" and v.severity == "taint")
    if unknown:
        warnings.append(f"Could not be checked here, and so did not pass: {', '.join(sorted(unknown))}")
    minor = Counter(v.name for result in results for v in result.checks if v.result == "fail" and v.severity == "warn")
    if minor:
        warnings.append("Warnings that do not taint a trial: " + ", ".join(f"{check} ({count})" for check, count in minor.most_common()))
    return warnings
