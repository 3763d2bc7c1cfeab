"""From compressed segments to ratios. Pure; never raises for what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pgherd.analysis.compression import Stratum, ratio
from pgherd.analysis.intervals import Estimate
from pgherd.model.finding import Analysis, Finding, Grade
from pgherd.model.result import TrialResult
from pgherd.model.units import format_bytes
from pgherd.studies.compression import published
from pgherd.studies.compression.options import ENCRYPTED, FILE_SYSTEM, PLAIN, CompressionOptions
from pgherd.studies.compression.analyse import RelationSegments, segments_by_relation
from pgherd.study.findings import as_finding, missing

UNIT = "×"
"""Bytes before ÷ bytes after."""

APART = 1.5
"""From this factor between filler and realistic values on, the report warns of filler."""

SHRINKS = 1.02
"""Below this ratio data is said not to compress."""

WIDE = 0.1
"""Above this half-width, relative to the ratio, an interval is called wide."""

Row = dict[str, Finding | str | int | float | None]
Read = Mapping[str, RelationSegments]


def analyse(options: CompressionOptions, results: Sequence[TrialResult]) -> Analysis:
    """``ratio_KIND`` of each kind and form at the headline codec and block size, and tables by codec, block and relation."""
    read: dict[tuple[str, str], Read] = {}
    warnings: list[str] = []
    for result in results:
        kind, form = str(result.trial.point["kind"]), str(result.trial.point["form"])
        found = {name: one for name, one in segments_by_relation(result.probe).items() if one.raw}
        if result.error is not None or not found:
            warnings.append(f"{_named(kind, form)} could not be compressed: {result.error or 'nothing was read of it'}")
        else:
            read[kind, form] = found
    codec, block = options.headline
    findings: dict[str, Finding] = {}
    for (kind, form), parts in read.items():
        findings[_finding_name(kind, form)] = _ratio(parts, codec, block, **_beside(kind, form))
    findings |= _filler(findings)
    if warning := _filler_warning(findings, codec, block):
        warnings.append(warning)
    warnings += _standing_warnings(read)
    return Analysis(
        answer=_answer(options, findings),
        grade=_grade(options, read, findings),
        findings=findings,
        tables=_tables(options, read) if read else {},
        warnings=warnings,
        figures={"headline": {"codec": codec, "block": block, "published": published.PUBLISHED_RATIO}},
    )


def _strata(read: Read, codec: str, block: int, *, stored: bool = False) -> list[Stratum]:
    found = []
    for name, one in read.items():
        packed = (one.stored if stored else one.compressed).get((codec, block), {})
        segments = [segment for segment in one.raw if segment in packed]
        if segments:
            raw, after = [one.raw[segment] for segment in segments], [packed[segment] for segment in segments]
            found.append(Stratum(name, one.size, one.segments, raw, after))
    return found


def _ratio(read: Read, codec: str, block: int, *, stored: bool = False, **beside: Any) -> Finding:
    try:
        return as_finding(ratio(_strata(read, codec, block, stored=stored)), UNIT, **beside)
    except (ValueError, ZeroDivisionError):
        return missing(UNIT, f"nothing was compressed with {codec} in blocks of {format_bytes(block)}")


def _beside(kind: str, form: str) -> dict[str, Any]:
    if form == ENCRYPTED:
        return {"experiment": "E15", "published": published.PUBLISHED_ENCRYPTED}
    return {"experiment": "E15", "published": published.PUBLISHED_TEXT} if kind == "realistic" else {}


def _filler(findings: Mapping[str, Finding]) -> dict[str, Finding]:
    """How far filler's ratio is from that of realistic values: a factor, with an interval from both (independent samples)."""
    made = {}
    real = findings.get("ratio_realistic")
    for kind in ("pgbench", "orders"):
        own = findings.get(f"ratio_{kind}")
        if own is None or real is None or not own.value or not real.value:
            continue
        method = "ratio of the kind ÷ ratio of realistic values"
        if None in (own.low, own.high, real.low, real.high):
            note = "no interval: one of the two has none"
            estimate = Estimate(own.value / real.value, None, None, None, min(own.n, real.n), method, note)
        else:
            assert own.low and own.high and real.low and real.high
            low, high = own.low / real.high, own.high / real.low
            note = "the ends are those of both intervals at their worst: wider than 95 %"
            estimate = Estimate(own.value / real.value, low, high, 0.95, min(own.n, real.n), method, note)
        made[f"{kind}_against_realistic"] = as_finding(estimate, "×")
    return made


def _filler_warning(findings: Mapping[str, Finding], codec: str, block: int) -> str | None:
    """The warning about machine-made data, where the numbers show it."""
    parts = []
    for kind, what in (("pgbench", "pgbench's filler"), ("orders", "order entry's random letters")):
        factor = findings.get(f"{kind}_against_realistic")
        if factor is None or factor.value is None or factor.low is None or factor.high is None:
            continue
        own, real = findings[f"ratio_{kind}"].value, findings["ratio_realistic"].value
        if factor.low > APART:
            parts.append(f"{what} compresses {own:.3g}:1 where realistic values give {real:.3g}:1, {factor.value:.2g} times as far")
        elif factor.high < 1 / APART:
            parts.append(f"{what} compresses only {own:.3g}:1 where realistic values give {real:.3g}:1")
    if not parts:
        return None
    setting = f"({codec}, blocks of {format_bytes(block)})"
    return f"Machine-made data misleads {setting}: {'; '.join(parts)}. Do not take a ratio measured on it for that of your data"


