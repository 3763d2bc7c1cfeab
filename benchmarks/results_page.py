"""Pages of all committed results: ``python benchmarks/results_page.py`` writes them from results/*.json.

docs/reference/results.md is the page of pgherd. The extension's, RESULTS.md in its directory, is part of what it is released with.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from outcome import ORDER, RESULTS, Figure, commits_since, interval_text, number_text, value_text, write

ROOT = Path(__file__).parent.parent
PAGE, EXTENSION_PAGE = ROOT / "docs" / "reference" / "results.md", ROOT / "extension" / "pg_balloon" / "RESULTS.md"
EXTENSION = (
    "balloon",
    "balloon_native",
    "balloon_grid",
    "balloon_oracle",
    "limit_changes",
    "controller_constants",
    "controller_constants_real",
)
"""Benchmarks on the extension's page."""
COMMANDS = {"long_check": "./check --long"}
"""Benchmark → command, if it is not its script with the recorded arguments."""
UNRECORDED = "arguments not recorded"
SCRIPTS = {"balloon_oracle": "balloon_grid"}
MIN_FILLED = 0.6
"""Share of the cells of a cross table that must have a figure."""
MIN_REPEATS = 3
"""Repeats of a case of balloon_grid below which the page leaves it out."""
_BOUND = re.compile(r"^(?:upper|lower) bound ")
"""Start of a goal that the mark implies."""
LIMITS = {
    "plan_truth": (
        "A host is overloaded from 97 % of its quota, and those on the wrong side of it were next to that. Twenty hosts cannot decide "
        "goals of 90 and 10 %. Stalls of the machine make transactions late in single seconds of the calibration, so many classes are "
        "open. The file has no intervals of the late shares. Those used here are of independent transactions, and narrower than pgherd's, "
        "so the classes must be measured again."
    ),
    "slo_repeatability": (
        "The CPU decides these answers, and one database of 45 is 2.2 % of it. Its speed changes by more: in [plan_truth](#plan_truth), a "
        "transaction of the reference database takes 0.87 to 1.19 of its usual CPU from one phase to another."
    ),
    "tenants": (
        "A pgbench starts for each tenant at a border, which takes some milliseconds of a CPU. Of two CPUs, those of both classes, "
        "pgherd uses a part. The figures of phases are of an earlier formula, which takes the phases of a trial as independent. No "
        "schedule lag was known, so that tenants kept their rates is not shown. Phases must be measured again."
    ),
    "isolation": (
        "Of two CPUs, the aggressor leaves none to pgherd's samplers and the system. That they make the victim slower is likely, but not "
        "shown: it takes a third CPU."
    ),
    "balloon_native": (
        "Of the additional CPU in the pool, 1.2 of 1.9 % (1 GB) and 2.4 of 4.1 % (8 GB) are that of a pool four times as large: a native "
        "one of the same size has it, too. The balloon adds 0.7 and 1.7 %. With a third of the reads past the pool, 8 GB miss the goal."
    ),
    "balloon_grid": (
        "Older than the controller of 2026-11-30, and compressed swap was not yet charged to the static pools. "
        "[balloon_oracle](#balloon_oracle) separates what the mechanism costs from what the controller does."
    ),
    "balloon_oracle": (
        "One cell. The oracle knows the phases, and sets the sizes of the balloons at each switch. The controller has 1.05 of its "
        "throughput and recovers sooner, so what is missing to the best static pool is not its decisions: evicted pages are read back from "
        "limited storage, where the static pool of 75 % is in compressed swap, whose memory is taken off its limits."
    ),
    "limit_changes": (
        "Only the cases without swap and with swap in zram. Cgroup v1 keeps a limit that the kernel refuses, so pgherd lowers it step by "
        "step to a little more than the memory in use. None of 24 lower limits of pg_balloon was refused. Without swap, each of too large "
        "native pools was. With swap in zram, three of three trials of the large native pool ended by an OOM kill. An earlier measurement "
        "with swap had 8 of 12 lower limits of pg_balloon refused: the thread that writes limits waited for a CPU nearly all the time, and "
        "now runs in real time. The case without swap was measured before that change. Its repeat after it (2026-12-01, seed 13) is not "
        "published: 10 of 18 trials were tainted by steal or other programs. None of its 24 lower limits of pg_balloon was refused. "
        "Without swap, every lower limit of "
        "pg_balloon and no larger one has a transaction of 104 to 111 ms, and of the native pool for the middle 7 of 12. The kernel likely "
        "throttles reclaim, which takes 100 ms. At 100 %, before any change, the balloon is empty, and without swap had 0.868 and 0.777 of "
        "the throughput of the large native pool in the two repeats that both have, too few for an interval. A further run (`balloon "
        "limits --swap none --pools balloon,large --limits 100,100`, 2026-12-01, six clean trials each) had 0.99 (0.86 to 1.15) at the "
        "start, and 0.88 (0.76 to 1.01) with new connections. Phases there have two speeds, with 1.5 and 1.75 context switches per "
        "transaction, and the balloon had the fast one in 3 of 12 phases, the native pool in 6 of 12. Whether the worker's wake-ups cause "
        "that on two full CPUs is not known. An idle balloon has 1.003 (0.998 to 1.008) of the CPU per transaction "
        "([balloon](#balloon), 200 pairs). With swap no large native pool finished."
    ),
    "throughput": "One database has one whole CPU, and pgherd has the other. This is the cost of pgbench's own reports. It does not show "
    "what pgherd takes from a full host, as [presence](#presence) does.",
}
"""Benchmark → limits of what it shows."""
MARKS = {True: " ✓", False: " ✗", None: " ?"}
INTRODUCTION = """\
# Results

<!-- Generated by benchmarks/results_page.py from benchmarks/results/*.json. Do not edit. -->

Use this page to look up the measured cost of pgherd and the simulated error rates of its statistics. Each section is from one committed
result file, which also has every single measurement, and cases with fewer than three repeats.
[Benchmarks](../../benchmarks/README.md) explains how to run them and read them.
Intervals are 95 %, except in false_positives, gate_alarms and the shares of steal_pairs, where each end is a one-sided 99 % bound, and
where a name states another.
Goals: ✓ the whole interval meets it, ✗ none of it does, ? inconclusive. Goals of the form "9 of 10" count.
Machine, unless a section names another: """
EXTENSION_INTRODUCTION = """\
# Results of pg_balloon

<!-- Generated by benchmarks/results_page.py from benchmarks/results/*.json in pgherd's repository. Do not edit. -->

Use this page to look up what the balloon costs and gains. Each section is a script in `benchmarks/` of pgherd's repository, where its
result file has every single measurement. Intervals are 95 %.
Goals: ✓ the whole interval meets it, ✗ none of it does, ? inconclusive. Machine, unless a section names another: """
AGES = "Ages"
"""Heading of the ages of all results, as of the last time the page was written."""
MACHINE = "2 virtual CPUs, shared, 25 GB of memory"


