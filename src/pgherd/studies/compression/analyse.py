"""Compression ratios from compressed segments, and the names of the readings of the probe 'compression'.

A trial's result holds only numbers by name. ``compressed_bytes/CODEC/BLOCK/SEGMENT/RELATION`` is the size of one segment after
compression in blocks of BLOCK bytes; a block that does not shrink counts with its full size. ``stored_bytes/…`` is the same with each
block rounded up to sectors. ``raw_bytes/SEGMENT/RELATION`` is the size before. ``size_bytes/RELATION`` and ``segments/RELATION``
describe the whole relation. A relation's name may contain any character.

A stratum is one relation or one part of a directory. Its segments are drawn at random without replacement. The overall ratio is
estimated from each stratum's share of compressed bytes, weighted by the stratum's full size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pgherd.analysis.intervals import Estimate, t_half
from pgherd.model.analysis import Analysis, Finding, Grade
from pgherd.model.result import TrialResult
from pgherd.model.units import format_bytes
from pgherd.studies.compression.options import ENCRYPTED, FILE_SYSTEM, PLAIN, CompressionOptions
from pgherd.study.findings import as_finding, missing

UNIT = "×"
"""Bytes before ÷ bytes after."""

FILLER_FACTOR = 1.5
"""If the ratios of filler and realistic values differ by this factor, the report warns of filler."""

INCOMPRESSIBLE_RATIO = 1.02
"""Data with a lower ratio counts as incompressible."""

MAX_HALF_WIDTH = 0.1
"""An interval with a larger half-width, relative to the ratio, counts as wide."""

SOURCE = "Gary Little, n0derunner.com, of TPCx-HCI's data set: values made by E-Gen from real sources, 45 TB raw"
PUBLISHED_RATIO = 2.0
"""Ratio with LZ4 that E15 published (SOURCE)."""
PUBLISHED_TEXT = f"≈ 2:1 with LZ4 ({SOURCE})"
PUBLISHED_ENCRYPTED = "data encrypted first no longer compresses (Gary Little, n0derunner.com)"

Row = dict[str, Finding | str | int | float | None]

MIN_SEGMENTS = 4
"""Minimum number of sampled segments of a stratum for a spread, unless the stratum has no more."""


@dataclass
class RelationSegments:
    """Readings of one relation: sizes in bytes by segment number."""

    size: float = 0.0
    segments: int = 0
    raw: dict[int, float] = field(default_factory=dict)
    compressed: dict[tuple[str, int], dict[int, float]] = field(default_factory=dict)
    stored: dict[tuple[str, int], dict[int, float]] = field(default_factory=dict)


Relations = Mapping[str, RelationSegments]
DataForm = tuple[str, str]
"""Kind of data, and form (plain or encrypted)."""


def segments_by_relation(probe: Mapping[str, float]) -> dict[str, RelationSegments]:
    """Group the readings by relation, in the order in which their names first occur. Other readings are ignored."""
    relations: dict[str, RelationSegments] = {}
    for key, value in probe.items():
        quantity, _, suffix = key.partition("/")
        if quantity in ("compressed_bytes", "stored_bytes"):
            codec, block, segment, name = suffix.split("/", 3)
            relation = relations.setdefault(name, RelationSegments())
            sizes = relation.compressed if quantity == "compressed_bytes" else relation.stored
            sizes.setdefault((codec, int(block)), {})[int(segment)] = value
        elif quantity == "raw_bytes":
            segment, name = suffix.split("/", 1)
            relations.setdefault(name, RelationSegments()).raw[int(segment)] = value
        elif quantity == "size_bytes":
            relations.setdefault(suffix, RelationSegments()).size = value
        elif quantity == "segments":
            relations.setdefault(suffix, RelationSegments()).segments = int(value)
    return relations


def analyse(options: CompressionOptions, results: Sequence[TrialResult]) -> Analysis:
    """Return ``ratio_KIND`` of each kind and form at the headline codec and block size, and tables by codec, block and relation."""
    readings: dict[DataForm, Relations] = {}
    warnings: list[str] = []
    for result in results:
        kind, form = str(result.trial.point["data"]), str(result.trial.point["form"])
        relations: Relations = {name: relation for name, relation in segments_by_relation(result.probe).items() if relation.raw}
        if result.error is not None or not relations:
            warnings.append(f"{_data_text(kind, form)} could not be compressed: {result.error or 'no data was read'}")
        else:
            readings[kind, form] = relations
    tried = {(str(result.trial.point["data"]), str(result.trial.point["form"])) for result in results}
    if left := [_data_text(one.name, form) for one in options.data for form in options.forms if (one.name, form) not in tried]:
        warnings.append(f"Not compressed, because the run ended before: {', '.join(left)}")
    codec, block = options.headline
    findings: dict[str, Finding] = {}
    for (kind, form), relations in readings.items():
        findings[_finding_name(kind, form)] = _ratio(relations, codec, block, **_published_fields(kind, form))
    findings |= _filler_findings(findings)
    if warning := _filler_warning(findings, codec, block):
        warnings.append(warning)
    warnings += _general_warnings(readings)
    return Analysis(
        answer=_answer(options, findings),
        grade=_grade(options, readings, findings),
        findings=findings,
        tables=_tables(options, readings) if readings else {},
        warnings=warnings,
        figures={"headline": {"codec": codec, "block": block, "published": PUBLISHED_RATIO}},
    )


def _strata(relations: Relations, codec: str, block: int, *, stored: bool = False) -> list[Stratum]:
    strata = []
    for name, relation in relations.items():
        compressed = (relation.stored if stored else relation.compressed).get((codec, block), {})
        segments = [segment for segment in relation.raw if segment in compressed]
        if segments:
            before, after = [relation.raw[segment] for segment in segments], [compressed[segment] for segment in segments]
            strata.append(Stratum(name, relation.size, relation.segments, before, after))
    return strata


def _ratio(relations: Relations, codec: str, block: int, *, stored: bool = False, **published: Any) -> Finding:
    try:
        return as_finding(ratio(_strata(relations, codec, block, stored=stored)), UNIT, **published)
    except (ValueError, ZeroDivisionError):
        return missing(UNIT, f"nothing was compressed with {codec} in blocks of {format_bytes(block)}")


def _published_fields(kind: str, form: str) -> dict[str, Any]:
    if form == ENCRYPTED:
        return {"experiment": "E15", "published": PUBLISHED_ENCRYPTED}
    return {"experiment": "E15", "published": PUBLISHED_TEXT} if kind == "realistic" else {}


def _filler_findings(findings: Mapping[str, Finding]) -> dict[str, Finding]:
    """Return the ratio of filler ÷ the ratio of realistic values. Its interval combines both, because the samples are independent."""
    factors = {}
    realistic = findings.get("ratio_realistic")
    for kind in ("pgbench", "orders"):
        filler = findings.get(f"ratio_{kind}")
        if filler is None or realistic is None or not filler.value or not realistic.value:
            continue
        method = "ratio of the kind ÷ ratio of realistic values"
        factor, n = filler.value / realistic.value, min(filler.n, realistic.n)
        if None in (filler.low, filler.high, realistic.low, realistic.high):
            estimate = Estimate(factor, None, None, None, n, method, "no interval: one of the two ratios has none")
        else:
            assert filler.low and filler.high and realistic.low and realistic.high
            low, high = filler.low / realistic.high, filler.high / realistic.low
            note = "from the worst cases of both intervals, so it is wider than 95 %"
            estimate = Estimate(factor, low, high, 0.95, n, method, note)
        factors[f"ratio_{kind}_vs_realistic"] = as_finding(estimate, "×")
    return factors


def _filler_warning(findings: Mapping[str, Finding], codec: str, block: int) -> str | None:
    """Return the warning about machine-made data if the results show the problem."""
    parts = []
    for kind, description in (("pgbench", "pgbench's filler"), ("orders", "order entry's random letters")):
        factor = findings.get(f"ratio_{kind}_vs_realistic")
        if factor is None or factor.value is None or factor.low is None or factor.high is None:
            continue
        filler, realistic = findings[f"ratio_{kind}"].value, findings["ratio_realistic"].value
        if factor.low > FILLER_FACTOR:
            parts.append(f"{description} compresses {filler:.3g}:1, realistic values {realistic:.3g}:1 ({factor.value:.2g} times less)")
        elif factor.high < 1 / FILLER_FACTOR:
            parts.append(f"{description} compresses only {filler:.3g}:1, realistic values {realistic:.3g}:1")
    if not parts:
        return None
    setting = f"({codec}, blocks of {format_bytes(block)})"
    return f"Machine-made data misleads {setting}: {'; '.join(parts)}. Its ratio is not valid for your data"


def _general_warnings(readings: Mapping[DataForm, Relations]) -> list[str]:
    if not readings:
        return []
    warnings = [
        "Ratios are of user tables, their TOAST and indexes on disk, without catalogs and WAL. Pages changed since the last checkpoint are "
        "measured in their old state"
    ]
    if any(form == PLAIN and kind in ("pgbench", "orders", "realistic") for kind, form in readings):
        warnings.append("Newly loaded data has full pages. In a database with writes, dead rows and free space change the ratio")
    return warnings


def _tables(options: CompressionOptions, readings: Mapping[DataForm, Relations]) -> dict[str, list[Row]]:
    """Return the table of kinds and forms with their ratio by codec at the headline's block size, then the detailed tables."""
    codec, block = options.headline
    rows: list[Row] = []
    for (kind, form), relations in readings.items():
        row: Row = {"data": kind, "form": form, "size": format_bytes(sum(relation.size for relation in relations.values()))}
        sampled = sum(len(relation.raw) for relation in relations.values())
        row["segments"] = f"{sampled} of {sum(relation.segments for relation in relations.values())}"
        row |= {name: _ratio(relations, name, block) for name in options.codecs}
        row[f"{codec}_4k"] = _ratio(relations, codec, block, stored=True)
        if any(name == FILE_SYSTEM for relation in relations.values() for name, _ in relation.compressed):
            row["file_system"] = _ratio(relations, FILE_SYSTEM, 0)
        row["published"] = _published_fields(kind, form).get("published")
        rows.append(row)
    return {"compression": rows, "ratios": _ratio_rows(options, readings), "relations": _relation_rows(readings, codec, block)}


