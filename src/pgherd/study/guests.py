"""Guests of virtual machines, for every study: emulated processors, memory (E6), savings by KSM, and drives (E11). Pure.

Emulation (QEMU's TCG) is tens of times slower than the processor, and not uniformly. Throughput and ratios of it describe no real platform,
so a run with emulated guests only shows that its trials worked.

The tables of memory, KSM and drives have one row per point, phase and guest, in runs with guests only. Each number is the mean over trials
of the trial's mean over the phase, with a Student's t interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pgherd.analysis import guest_memory_breakdown
from pgherd.analysis.guest_memory_breakdown import MemoryBreakdown
from pgherd.analysis.intervals import mean_interval
from pgherd.model.analysis import Analysis, Check, Finding
from pgherd.model.result import PhaseResult, TrialResult, clean_or_all
from pgherd.model.units import MB_PER_SECOND
from pgherd.study.findings import as_finding, missing

EMULATED_METRIC = "emulated"
"""Metric of a ``guest:NAME`` entity: 1 if its processors were emulated."""
FUNCTIONAL_TABLE = "functional"
"""Table of a run whose only result is that its trials worked."""
EMULATION_REASON = "the guests' processors were emulated (TCG): functional only"
_SPEED_CHECKS = ("cpu-bound", "io-bound", "not-client-bound", "rate-achieved")
"""Checks whose pass depends on speed or CPU use, so emulation makes them unknown.

io-bound divides reads by transactions, and there are far fewer transactions. A pass of cached stays valid, because few reads are few
regardless of their cause.
"""
_VALID_TABLES = ("oom_kills",)
"""Tables of studies that stay valid with emulated processors."""


def is_emulated(phases: Sequence[PhaseResult]) -> bool:
    """Return True if a guest in these phases had emulated processors."""
    return any(metrics.get(EMULATED_METRIC) == 1 for phase in phases for metrics in phase.metrics.values())


def discount_checks(checks: Sequence[Check], phases: Sequence[PhaseResult]) -> list[Check]:
    """Return the checks of a trial, adapted to emulation.

    Checks of speed or CPU use become unknown. Other failed checks become unknown too, because slowness may be the cause.
    """
    if not is_emulated(phases):
        return list(checks)
    unknown = {"result": "unknown", "reason": EMULATION_REASON, "failed_phases": ()}
    return [check.model_copy(update=unknown) if check.result != "pass" or check.name in _SPEED_CHECKS else check for check in checks]


def with_emulation(analysis: Analysis, results: Sequence[TrialResult]) -> Analysis:
    """Return the analysis unchanged, or a functional one that only counts finished trials if any trial was emulated."""
    affected = [result for result in results if is_emulated(result.phases)]
    if not affected:
        return analysis
    failed = [result for result in results if result.error is not None]
    points: dict[str, list[TrialResult]] = {}
    for result in results:
        points.setdefault(", ".join(f"{name} {value}" for name, value in sorted(result.trial.point.items())) or "all", []).append(result)
    rows: list[dict[str, Finding | str | int | float | None]] = [
        {"point": point, "trials": len(trials), "finished": sum(trial.error is None for trial in trials)}
        for point, trials in points.items()
    ]
    guest_count = max(sum(1 for _ in result.trial.deployment.containers()) for result in affected)
    guests = "1 guest" if guest_count == 1 else f"up to {guest_count} guests"
    trials_text = "the only trial" if len(results) == 1 else f"all {len(results)} trials"
    outcome = f"{trials_text} finished" if not failed else f"{len(failed)} of {len(results)} trials failed"
    return Analysis(
        answer=f"Functional only: {outcome} with {guests}; their processors were emulated (no KVM), so throughput is not reported.",
        grade="C",
        findings={
            "trials_finished": _count(len(results) - len(failed), "finished trials"),
            "trials_failed": _count(len(failed), "failed trials"),
            "guests": _count(guest_count, "maximum number of simultaneous guests"),
        },
        tables={FUNCTIONAL_TABLE: rows} | {name: analysis.tables[name] for name in _VALID_TABLES if name in analysis.tables},
        warnings=[
            "Throughput, latency and CPU use of these trials are invalid, because the guests' processors were emulated. Run the same "
            "command on a host with KVM.",
            *[f"trial {result.id} failed: {result.error}" for result in failed[:3]],
        ],
        next_steps=["'pgherd doctor' reports whether KVM works on this host"],
    )


def _count(value: int, method: str) -> Finding:
    return Finding(value=value, unit="", n=1, method=method, note="counted, so without an interval")


Row = dict[str, Finding | str | int | float | None]
TABLE, DRIVES, KSM = "guest_memory", "guest_drives", "ksm"
MB = 2**20
MAX_UNACCOUNTED = 0.05
"""Unaccounted share of a guest's memory above which a warning is issued."""

