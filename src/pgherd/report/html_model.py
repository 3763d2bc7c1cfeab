"""Contents of HTML pages as plain data: tables of cells, checks, host facts, raw files. Templates do the layout."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pgherd.model.analysis import Check, CheckResult, Finding
from pgherd.model.host_facts import BlockDevice, HostFacts
from pgherd.model.prometheus import PrometheusView
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.model.text import clean
from pgherd.model.units import format_bytes, format_seconds
from pgherd.report import formatting
from pgherd.report.data_files import Row, columns
from pgherd.report.formatting import MISSING, Cell, finding_value, finite, half_width, interval, number
from pgherd.study.study import table_view

DERIVED = ("figures", "tables", "report.html", "report.json")
"""Files of the report in the run directory. All others belong to the run."""

FLAGS = {"selected"}
"""Columns with 1 and 0, shown as yes and no."""


@dataclass(frozen=True)
class CellText:
    """One cell: its text, a second smaller line, its tooltip, and whether it is a number."""

    text: str
    detail: str = ""
    title: str = ""
    numeric: bool = False


@dataclass(frozen=True)
class Table:
    """A table: name, column heads, rows."""

    name: str
    heads: tuple[str, ...]
    rows: tuple[tuple[CellText, ...], ...]


def main_table(name: str, rows: Sequence[Row]) -> Table:
    """Return the study's leading table with its main columns, or all columns of a table without main columns."""
    view = table_view(name)
    return table(name, with_labels(rows) if view.ratios_as_changes else rows, view.main or None)


def table(name: str, rows: Sequence[Row], only: Sequence[str] | None = None) -> Table:
    """Return a table of an analysis with all its columns, or those of ``only``.

    A unit that all cells of a column share is in its head. Values of one magnitude have the same number of decimals.
    """
    plain = table_view(name).plain
    names = [column for column in only or columns(rows) if any(column in row for row in rows)]
    parts = [_column(column, [row.get(column) for row in rows], plain=only is not None and column in plain) for column in names]
    return Table(name, tuple(head for head, _ in parts), tuple(zip(*(cells for _, cells in parts), strict=True)))


def _column(name: str, cells: Sequence[Cell], *, plain: bool) -> tuple[str, list[CellText]]:
    """Return head and cells of one column."""
    if name in FLAGS:
        return formatting.label(name), [CellText("yes" if value else "") for value in cells]
    share = formatting.is_percent_column(name) and all(_share_like(value) for value in cells)
    units = {value.unit for value in cells if isinstance(value, Finding)}
    mixed = len(units) > 1
    spread = _common_spread(cells, share)
    numeric = any(isinstance(value, Finding | int | float) for value in cells)
    texts = [replace(cell(value, share=share, unit=mixed, spread=spread), numeric=numeric) for value in cells]
    unit = "%" if share else "" if mixed or not units else units.pop()
    return _head(name, unit), [replace(text, detail="") for text in texts] if plain else texts


def _share_like(value: Cell) -> bool:
    """Return whether the cell is a share from 0 to 1, a percentage or empty, and not a text."""
    if isinstance(value, Finding):
        return value.unit in ("", "1", "%", "fraction", "share", "ratio")
    return value is None or isinstance(value, int | float)


def _common_spread(cells: Sequence[Cell], share: bool) -> float | None:
    """Return the median half-width of a column's findings, or None if their values differ in magnitude."""
    findings = [formatting.as_percent(value) if share else value for value in cells if isinstance(value, Finding)]
    values = [abs(value) for finding in findings if (value := finite(finding.value))]
    widths = [width for finding in findings if (width := half_width(finding))]
    if not values or not widths or max(values) > 4 * min(values):
        return None
    return statistics.median(widths)


def _head(column: str, unit: str) -> str:
    text = formatting.label(column)
    return f"{text}, {clean(unit)}" if unit and unit not in ("fraction", "share", "ratio", "1", column) else text