def _ratio_rows(options: CompressionOptions, readings: Mapping[DataForm, Relations]) -> list[Row]:
    """Return a row per kind, form, codec and block size, with the ratio of the codec and the ratio after rounding up to sectors."""
    rows: list[Row] = []
    for (kind, form), relations in readings.items():
        pairs = [(codec, block) for codec in options.codecs for block in options.block_sizes]
        pairs += sorted({pair for relation in relations.values() for pair in relation.compressed if pair[0] == FILE_SYSTEM})
        for codec, block in pairs:
            by_file_system = codec == FILE_SYSTEM
            row: Row = {"data": kind, "form": form, "codec": codec, "block": format_bytes(block) if block else "its own"}
            row["ratio"] = None if by_file_system else _ratio(relations, codec, block)
            row["ratio_4k"] = _ratio(relations, codec, block, stored=not by_file_system)
            rows.append(row)
    return rows


def _relation_rows(readings: Mapping[DataForm, Relations], codec: str, block: int) -> list[Row]:
    """Return a row per relation at the headline codec and block size, largest first."""
    rows: list[Row] = []
    for (kind, form), relations in readings.items():
        if form != PLAIN:
            continue
        total = sum(relation.size for relation in relations.values())
        for name, relation in sorted(relations.items(), key=lambda pair: -pair[1].size):
            share = f"{relation.size / total:.1%}" if total else None
            row: Row = {"data": kind, "relation": name, "size": format_bytes(relation.size), "share": share}
            row["segments"] = f"{len(relation.raw)} of {relation.segments}"
            row["ratio"] = _ratio({name: relation}, codec, block)
            rows.append(row)
    return rows