def _standing_warnings(read: Mapping[tuple[str, str], Read]) -> list[str]:
    if not read:
        return []
    found = [
        "Ratios are of user tables, their TOAST and indexes as they lie on disk; catalogues and WAL are left out. Pages changed since the "
        "last checkpoint are seen as they were"
    ]
    if any(form == PLAIN and kind in ("pgbench", "orders", "realistic") for kind, form in read):
        found.append("Freshly loaded data has full pages; in a database that is written to, dead rows and free space change the ratio")
    return found


def _tables(options: CompressionOptions, read: Mapping[tuple[str, str], Read]) -> dict[str, list[Row]]:
    """First a row per kind and form with its ratio by each codec at the headline's block size; then everything."""
    codec, block = options.headline
    first: list[Row] = []
    for (kind, form), found in read.items():
        row: Row = {"kind": kind, "form": form, "size": format_bytes(sum(one.size for one in found.values()))}
        row["segments"] = f"{sum(len(one.raw) for one in found.values())} of {sum(one.segments for one in found.values())}"
        row |= {name: _ratio(found, name, block) for name in options.codecs}
        row[f"{codec} in sectors"] = _ratio(found, codec, block, stored=True)
        if any(pair[0] == FILE_SYSTEM for one in found.values() for pair in one.compressed):
            row["file system"] = _ratio(found, FILE_SYSTEM, 0)
        row["published"] = _beside(kind, form).get("published")
        first.append(row)
    return {"compression": first, "ratios": _ratios(options, read), "relations": _relations(read, codec, block)}


def _ratios(options: CompressionOptions, read: Mapping[tuple[str, str], Read]) -> list[Row]:
    """A row per kind, form, codec and block size: the codec's own ratio, and what sectors leave of it."""
    rows: list[Row] = []
    for (kind, form), found in read.items():
        pairs = [(codec, block) for codec in options.codecs for block in options.blocks]
        pairs += sorted({pair for one in found.values() for pair in one.compressed if pair[0] == FILE_SYSTEM})
        for codec, block in pairs:
            own = codec == FILE_SYSTEM
            row: Row = {"kind": kind, "form": form, "codec": codec, "block": format_bytes(block) if block else "its own"}
            row["ratio"] = None if own else _ratio(found, codec, block)
            row["stored"] = _ratio(found, codec, block, stored=not own)
            rows.append(row)
    return rows


def _relations(read: Mapping[tuple[str, str], Read], codec: str, block: int) -> list[Row]:
    """A row per relation at the headline codec and block size, largest first."""
    rows: list[Row] = []
    for (kind, form), found in read.items():
        if form != PLAIN:
            continue
        whole = sum(one.size for one in found.values())
        for name, one in sorted(found.items(), key=lambda pair: -pair[1].size):
            share = f"{one.size / whole:.1%}" if whole else None
            row: Row = {"kind": kind, "relation": name, "size": format_bytes(one.size), "share": share}
            row["segments"] = f"{len(one.raw)} of {one.segments}"
            row["ratio"] = _ratio({name: one}, codec, block)
            rows.append(row)
    return rows


def _grade(options: CompressionOptions, read: Mapping[tuple[str, str], Read], findings: Mapping[str, Finding]) -> Grade:
    """A: every kind was compressed in every form, with an interval that is not wide. C: none was."""
    if not read:
        return "C"
    wanted = len(options.sources) * len(options.forms)
    return "A" if len(read) == wanted and all(_narrow(findings[_finding_name(*key)]) for key in read) else "B"


def _narrow(found: Finding) -> bool:
    if found.value is None or found.low is None or found.high is None:
        return False
    return max(found.high - found.value, found.value - found.low) <= WIDE * found.value


def _answer(options: CompressionOptions, findings: Mapping[str, Finding]) -> str:
    codec, block = options.headline
    said = []
    for source in options.sources:
        found = findings.get(_finding_name(source.name, PLAIN))
        if found is None or found.value is None:
            continue
        said.append(f"{source.name} {found.value:.3g}:1" if found.value >= SHRINKS else f"{source.name} not at all")
    if not said:
        return "Nothing can be said: no data was compressed."
    text = f"With {codec} in blocks of {format_bytes(block)} data compresses: {', '.join(said)}"
    encrypted = [one.value for name, one in findings.items() if name.endswith(f"_{ENCRYPTED}") and one.value is not None]
    if encrypted:
        most = max(encrypted)
        text += "; encrypted first, it does not compress" if most < SHRINKS else f"; encrypted first, at most {most:.3g}:1"
    return text + "."


def _finding_name(kind: str, form: str) -> str:
    return f"ratio_{kind}" if form == PLAIN else f"ratio_{kind}_{form}"


def _named(kind: str, form: str) -> str:
    return kind if form == PLAIN else f"{kind} ({form} first)"