def cell(value: Cell, *, share: bool = False, unit: bool = False, spread: float | None = None) -> CellText:
    """Return the text of a cell, in percent for a share, and with its unit on request.

    ``spread`` sets the decimals instead of the cell's interval.
    """
    if isinstance(value, Finding):
        shown = formatting.as_percent(value) if share else value
        text = finding_value(shown) if shown.value is None else number(shown.value, spread or half_width(shown) or None)
        text += f" {clean(shown.unit)}" if unit and text != MISSING else ""
        return CellText(text, interval(shown, spread), formatting.explained(shown), numeric=True)
    if value is None:
        return CellText(MISSING)
    if isinstance(value, int | float):
        return CellText(number(value * 100 if share else value), numeric=True)
    return CellText(clean(value))


def findings_table(findings: Mapping[str, Finding]) -> Table:
    """Return all findings, one per row, with published values."""
    heads = ("finding", "value", "unit", "published", "interval", "confidence", "n", "method", "note")
    rows = []
    for name, finding in findings.items():
        finding = formatting.as_percent(finding) if _is_share(name, finding) else finding
        published = " ".join(filter(None, (f"{clean(finding.experiment)}:" if finding.experiment else "", clean(finding.published or ""))))
        rows.append(
            (
                CellText(formatting.label(name), title=clean(name)),
                CellText(finding_value(finding), numeric=True),
                CellText(clean(finding.unit)),
                CellText(published if finding.published else ""),
                CellText(interval(finding) or MISSING),
                CellText(formatting.share(finding.confidence) if finding.confidence else MISSING),
                CellText(str(finding.n), numeric=True),
                CellText(clean(finding.method)),
                CellText(clean(finding.note)),
            )
        )
    return Table("findings", heads, tuple(rows))


def _is_share(name: str, finding: Finding) -> bool:
    """Return whether a finding is shown in percent."""
    if finding.unit in ("fraction", "share"):
        return True
    return finding.unit == "ratio" and ("efficiency" in name or name.endswith("_share") or name == "cpu_limit_utilization")


def host_facts(facts: HostFacts) -> list[tuple[str, str]]:
    """Return (fact, value) of one host, starting with the meaning of a core. Missing facts are named as such."""
    unknown = "unknown"
    huge = ", ".join(f"{clean(size)}: {count}" for size, count in facts.huge_pages.items())
    return [
        ("meaning of a core", clean(facts.core_note) or unknown),
        ("usable cores", f"{facts.cores:g} of {facts.logical_cpus} logical CPUs"),
        ("physical cores", unknown if facts.physical_cores is None else str(facts.physical_cores)),
        ("SMT", _yes(facts.smt, unknown)),
        ("NUMA nodes", unknown if facts.numa_nodes is None else str(facts.numa_nodes)),
        ("CPU", clean(facts.cpu_model) or unknown),
        ("frequency governor", clean(facts.governor or unknown)),
        ("boost", _yes(facts.boost, unknown)),
        ("virtualisation", clean(facts.virtualisation or "none detected")),
        ("clock source", clean(facts.clock_source or unknown)),
        ("memory", f"{format_bytes(facts.memory)}, {format_bytes(facts.memory_available)} available at the start"),
        ("swap", format_bytes(facts.swap) if facts.swap else "none"),
        ("huge pages reserved", huge or "none"),
        ("transparent huge pages", clean(facts.transparent_huge_pages or unknown)),
        ("cgroups", clean(facts.cgroup) + (f", writable: {clean(facts.cgroup_writable)}" if facts.cgroup_writable else "")),
        *([("cgroups missing", clean(facts.cgroup_missing))] if facts.cgroup_missing else []),
        *([("limits that servers inherit", clean(", ".join(facts.enclosing_limits)))] if facts.enclosing_limits else []),
        *((f"device {clean(device.name)}", _device(device)) for device in facts.devices),
        ("operating system", ", ".join(filter(None, (clean(facts.os), f"Linux {clean(facts.kernel)}")))),
        ("run as root", "yes" if facts.root else "no"),
    ]


def prometheus(results: Sequence[TrialResult]) -> list[tuple[str, str]]:
    """Return (server, source, step, gaps and missing series) of the samples from Prometheus, over the windows of all trials."""
    views: dict[tuple[str, str, str], list[PrometheusView]] = {}
    for view in (view for result in results for phase in result.phases for view in phase.prometheus):
        views.setdefault((view.container, view.url, view.match), []).append(view)
    return [(f"host of {clean(container)}", prometheus_text(group)) for (container, _, _), group in views.items()]


