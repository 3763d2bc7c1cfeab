"""Memory dynamics in numbers (E6): what the containers have, what is swapped out and comes back, who waits. Pure.

Each number is the mean over a trial's periods of what its containers had together, then over blocks. The run's swap and the paging
are the whole host's, whoever caused them. What a database's balloon holds is missing from its container's shared memory, and is never
added to it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from pgherd.analysis import memory_accounting, overcommitment
from pgherd.analysis.intervals import Estimate
from pgherd.model.finding import Finding
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.studies.consolidation import published
from pgherd.studies.consolidation.options import APART, BALLOON, SCHEMES, ConsolidationOptions
from pgherd.studies.consolidation.propose import points
from pgherd.studies.consolidation.seen import Trials
from pgherd.studies.consolidation.tables import Row, mean
from pgherd.studies.findings import as_finding
from pgherd.studies.schedule import Point

MB = 2**20
_CONTAINER, _SERVER, _ZRAM, _HOST = "container:", "server:", "zram:", "host"
_UNSEEN = "not seen"
LEAST_SWAPPED = 1.0
"""MB swapped out, below which nothing is held against it: a few pages have no ratio."""
UNITS = {
    "charged": "MB",
    "shared": "MB",
    "page_cache": "MB",
    "private": "MB",
    "ballooned": "MB",
    "swapped": "MB",
    "compressed": "MB",
    "compressed_to": "MB",
    "compression": "ratio",
    "refaults": "pages/s",
    "swapped_in": "pages/s",
    "swapped_out": "pages/s",
    "waiting": "%",
}
"""Quantity → unit."""
_NOTES = {
    "shared": "shared buffers, for the most part",
    "page_cache": "without shared memory",
    "ballooned": "given up by the databases; missing from the shared memory, and never to be added to it",
    "compressed": "in compressed swap, before compression, whoever's it is",
    "compressed_to": "the host's memory that it takes, beside the containers' budget",
    "refaults": "file pages and others that came back after they had been evicted",
    "swapped_in": "of the whole host",
    "swapped_out": "of the whole host",
    "waiting": "of the time somebody waited for memory, in the container where it was most",
}


def use(result: TrialResult) -> dict[str, float]:
    """What a trial's periods had on average, in the units of ``UNITS``; what was not seen in every period is absent."""
    periods = [_use(phase) for phase in result.phases]
    seen = [name for name in UNITS if periods and all(name in period for period in periods)]
    found = {name: statistics.fmean(period[name] for period in periods) for name in seen}
    if found.get("compressed", 0.0) >= LEAST_SWAPPED and "compressed_to" in found:
        ratio = memory_accounting.ratio(found["compressed"], found["compressed_to"])
        found |= {} if ratio is None else {"compression": ratio}
    return found


def _use(phase: PhaseResult) -> dict[str, float]:
    containers, servers, devices = (_of(phase, prefix) for prefix in (_CONTAINER, _SERVER, _ZRAM))
    host = phase.metrics.get(_HOST, {})
    shared, files = _sum(containers, "memory.shmem"), _sum(containers, "memory.file")
    refaults = [_sum(containers, f"memory.refault_{kind}") for kind in ("file", "anon")]
    waits = [one["psi.memory.some"] for one in containers.values() if "psi.memory.some" in one]
    found = {
        "charged": _sum(containers, "memory.usage", MB),
        "shared": None if shared is None else shared / MB,
        "page_cache": None if shared is None or files is None else max(files - shared, 0.0) / MB,
        "private": _sum(containers, "memory.anon", MB),
        "ballooned": _sum(servers, "balloon.bytes", MB),
        "swapped": _sum(containers, "memory.swap", MB),
        "compressed": _first(_sum(devices, "zram.original", MB), _sum(containers, "memory.zswapped", MB)),
        "compressed_to": _first(_sum(devices, "zram.used", MB), _sum(containers, "memory.zswap", MB)),
        "refaults": sum(one for one in refaults if one is not None) if any(one is not None for one in refaults) else None,
        "swapped_in": host.get("vm.pswpin"),
        "swapped_out": host.get("vm.pswpout"),
        "waiting": 100 * max(waits) if waits else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _of(phase: PhaseResult, prefix: str) -> dict[str, Mapping[str, float]]:
    return {entity: metrics for entity, metrics in phase.metrics.items() if entity.startswith(prefix)}


def _sum(entities: Mapping[str, Mapping[str, float]], name: str, divisor: float = 1.0) -> float | None:
    values = [metrics[name] for metrics in entities.values() if name in metrics]
    return sum(values) / divisor if values else None


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def memory_rows(options: ConsolidationOptions, trials: Trials) -> list[Row]:
    """One row for each combination of buffers, rate and scheme that has a finished trial in which the containers' memory was seen."""
    rows: list[Row] = []
    for point in points(options):
        seen = _by_block(trials, point)
        if not any("charged" in one for one in seen):
            continue
        row: Row = {"buffers": point["buffers"], "rate": point["rate"], "scheme": point["scheme"], "what": SCHEMES[int(point["scheme"])]}
        for name, unit in UNITS.items():
            if any(name in one for one in seen):
                row[name] = mean([one.get(name) for one in seen], unit, _UNSEEN, _NOTES.get(name, ""))
        rows.append(row)
    return rows


def swap_findings(options: ConsolidationOptions, trials: Trials) -> dict[str, Finding]:
    """How much is swapped out with separate containers against the first shared one, and with the database balloon against without,
    at each rate, by block: what E6 read off its curves."""
    found: dict[str, Finding] = {}
    shared = next((scheme for scheme in options.runnable if scheme not in APART), None)
    for point in points(options):
        scheme, percent, rate = int(point["scheme"]), int(point["buffers"]), float(point["rate"])
        if not rate or scheme not in APART:
            continue
        at = f"buffers{percent}.rate{rate:g}"
        if shared is not None:
            ratio = _ratio(trials, point, shared)
            beside = published.swapped(percent, rate) if options.workload == "orders" else None
            found |= _named(f"swapped_ratio.scheme{scheme}.{at}", ratio, f"scheme {scheme} over scheme {shared}", beside)
        if scheme == BALLOON and 3 in options.runnable:
            beside = published.swapped_by_balloon(percent, rate) if options.workload == "orders" else None
            found |= _named(f"swapped_balloon_ratio.{at}", _ratio(trials, point, 3), f"scheme {BALLOON} over scheme 3", beside)
    return found


def _ratio(trials: Trials, point: Point, other: int) -> Estimate | None:
    return overcommitment.block_ratio(_swapped(trials, point), _swapped(trials, {**point, "scheme": other}))


def _swapped(trials: Trials, point: Point) -> list[float | None]:
    values = [one.get("swapped") for one in _by_block(trials, point)]
    return [None if value is None or value < LEAST_SWAPPED else value for value in values]


def _named(name: str, ratio: Estimate | None, note: str, beside: str | None) -> dict[str, Finding]:
    if ratio is None:
        return {}
    words = f"swapped out of all containers, {note}"
    return {name: as_finding(ratio, "ratio", words, experiment="E6" if beside else None, published=beside)}


def _by_block(trials: Trials, point: Point) -> list[dict[str, float]]:
    return [{} if result is None else use(result) for result in trials.chosen(point)]
