"""What a study's trials say of the memory of their guests (E6), of what the host saves by merging equal pages of it, and of their drives as
the hypervisor sees them (E11). Pure.

For every study: one row per point, phase and guest, of runs that had guests; of others nothing changes. Each number is the mean over
trials of the trial's own mean over the phase, with Student's interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pgherd.analysis import memory_effects
from pgherd.analysis.intervals import mean_interval
from pgherd.analysis.memory_effects import Effects
from pgherd.model.finding import Analysis, Finding
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.study.emulation import FUNCTIONAL_TABLE
from pgherd.study.findings import as_finding, missing

Row = dict[str, Finding | str | int | float | None]
TABLE, DRIVES, MERGING = "guest_memory", "guest_drives", "page_merging"
MB = 2**20
MAX_UNACCOUNTED = 0.05
"""Share of a guest's memory above which what is not accounted for is warned of."""

_PARTS: dict[str, Callable[[Effects], float]] = {
    "configured": lambda one: one.configured,
    "resident": lambda one: one.resident,
    "ballooned": lambda one: one.ballooned,
    "by_database": lambda one: one.by_database,
    "compressed": lambda one: one.compressed,
    "swapped": lambda one: one.swapped,
    "untouched": lambda one: one.untouched,
    "residue": lambda one: one.residue,
}
_NOTES = {
    "ballooned": "in the balloon of the guest's kernel",
    "by_database": "a part of what is ballooned, never to be added to it",
    "compressed": "bytes before compression",
    "untouched": "never touched, or reported as free",
    "residue": "what the parts leave over",
}


MERGED_NOTE = "pages that the host has merged (KSM) are counted in each guest that has them"
"""Of the kernel's counts by process; what merging saves is therefore in no part of a guest's memory, and stands in a table of its own."""
_OF_MERGING = {
    "shared": "kept once for several places; of the whole host, whoever merges",
    "saved": "all further places of these pages; of the whole host, whoever merges",
    "unshared": "looked at, and equal to no other",
}


def merges_pages(results: Iterable[TrialResult]) -> bool:
    """Whether the host was asked to merge equal pages of any guest."""
    containers = (container for result in results for _, container in result.trial.deployment.containers())
    return any(container.guest is not None and container.guest.merge for container in containers)


def with_guest_memory(analysis: Analysis, results: Sequence[TrialResult]) -> Analysis:
    """The analysis with the tables ``guest_memory``, ``page_merging`` and ``guest_drives`` where there were guests, and a warning where
    their memory is not accounted for. One that has the tables already is left as it is."""
    seen = [result for result in results if result.error is None and _guests(result)]
    if not seen or TABLE in analysis.tables:
        return analysis
    drives = [] if FUNCTIONAL_TABLE in analysis.tables else drive_rows(seen)
    found = ((TABLE, memory_rows(seen)), (MERGING, merging_rows(seen)), (DRIVES, drives))
    tables = {name: rows for name, rows in found if rows}
    return analysis.model_copy(
        update={"tables": {**analysis.tables, **tables}, "warnings": [*analysis.warnings, *_warnings(seen)]} if tables else {}
    )


def memory_rows(results: Sequence[TrialResult]) -> list[Row]:
    """Where each guest's memory was, MB, by point, phase and guest."""
    rows: list[Row] = []
    for point, trials in _points(results).items():
        for number, phase in enumerate(trials[0].phases):
            for guest in _guests(trials[0]):
                found = [_effects(trial, number, guest) for trial in trials]
                row: Row = {"point": point, "phase": phase.phase, "guest": guest}
                for name, take in _PARTS.items():
                    values = [take(one) / MB for one in found if one is not None]
                    note = MERGED_NOTE if name == "resident" and merges_pages(trials) else _NOTES.get(name, "")
                    row[name] = _mean(values, "MB", note, "its balloon was not seen")
                target = [_metric(trial, number, f"guest:{guest}", "guest.target") for trial in trials]
                row["target"] = _mean([one / MB for one in target if one is not None], "MB", "what the host let it keep", "not seen")
                if merges_pages(trials):
                    shared = [_metric(trial, number, f"guest:{guest}", "guest.merged") for trial in trials]
                    note = "of what is resident, pages that share their memory with equal ones"
                    row["merged"] = _mean([one / MB for one in shared if one is not None], "MB", note, "this kernel does not tell")
                rows.append(row)
    return rows


def merging_rows(results: Sequence[TrialResult]) -> list[Row]:
    """What the host's merging of equal pages came to, MB, by point and phase; none where no guest's pages were to be merged."""
    rows: list[Row] = []
    for point, trials in _points(results).items():
        for number, phase in enumerate(trials[0].phases) if merges_pages(trials) else ():
            row: Row = {"point": point, "phase": phase.phase}
            for name, note in _OF_MERGING.items():
                found = [_metric(trial, number, "host", f"ksm.{name}") for trial in trials]
                row[name] = _mean([one / MB for one in found if one is not None], "MB", note, "not seen")
            rounds = [_metric(trial, number, "host", "ksm.scans") for trial in trials]
            row["rounds"] = _mean([60 * one for one in rounds if one is not None], "1/min", "over all that may be merged", "not seen")
            rows.append(row)
    return rows


