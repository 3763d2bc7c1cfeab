"""A gate as JUnit XML: one test case per comparison, as continuous integration servers read it.

It is written to satisfy both the schema of Apache Ant's JUnit task and that of Jenkins' xUnit plugin: every attribute that
one of them requires, no element that one of them forbids. A comparison that cannot tell is *skipped*, with the reason.
"""

from __future__ import annotations

from datetime import UTC, datetime
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from pgherd.report.formatting import clean
from pgherd.report.gate import Comparison, Gate, remedy, sentence


def junit(gate: Gate) -> str:
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