def page(results: Path = RESULTS) -> str:
    """Return pgherd's page: the ages, and one section for each result file that is not on the extension's."""
    there = "Those of pg_balloon have [their own page](../../extension/pg_balloon/RESULTS.md)."
    head = [f"{INTRODUCTION}{MACHINE}. {there}", f"## {AGES}", "\n".join(markdown(ages(results)))]
    return "\n\n".join([*head, *sections([name for name in ORDER if name not in EXTENSION], results)]) + "\n"


def extension_page(results: Path = RESULTS) -> str:
    """Return the extension's page."""
    return "\n\n".join([f"{EXTENSION_INTRODUCTION}{MACHINE}.", *sections(EXTENSION, results)]) + "\n"


def write_pages() -> None:
    """Write both pages."""
    write(PAGE, page())
    write(EXTENSION_PAGE, extension_page())


def sections(names: Sequence[str], results: Path) -> Iterator[str]:
    """Yield a section for each benchmark."""
    for name in names:
        file = results / f"{name}.json"
        yield section(json.loads(file.read_text())) if file.is_file() else f"## {name}\n\nNot run yet."


def ages(results: Path = RESULTS) -> list[list[str]]:
    """Return a table of the results by their age, with the names of the benchmarks."""
    names: dict[int | None, list[str]] = {}
    for name in ORDER:
        file = results / f"{name}.json"
        if file.is_file():
            document = json.loads(file.read_text())
            names.setdefault(commits_since(document.get("first", document).get("commit", "")), []).append(name)
    rows = sorted(names.items(), key=lambda row: (row[0] is None, row[0] or 0))
    return [
        ["commits to the measured code since", "benchmarks"],
        *(["unknown: measure again" if age is None else str(age), ", ".join(those)] for age, those in rows),
    ]


