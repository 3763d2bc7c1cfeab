"""Contents of HTML pages as plain data: tables of cells, checks, host facts, raw files. Templates do the layout."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pgherd.model.facts import BlockDevice, HostFacts
from pgherd.model.finding import Finding, Verdict, VerdictResult
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.model.units import format_bytes, format_seconds
from pgherd.report import formatting
from pgherd.report.data_files import Row, columns
from pgherd.report.formatting import MISSING, Cell, clean, finite, half_width, interval, number
from pgherd.study.registry import table_view

DERIVED = ("figures", "tables", "report.html", "report.json")
"""What a report writes into the run directory, as opposed to the run's own files."""

FLAGS = {"chosen"}
"""Columns of yes and no, which a table holds as 1 and 0."""


@dataclass(frozen=True)
class CellText:
    """One cell: its text, a second smaller line, what a pointer resting on it says, whether it is a number."""

    text: str
    detail: str = ""
    title: str = ""
    numeric: bool = False


@dataclass(frozen=True)
class Table:
    """A table as shown: its name, column heads, rows."""

    name: str
    heads: tuple[str, ...]
    rows: tuple[tuple[CellText, ...], ...]


def main_table(name: str, rows: Sequence[Row]) -> Table:
    """The study's leading table as it is shown below the answer: its main columns, or all where it has none."""
    view = table_view(name)
    return table(name, with_labels(rows) if view.ratios_as_changes else rows, view.main or None)


def table(name: str, rows: Sequence[Row], only: Sequence[str] | None = None) -> Table:
    """A table of an analysis, of all columns or those of ``only`` that it has.

    A unit that a whole column shares stands in its head; values of one size have the same number of decimals.
    """
    plain = table_view(name).plain
    names = [column for column in only or columns(rows) if any(column in row for row in rows)]
    made = [_column(column, [row.get(column) for row in rows], plain=only is not None and column in plain) for column in names]
    return Table(name, tuple(head for head, _ in made), tuple(zip(*(cells for _, cells in made), strict=True)))


def _column(name: str, cells: Sequence[Cell], *, plain: bool) -> tuple[str, list[CellText]]:
    """Head and cells of one column."""
    if name in FLAGS:
        return formatting.label(name), [CellText("yes" if value else "") for value in cells]
    share = formatting.is_percent_column(name) and all(_share_like(value) for value in cells)
    units = {value.unit for value in cells if isinstance(value, Finding)}
    mixed = len(units) > 1
    spread = _common_spread(cells, share)
    numeric = any(isinstance(value, Finding | int | float) for value in cells)
    shown = [replace(cell(value, share=share, unit=mixed, spread=spread), numeric=numeric) for value in cells]
    unit = "%" if share else "" if mixed or not units else units.pop()
    return _head(name, unit), [replace(one, detail="") for one in shown] if plain else shown


def _share_like(value: Cell) -> bool:
    """Whether the cell is a share counted from 0 to 1 or in percent (or nothing), rather than a text."""
    if isinstance(value, Finding):
        return value.unit in ("", "1", "%", "fraction", "share", "ratio")
    return value is None or isinstance(value, int | float)


def _common_spread(cells: Sequence[Cell], share: bool) -> float | None:
    """The middle half-width of a column's findings where their values are of one size, else None: each by its own."""
    found = [formatting.as_percent(value) if share else value for value in cells if isinstance(value, Finding)]
    values = [abs(value) for one in found if (value := finite(one.value))]
    widths = [width for one in found if (width := half_width(one))]
    if not values or not widths or max(values) > 4 * min(values):
        return None
    return statistics.median(widths)


def _head(column: str, unit: str) -> str:
    text = formatting.label(column)
    return f"{text}, {clean(unit)}" if unit and unit not in ("fraction", "share", "ratio", "1", column) else text


def cell(value: Cell, *, share: bool = False, unit: bool = False, spread: float | None = None) -> CellText:
    """How one cell looks: as a share in percent if asked, with its own unit if the head has none.

    ``spread`` decides the decimals in place of the cell's own interval.
    """
    if isinstance(value, Finding):
        shown = formatting.as_percent(value) if share else value
        text = number(shown.value, spread or half_width(shown) or None)
        text += f" {clean(shown.unit)}" if unit and shown.value is not None else ""
        return CellText(text, interval(shown, spread), formatting.explained(shown), numeric=True)
    if value is None:
        return CellText(MISSING)
    if isinstance(value, int | float):
        return CellText(number(value * 100 if share else value), numeric=True)
    return CellText(clean(value))


