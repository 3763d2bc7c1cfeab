"""A gate as Markdown (GitHub's dialect): a summary fit for a pull request."""

from __future__ import annotations

import re

from pgherd.model.finding import Finding
from pgherd.report.formatting import MISSING, clean, half_width, number
from pgherd.report.gate import NOTE, Gate, change_text, remedy, verdict_text
from pgherd.report.html_model import Table

_HEADS = {"worse": "worse than allowed", "cannot tell": "cannot tell", "within": "passed", "better": "passed"}
MOST = 40
"""Rows of a table of differences that are shown."""


def markdown(gate: Gate) -> str:
    """The sentence, the comparisons, what differs between the runs."""
    head = "failed" if gate.failed and not gate.worse else _HEADS[gate.outcome]
    lines = [f"### pgherd gate: {head}", "", f"**{text(gate.answer)}**", ""]
    lines += [f"> {text(warning)}.  " for warning in gate.warnings] + ([""] if gate.warnings else [])
    lines += ["| metric | at | baseline | run | change | allowed | verdict |", "|---|---|--:|--:|--:|--:|---|"]
    for one in gate.comparisons:
        cells = [one.label, one.point or MISSING, _value(one.old), _value(one.new), change_text(one.change), one.limit]
        words = verdict_text(one) + (f": {remedy(one)}" if one.verdict == "cannot tell" else "")
        lines.append(_row([*map(text, cells), f"**{text(words)}**" if one.verdict == "worse" else text(words)]))
    sides = f"Baseline: `{code(gate.baseline.name)}`, run: `{code(gate.run.name)}`."
    lines += ["", f"{sides} Changes stand with intervals that hold jointly at 95 %. {NOTE}"]
    for kind, table in gate.differences.items():
        if table.rows:
            lines += ["", *_differing(kind, table)]
    same = [kind for kind, table in gate.differences.items() if not table.rows]
    if same:
        lines += ["", f"The same in both: {', '.join(same)}."]
    return "\n".join(lines) + "\n"


def _differing(kind: str, table: Table) -> list[str]:
    """What differs of one kind, folded away."""
    count = len(table.rows)
    lines = [f"<details><summary>{kind.capitalize()} that differ ({count})</summary>", "", "| | baseline | run |", "|---|---|---|"]
    lines += [_row([text(cell.text) for cell in row]) for row in table.rows[:MOST]]
    return [*lines, *([f"… and {count - MOST} more"] if count > MOST else []), "", "</details>"]


def _value(finding: Finding | None) -> str:
    if finding is None:
        return MISSING
    return f"{number(finding.value, half_width(finding) or None)} {finding.unit}".strip()


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def text(words: str) -> str:
    """Words that Markdown and HTML take as they are: neither markup nor the end of a table's cell."""
    escaped = clean(words).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return " ".join(re.sub(r"([\\`*_\[\]|~#])", r"\\\1", escaped).split())


def code(words: str) -> str:
    """A name between backticks."""
    return " ".join(clean(words).replace("`", "'").replace("|", "/").split())
