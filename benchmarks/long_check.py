"""What a long check came to, as a dated result: of each fault how many of its twenty tries passed, and of all other tests how many.

`./check --long` calls it with the report that pytest wrote (JUnit's XML). A test that met a random moment is run twenty times, each
with a seed of its own; what failed is named, with its first words.
"""

from __future__ import annotations

import os
import subprocess
import xml.etree.ElementTree as xml
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import outcome
from outcome import Figure


@dataclass(frozen=True)
class Ran:
    """One test that ran: its file and name, its try (None: it has one only), and how it ended."""

    file: str
    name: str
    nth: int | None
    result: str
    seconds: float
    words: str = ""


def main() -> None:
    """Read the report, print, write."""
    parser = outcome.parser(__doc__, 20, "unused")
    parser.add_argument("report", type=Path, help="pytest's JUnit XML of a long check")
    options = parser.parse_args()
    ran = read(options.report.read_text())
    seed = int(os.environ.get("PGHERD_TEST_SEED", "0"))
    made = figures(ran)
    raw = [vars(one) for one in ran if one.result != "passed"]
    settings = {"commit": commit(), "tests": len(ran), "seconds": round(sum(one.seconds for one in ran))}
    outcome.conclude(outcome.Outcome("long_check", options.quick, seed, settings, made, raw), options)


def read(text: str) -> list[Ran]:
    """The tests of a JUnit report; raises ValueError for a text of another kind."""
    try:
        cases = list(xml.fromstring(text).iter("testcase"))
    except xml.ParseError as error:
        raise ValueError(f"this is no JUnit report: {error}") from None
    found = []
    for case in cases:
        ended = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        result = "passed" if ended is None else {"failure": "failed", "error": "failed"}.get(ended.tag, ended.tag)
        words = "" if ended is None else (ended.get("message") or "").splitlines()[0][:200] if ended.get("message") else ""
        number = next((item.get("value", "") for item in case.iter("property") if item.get("name") == "nth"), "")
        file, name = case.get("classname", "").replace(".", "/"), case.get("name", "")
        if number:  # [3] of one choice alone, [disk-3] beside another
            name = name.removesuffix(f"[{number}]").replace(f"-{number}]", "]").replace(f"[{number}-", "[")
        found.append(Ran(file, name, int(number) if number else None, result, float(case.get("time", 0)), words))
    return found


def figures(ran: list[Ran]) -> list[Figure]:
    """Faults by name, then everything else together; those skipped count as not run."""
    faults: dict[str, list[Ran]] = defaultdict(list)
    others: list[Ran] = []
    for one in ran:
        if one.result != "skipped":
            (
                faults[f"{Path(one.file).name}: {one.name.removeprefix('test_').replace('_', ' ')}"] if one.nth is not None else others
            ).append(one)
    made = [_figure(name, tries, "every try") for name, tries in sorted(faults.items())]
    return [*made, _figure("all other tests", others, "every test")] if others else made


def _figure(name: str, tries: list[Ran], goal: str) -> Figure:
    from scipy.stats import binomtest

    passed = sum(one.result == "passed" for one in tries)
    share = binomtest(passed, len(tries)).proportion_ci(0.95, "exact")
    failed = ", ".join(f"{one.name}{'' if one.nth is None else f' ({one.nth})'}" for one in tries if one.result != "passed")
    note = f"failed: {failed}" if failed else ""
    value, met = 100 * passed / len(tries), passed == len(tries)
    return Figure(f"passed, {name}", value, "%", 100 * share.low, 100 * share.high, len(tries), "Clopper–Pearson", goal, met, note)


def commit() -> str:
    """The commit that was checked, as git names it; empty outside of a clone."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=outcome.HOME)
    return done.stdout.strip()[:12]


if __name__ == "__main__":
    outcome.run(main)
