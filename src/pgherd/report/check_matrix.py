"""Verdicts in an order that a reader can take in: a matrix of trials and checks, and what did not pass in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgherd.model.finding import Verdict, VerdictResult
from pgherd.model.result import TrialResult
from pgherd.report.formatting import clean

SYMBOLS: dict[str, str] = {"pass": "✓", "fail": "✗", "unknown": "?", "": ""}


@dataclass(frozen=True)
class MatrixCell:
    """What one check says of one trial: the worst of its verdicts (empty: not checked), and all of them in words."""

    result: VerdictResult | str
    words: str

    @property
    def symbol(self) -> str:
        """One character for it."""
        return SYMBOLS[self.result]


@dataclass(frozen=True)
class Matrix:
    """Checks (intent first) and, per trial in the order given, one cell for each."""

    checks: tuple[str, ...]
    intents: int
    rows: tuple[tuple[TrialResult, tuple[MatrixCell, ...]], ...]


def matrix(results: Sequence[TrialResult]) -> Matrix:
    """Trial × check over all results."""
    kinds: dict[str, str] = {}
    for result in results:
        for verdict in result.verdicts:
            kinds.setdefault(verdict.check, verdict.kind)
    checks = tuple(sorted(kinds, key=lambda check: kinds[check] != "intent"))
    rows = []
    for result in results:
        cells = []
        for check in checks:
            own = sorted((verdict for verdict in result.verdicts if verdict.check == check), key=lambda v: v.gravity, reverse=True)
            cells.append(MatrixCell(own[0].result if own else "", "; ".join(map(_words, own)) if own else "not checked"))
        rows.append((result, tuple(cells)))
    return Matrix(checks, sum(kind == "intent" for kind in kinds.values()), tuple(rows))


def exceptions(results: Sequence[TrialResult]) -> list[str]:
    """Everything that did not pass, as sentences: errors, failed checks, then what could not be seen, with its trials.

    Verdicts that say the same of several trials are one sentence; what was observed is given for the first.
    """
    lines = [f"Trial {clean(result.id)} did not finish: {clean(result.error)}" for result in results if result.error is not None]
    grouped: dict[tuple[str, str, str, str, str], list[tuple[str, str]]] = {}
    for result in results:
        for verdict in result.verdicts:
            if verdict.result != "pass":
                key = (verdict.result, verdict.check, verdict.wanted, verdict.why, verdict.severity)
                grouped.setdefault(key, []).append((result.id, verdict.observed))
    for (outcome, check, wanted, why, severity), found in sorted(grouped.items(), key=lambda item: (item[0][0] != "fail", item[0][1])):
        named = list(dict.fromkeys(clean(trial) for trial, _ in found))
        everywhere = len(named) == len(results) > 1
        trials = f"all {len(named)} trials" if everywhere else f"trial{'s' if len(found) > 1 else ''} {', '.join(named)}"
        said = "failed" if outcome == "fail" else "could not be seen"
        effect = " (a warning only)" if severity == "warn" else ""
        line = f"{clean(check)} {said} in {trials}{effect}: {clean(found[0][1])}"
        line += f" in trial {clean(found[0][0])}" if len(found) > 1 else ""
        lines.append(f"{line}; wanted: {clean(wanted)}{f' ({clean(why)})' if why else ''}.")
    return lines


def _words(verdict: Verdict) -> str:
    text = f"{verdict.result}: {clean(verdict.observed)}, wanted {clean(verdict.wanted)}"
    return f"{text} ({clean(verdict.why)})" if verdict.why else text