def _grade(options: CompressionOptions, readings: Mapping[DataForm, Relations], findings: Mapping[str, Finding]) -> Grade:
    """Return the grade. A: every kind was compressed in every form, with no wide interval. C: none was. B: all other cases."""
    if not readings:
        return "C"
    complete = len(readings) == len(options.data) * len(options.forms)
    return "A" if complete and all(_is_narrow(findings[_finding_name(*key)]) for key in readings) else "B"


def _is_narrow(finding: Finding) -> bool:
    if finding.value is None or finding.low is None or finding.high is None:
        return False
    return max(finding.high - finding.value, finding.value - finding.low) <= MAX_HALF_WIDTH * finding.value


def _answer(options: CompressionOptions, findings: Mapping[str, Finding]) -> str:
    codec, block = options.headline
    parts = []
    for kind in options.data:
        finding = findings.get(_finding_name(kind.name, PLAIN))
        if finding is None or finding.value is None:
            continue
        parts.append(f"{kind.name} {finding.value:.3g}:1" if finding.value >= INCOMPRESSIBLE_RATIO else f"{kind.name} not at all")
    if not parts:
        return "No result: no data was compressed."
    text = f"With {codec} in blocks of {format_bytes(block)} data compresses: {', '.join(parts)}"
    encrypted = [finding.value for name, finding in findings.items() if name.endswith(f"_{ENCRYPTED}") and finding.value is not None]
    if encrypted:
        best = max(encrypted)
        text += "; encrypted first, it does not compress" if best < INCOMPRESSIBLE_RATIO else f"; encrypted first, at most {best:.3g}:1"
    return text + "."