def without_ages(text: str) -> str:
    """Return the page's text without the ages, which each commit changes."""
    return re.sub(rf"(?<=^## {AGES}\n\n)(?:\|.*\n)+", "", text, flags=re.MULTILINE)


def section(document: Mapping[str, Any]) -> str:
    """Return the date, command and tables of one result."""
    name = document["benchmark"]
    machine = "" if document["machine"] == MACHINE else f" · {document['machine']}"
    figures = SELECTIONS.get(name, list)([Figure(**figure) for figure in document["figures"]])
    measured = f" · commit {document['commit']}" if document.get("commit") else " · commit not recorded"
    if first := document.get("first"):
        measured += f", first measurements {first['date']} at {first['commit'] or 'an unknown commit'}"
    parts = [f"## {name}", f"{document['date']}{measured} · {_commands(document)}{machine}", *([LIMITS[name]] if name in LIMITS else [])]
    parts.append("\n".join(markdown(cross_table(figures) or flat_table(figures))))
    for title, rows in DETAILS.get(name, lambda document: {})(document).items():
        parts += [f"{title}:", "\n".join(markdown(rows))]
    return "\n\n".join(parts)


def _commands(document: Mapping[str, Any]) -> str:
    """Return the commands of all runs of a result, with the recorded arguments, or that of the list."""
    name = document["benchmark"]
    if name in COMMANDS:
        return f"`{COMMANDS[name]}`"
    runs = [*document.get("before", []), document]
    if "first" in document and "before" not in document:  # older: that of its additions were left out
        return UNRECORDED
    script = f"benchmarks/{SCRIPTS.get(name, name)}.py"
    said = [UNRECORDED if (words := run.get("arguments")) is None else f"`{' '.join((script, *words))}`" for run in runs]
    return ", then ".join(said)


def markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table without padding; the first row is the head."""
    lines = [f"|{'|'.join(row)}|" for row in rows]
    return [lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]


def flat_table(figures: Sequence[Figure]) -> list[list[str]]:
    """Return one row for each figure."""
    rows = [["figure", "result", "interval", "n", "goal"]]
    for figure in figures:
        goal = f"{_BOUND.sub('', figure.goal)}{MARKS[figure.met]}" if figure.goal else ""
        rows.append([figure.name, value_text(figure), _interval(figure), str(figure.n), goal])
    return rows


def cross_table(figures: Sequence[Figure]) -> list[list[str]] | None:
    """Return rows of cases and columns of quantities for names such as ``CASE: QUANTITY``; None if that does not suit them."""
    for separator in (": ", ", "):
        cells = {tuple(figure.name.split(separator, 1)): figure for figure in figures}
        if len(cells) < len(figures) or any(len(key) != 2 for key in cells):
            continue
        cases, quantities = (list(dict.fromkeys(key[index] for key in cells)) for index in (0, 1))
        columns = {quantity: [cells[case, quantity] for case in cases if (case, quantity) in cells] for quantity in quantities}
        filled = len(cells) >= MIN_FILLED * len(cases) * len(quantities)
        if min(len(cases), len(quantities)) < 2 or not filled:
            continue
        rows = [["", *(_heading(quantity, column) for quantity, column in columns.items())]]
        rows += [[case, *(_cell(cells.get((case, quantity)), columns[quantity]) for quantity in quantities)] for case in cases]
        return rows
    return None


def repeated_cases(figures: Sequence[Figure]) -> list[Figure]:
    """Return the figures without cases that were measured fewer than MIN_REPEATS times. Name of a figure: ``CASE: QUANTITY``."""
    return [figure for figure in figures if figure.n >= MIN_REPEATS]


def without_power(figures: Sequence[Figure]) -> list[Figure]:
    """Return the figures of false_positives without those of its further tables."""
    return [figure for figure in figures if not figure.name.startswith(("5 % found within", "false positives against the mean"))]


def capacities(figures: Sequence[Figure]) -> list[Figure]:
    """Return the figures of coverage of the two capacities. The file has those of the table's quantities as well."""
    return [figure for figure in figures if ": capacity " in figure.name]