def drive_rows(results: Sequence[TrialResult]) -> list[Row]:
    """E11's two views by point and phase: what each guest's block devices did as its kernel counts it, by the names that it has for them,
    and what the hypervisor did for the same drives, by the names that they were given there. The two views of one drive follow each
    other, and each says what the other is called ('' where that is not known)."""
    rows: list[Row] = []
    for point, trials in _points(results).items():
        for number, phase in enumerate(trials[0].phases):
            other = _other_views(phase)
            seen = [one for one in phase.metrics if one.startswith(tuple(_VIEWS))]
            for _, entity in sorted((min(_called(one), _called(other.get(one) or one)), one) for one in seen):
                kind, _, name_of = entity.partition(":")
                row: Row = {"point": point, "phase": phase.phase, "drive": name_of, "seen_by": _VIEWS[f"{kind}:"]}
                row["same_as"] = _called(other.get(entity, ""))
                found = [_drive(trial, number, entity) for trial in trials]
                for name, unit in _DRIVE_UNITS.items():
                    values = [one[name] for one in found if one.get(name) is not None]
                    row[name] = _mean([one for one in values if one is not None], unit, "", "there were none")
                rows.append(row)
    return rows


_VIEWS = {"guest-drive:": "the hypervisor", "guest-disk:": "the guest"}
_DRIVE_UNITS = {
    "reads": "requests/s",
    "writes": "requests/s",
    "flushes": "requests/s",
    "read_rate": "MB/s",
    "write_rate": "MB/s",
    "read_await": "ms",
    "write_await": "ms",
    "flush_await": "ms",
}


def _other_views(phase: PhaseResult) -> dict[str, str]:
    """The entities of the two views of each drive, either way, of those of which both are known."""
    devices = phase.io.devices if phase.io is not None else []
    pairs = [(one.number, below) for one in devices for below in one.below if one.number.startswith("guest-disk:")]
    return dict(pairs) | {below: above for above, below in pairs}


def _called(entity: str) -> str:
    return entity.partition(":")[2]


def _drive(trial: TrialResult, number: int, entity: str) -> dict[str, float | None]:
    values = trial.phases[number].metrics.get(entity, {}) if number < len(trial.phases) else {}

    def await_(time: float | None, requests: float | None) -> float | None:
        return 1000 * time / requests if time is not None and requests else None

    reads, writes, flushes = (values.get(name) for name in ("reads", "writes", "flushes"))
    flushing = values.get("flush_time", 0.0)
    writing = values.get("write_time")
    rates = {name: values[f"{name}_bytes"] / MB if f"{name}_bytes" in values else None for name in ("read", "write")}
    return {
        "reads": reads,
        "writes": writes,
        "flushes": flushes,
        "read_rate": rates["read"],
        "write_rate": rates["write"],
        "read_await": await_(values.get("read_time"), reads),
        "write_await": await_(None if writing is None else max(writing - flushing, 0.0), writes),
        "flush_await": await_(flushing, flushes),
    }


def _points(results: Sequence[TrialResult]) -> dict[str, list[TrialResult]]:
    """Trials by point: the clean ones where a point has any, else all of it."""
    points: dict[str, list[TrialResult]] = {}
    for result in results:
        points.setdefault(", ".join(f"{name} {value}" for name, value in result.trial.point.items()), []).append(result)
    return {point: [one for one in trials if not one.tainted] or trials for point, trials in points.items()}


def _guests(result: TrialResult) -> list[str]:
    found = {
        entity for phase in result.phases for entity, of in phase.metrics.items() if entity.startswith("guest:") and "guest.memory" in of
    }
    return sorted(entity.removeprefix("guest:") for entity in found)


def _effects(trial: TrialResult, number: int, guest: str) -> Effects | None:
    return memory_effects.of_means(trial.phases[number].metrics, guest) if number < len(trial.phases) else None


def _metric(trial: TrialResult, number: int, entity: str, name: str) -> float | None:
    return trial.phases[number].metrics.get(entity, {}).get(name) if number < len(trial.phases) else None


def _mean(values: Sequence[float], unit: str, note: str, absent: str) -> Finding:
    return as_finding(mean_interval(values), unit, note) if values else missing(unit, absent)


def _warnings(results: Sequence[TrialResult]) -> list[str]:
    worst: tuple[float, str, PhaseResult | None] = (0.0, "", None)
    for result in results:
        for phase in result.phases:
            for guest in _guests(result):
                one = memory_effects.of_means(phase.metrics, guest)
                if one is not None and abs(one.gap) > worst[0]:
                    worst = (abs(one.gap), guest, phase)
    if worst[0] <= MAX_UNACCOUNTED or worst[2] is None:
        return []
    return [
        f"Of guest {worst[1]}'s memory {worst[0]:.0%} are not accounted for in phase '{worst[2].phase}': its balloon moved, or memory that "
        "it gave up is still held (guest memory on huge pages cannot be given back)"
    ]