def findings_table(findings: Mapping[str, Finding]) -> Table:
    """All findings, one a row, with what was published beside ours."""
    heads = ("finding", "value", "unit", "published", "interval", "confidence", "n", "method", "note")
    rows = []
    for name, finding in findings.items():
        finding = formatting.as_percent(finding) if _is_share(name, finding) else finding
        beside = " ".join(filter(None, (f"{clean(finding.experiment)}:" if finding.experiment else "", clean(finding.published or ""))))
        rows.append(
            (
                CellText(formatting.label(name), title=clean(name)),
                CellText(number(finding.value, half_width(finding) or None), numeric=True),
                CellText(clean(finding.unit)),
                CellText(beside if finding.published else ""),
                CellText(interval(finding) or MISSING),
                CellText(formatting.share(finding.confidence) if finding.confidence else MISSING),
                CellText(str(finding.n), numeric=True),
                CellText(clean(finding.method)),
                CellText(clean(finding.note)),
            )
        )
    return Table("findings", heads, tuple(rows))


def _is_share(name: str, finding: Finding) -> bool:
    """Whether a finding is better read in percent."""
    if finding.unit in ("fraction", "share"):
        return True
    return finding.unit == "ratio" and (name.startswith("efficiency") or name.endswith("_share") or name == "cpu_bound_evidence")


def host_facts(facts: HostFacts) -> list[tuple[str, str]]:
    """(fact, value) of one host; what a core is here comes first. What is not visible is said so."""
    unseen = "not visible"
    huge = ", ".join(f"{clean(size)}: {count}" for size, count in facts.huge_pages.items())
    return [
        ("what a core is here", clean(facts.core_note) or unseen),
        ("cores that can be used", f"{facts.cores:g} of {facts.logical_cpus} logical CPUs"),
        ("physical cores", unseen if facts.physical_cores is None else str(facts.physical_cores)),
        ("SMT", _yes(facts.smt, unseen)),
        ("NUMA nodes", unseen if facts.numa_nodes is None else str(facts.numa_nodes)),
        ("CPU", clean(facts.cpu_model) or unseen),
        ("frequency governor", clean(facts.governor or unseen)),
        ("boost", _yes(facts.boost, unseen)),
        ("virtualisation", clean(facts.virtualisation or "none seen")),
        ("clock source", clean(facts.clock_source or unseen)),
        ("memory", f"{format_bytes(facts.memory)}, {format_bytes(facts.memory_available)} available at the start"),
        ("swap", format_bytes(facts.swap) if facts.swap else "none"),
        ("huge pages reserved", huge or "none"),
        ("transparent huge pages", clean(facts.transparent_huge_pages or unseen)),
        ("cgroups", clean(facts.cgroup) + (f", groups made in {clean(facts.cgroup_writable)}" if facts.cgroup_writable else "")),
        *([("cgroups missing", clean(facts.cgroup_missing))] if facts.cgroup_missing else []),
        *((f"device {clean(device.name)}", _device(device)) for device in facts.devices),
        ("operating system", ", ".join(filter(None, (clean(facts.os), f"Linux {clean(facts.kernel)}")))),
        ("run as root", "yes" if facts.root else "no"),
    ]


def _yes(value: bool | None, unseen: str) -> str:
    return unseen if value is None else "yes" if value else "no"


def _device(device: BlockDevice) -> str:
    kind = {True: ", rotational", False: ", not rotational", None: ""}[device.rotational]
    ahead = "" if device.read_ahead is None else f", reads {format_bytes(device.read_ahead)} ahead"
    return f"{format_bytes(device.size)}, scheduler {clean(device.scheduler or 'not visible')}{kind}{ahead}"


