"""What a long check came to, as a dated result: of each fault how many of its twenty tries passed, and of all other tests how many.

`./check --long` calls it with the report that pytest wrote (JUnit's XML). A test that met a random moment is run twenty times, each
with a seed of its own; what failed is named, with its first words. `./check --long PATH…` is a part of it: its files replace what the
last result says of them, and every row keeps the day and the commit at which it ran.
"""

from __future__ import annotations

import itertools
import json
import os
import time
import xml.etree.ElementTree as xml
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import outcome
from outcome import Figure

ROOT = outcome.HOME.parent
FOLDERS = ("tests", "benchmarks")
"""Folders of the tests that a long check runs."""


@dataclass(frozen=True)
class Ran:
    """One test that ran: its file and name, its try (None: it has one only), and how it ended."""

    file: str
    name: str
    nth: int | None
    result: str
    seconds: float
    words: str = ""


@dataclass(frozen=True)
class Row:
    """What became of a fault (its name) or of a file's other tests (no name), with the day, the commit and the seed of the check."""

    file: str
    fault: str
    passed: int
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    seconds: int = 0
    date: str = ""
    commit: str = ""
    seed: int = 0

    @property
    def tries(self) -> int:
        """Tests that ran; those skipped did not."""
        return self.passed + len(self.failed)


def main() -> None:
    """Read the report, print, write."""
    parser = outcome.parser(__doc__, 20, "unused")
    parser.add_argument("report", type=Path, help="pytest's JUnit XML of a long check")
    parser.add_argument("--part", action="store_true", help="of some files only: the others' rows of the last result stay")
    options = parser.parse_args()
    seed = int(os.environ.get("PGHERD_TEST_SEED", "0"))
    made = rows(read(options.report.read_text()), time.strftime("%Y-%m-%d", time.gmtime()), outcome.commit(), seed)
    file = options.out or outcome.RESULTS / "long_check.json"
    if options.part and file.is_file():
        made = merged([Row(**row) for row in json.loads(file.read_text())["raw"]], made)
    every = {path.relative_to(ROOT).with_suffix("").as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("test_*.py")}
    settings = {
        "files": len({row.file for row in made}),
        "of files": len(every),
        "commits": sorted({row.commit for row in made}),
        "dates": sorted({row.date for row in made}),
        "tests": sum(row.tries for row in made),
        "skipped": sum(len(row.skipped) for row in made),
        "seconds": sum(row.seconds for row in made),
    }
    shown = figures(made, every)
    outcome.conclude(outcome.Outcome("long_check", options.quick, seed, settings, shown, [asdict(row) for row in made]), options)


def read(text: str) -> list[Ran]:
    """The tests of a JUnit report, where one that failed and failed again in its teardown stands twice; raises ValueError for a text of
    another kind."""
    try:
        cases = list(xml.fromstring(text).iter("testcase"))
    except xml.ParseError as error:
        raise ValueError(f"this is no JUnit report: {error}") from None
    found: list[Ran] = []
    for case in cases:
        ended = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        result = "passed" if ended is None else {"failure": "failed", "error": "failed"}.get(ended.tag, ended.tag)
        words = "" if ended is None else " ".join(ended.get("message", "").split())[:200]
        number = next((item.get("value", "") for item in case.iter("property") if item.get("name") == "nth"), "")
        name = case.get("name", "")
        parts = (case.get("classname") or name).split(".")  # a module that cannot be collected is named only
        file = "/".join(itertools.takewhile(lambda part: not part[:1].isupper(), parts))  # without a class
        if number:  # [3] of one choice alone, [disk-3] beside another, [system-3-worker] between two
            name = name.removesuffix(f"[{number}]").replace(f"-{number}]", "]").replace(f"[{number}-", "[").replace(f"-{number}-", "-")
        one = Ran(file, name, int(number) if number else None, result, float(case.get("time", 0)), words)
        if found and (found[-1].file, found[-1].name, found[-1].nth) == (one.file, one.name, one.nth):
            if found[-1].result == "failed":
                continue
            found.pop()
        found.append(one)
    return found


def rows(ran: Iterable[Ran], date: str, commit: str, seed: int) -> list[Row]:
    """A row for each fault, and one for all other tests of a file, sorted by file."""
    groups: dict[tuple[str, str], list[Ran]] = defaultdict(list)
    for one in ran:
        groups[one.file, "" if one.nth is None else one.name].append(one)
    return [
        Row(
            file,
            fault,
            sum(one.result == "passed" for one in tries),
            [_named(one) for one in tries if one.result == "failed"],
            [_named(one) for one in tries if one.result == "skipped"],
            round(sum(one.seconds for one in tries)),
            date,
            commit,
            seed,
        )
        for (file, fault), tries in sorted(groups.items())
    ]


def merged(before: Iterable[Row], now: Iterable[Row]) -> list[Row]:
    """The rows of both; a file that ran again has its new rows alone."""
    new = list(now)
    again = {row.file for row in new}
    return sorted([*(row for row in before if row.file and row.file not in again), *new], key=lambda row: (row.file, row.fault))


def figures(made: Sequence[Row], every: Collection[str]) -> list[Figure]:
    """Faults by name, then everything else together. ``every`` are the files of all tests.

    Not every other test is known to pass while rows of files are missing, or are of several commits.
    """
    faults = [row for row in made if row.fault and row.tries]
    others = [row for row in made if not row.fault and row.tries]
    shown = [_figure(f"{Path(row.file).name}: {row.fault.removeprefix('test_').replace('_', ' ')}", [row], "every try") for row in faults]
    if not others:
        return shown
    files = {row.file for row in made}
    whole = files >= set(every) and len({row.commit for row in made}) == 1
    rest = _figure(f"other tests of {len(files)} of {len(every)} files", others, "every test")
    return [*shown, rest if whole or rest.met is False else replace(rest, met=None)]


def _figure(name: str, counted: list[Row], goal: str) -> Figure:
    from scipy.stats import binomtest

    passed, tries = sum(row.passed for row in counted), sum(row.tries for row in counted)
    share = binomtest(passed, tries).proportion_ci(0.95, "exact")
    failed = ", ".join(name for row in counted for name in row.failed)
    note = f"failed: {failed}" if failed else ""
    value, low, high = (100 * part for part in (passed / tries, share.low, share.high))
    return Figure(f"passed, {name}", value, "%", low, high, tries, "Clopper–Pearson", goal, passed == tries, note)


def _named(one: Ran) -> str:
    return f"{one.name}{'' if one.nth is None else f' ({one.nth})'}{': ' if one.words else ''}{one.words}"


if __name__ == "__main__":
    outcome.run(main)
