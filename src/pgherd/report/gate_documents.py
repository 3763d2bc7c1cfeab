"""A gate's result as Markdown for pull requests and as JUnit XML for continuous integration servers."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from pgherd.model.finding import Finding
from pgherd.report.formatting import MISSING, clean, half_width, number
from pgherd.report.gate import NOTE, Comparison, Gate, change_text, remedy, sentence, verdict_text
from pgherd.report.html_model import Table

_HEADS = {"worse": "worse than allowed", "cannot tell": "cannot tell", "within": "passed", "better": "passed"}
MOST = 40
"""Rows of a table of differences that are shown."""


def to_markdown(gate: Gate) -> str:
    """The sentence, the comparisons, what differs between the runs."""
    head = "failed" if gate.failed and not gate.worse else _HEADS[gate.outcome]
    lines = [f"### pgherd gate: {head}", "", f"**{markdown_text(gate.answer)}**", ""]
    lines += [f"> {markdown_text(warning)}.  " for warning in gate.warnings] + ([""] if gate.warnings else [])
    lines += ["| metric | at | baseline | run | change | allowed | verdict |", "|---|---|--:|--:|--:|--:|---|"]
    for one in gate.comparisons:
        cells = [one.label, one.point or MISSING, _markdown_value(one.old), _markdown_value(one.new), change_text(one.change), one.limit]
        words = verdict_text(one) + (f": {remedy(one)}" if one.verdict == "cannot tell" else "")
        lines.append(
            _markdown_row([*map(markdown_text, cells), f"**{markdown_text(words)}**" if one.verdict == "worse" else markdown_text(words)])
        )
    sides = f"Baseline: `{markdown_code(gate.baseline.name)}`, run: `{markdown_code(gate.run.name)}`."
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
    lines += [_markdown_row([markdown_text(cell.text) for cell in row]) for row in table.rows[:MOST]]
    return [*lines, *([f"… and {count - MOST} more"] if count > MOST else []), "", "</details>"]


def _markdown_value(finding: Finding | None) -> str:
    if finding is None:
        return MISSING
    return f"{number(finding.value, half_width(finding) or None)} {finding.unit}".strip()


def _markdown_row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def markdown_text(words: str) -> str:
    """Words that Markdown and HTML take as they are: neither markup nor the end of a table's cell."""
    escaped = clean(words).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return " ".join(re.sub(r"([\\`*_\[\]|~#])", r"\\\1", escaped).split())


def markdown_code(words: str) -> str:
    """A name between backticks."""
    return " ".join(clean(words).replace("`", "'").replace("|", "/").split())


def to_junit(gate: Gate) -> str:
    """The document as text, with its declaration and a final newline."""
    failures = len(gate.worse) + len(gate.unfit)
    skipped = sum(one.verdict == "cannot tell" for one in gate.comparisons)
    study = clean(gate.run.record.study)
    hosts = [facts.hostname for facts in gate.run.record.hosts.values()]
    root = Element("testsuites")
    suite = SubElement(
        root,
        "testsuite",
        {
            "name": f"pgherd gate {study}",
            "package": "pgherd.gate",
            "id": "0",
            "tests": str(len(gate.comparisons) + len(gate.unfit)),
            "failures": str(failures),
            "errors": "0",
            "skipped": str(skipped),
            "time": "0",
            "timestamp": datetime.fromtimestamp(gate.run.record.started, UTC).strftime("%Y-%m-%dT%H:%M:%S"),
            "hostname": _token("-".join(dict.fromkeys(hosts))) or "localhost",
        },
    )
    properties = SubElement(suite, "properties")
    for name, value in _properties(gate):
        SubElement(properties, "property", {"name": _token(name), "value": clean(value)})
    for why in gate.unfit:
        _fail(_case(suite, study, "grade"), why, "grade")
    for one in gate.comparisons:
        case = _case(suite, study, one.what)
        if one.verdict == "worse":
            _fail(case, sentence(one), "worse", _details(one))
        elif one.verdict == "cannot tell":
            SubElement(case, "skipped", {"message": clean(f"cannot tell: {sentence(one)}; {remedy(one)}")})
    SubElement(suite, "system-out").text = clean(gate.answer)
    SubElement(suite, "system-err").text = clean("\n".join(gate.warnings))
    ElementTree.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _properties(gate: Gate) -> list[tuple[str, str]]:
    """Names and what differs: what a reader of the result needs and has no other place."""
    found = [("baseline", gate.baseline.name), ("run", gate.run.name)]
    for kind, table in gate.differences.items():
        found += [(f"{kind}: {row[0].text}", f"{row[1].text} → {row[2].text}") for row in table.rows]
    return found


def _case(suite: Element, study: str, name: str) -> Element:
    return SubElement(suite, "testcase", {"name": _token(name), "classname": f"pgherd.{_token(study)}", "time": "0"})


def _fail(case: Element, message: str, kind: str, details: str = "") -> None:
    failure = SubElement(case, "failure", {"message": clean(message), "type": kind})
    failure.text = clean(details or message)


def _details(one: Comparison) -> str:
    return f"{sentence(one)}\n{one.change.method}\nn = {one.change.n}"


def _token(text: str) -> str:
    """Text without line breaks and without space at its ends, as xs:token wants it."""
    return " ".join(clean(text).split())