_PARTS: dict[str, Callable[[MemoryBreakdown], float]] = {
    "configured": lambda parts: parts.configured,
    "resident": lambda parts: parts.resident,
    "ballooned": lambda parts: parts.ballooned,
    "by_pg_balloon": lambda parts: parts.by_pg_balloon,
    "compressed": lambda parts: parts.compressed,
    "swapped": lambda parts: parts.swapped,
    "never_touched": lambda parts: parts.never_touched,
    "unaccounted": lambda parts: parts.unaccounted,
}
_NOTES = {
    "ballooned": "in the balloon of the guest's kernel",
    "by_pg_balloon": "part of ballooned, so do not add it",
    "compressed": "bytes before compression",
    "never_touched": "never touched, or reported as free",
    "unaccounted": "configured memory without the other parts",
}


KSM_NOTE = "pages merged by KSM count in each guest that has them"
"""The kernel counts merged pages in each process, so savings by KSM are not part of a guest's memory. They have a separate table."""
_KSM_NOTES = {
    "shared": "merged pages that are in use; of the whole host",
    "saved": "further references to these pages; of the whole host",
    "unshared": "scanned, without an equal page",
}


def uses_ksm(results: Iterable[TrialResult]) -> bool:
    """Return True if KSM was on for any guest."""
    containers = (container for result in results for _, container in result.trial.deployment.containers())
    return any(container.vm is not None and container.vm.merge for container in containers)


def with_guest_memory(analysis: Analysis, results: Sequence[TrialResult]) -> Analysis:
    """Return the analysis with the tables ``guest_memory``, ``ksm`` and ``guest_drives``, and a warning about unaccounted memory.

    Without guests, or if the analysis has the tables already, it is returned unchanged.
    """
    with_guests = [result for result in results if result.error is None and _guests(result)]
    if not with_guests or TABLE in analysis.tables:
        return analysis
    drives = [] if FUNCTIONAL_TABLE in analysis.tables else drive_rows(with_guests)
    candidates = ((TABLE, memory_rows(with_guests)), (KSM, ksm_rows(with_guests)), (DRIVES, drives))
    tables = {name: rows for name, rows in candidates if rows}
    return analysis.model_copy(
        update={"tables": {**analysis.tables, **tables}, "warnings": [*analysis.warnings, *_warnings(with_guests)]} if tables else {}
    )


def memory_rows(results: Sequence[TrialResult]) -> list[Row]:
    """Return the parts of each guest's memory in MB, by point, phase and guest."""
    rows: list[Row] = []
    for point, trials in _points(results).items():
        for number, phase in enumerate(trials[0].phases):
            for guest in _guests(trials[0]):
                breakdowns = [_breakdown(trial, number, guest) for trial in trials]
                row: Row = {"point": point, "phase": phase.phase, "guest": guest}
                for name, part_of in _PARTS.items():
                    values = [part_of(breakdown) / MB for breakdown in breakdowns if breakdown is not None]
                    note = KSM_NOTE if name == "resident" and uses_ksm(trials) else _NOTES.get(name, "")
                    row[name] = _mean(values, "MB", note, "its balloon was not measured")
                target = [_metric(trial, number, f"guest:{guest}", "guest.target") for trial in trials]
                row["balloon_target"] = _mean(
                    [value / MB for value in target if value is not None], "MB", "memory that the host left to the guest", "not measured"
                )
                if uses_ksm(trials):
                    shared = [_metric(trial, number, f"guest:{guest}", "guest.ksm_merged") for trial in trials]
                    note = "resident pages that share memory with equal pages"
                    row["ksm_merged"] = _mean(
                        [value / MB for value in shared if value is not None], "MB", note, "not reported by this kernel"
                    )
                rows.append(row)
    return rows


def ksm_rows(results: Sequence[TrialResult]) -> list[Row]:
    """Return the effect of KSM in MB, by point and phase. Empty if KSM was off."""
    rows: list[Row] = []
    for point, trials in _points(results).items():
        for number, phase in enumerate(trials[0].phases) if uses_ksm(trials) else ():
            row: Row = {"point": point, "phase": phase.phase}
            for name, note in _KSM_NOTES.items():
                values = [_metric(trial, number, "host", f"ksm.{name}") for trial in trials]
                row[name] = _mean([value / MB for value in values if value is not None], "MB", note, "not measured")
            rounds = [_metric(trial, number, "host", "ksm.full_scans") for trial in trials]
            row["rounds"] = _mean(
                [60 * value for value in rounds if value is not None], "1/min", "full scans of mergeable memory", "not measured"
            )
            rows.append(row)
    return rows


