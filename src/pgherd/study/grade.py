"""How much weight an answer bears: its grade, and what must be said of the trials behind it.

One rule tells an answer from an indication, grade C, in every study: more than half of what it rests on is clean (``mostly_clean``).
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Sequence

from pgherd.analysis.intervals import LEAST
from pgherd.model.finding import Grade
from pgherd.model.result import TrialResult
from pgherd.study.repeats import Repeats

EXTERNAL_LOAD_CHECKS = frozenset({"foreign-cpu", "steal"})
"""Checks that fail by what else runs on the machine, or on the one below it: on a quiet one the same trial would have passed."""

_BEYOND = ("rerun", "adaptive")
"""How the reasons of trials begin that were run beyond the planned ones."""


def majority_clean(clean: Collection[bool]) -> bool:
    """Whether more than half of these points (or windows, or blocks) are clean. Where tainted trials stand in for half of them or more,
    or there is none, what is concluded from them is an indication only: grade C."""
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
    """The grade of a curve through these points.

    A: every taint verdict passed in all trials that the numbers rest on, every point that was asked for has such trials, and none
    has too few for an interval, be it by taints, failures or by plan: a number without an interval is no A.
    C: half of the points or more have no clean trial, or one that is ``essential`` has none. B: everything between.

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
    return grade_of([point.clean for point in points], used, results, whole=complete and not thinned)


def grade_of(clean: Sequence[bool], used: Collection[str], results: Sequence[TrialResult], *, whole: bool) -> Grade:
    """The grade of numbers that rest on trials named ``used`` (their keys).

    C: half of the points or more are not clean, or there is none. A: everything that was asked for is there, with trials enough for
    its intervals (``whole``), and every taint verdict passed in the trials that are used. B: everything between.

    Args:
        clean: of each point, whether its numbers rest on clean trials.
        used: keys of the trials that the numbers rest on.
        results: all trials of the run.
        whole: whether nothing is missing.
    """
    if not majority_clean(clean):
        return "C"
    verdicts = [v for result in results if result.trial.key() in used for v in result.verdicts if v.severity == "taint"]
    return "A" if whole and all(v.result == "pass" for v in verdicts) else "B"


def worst(grades: Sequence[Grade]) -> Grade:
    """The grade of an answer that rests on several curves; C without any."""
    return max(grades, default="C")


def qualify_answer(answer: str, given: Grade) -> str:
    """The answer as its grade lets it be said."""
    return f"Indication only: {answer}" if given == "C" else answer


def fallback_warnings(clean: Sequence[bool], only: str = "", missed: str = "", what: str = "Only tainted trials") -> list[str]:
    """What must be said of points that rest on tainted trials alone, and why the answer is an indication where it is.

    Args:
        clean: of each point, whether its numbers rest on clean trials.
        only: the points that do not, in words: ``2, 3 databases``; '' where there is one point, and so nothing to tell apart.
        missed: why the answer is an indication whatever else is clean; '' where no point is essential, or all that are have clean trials.
        what: what they rest on.
    """
    count = len(clean) - sum(clean)
    if not count:
        return []
    said = f"{what} for {only}" if only else what
    if majority_clean(clean) and not missed:
        return [f"{said}: these numbers are an indication"]
    many = f"{count} of {len(clean)} points, half of them or more" if len(clean) > 1 else ""
    why = missed or many
    return [f"{said}{f' ({why})' if why else ''}: the whole answer is an indication (grade C)"]


def shortened_list(names: Sequence[str], most: int = 6) -> str:
    """The first of these, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def rerun_hints(given: Grade, results: Sequence[TrialResult], command: Sequence[str], *, goes_on: bool = False) -> list[str]:
    """What to do next where other work on the machine tainted trials, no clean rerun made up for them, and the answer is worse for it.
    Trials of a finished run are never run again: the command that began it makes a new one.

    Args:
        given: the answer's grade.
        results: all trials of the run.
        command: what is to be called; empty where that is not known.
        goes_on: whether the command goes on with this run, and so with its reruns.
    """
    missed = _not_made_up(results)
    checks = [{v.check for v in result.verdicts if v.taints and v.check in EXTERNAL_LOAD_CHECKS} for result in missed]
    count = sum(bool(found) for found in checks)
    if given == "A" or not count:
        return []
    many = f"{count} of {len(results)} trials" if len(results) > 1 else "the only trial"
    if len(missed) < sum(result.tainted for result in results):
        many += " that no clean rerun made up for"
    what = "go on with this run" if goes_on else "measure again"
    said = f"{what} while the machine is quiet, since what else ran there tainted {many} ({', '.join(sorted(set().union(*checks)))})"
    if goes_on:
        said += "; that reruns what its budget still allows"
    return [f"{said}: {shlex.join(command)}" if command else f"{said}, by the same command"]


def _not_made_up(results: Sequence[TrialResult]) -> list[TrialResult]:
    """The tainted trials of the points where more planned trials are tainted than clean ones were run beyond the plan."""
    points: dict[tuple[tuple[str, object], ...], list[TrialResult]] = {}
    for result in results:
        points.setdefault(tuple(sorted(result.trial.point.items())), []).append(result)
    found = []
    for own in points.values():
        tainted = [result for result in own if result.tainted]
        lost = sum(not result.trial.reason.startswith(_BEYOND) and not result.memory_kills for result in tainted)
        if lost > sum(result.trial.reason.startswith(_BEYOND) and not result.tainted for result in own):
            found += tainted
    return found


def trial_warnings(results: Sequence[TrialResult], place: str = "a point") -> list[str]:
    """What must be said of the trials: failures, taints, checks that could not be made. ``place`` is where tainted ones stand in."""
    found = failure_warnings(results)
    tainted = [result for result in results if result.tainted and result.error is None]
    if tainted:
        checks = Counter(v.check for result in tainted for v in result.verdicts if v.taints)
        why = ", ".join(f"{check} ({count})" for check, count in checks.most_common())
        found.append(f"{len(tainted)} of {len(results)} trials are tainted, by {why}; they count only where {place} has no clean trial")
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
