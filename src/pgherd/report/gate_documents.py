"""A gate's result as Markdown for pull requests and as JUnit XML for continuous integration servers.

The XML satisfies the schemas of Apache Ant's JUnit task and of Jenkins' xUnit plugin: it has every attribute that one of them requires, and
no element that one of them forbids. One comparison is one test case. An inconclusive one is *skipped*, with the reason.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from pgherd.model.analysis import Finding
from pgherd.model.text import clean
from pgherd.report.formatting import MISSING, finding_value
from pgherd.report.gate import NOTE, Comparison, Gate, change_text, remedy, result_text, sentence
from pgherd.report.html_model import Table

_HEADS = {"regression": "worse than allowed", "inconclusive": "inconclusive", "pass": "passed", "improvement": "passed"}
MAX_ROWS = 40
"""Maximum number of rows of a table of differences."""


def to_markdown(gate: Gate) -> str:
    """Return the answer, the comparisons and the differences between the runs."""
    head = "failed" if gate.failed and not gate.regressions else _HEADS[gate.result]
    lines = [f"### pgherd gate: {head}", "", f"**{markdown_text(gate.answer)}**", ""]
    lines += [f"> {markdown_text(warning)}.  " for warning in gate.warnings] + ([""] if gate.warnings else [])
    lines += ["| metric | at | baseline | run | change | allowed | result |", "|---|---|--:|--:|--:|--:|---|"]
    for comparison in gate.comparisons:
        values = (_markdown_value(comparison.old), _markdown_value(comparison.new))
        cells = [comparison.label, comparison.point or MISSING, *values, change_text(comparison.change), comparison.limit]
        result = result_text(comparison) + (f": {remedy(comparison)}" if comparison.result == "inconclusive" else "")
        lines.append(
            _markdown_row(
                [*map(markdown_text, cells), f"**{markdown_text(result)}**" if comparison.result == "regression" else markdown_text(result)]
            )
        )
    runs = f"Baseline: `{markdown_code(gate.baseline.name)}`, run: `{markdown_code(gate.run.name)}`."
    lines += ["", f"{runs} Changes have joint 95 % intervals. {NOTE}"]
    for kind, table in gate.differences.items():
        if table.rows:
            lines += ["", *_differing(kind, table)]
    same = [kind for kind, table in gate.differences.items() if not table.rows]
    if same:
        lines += ["", f"The same in both: {', '.join(same)}."]
    return "\n".join(lines) + "\n"


def _differing(kind: str, table: Table) -> list[str]:
    """Return the differences of one kind in a folded section."""
    count = len(table.rows)
    lines = [f"<details><summary>{kind.capitalize()} that differ ({count})</summary>", "", "| | baseline | run |", "|---|---|---|"]
    lines += [_markdown_row([markdown_text(cell.text) for cell in row]) for row in table.rows[:MAX_ROWS]]
    return [*lines, *([f"… and {count - MAX_ROWS} more"] if count > MAX_ROWS else []), "", "</details>"]


def _markdown_value(finding: Finding | None) -> str:
    if finding is None:
        return MISSING
    return f"{finding_value(finding)} {finding.unit}".strip()


def _markdown_row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def markdown_text(text: str) -> str:
    """Return text that is neither markup in Markdown or HTML nor the end of a table cell."""
    escaped = clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return " ".join(re.sub(r"([\\`*_\[\]|~#])", r"\\\1", escaped).split())


def markdown_code(name: str) -> str:
    """Return a name for use between backticks."""
    return " ".join(clean(name).replace("`", "'").replace("|", "/").split())


def to_junit(gate: Gate) -> str:
    """Return the document as text with its declaration and a final newline."""
    failures = len(gate.regressions) + len(gate.unfit)
    skipped = sum(comparison.result == "inconclusive" for comparison in gate.comparisons)
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
    for reason in gate.unfit:
        _fail(_case(suite, study, "grade"), reason, "grade")
    for comparison in gate.comparisons:
        case = _case(suite, study, comparison.description)
        if comparison.result == "regression":
            _fail(case, sentence(comparison), "regression", _details(comparison))
        elif comparison.result == "inconclusive":
            SubElement(case, "skipped", {"message": clean(f"inconclusive: {sentence(comparison)}; {remedy(comparison)}")})
    SubElement(suite, "system-out").text = clean(gate.answer)
    SubElement(suite, "system-err").text = clean("\n".join(gate.warnings))
    ElementTree.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _properties(gate: Gate) -> list[tuple[str, str]]:
    """Return the names of the runs and their differences, which have no other element in the schema."""
    properties = [("baseline", gate.baseline.name), ("run", gate.run.name)]
    for kind, table in gate.differences.items():
        properties += [(f"{kind}: {row[0].text}", f"{row[1].text} → {row[2].text}") for row in table.rows]
    return properties


def _case(suite: Element, study: str, name: str) -> Element:
    return SubElement(suite, "testcase", {"name": _token(name), "classname": f"pgherd.{_token(study)}", "time": "0"})


def _fail(case: Element, message: str, kind: str, details: str = "") -> None:
    failure = SubElement(case, "failure", {"message": clean(message), "type": kind})
    failure.text = clean(details or message)


def _details(comparison: Comparison) -> str:
    return f"{sentence(comparison)}\n{comparison.change.method}\nn = {comparison.change.n}"


def _token(text: str) -> str:
    """Return text without line breaks and without space at its ends, as required by xs:token."""
    return " ".join(clean(text).split())