def drive_rows(results: Sequence[TrialResult]) -> list[Row]:
    """Return both views of each drive (E11), by point and phase: as counted by the guest's kernel and by the hypervisor.

    Each view has its local device name, and the name in the other view in ``also_known_as`` ('' if unknown). The two views of a drive are
    adjacent rows.
    """
    rows: list[Row] = []
    for point, trials in _points(results).items():
        for number, phase in enumerate(trials[0].phases):
            other = _other_views(phase)
            drives = [entity for entity in phase.metrics if entity.startswith(tuple(_VIEWS))]
            for _, entity in sorted((min(_drive_name(drive), _drive_name(other.get(drive) or drive)), drive) for drive in drives):
                kind, _, drive_name = entity.partition(":")
                row: Row = {"point": point, "phase": phase.phase, "drive": drive_name, "reported_by": _VIEWS[f"{kind}:"]}
                row["also_known_as"] = _drive_name(other.get(entity, ""))
                numbers = [_drive(trial, number, entity) for trial in trials]
                for name, unit in _DRIVE_UNITS.items():
                    values = [value for drive in numbers if (value := drive.get(name)) is not None]
                    row[name] = _mean(values, unit, "", "no requests")
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
    """Return the entity of the other view for each drive whose two views are known."""
    devices = phase.io.devices if phase.io is not None else []
    pairs = [(device.number, lower) for device in devices for lower in device.below if device.number.startswith("guest-disk:")]
    return dict(pairs) | {lower: upper for upper, lower in pairs}


def _drive_name(entity: str) -> str:
    return entity.partition(":")[2]


def _drive(trial: TrialResult, number: int, entity: str) -> dict[str, float | None]:
    values = trial.phases[number].metrics.get(entity, {}) if number < len(trial.phases) else {}

    def await_(time: float | None, requests: float | None) -> float | None:
        return 1000 * time / requests if time is not None and requests else None

    reads, writes, flushes = (values.get(name) for name in ("reads", "writes", "flushes"))
    flushing = values.get("flush_time", 0.0)
    writing = values.get("write_time")
    rates = {name: values[f"{name}_bytes"] / MB_PER_SECOND if f"{name}_bytes" in values else None for name in ("read", "write")}
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
    """Return the trials by point: the clean ones, or all of them if none is clean."""
    points: dict[str, list[TrialResult]] = {}
    for result in results:
        points.setdefault(", ".join(f"{name} {value}" for name, value in result.trial.point.items()), []).append(result)
    return {point: clean_or_all(trials) for point, trials in points.items()}


def _guests(result: TrialResult) -> list[str]:
    entities = {
        entity
        for phase in result.phases
        for entity, values in phase.metrics.items()
        if entity.startswith("guest:") and "guest.memory_configured" in values
    }
    return sorted(entity.removeprefix("guest:") for entity in entities)


def _breakdown(trial: TrialResult, number: int, guest: str) -> MemoryBreakdown | None:
    return guest_memory_breakdown.from_means(trial.phases[number].metrics, guest) if number < len(trial.phases) else None


def _metric(trial: TrialResult, number: int, entity: str, name: str) -> float | None:
    return trial.phases[number].metrics.get(entity, {}).get(name) if number < len(trial.phases) else None


def _mean(values: Sequence[float], unit: str, note: str, absent: str) -> Finding:
    return as_finding(mean_interval(values), unit, note) if values else missing(unit, absent)


def _warnings(results: Sequence[TrialResult]) -> list[str]:
    worst: tuple[float, str, PhaseResult | None] = (0.0, "", None)
    for result in results:
        for phase in result.phases:
            for guest in _guests(result):
                breakdown = guest_memory_breakdown.from_means(phase.metrics, guest)
                if breakdown is not None and abs(breakdown.gap) > worst[0]:
                    worst = (abs(breakdown.gap), guest, phase)
    if worst[0] <= MAX_UNACCOUNTED or worst[2] is None:
        return []
    return [
        f"{worst[0]:.0%} of the memory of guest {worst[1]} is unaccounted for in phase '{worst[2].phase}': its balloon changed size, or "
        "the host did not get released memory back (guest memory on huge pages is never returned)"
    ]
