"""Classes of hosts by runs of pgherd: the capacities that the studies' functions compute from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from pgherd.model.errors import UsageError
from pgherd.model.load import LatencyObjective
from pgherd.prepare.requests import doubts, first_fault, run_and_its_subject
from pgherd.store.open_run import Run
from pgherd.store.run_directory import RunDirectory
from pgherd.study.study import studies

if TYPE_CHECKING:
    from pgherd.analysis.host_class import HostClass, LatencyLimit, ResourceCapacity
    from pgherd.analysis.host_measurement import HostMeasurement

_HOOK = ("host_capacity", "measure_host")
"""Module and function of a study that measures hosts."""


def measured_classes(
    classes: Sequence[HostClass], runs: Sequence[str], root: Path, objective: LatencyObjective | None = None
) -> list[HostClass]:
    """Return the classes with the capacities that runs measured. ``runs`` are RUN or CLASS=RUN.

    Of several runs of a class, the first that has a resource counts. Without classes, a run is of a class called ``host``. ``objective`` is
    that of runs without one.

    Raises:
        UsageError: there is no such run or class, or a run has no capacity, or only those of the class's earlier runs.
    """
    stated = {host.name: host for host in classes}
    measured: dict[str, list[tuple[str, HostMeasurement]]] = {}
    for text in runs:
        name, run_name = run_and_its_subject(text)
        if not name and len(classes) > 1:
            raise UsageError(f"--host-run {text}: there are {len(classes)} classes of hosts; write it as CLASS=RUN")
        name = name or (classes[0].name if classes else "host")
        if classes and name not in stated:
            raise UsageError(f"--host-run {text}: there is no class {name}; there are {', '.join(stated)}")
        balloon = name in stated and stated[name].balloon
        found = _measurement(f"--host-run {text}", Run(RunDirectory.find(run_name, root).path), objective, balloon=balloon)
        measured.setdefault(name, []).append((f"--host-run {text}", found))
    by_name = {name: _with_runs(name, stated.get(name), parts) for name, parts in measured.items()}
    if objective is not None and not any(host.latency for host in by_name.values()):
        raise UsageError("--slo: no run of --host-run has the latency of databases by their CPU; add a density run")
    return [by_name.get(host.name, host) for host in classes] or list(by_name.values())


def _measurement(option: str, run: Run, objective: LatencyObjective | None, *, balloon: bool) -> HostMeasurement:
    """Return the capacities of a host by a run. ``option`` is for messages."""
    from pgherd.analysis.host_measurement import HostRun

    hook = studies()[run.study].hook(*_HOOK) if run.study in studies() else None
    if hook is None:
        able = ", ".join(study for study, one in studies().items() if one.hook(*_HOOK) is not None)
        raise UsageError(f"{option}: run {run.name} is of the study {run.study}; give a run of one of these: {able}")
    try:
        found: HostMeasurement = hook(HostRun(option, run.name, run.record, run.results, objective, balloon))
        found = replace(found, notes=(*found.notes, *doubts(run)))
    except ValidationError as error:
        raise UsageError(f"{option}: {first_fault(error)}") from None
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise UsageError(f"{option}: run {run.name} has another form than a {run.study} run: {error!r}") from None
    return found


def _with_runs(name: str, stated: HostClass | None, runs: Sequence[tuple[str, HostMeasurement]]) -> HostClass:
    """Return a class with the measurements of its runs. ``stated`` is that of the file, and each run has its option for messages."""
    from pgherd.analysis.host_class import HostClass

    capacity: dict[str, ResourceCapacity] = dict(stated.capacity) if stated is not None else {}
    by_runs: set[str] = set()
    latency: LatencyLimit | None = None
    factor: ResourceCapacity | None = None
    notes: list[str] = []
    for option, run in runs:
        new = {resource: one for resource, one in run.capacity.items() if resource not in by_runs}
        bounds = {**run.bounds, **(run.defaults if stated is None else {})}
        smaller = {resource for resource, one in run.bounds.items() if resource in capacity and capacity[resource].value < one.value}
        known = {*capacity, *new} - (smaller - by_runs)
        new |= {resource: one for resource, one in bounds.items() if resource not in known}
        if not new and (run.latency is None or latency is not None) and (run.memory_factor is None or factor is not None):
            raise UsageError(f"{option}: class {name} has an earlier run with all that this run has; leave one of them out")
        capacity |= new
        by_runs |= set(new)
        latency, factor = latency or run.latency, factor or run.memory_factor
        notes += run.notes
    if factor is not None:
        capacity = _overcommitted(name, capacity, factor)
    if stated is not None:
        return stated.model_copy(update={"capacity": capacity, "latency": latency or stated.latency, "notes": (*stated.notes, *notes)})
    try:
        return HostClass(name=name, capacity=capacity, latency=latency, notes=tuple(notes))
    except ValidationError as error:
        raise UsageError(f"{runs[0][0]}: {first_fault(error)}") from None


def _overcommitted(name: str, capacity: dict[str, ResourceCapacity], factor: ResourceCapacity) -> dict[str, ResourceCapacity]:
    """Return the capacities with the memory multiplied by a measured factor. The minima of the databases must fit without it."""
    memory = capacity.get("memory_mb")
    if memory is None:
        raise UsageError(f"--host-run: class {name} has no memory_mb, which the overcommitment of {factor.source} multiplies; add it")
    return {"memory_min_mb": memory, **capacity, "memory_mb": factor.model_copy(update={"value": memory.value * factor.value})}