def equal_tests(figures: Sequence[Figure]) -> list[Figure]:
    """Return the figures of long_check with one for all tests of a file that have the same result."""
    groups: dict[tuple[object, ...], list[Figure]] = {}
    for figure in figures:
        groups.setdefault((figure.name.partition(": ")[0], figure.value, figure.n, figure.goal, figure.met), []).append(figure)
    return [
        group[0] if len(group) == 1 else replace(group[0], name=f"{group[0].name.partition(': ')[0]}: each of {len(group)} tests")
        for group in groups.values()
    ]


SELECTIONS: dict[str, Callable[[Sequence[Figure]], list[Figure]]] = {
    "balloon_grid": repeated_cases,
    "balloon_oracle": repeated_cases,
    "coverage": capacities,
    "false_positives": without_power,
    "long_check": equal_tests,
}
"""Benchmark → choice of the figures on the page, if it has not all."""


def _heading(quantity: str, column: Sequence[Figure]) -> str:
    details = (_common(column, "unit"), f"n={count}" if (count := _common(column, "n")) else "", _common(column, "goal"))
    return f"{quantity} ({', '.join(filter(None, details))})" if any(details) else quantity


def _cell(figure: Figure | None, column: Sequence[Figure]) -> str:
    if figure is None:
        return ""
    value = value_text(figure) if _common(column, "unit") is None else number_text(figure.value, figure)
    spread = [_interval(figure), f"n={figure.n}" if _common(column, "n") is None else ""]
    goal = "" if _common(column, "goal") else f" {figure.goal}"
    return f"{value}{f' ({text})' if (text := ', '.join(filter(None, spread))) else ''}{MARKS[figure.met] + goal if figure.goal else ''}"


def _common(column: Sequence[Figure], name: str) -> Any:
    """Return the value that all figures of a column share, those without a goal aside; None if they differ."""
    values = {getattr(figure, name) for figure in column if name != "goal" or figure.goal}
    return values.pop() if len(values) == 1 else None


def _interval(figure: Figure) -> str:
    return interval_text(figure).replace(" to ", "–")


