"""Text of numbers, intervals, grades and names, equal on the terminal, in HTML and in figures. No I/O."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

from pgherd.model.analysis import Analysis, Finding, Grade
from pgherd.model.result import TrialResult
from pgherd.model.text import clean
from pgherd.study.study import labels, percent_columns

Cell = Finding | str | int | float | None
"""One cell of an Analysis' table."""

B_WITHOUT_NOISE = (
    "some checks could not be made, points are missing, there are too few trials for an interval, or the host, pgherd or an external "
    "server's settings changed during the run"
)
"""Causes of grade B if no trial was noisy."""

GRADE_MEANING: dict[Grade, str] = {
    "A": "All checks passed in every trial used; see the intervals for precision",
    "B": f"Some trials were noisy, {B_WITHOUT_NOISE}",
    "C": "Half or more of the results, or their reference, rest on tainted trials, or there is too little data",
}


def grade_meaning(grade: Grade, trials: int) -> str:
    """Return the meaning of a grade of a run with this number of trials. Without trials there is no grade."""
    return GRADE_MEANING[grade] if trials else "no trials"


def grade_text(analysis: Analysis, trials: int) -> str:
    """Return why an analysis has its grade: the reason in its answer, or the meaning of the grade."""
    return clean(analysis.grade_reason) or grade_meaning(analysis.grade, trials)


MISSING = "–"
"""Text for a missing number."""

_LABELS = {
    "cpu_per_tx": "CPU per transaction",
    "throughput": "throughput",
    "nopm": "new orders per minute",
    "databases_cpu": "databases' CPU",
    "clients_cpu": "clients' CPU",
    "aicc": "AICc",
    "relative_error": "relative error",
    "iops": "I/Os per second",
    "p99_9": "p99.9",
}
"""Labels of columns that several studies have. A study's own are in its ``labels``."""
_PERCENT_COLUMNS = frozenset({"relative_error", "relative_to_mean", "relative_to_median", "cpu_share", "time_share"})
_BETWEEN = re.compile(r"(?<!\d)\.|\.(?!\d)")
"""Separator of the parts of a name: any dot that does not belong to a number."""
_INITIALS = {"cpu": "CPU", "io": "I/O", "usl": "USL", "wal": "WAL"}


def label(name: str) -> str:
    """Return the label of a column or finding: ``cpu_efficiency`` → ``CPU efficiency``,
    ``ratio{layout=dedicated,overcommit=0.4}`` → ``ratio: layout dedicated, overcommit 0.4``.
    """
    return _LABELS.get(name) or labels().get(name) or name_text(name)


def name_text(name: str) -> str:
    """Return a name as text, without the label of a column with that name: ``cpu_mode`` → ``CPU mode``."""
    if name.startswith("to "):  # followed by a host's name, which stays unchanged
        return clean(name)
    quantity, _, coordinates = name.removesuffix("}").partition("{")
    if coordinates:
        return f"{label(quantity)}: {', '.join(label(coordinate).replace('=', ' ') for coordinate in coordinates.split(','))}"
    parts = _BETWEEN.sub(": ", clean(name))
    return " ".join(_INITIALS.get(word, word) for word in parts.replace("_", " ").split(" "))


def finite(value: object) -> float | None:
    """Return the value (of a Finding: its value) as a float if it is a finite number, otherwise None."""
    if isinstance(value, Finding):
        value = value.value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer of more than 308 digits
        return None


def bounds(cell: object) -> tuple[float | None, float | None]:
    """Return a finding's interval, or (None, None) of any other cell."""
    return (finite(cell.low), finite(cell.high)) if isinstance(cell, Finding) else (None, None)


def half_width(finding: Finding) -> float | None:
    """Return the larger distance between value and interval ends, or None without an interval."""
    value, low, high = finite(finding.value), finite(finding.low), finite(finding.high)
    if value is None or low is None or high is None:
        return None
    return max(value - low, high - value, 0.0)


def number(value: float | None, spread: float | None = None, *, most: int = 6) -> str:
    """Return a number with its significant digits.

    With a ``spread`` (half an interval) it ends at the spread's second significant digit. Without one it has four significant digits.
    ``None`` and values that are not finite become a dash. ``most`` limits the decimals.
    """
    value = finite(value)
    if value is None:
        return MISSING
    if spread is not None and math.isfinite(spread) and spread > 0:
        decimals = 1 - math.floor(math.log10(spread))
    elif value:
        decimals = 3 - math.floor(math.log10(abs(value)))
    else:
        return "0"
    if float(value).is_integer() and abs(value) < 1e5 and spread is None:
        return f"{value:,.0f}"
    decimals = min(decimals, most)
    rounded = round(value, decimals)
    text = f"{rounded + 0.0:,.{max(decimals, 0)}f}"
    if decimals > 0 and spread is None:
        text = text.rstrip("0").rstrip(".")
    return text