def prometheus_text(views: Sequence[PrometheusView]) -> str:
    """Return source, step, gaps, and sparse and missing series of one server's windows as text."""
    steps = [view.step for view in views if view.step is not None]
    gaps, longest = sum(view.gaps for view in views), max((view.longest_gap or 0.0 for view in views), default=0.0)
    common = set.intersection(*(set(view.series) for view in views))
    parts = [
        f"Prometheus at {views[0].url}, {views[0].match}: {len(common)} series in all windows",
        f"step {statistics.median(steps):.3g} s" if steps else "no samples",
        f"{gaps} gaps, the longest {longest:.3g} s" if gaps else "no gaps",
    ]
    sparse = {name for view in views for name in view.sparse}
    missing = {name for view in views for name in view.missing}
    parts += [f"fewer than two samples in a window: {', '.join(sorted(sparse))}"] if sparse else []
    parts += [f"missing: {', '.join(sorted(missing))}"] if missing else []
    return clean("; ".join(parts))


def _yes(value: bool | None, unknown: str) -> str:
    return unknown if value is None else "yes" if value else "no"


def _device(device: BlockDevice) -> str:
    kind = {True: ", rotational", False: ", not rotational", None: ""}[device.rotational]
    ahead = "" if device.read_ahead is None else f", read-ahead {format_bytes(device.read_ahead)}"
    return f"{format_bytes(device.size)}, scheduler {clean(device.scheduler or 'unknown')}{kind}{ahead}"


def settings(record: RunRecord, results: Sequence[TrialResult]) -> list[tuple[str, str, str]]:
    """Return (setting, value, scope) of every setting that differs from the default: requested, and reported by servers."""
    scopes = {(name, value): {"all servers"} for name, value in record.settings.items()}
    by_variant = {name for values in record.variant_settings.values() for name in values} - set(record.settings)
    for variant, values in record.variant_settings.items():
        for name in by_variant:
            scopes.setdefault((name, values.get(name, "default")), set()).add(f"variant {variant}")
    for result in results:
        for server, values in result.settings.items():
            for name, value in values.items():
                if record.settings.get(name) != value:
                    scopes.setdefault((name, value), set()).add(f"servers {server}, reported")
    return [(clean(name), clean(value), clean(", ".join(sorted(where)))) for (name, value), where in sorted(scopes.items())]


def timing(record: RunRecord) -> list[tuple[str, str]]:
    """Return (activity, duration), and the measured share of the wall time."""
    rows = [(formatting.label(name), format_seconds(seconds)) for name, seconds in record.timing.items() if finite(seconds) is not None]
    measured, wall = finite(record.timing.get("measured")), finite(record.timing.get("wall"))
    if measured and wall:  # a study of probes has no load
        rows.append(("measured share of the wall time", formatting.share(measured / wall)))
    return rows


def raw_files(directory: Path | None) -> list[tuple[str, int, str]]:
    """Return (pattern, number of files, total size) of the run's files. Trials and numbered files are combined."""
    if directory is None or not directory.is_dir():
        return []
    sizes_of: dict[str, list[int]] = {}
    for path in sorted(directory.rglob("*")):
        parts = path.relative_to(directory).parts
        if parts[0] in DERIVED or not path.is_file() or path.name.endswith(".tmp"):
            continue
        if parts[0] == "trials" and len(parts) > 2:
            parts = ("trials", "*", *parts[2:-1], re.sub(r"\d+", "*", parts[-1]))
        sizes_of.setdefault("/".join(parts), []).append(path.stat().st_size)
    return [(clean(pattern), len(sizes), format_bytes(sum(sizes))) for pattern, sizes in sorted(sizes_of.items())]


def proposals(record: RunRecord) -> list[dict[str, Any]]:
    """Return the log of proposals: time, number of trials before, proposed trials, or reason of the end."""
    return [
        {
            "at": formatting.instant(entry.at),
            "after": entry.after,
            "trials": [clean(key) for key in entry.trials],
            "stop": clean(entry.stop or ""),
        }
        for entry in record.proposals
    ]


