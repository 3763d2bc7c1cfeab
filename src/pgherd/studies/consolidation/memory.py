"""Memory dynamics in numbers (E6): what the containers have, what is swapped out and comes back, who waits. Pure.

Each number is the mean over a trial's periods of what its containers had together, then over blocks. The run's swap and the paging
are the whole host's, whoever caused them. What a database's balloon holds is missing from its container's shared memory, and is never
added to it. A guest is one process to its host: all of its memory, the shared buffers in it too, is that process's private memory.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from pgherd.analysis import memory_accounting, memory_effects, overcommitment
from pgherd.model.finding import Finding
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.studies.consolidation import published
from pgherd.studies.consolidation.options import APART, BALLOON, SCHEMES, ConsolidationOptions
from pgherd.studies.consolidation.propose import points
from pgherd.studies.consolidation.seen import Trials
from pgherd.studies.consolidation.tables import Row, mean
from pgherd.study.findings import as_finding
from pgherd.study.trial_schedule import Point

MB = 2**20
_CONTAINER, _SERVER, _ZRAM, _GUEST, _HOST = "container:", "server:", "zram:", "guest:", "host"
_UNSEEN = "not seen"
LEAST_SWAPPED = 1.0
"""MB swapped out, below which nothing is held against it: a few pages have no ratio. Where something is, less than this
counts as this, and the ratio is one "at most"."""
UNITS = {
    "charged": "MB",
    "shared": "MB",
    "page_cache": "MB",
    "private": "MB",
    "ballooned": "MB",
    "guest_balloons": "MB",
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
_OF_GUESTS = {
    "page_cache": "of the host's files, for the hypervisors; the guests' own page cache is a part of their private memory",
    "private": "the guests' memory, shared buffers and all, and their hypervisors'",
    "ballooned": "given up by the databases to their guests' kernels, and never to be added to the guests' balloons",
    "guest_balloons": "in the balloons of the guests' kernels; each guest's is in the table guest_memory",
    "refaults": "of the host's file pages and the guests' memory: what came back after it had been evicted",
    "waiting": "of the time a hypervisor waited for its host's memory, of the guest where it was most",
}
"""Of containers that are guests: what is said otherwise. Their shared memory, next to nothing, is not shown."""


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
    balloons = [memory_effects.of_means(phase.metrics, entity.removeprefix(_GUEST)) for entity in _of(phase, _GUEST)]
    guests = [one.ballooned / MB for one in balloons if one is not None]
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
        "guest_balloons": sum(guests) if guests and len(guests) == len(balloons) else None,
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
    guests = options.runtime == "vm"
    units = {name: unit for name, unit in UNITS.items() if not (guests and name == "shared")}
    notes = {**_NOTES, **(_OF_GUESTS if guests else {})}
    rows: list[Row] = []
    for point in points(options):
        seen = _by_block(trials, point)
        if not any("charged" in one for one in seen):
            continue
        row: Row = {"buffers": point["buffers"], "rate": point["rate"], "scheme": point["scheme"], "what": SCHEMES[int(point["scheme"])]}
        for name, unit in units.items():
            if any(name in one for one in seen):
                row[name] = mean([one.get(name) for one in seen], unit, _UNSEEN, notes.get(name, ""))
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
            beside = published.swapped(percent, rate) if options.enters_orders else None
            found |= _ratio(f"swapped_ratio.scheme{scheme}.{at}", trials, point, shared, beside)
        if scheme == BALLOON and 3 in options.runnable:
            beside = published.swapped_by_balloon(percent, rate) if options.enters_orders else None
            found |= _ratio(f"swapped_balloon_ratio.{at}", trials, point, 3, beside)
    return found


def _ratio(name: str, trials: Trials, point: Point, other: int, beside: str | None) -> dict[str, Finding]:
    """Left out are blocks in which the other scheme swapped next to nothing, and none for what this one swapped: that is the outcome."""
    pairs = list(zip(_swapped(trials, point), _swapped(trials, {**point, "scheme": other}), strict=True))
    known = [(value, base) for value, base in pairs if value is not None and base is not None and base >= LEAST_SWAPPED]
    ratio = overcommitment.block_ratio([max(value, LEAST_SWAPPED) for value, _ in known], [base for _, base in known])
    if ratio is None:
        return {}
    words = f"swapped out of all containers, scheme {int(point['scheme'])} over scheme {other}"
    raised = sum(value < LEAST_SWAPPED for value, _ in known)
    if raised:
        words += f"; at most: in {raised} of {len(known)} blocks it was below {LEAST_SWAPPED:g} MB, and counts as that"
    return {name: as_finding(ratio, "ratio", words, experiment="E6" if beside else None, published=beside)}


def _swapped(trials: Trials, point: Point) -> list[float | None]:
    return [one.get("swapped") for one in _by_block(trials, point)]


def _by_block(trials: Trials, point: Point) -> list[dict[str, float]]:
    return [{} if result is None else use(result) for result in trials.chosen(point)]