def finding_value(finding: Finding) -> str:
    """Return a finding's value with the digits of its interval. Without a value it is its lower bound: ``at least 4 (95 %)``."""
    if finite(finding.value) is None and finite(finding.low) is not None:
        return f"at least {number(finding.low)} ({share(finding.confidence or 0.95)})"
    return number(finding.value, half_width(finding) or None)


def brief(value: float | None) -> str:
    """Return a number with three significant digits, for titles."""
    value = finite(value)
    return MISSING if value is None else number(float(f"{value:.3g}"))


def compact(value: float | None) -> str:
    """Return a short number: ``121934`` → ``121.9k``."""
    value = finite(value)
    if value is None:
        return MISSING
    size, letter = next(((size, letter) for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")) if abs(value) >= size), (1.0, ""))
    size = 1e3 if letter == "k" else size
    return number(value / size, most=3) + letter


def percent_value(cell: Cell) -> float | None:
    """Return a share in percent: the value of a Finding in '%', any other number times 100."""
    value = finite(cell)
    if value is None:
        return None
    return value if isinstance(cell, Finding) and cell.unit == "%" else value * 100


def percent(cell: Cell, *, decimals: int = 1) -> str:
    """Return a share as text: ``85.7 %``."""
    value = percent_value(cell)
    return MISSING if value is None else f"{value:.{decimals}f} %"


def share(value: float, decimals: int = 0) -> str:
    """Return a share as text: ``0.857`` → ``86 %``."""
    return f"{value * 100:.{decimals}f} %"


def as_percent(finding: Finding) -> Finding:
    """Return the same share in percent."""
    if finding.unit == "%":
        return finding
    scaled = {key: None if getattr(finding, key) is None else getattr(finding, key) * 100 for key in ("value", "low", "high")}
    return finding.model_copy(update={**scaled, "unit": "%"})


def is_percent_column(name: str) -> bool:
    """Return whether a column of that name has shares, which are shown in percent."""
    return name in _PERCENT_COLUMNS or name in percent_columns()


def interval(finding: Finding, spread: float | None = None) -> str:
    """Return ``84.1 to 87.2`` with the digits of the value or of ``spread``, or '' without an interval."""
    width = half_width(finding)
    if width is None:
        return ""
    spread = spread or width or None
    return f"{number(finding.low, spread)} to {number(finding.high, spread)}"


def explained(finding: Finding) -> str:
    """Return interval, n, method and note of a finding in one line."""
    parts = []
    between = interval(finding)
    if between:
        at = f" at {finding.confidence:.0%} confidence" if finding.confidence else ""
        parts.append(f"{between} {finding.unit}".strip() + at)
    parts.append(f"n = {finding.n}")
    parts += [clean(text) for text in (finding.method, finding.note) if text]
    return "; ".join(parts)


def point_text(point: dict[str, int | float | str]) -> str:
    """Return a trial's point as text: ``databases 4``."""
    return ", ".join(f"{label(name)} {number(value) if isinstance(value, float) else clean(value)}" for name, value in point.items())


def trial_throughput(result: TrialResult) -> float | None:
    """Return the throughput of a trial per second, its phases weighted by their windows, or None without a measurement."""
    seconds = sum(phase.seconds for phase in result.phases)
    if result.error is not None or seconds <= 0:
        return None
    return finite(sum(phase.throughput * phase.seconds for phase in result.phases) / seconds)


def instant(seconds: float | None) -> str:
    """Return wall-clock seconds since the epoch as ``2026-01-31 12:00:00 UTC``."""
    if seconds is None:
        return MISSING
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return MISSING


def no_answer(state: str, error: str | None) -> str:
    """Return the text shown in place of the answer of a run without an analysis."""
    if error and error.startswith(state):  # "interrupted by the user"
        return f"No answer: this run was {clean(error)}."
    status = "failed" if state == "failed" else f"is {state}"
    return f"No answer: this run {status}{f': {clean(error)}' if error else ''}."