def _finding_name(kind: str, form: str) -> str:
    return f"ratio_{kind}" if form == PLAIN else f"ratio_{kind}_{form}"


def _data_text(kind: str, form: str) -> str:
    return kind if form == PLAIN else f"{kind} ({form} first)"


@dataclass(frozen=True)
class Stratum:
    """One part of the data.

    ``size`` is its full size in bytes and ``segments`` its total number of segments. ``raw`` and ``compressed`` are the bytes of
    each sampled segment before and after compression, in the same order.
    """

    name: str
    size: float
    segments: int
    raw: Sequence[float]
    compressed: Sequence[float]

    @property
    def census(self) -> bool:
        """Whether every segment was read, so that there is no sampling error."""
        return len(self.raw) >= self.segments

    @property
    def share(self) -> float:
        """Compressed bytes per byte over the sampled segments. A ratio estimator: longer segments have more weight."""
        return sum(self.compressed) / sum(self.raw)

    @property
    def variance(self) -> float:
        """Variance of the share (Cochran, Sampling Techniques, 1977, section 6.3). 0 if every segment was read."""
        if self.census:
            return 0.0
        squares = math.fsum((after - self.share * before) ** 2 for before, after in zip(self.raw, self.compressed, strict=True))
        n = len(self.raw)
        return n / (n - 1) * squares / sum(self.raw) ** 2


def ratio(strata: Sequence[Stratum], confidence: float = 0.95) -> Estimate:
    """Estimate bytes before ÷ bytes after compression over all strata, with an interval over the sampled segments.

    It is Student's t interval of the logarithm, by the variance of each stratum's share, with Welch–Satterthwaite degrees of
    freedom. Blocks of one segment are similar, so they do not count as independent repeats. There is no finite population
    correction. Intervals are slightly too wide if much of a stratum was read. ``n`` is the number of segments.

    Raises:
        ValueError: there are no bytes.
    """
    nonempty = [stratum for stratum in strata if stratum.size > 0 and sum(stratum.raw) > 0]
    if not nonempty:
        raise ValueError("a compression ratio needs at least one segment with a byte in it")
    total = sum(stratum.size for stratum in nonempty)
    weights = [stratum.size / total for stratum in nonempty]
    n = sum(len(stratum.raw) for stratum in nonempty)
    value = 1 / sum(weight * stratum.share for weight, stratum in zip(weights, nonempty, strict=True))
    method = "bytes before ÷ after, strata weighted by size; log t interval over segments"
    if all(stratum.census for stratum in nonempty):
        return Estimate(value, value, value, confidence, n, method, "every segment was read: no sampling error")
    undersampled = [stratum.name for stratum in nonempty if not stratum.census and len(stratum.raw) < MIN_SEGMENTS]
    if undersampled:
        note = f"no interval: fewer than {MIN_SEGMENTS} segments of {', '.join(sorted(undersampled))} were read"
        return Estimate(value, None, None, None, n, method, note)
    parts = [(weight**2 * stratum.variance, len(stratum.raw) - 1) for weight, stratum in zip(weights, nonempty, strict=True)]
    if not any(part for part, _ in parts):
        return Estimate(value, value, value, confidence, n, method, "the segments do not differ at all")
    spread = math.exp(t_half(parts, confidence) * value)
    return Estimate(value, value / spread, value * spread, confidence, n, method)
