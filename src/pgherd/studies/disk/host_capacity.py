"""IOPS of a host by a disk run: the most reads and writes at a mean latency of at most 1 ms. Pure."""

from __future__ import annotations

from pgherd.analysis.host_class import ResourceCapacity
from pgherd.analysis.host_measurement import HostMeasurement, HostRun, most_iops
from pgherd.analysis.intervals import mean_interval
from pgherd.model.analysis import Finding
from pgherd.model.errors import UsageError
from pgherd.studies.disk.measurements import DiskTestGroup, group_trials, is_cached
from pgherd.studies.disk.options import ALL, DiskOptions
from pgherd.study.findings import as_finding

MAX_LATENCY_MS = 1.0
"""Mean latency up to which I/Os count, as in E13."""
_TESTS = {"read_iops": ("qd1-read", "random-read"), "write_iops": ("qd1-write", "random-write")}
"""Resource → tests of its curve: one I/O at a time, then many, and twice as many."""


def measure_host(run: HostRun) -> HostMeasurement:
    """Return the IOPS of a host in PostgreSQL's page size, of all volumes together.

    Raises:
        UsageError: the run measured several hosts, or its volumes only one by one, or no IOPS.
    """
    options = DiskOptions.model_validate(run.record.options)
    volume = options.targets()[-1]
    if options.hosts:
        raise UsageError(f"{run.option}: run {run.name} measured several hosts at once; give a disk run of one host")
    if len(options.volume_names()) > 1 and volume != ALL:
        raise UsageError(f"{run.option}: run {run.name} measured its volumes only one by one; repeat it with --concurrent")
    groups = {group.test.name: group for group in group_trials(options, run.results) if group.volume == volume}
    capacity: dict[str, ResourceCapacity] = {}
    bounds: dict[str, ResourceCapacity] = {}
    missing: list[str] = []
    unseen: list[str] = []
    for resource, tests in _TESTS.items():
        measured = [groups[name] for name in tests if name in groups]
        if any(is_cached(options, group) for group in measured):
            missing.append(f"no {resource}, because a cache of the host served them")
            continue
        if any(is_cached(options, group) is None for group in measured):
            unseen.append(resource)
        curve = [point for group in measured for point in _points(group)]
        iops = most_iops(curve, MAX_LATENCY_MS, run.source)
        if iops is None:
            missing.append(f"no {resource} at a latency of at most {MAX_LATENCY_MS:g} ms")
        elif max(latency.value or 0.0 for _, latency in curve) < MAX_LATENCY_MS:
            bounds[resource] = iops.model_copy(update={"high": None})
        else:
            capacity[resource] = iops
    if not capacity and not bounds:
        raise UsageError(f"{run.option}: run {run.name} has {' and '.join(missing)}; give another run")
    notes = [f"Run {run.name} has {text}" for text in missing]
    if unseen:
        notes.append(f"The devices of run {run.name} were not seen, so that a cache may have served {' and '.join(unseen)}")
    if bounds:
        notes.append(
            f"Run {run.name} never had a latency of {MAX_LATENCY_MS:g} ms, so a host may have more than the measured {' and '.join(bounds)}"
        )
    if len(capacity) + len(bounds) == len(_TESTS):
        notes.append(f"Reads and writes of run {run.name} were measured one after the other, so a host may not reach both at once")
    return HostMeasurement(capacity=capacity, bounds=bounds, notes=tuple(notes))


def _points(group: DiskTestGroup) -> list[tuple[Finding, Finding]]:
    """Return IOPS and mean latency of a test at its depth, and at twice its depth."""
    points = []
    for trials in (group.used, group.double_depth):
        known = [trial for trial in trials if "mean" in trial.latency]
        if known:
            iops = as_finding(mean_interval([trial.iops for trial in known]), "IOPS")
            points.append((iops, as_finding(mean_interval([trial.latency["mean"] for trial in known]), "ms")))
    return points