def with_labels(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with ``metric`` as text, and the ratios in percent: ``change`` to the baseline, and ``A/A``."""
    return [
        row
        | {"metric": metric_label(row), "change": percent_change(row.get("ratio_to_baseline")), "A/A": percent_change(row.get("aa_ratio"))}
        for row in rows
    ]


def metric_label(row: Row) -> str:
    """Return a row's metric as text."""
    return clean(row.get("label", ""))


def percent_change(ratio: object) -> Finding | None:
    """Return a ratio to the baseline as a change in percent."""
    if not isinstance(ratio, Finding):
        return None
    ends = {name: None if (end := getattr(ratio, name)) is None else (end - 1) * 100 for name in ("value", "low", "high")}
    return ratio.model_copy(update={**ends, "unit": "%"})


SYMBOLS: dict[str, str] = {"pass": "✓", "fail": "✗", "unknown": "?", "": ""}


@dataclass(frozen=True)
class CheckCell:
    """The worst result of one check in one trial (empty: not checked), and all its results as text."""

    result: CheckResult | str
    words: str

    @property
    def symbol(self) -> str:
        return SYMBOLS[self.result]


@dataclass(frozen=True)
class CheckMatrix:
    """Checks (validity first) and, per trial in the given order, one cell for each."""

    checks: tuple[str, ...]
    validity_checks: int
    rows: tuple[tuple[TrialResult, tuple[CheckCell, ...]], ...]


def check_matrix(results: Sequence[TrialResult]) -> CheckMatrix:
    """Return trial × check of all results."""
    kinds: dict[str, str] = {}
    for result in results:
        for check in result.checks:
            kinds.setdefault(check.name, check.kind)
    names = tuple(sorted(kinds, key=lambda name: kinds[name] != "validity"))
    rows = []
    for result in results:
        cells = []
        for name in names:
            checks = sorted((check for check in result.checks if check.name == name), key=lambda check: check.gravity, reverse=True)
            text = "; ".join(map(_check_text, checks)) if checks else "not checked"
            cells.append(CheckCell(checks[0].result if checks else "", text))
        rows.append((result, tuple(cells)))
    return CheckMatrix(names, sum(kind == "validity" for kind in kinds.values()), tuple(rows))


def exceptions(results: Sequence[TrialResult]) -> list[str]:
    """Return everything that did not pass, as sentences: errors, failed checks, then unknown checks with their trials.

    Equal results of several trials are one sentence, with the observation of the first.
    """
    lines = [f"Trial {clean(result.id)} did not finish: {clean(result.error)}" for result in results if result.error is not None]
    grouped: dict[tuple[str, str, str, str, str], list[tuple[str, str]]] = {}
    for result in results:
        for check in result.checks:
            if check.result != "pass":
                key = (check.result, check.name, check.expected, check.reason, check.severity)
                grouped.setdefault(key, []).append((result.id, check.observed))
    for (outcome, name, expected, reason, severity), failures in sorted(
        grouped.items(), key=lambda item: (item[0][0] != "fail", item[0][1])
    ):
        names = list(dict.fromkeys(clean(trial) for trial, _ in failures))
        in_all = len(names) == len(results) > 1
        trials = f"all {len(names)} trials" if in_all else f"trial{'s' if len(failures) > 1 else ''} {', '.join(names)}"
        status = "failed" if outcome == "fail" else "unknown"
        effect = " (warning only)" if severity == "warn" else ""
        line = f"{clean(name)} {status} in {trials}{effect}: {clean(failures[0][1])}"
        line += f" in trial {clean(failures[0][0])}" if len(failures) > 1 else ""
        lines.append(f"{line}; expected: {clean(expected)}{f' ({clean(reason)})' if reason else ''}.")
    return lines


def _check_text(check: Check) -> str:
    text = f"{check.result}: {clean(check.observed)}, expected {clean(check.expected)}"
    return f"{text} ({clean(check.reason)})" if check.reason else text