def simulated_comparisons(document: Mapping[str, Any]) -> dict[str, list[list[str]]]:
    """Return the tables of false_positives: power, other stopping rules, and the mean of two baselines."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for row in document["raw"]:
        parts.setdefault(row["part"], []).append(row)
    lengths = sorted({row["most"] for row in parts["equal"]})

    def rate(row: dict[str, Any], key: str) -> str:
        return f"{100 * row[key] / row['studies']:.1f}%"

    power = [["noise of a trial", "kind", *(f"≤ {most} blocks" for most in lengths)]]
    for kind, noise in dict.fromkeys((row["noise"], row["noise of a trial"]) for row in parts["power"]):
        rows = [row for row in parts["power"] if (row["noise"], row["noise of a trial"]) == (kind, noise)]
        cells = [f"{rate(row, 'found')}, {row['mean blocks']:.0f}, {100 * row['median estimate of those found']:+.1f}%" for row in rows]
        power.append(["as measured" if noise is None else f"{100 * noise:g}%", kind, *cells])

    rules = [["rule", *(f"≤ {most} blocks" for most in lengths)]]
    for rule in dict.fromkeys(row["rule"] for row in parts["rules"]):
        rows = [row for row in parts["rules"] if row["rule"] == rule]
        rules.append([rule, *(f"{rate(row, 'false')}, {rate(row, 'found')}, {row['mean blocks']:.0f}" for row in rows)])

    baselines = [["noise", *(f"≤ {most} blocks" for most in lengths)]]
    for kind in ("independent", "real", "stalls"):
        rows = [row for row in parts["both_baselines"] if row["noise"] == kind]
        baselines.append([kind, *(", ".join(rate(row, f"false, {which}") for which in ("one", "both")) for row in rows)])
    return {
        "A true difference of 5 % (share of studies that find it, mean blocks used, median estimate if found)": power,
        "Stopping rules (false positives, share that finds 5 %, mean blocks used; noise 5 %, all kinds together)": rules,
        "False positives with one baseline and with the mean of both": baselines,
    }


def simulated_gates(document: Mapping[str, Any]) -> dict[str, list[list[str]]]:
    """Return the table of gate_alarms by the number of points."""
    shares = {(row["noise"], row["points"]): f"{100 * row['alarms'] / row['studies']:.1f}%" for row in document["raw"]}
    points = sorted({count for _, count in shares})
    rows = [["noise", *(f"{count} point{'' if count == 1 else 's'}" for count in points)]]
    rows += [[noise, *(shares[noise, count] for count in points)] for noise in dict.fromkeys(noise for noise, _ in shares)]
    return {"False alarms by number of points": rows}


def without_coverage(document: Mapping[str, Any]) -> dict[str, list[list[str]]]:
    """Return the table of all quantities in the case in which the intervals do not cover."""
    case = "the same, over three trials"
    rows = [["quantity", "coverage", "runs with an interval"]]
    for row in document["raw"]:
        made = row["held"] + row["missed"]
        if row["case"] == case and "all runs" not in row["quantity"]:
            share = made / (made + row["none"])
            rows.append([row["quantity"], f"{row['held'] / made:.3f}" if made else "", f"{100 * share:.0f}%"])
    of_all = [["case", "coverage", "runs with an interval"]]
    for row in document["raw"]:
        made = row["held"] + row["missed"]
        if "all runs" in row["quantity"] and made:
            of_all.append([row["case"], f"{row['held'] / made:.3f}", f"{100 * made / (made + row['none']):.0f}%"])
    title = (
        "Capacity by CPU has the same noise in all cases (independent, 0.2 % of the share, 1 % from 90 % of a full host on), so it is one "
        'case. In "the same, over three trials" a level of a full host lasts three of its trials on the mean. Where a run\'s trials '
        "show both, there is no interval. In a run that has one, less than a fifth of these trials were on the other level"
    )
    meaning = (
        "An interval is about the conditions of its run. The mean of all runs is another quantity: where the machine drifts or differs "
        "from run to run, repeats within one run do not show how far it is from that mean. Intervals of the throughput at 10 databases "
        "hold it this often"
    )
    return {title: rows, meaning: of_all} | outside_goals(document)


def outside_goals(document: Mapping[str, Any]) -> dict[str, list[list[str]]]:
    """Return the table of all figures of coverage that miss the goal, with the cause of each."""
    figures = [figure for figure in (Figure(**figure) for figure in document["figures"]) if figure.met is False]
    if not figures:
        return {}
    rows = [["figure", "coverage", "runs", "cause"]]
    for figure in figures:
        cause = next((cause for part, cause in CAUSES.items() if part in figure.name), "not known")
        rows.append([figure.name, f"{figure.value:.3f}", str(figure.n), cause])
    return {"Outside of the goal": rows}


_POOLED = "too wide: a point has at least the spread that is pooled over its neighbours, and here they are noisier than it is"
CAUSES = {
    "25 % at ten databases: ": _POOLED,
    "two levels at the last two points: ": _POOLED,
    "drift of 9 % over minutes: capacity": "too wide: drift is in the spread of each point, but points of one block drift together",
    "the same, over three trials: ": "too narrow: a run on one level does not show the other one",
    "hinge, ": "too wide: the true knee is a measured load, where the draws of the bootstrap heap",
    ": peak": "too wide: the lower end holds for all loads at once",
    "USL, kappa 0, ": "too narrow: kappa cannot be below its true value of 0, which moves sigma",
}
"""Part of a figure's name → cause of a coverage outside of the goal."""


def halved_and_doubled(document: Mapping[str, Any]) -> dict[str, list[list[str]]]:
    """Return the tables of controller_constants: effects of half and double of each constant, and the constants without any."""
    settings = document["settings"]
    rows = [["constant", "halved", "doubled"]]
    rows += [[name, *("; ".join(cells[change]) for change in ("halved", "doubled"))] for name, cells in settings["effects"].items()]
    names = ", ".join(settings["without effect"]) or "none"
    return {"Effects beyond the tolerances": rows, "Constants without such an effect": [["constants"], [names]]}


DETAILS: dict[str, Callable[[Mapping[str, Any]], dict[str, list[list[str]]]]] = {
    "controller_constants": halved_and_doubled,
    "coverage": without_coverage,
    "coverage_models": outside_goals,
    "false_positives": simulated_comparisons,
    "gate_alarms": simulated_gates,
}
"""Benchmark → further tables, from its single measurements."""


if __name__ == "__main__":
    write_pages()
    print(PAGE, EXTENSION_PAGE)