def settings(record: RunRecord, results: Sequence[TrialResult]) -> list[tuple[str, str, str]]:
    """(setting, value, where) of every setting that differs from the default: the run's, and what servers said otherwise."""
    found = {(name, value): {"all servers"} for name, value in record.settings.items()}
    for variant, told in record.variant_settings.items():
        beside = {name for one in record.variant_settings.values() for name in one} - set(record.settings)
        for name in beside:
            found.setdefault((name, told.get(name, "the default")), set()).add(f"variant {variant}")
    for result in results:
        for server, values in result.settings.items():
            for name, value in values.items():
                if record.settings.get(name) != value:
                    found.setdefault((name, value), set()).add(f"servers {server}, as they said")
    return [(clean(name), clean(value), clean(", ".join(sorted(where)))) for (name, value), where in sorted(found.items())]


def timing(record: RunRecord) -> list[tuple[str, str]]:
    """(what, how long), and the share of the wall time that was spent measuring."""
    rows = [(formatting.label(name), format_seconds(seconds)) for name, seconds in record.timing.items() if finite(seconds) is not None]
    measured, wall = finite(record.timing.get("measured")), finite(record.timing.get("wall"))
    if measured and wall:  # a study of probes has nothing under load
        rows.append(("share of the wall time spent measuring", formatting.share(measured / wall)))
    return rows


def raw_files(directory: Path | None) -> list[tuple[str, int, str]]:
    """(pattern, number of files, size in all) of the run's own files; trials and numbered files are taken together."""
    if directory is None or not directory.is_dir():
        return []
    found: dict[str, list[int]] = {}
    for path in sorted(directory.rglob("*")):
        parts = path.relative_to(directory).parts
        if parts[0] in DERIVED or not path.is_file() or path.name.endswith(".tmp"):
            continue
        if parts[0] == "trials" and len(parts) > 2:
            parts = ("trials", "*", *parts[2:-1], re.sub(r"\d+", "*", parts[-1]))
        found.setdefault("/".join(parts), []).append(path.stat().st_size)
    return [(clean(pattern), len(sizes), format_bytes(sum(sizes))) for pattern, sizes in sorted(found.items())]


def proposals(record: RunRecord) -> list[dict[str, Any]]:
    """The log of proposals: when, after how many trials, what was wanted, or why the study stopped."""
    return [
        {"at": formatting.instant(one.at), "after": one.after, "trials": [clean(key) for key in one.trials], "stop": clean(one.stop or "")}
        for one in record.proposals
    ]


def with_labels(rows: Sequence[Row]) -> list[Row]:
    """The rows with ``metric`` in words, ``change`` in place of ``ratio`` and ``A/A`` in place of ``floor``, both in per cent."""
    return [
        row | {"metric": metric_label(row), "change": percent_change(row.get("ratio")), "A/A": percent_change(row.get("floor"))}
        for row in rows
    ]


def metric_label(row: Row) -> str:
    """A row's metric in words, as it is of its trials."""
    return clean(row.get("label", ""))


def percent_change(ratio: object) -> Finding | None:
    """A ratio to the baseline as a change in percent."""
    if not isinstance(ratio, Finding):
        return None
    ends = {name: None if (end := getattr(ratio, name)) is None else (end - 1) * 100 for name in ("value", "low", "high")}
    return ratio.model_copy(update={**ends, "unit": "%"})


SYMBOLS: dict[str, str] = {"pass": "✓", "fail": "✗", "unknown": "?", "": ""}


@dataclass(frozen=True)
class CheckCell:
    """What one check says of one trial: the worst of its verdicts (empty: not checked), and all of them in words."""

    result: VerdictResult | str
    words: str

    @property
    def symbol(self) -> str:
        """One character for it."""
        return SYMBOLS[self.result]


@dataclass(frozen=True)
class CheckMatrix:
    """Checks (intent first) and, per trial in the order given, one cell for each."""

    checks: tuple[str, ...]
    intents: int
    rows: tuple[tuple[TrialResult, tuple[CheckCell, ...]], ...]


def check_matrix(results: Sequence[TrialResult]) -> CheckMatrix:
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
            cells.append(CheckCell(own[0].result if own else "", "; ".join(map(_check_text, own)) if own else "not checked"))
        rows.append((result, tuple(cells)))
    return CheckMatrix(checks, sum(kind == "intent" for kind in kinds.values()), tuple(rows))


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


def _check_text(verdict: Verdict) -> str:
    text = f"{verdict.result}: {clean(verdict.observed)}, wanted {clean(verdict.wanted)}"
    return f"{text} ({clean(verdict.why)})" if verdict.why else text
