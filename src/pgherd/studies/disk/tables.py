"""The tables of a disk analysis. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

from pgherd.analysis.intervals import Estimate, mean_interval
from pgherd.model.finding import Finding
from pgherd.studies.disk import published
from pgherd.studies.disk.access import MIX
from pgherd.studies.disk.measure import Measured
from pgherd.studies.disk.options import ALL, DiskOptions
from pgherd.studies.disk.points import Group, cached, limited_by, reached, shared
from pgherd.study.findings import as_finding, missing

Row = dict[str, Finding | str | int | float | None]

TAINTED = "only tainted trials: an indication"
FEW = "fewer than ten I/Os lie beyond it"


def figure_finding(options: DiskOptions, of: Group, alone: Sequence[Group]) -> Finding:
    """A group's figure with what limited it and, where it came from a cache, that, in its note."""
    _, unit, values = of.figure
    if not values:
        return missing(unit, "fio told no latency")
    notes = [f"limited by: {limited_by(options, of, alone)}", *([] if of.clean else [TAINTED])]
    if cached(options, of):
        notes.append("from a cache of this host")
    if any(one.distorts for one in options.at(of.place)):
        notes.append("on a loop device, which distorts")
    return as_finding(positive_mean(values), unit, "; ".join(notes), **published.beside(of.test.name))


def disk_rows(options: DiskOptions, groups: Sequence[Group]) -> list[Row]:
    """One row per volume and test."""
    rows: list[Row] = []
    for of in groups:
        alone = alone_of(groups, of)
        note = "" if of.clean else TAINTED
        name, _, _ = of.figure
        row: Row = {"volume": of.place, "test": of.test.label}
        row["iops"] = _mean(of, lambda one: one.iops, "IOPS", note)
        row["bandwidth"] = _mean(of, lambda one: one.bytes / 1e6, "MB/s", note)
        row["latency"] = _mean(of, lambda one: one.latency.get("mean"), "ms", note)
        for percentile in ("p50", "p99", "p99_9"):
            row[percentile] = _mean(of, _latency(percentile), "ms", "; ".join(filter(None, (_writes_apart(of, percentile), note))))
        if of.test.name == MIX:
            row["reads"], row["writes"] = (mixed(of, side) for side in ("read", "write"))
        row["limited_by"] = limited_by(options, of, alone)
        row["from_cache"] = _answer(cached(options, of))
        share = of.values(lambda one: one.device_share)
        row["device_share"] = as_finding(mean_interval(share), "ratio", note) if share else missing("ratio", "no device of it was seen")
        row["steady"] = f"{of.judged - of.unsteady} of {of.judged}" if of.judged else "not judged"
        part = reached(options, of)
        if part is not None:
            row["rate_reached"] = part
        together = shared(of, alone) if of.place == ALL else None
        if together is not None:
            row["of_sum"] = together
        row["figure"] = name
        row["trials"] = of.tried
        row["tainted"] = of.tainted
        rows.append(row)
    return rows


def mixed(of: Group, side: str) -> Finding:
    """The I/Os per second of one direction of a mix, which is stated as two rates."""
    return _mean(of, lambda one: one.sides.get(side), "IOPS", "" if of.clean else TAINTED)


def _writes_apart(of: Group, percentile: str) -> str:
    """That a mix's percentile is the reads' alone, and what the writes' is: fio tells them for each direction. '' of other tests."""
    if of.test.name != MIX:
        return ""
    writes = of.values(lambda one: one.latency.get(f"write_{percentile}"))
    return f"of the reads; of the writes {f'{statistics.fmean(writes):.3g} ms' if writes else 'not known'}"


def alone_of(groups: Sequence[Group], of: Group) -> list[Group]:
    """The groups of the same test on each volume by itself."""
    return [one for one in groups if one.test == of.test and one.place != ALL]


def hero_rows(options: DiskOptions, groups: Sequence[Group]) -> list[Row]:
    """E12's table: each test's figure, of all volumes at once where that was measured, what limited it, and E12's beside it."""
    place = options.places()[-1]
    rows: list[Row] = []
    for of in groups:
        if of.place != place:
            continue
        finding = figure_finding(options, of, alone_of(groups, of))
        rows.append(
            {
                "test": of.test.label,
                "figure": finding,
                "published": f"{published.E12[of.test.name]}" if of.test.name in published.E12 else None,
                "limited_by": limited_by(options, of, alone_of(groups, of)),
                "from_cache": _answer(cached(options, of)),
            }
        )
    return rows


def depth_rows(options: DiskOptions, groups: Sequence[Group]) -> list[Row]:
    """What twice the depth makes of each test with many I/Os in flight."""
    rows: list[Row] = []
    for of in groups:
        if of.deeper_ratio is None:
            continue
        depth = options.depth_of(of.test)
        ratio = Finding(
            value=of.deeper_ratio,
            unit="ratio",
            n=len(of.deeper),
            method="I/Os at twice the depth over the median at the depth",
            note="no interval: it is measured once, to tell what limits the figure",
        )
        rows.append({"volume": of.place, "test": of.test.label, "depth": depth, "deeper": 2 * depth, "ratio": ratio})
    return rows


def volume_rows(options: DiskOptions) -> list[Row]:
    """What each volume is."""
    return [
        {
            **({} if one.volume.host is None else {"host": one.volume.host}),
            "volume": one.name,
            "kind": one.volume.kind,
            "path": one.volume.path,
            "filesystem": one.filesystem or "not known",
            "devices": ", ".join(one.devices) or "none seen",
            "file_bytes": one.size,
            "direct_io": _answer(one.direct),
            "distorts": _answer(one.distorts),
        }
        for one in options.volumes
    ]


def _mean(of: Group, take: Callable[[Measured], float | None], unit: str, note: str) -> Finding:
    values = of.values(take)
    return as_finding(positive_mean(values), unit, note) if values else missing(unit, FEW)


def positive_mean(values: Sequence[float]) -> Estimate:
    """Mean with Student's t interval of a quantity that cannot be below zero: an interval that would reach there ends at zero."""
    found = mean_interval(values)
    if found.low is None or found.low >= 0:
        return found
    return replace(found, low=0.0, note="; ".join(filter(None, (found.note, "the interval is cut off at 0"))))


def _latency(name: str) -> Callable[[Measured], float | None]:
    return lambda one: one.latency.get(name, one.latency.get(f"read_{name}"))


def _answer(value: bool | None) -> str:
    return "unknown" if value is None else "yes" if value else "no"
