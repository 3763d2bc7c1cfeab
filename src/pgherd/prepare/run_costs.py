"""Cost of a load by runs of pgherd: CPU, WAL and requests to devices of a transaction, and memory, over the trials of each run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pgherd.model.analysis import Finding
from pgherd.model.device_io import DeviceSeries
from pgherd.model.errors import UsageError
from pgherd.model.load import Phase
from pgherd.model.result import DATABASE, PhaseResult, TargetResult, TrialResult, clean_or_all, counted_by
from pgherd.model.units import MB_PER_SECOND
from pgherd.postgres.huge_pages import refuses_huge_pages, requires_huge_pages
from pgherd.prepare.requests import doubts, run_and_its_subject
from pgherd.store.open_run import Run
from pgherd.store.run_directory import RunDirectory
from pgherd.study.guests import EMULATION_REASON, is_emulated
from pgherd.study.observation import hypervisor_cpu
from pgherd.study.study import studies

if TYPE_CHECKING:
    from pgherd.analysis.demand import Cost

_MB = 2**20
_USED = frozenset({"cpu.usage", "wal.bytes", "memory.usage", "memory.inactive_file", "qemu.cpu", "qemu.cpu_guest", "reads", "writes"})
"""Metrics that a cost is computed from."""
_MOST = 1e18
"""Largest of their values."""
_LEAST_RATE = 0.1
"""Rate of a database below which a trial is left out, as a share of the highest in the run. There the CPU of an idle server counts most."""


def read_costs(texts: Sequence[str], root: Path, capacities: Collection[str] | None = None) -> list[Cost]:
    """Return the costs by runs. A text is RUN or DATABASE=RUN with a pattern of names. Those without a pattern are last.

    A run of a study with the function ``memory_needed`` has the memory that the load needs. Other runs have its CPU, WAL, IOPS and the
    memory that it used: the lowest and highest trial of each. ``capacities`` are the resources of which hosts have a capacity (None: all).
    Of the others only the CPU is returned.

    Raises:
        UsageError: there is no such run, or it has no cost.
    """
    costs = [_planned(_cost(text, root), capacities) for text in texts]
    return sorted(costs, key=lambda cost: cost.databases == "*")


def _planned(cost: Cost, capacities: Collection[str] | None) -> Cost:
    """Leave out resources of which no host has a capacity, with a note."""
    unlimited = [name for name in cost.resources if capacities is not None and name not in capacities and name != "cpu_cores"]
    if not unlimited:
        return cost
    note = f"{cost.source}: no class of hosts has a capacity of {', '.join(unlimited)}, so none is planned"
    resources = {name: bounds for name, bounds in cost.resources.items() if name not in unlimited}
    return replace(cost, resources=resources, note="; ".join(filter(None, (cost.note, note))))


def _cost(text: str, root: Path) -> Cost:
    from pgherd.analysis.demand import Cost

    databases, name = run_and_its_subject(text)
    run, source = Run(RunDirectory.find(name, root).path), f"--demand-run {text}"
    needed = studies()[run.study].hook("study", "memory_needed") if run.study in studies() else None
    if needed is not None:
        size, note = _largest(needed(run.record.analysis) if run.record.analysis else [], run, source)
        return Cost(databases or "*", {"memory_mb": size}, source, _note(run, [note] if note else []))
    loaded = [trial for trial in run.results if trial.error is None and _transactions(trial)]
    if not all(map(_plausible, loaded)):
        raise UsageError(f"{source}: run {run.name} has metrics that are negative, infinite or no number; give another run")
    least = _LEAST_RATE * max(map(_rate, loaded), default=0.0)
    trials = clean_or_all([trial for trial in loaded if _rate(trial) >= least])
    used = {"memory_mb": [trial for trial in trials if not _may_have_huge_pages(trial, run)]}
    measured = {name: _bounds(measure, used.get(name, trials)) for name, measure in _MEASURES.items()}
    resources = {name: bounds for name, bounds in measured.items() if bounds is not None}
    if "cpu_cores" not in resources:
        raise UsageError(f"{source}: run {run.name} has no CPU of its databases; give a run with pgbench on servers in containers")
    if is_emulated([phase for trial in trials for phase in trial.phases]):
        raise UsageError(f"{source}: run {run.name} has no usable CPU: {EMULATION_REASON}; give another run")
    notes = []
    if any(trial.tainted for trial in trials):
        notes.append("all trials are tainted")
    if len(trials) == 1:
        notes.append("there is one trial, so the cost has no interval")
    if "memory_mb" in resources:
        notes.append("memory is what the servers used there; a working-set run measures what they need")
    if len(used["memory_mb"]) < len(trials):
        notes.append("there is no memory of trials whose servers may have huge pages, which no control group counts")
    if used["memory_mb"] and "memory_mb" not in resources and any(phase.prometheus for trial in trials for phase in trial.phases):
        notes.append("there is no memory, because Prometheus has no container_memory_working_set_bytes of the containers")
    if "write_iops" in resources:
        notes.append("IOPS are those with its memory, and with checkpoints only where a trial had one; others may have used the devices")
    return Cost(databases or "*", resources, source, _note(run, notes))


def _note(run: Run, notes: Sequence[str]) -> str:
    """Return what limits a cost by this run, '' if nothing does."""
    return "; ".join([*doubts(run), *([f"Run {run.name}: {'; '.join(notes)}"] if notes else [])])


def _largest(found: Sequence[Finding], run: Run, source: str) -> tuple[tuple[float, float], str]:
    """Return the bounds of the largest working set, in MB, and its note.

    Raises:
        UsageError: a working set is unknown, and could be the largest.
    """
    if not found:
        raise UsageError(f"{source}: run {run.name} has no analysis of container memory; repeat it with --vary memory")
    if unknown := [finding.note for finding in found if finding.value is None]:
        raise UsageError(f"{source}: run {run.name} has no working set of a load: {unknown[0]}; repeat it with a larger --time-budget")
    largest = max(found, key=lambda finding: _bound(finding, finding.high))
    return (max(_bound(finding, finding.low) for finding in found), _bound(largest, largest.high)), largest.note


def _bound(finding: Finding, end: float | None) -> float:
    """Return an end of a finding's interval, or its value without an interval."""
    return end if end is not None else finding.value or 0.0


def _bounds(measure: Callable[[TrialResult], float | None], trials: Sequence[TrialResult]) -> tuple[float, float] | None:
    """Return the lowest and highest value over the trials that have one."""
    values = [value for trial in trials if (value := measure(trial)) is not None]
    return (min(values), max(values)) if values else None


def _databases(phase: PhaseResult) -> list[TargetResult]:
    """Return the results of databases. The address of each has four parts."""
    return [target for target in phase.targets if target.target.count("/") == 3 and counted_by(target.driver) is DATABASE]


def _loaded(phase: PhaseResult) -> dict[str, set[str]]:
    """Return container → its servers with a load."""
    loaded: dict[str, set[str]] = {}
    for target in _databases(phase):
        _, container, server, _ = target.target.split("/")
        loaded.setdefault(container, set()).add(server)
    return loaded


def _transactions(trial: TrialResult) -> float:
    return math.fsum(target.throughput * phase.loaded(target) * phase.seconds for phase in trial.phases for target in _databases(phase))


def _plausible(trial: TrialResult) -> bool:
    """Whether the numbers that a cost is computed from are finite and at least 0."""
    used = [value for phase in trial.phases for metrics in phase.metrics.values() for name, value in metrics.items() if name in _USED]
    used += [number for phase in trial.phases for one in phase.targets for number in (one.throughput, one.client_cpu or 0.0)]
    series = [view.series for phase in trial.phases if phase.io is not None for view in phase.io.devices]
    used += [number for one in series for number in (*one.seconds, *one.reads, *one.writes)]
    return all(0 <= value <= _MOST for value in used)


def _rate(trial: TrialResult) -> float:
    """Return the mean rate of a database."""
    return _transactions(trial) / math.fsum(len(_databases(phase)) * phase.seconds for phase in trial.phases)


def _cpu(trial: TrialResult) -> float | None:
    """Return the CPU of a transaction in core seconds, without clients, samplers and hypervisors. None: not all of it was observed."""
    used = 0.0
    for plan, phase in zip(trial.trial.phases, trial.phases, strict=False):
        for container in _loaded(phase):
            clients = [_client(plan, phase, target) for target in _databases(phase) if target.target.split("/")[1] == container]
            cores = phase.metrics.get(f"container:{container}", {}).get("cpu.usage")
            if cores is None or None in clients:
                return None
            others = [client or 0.0 for client in clients]
            others += [m.get("cpu.usage", 0.0) for name, m in phase.metrics.items() if name.startswith(f"backend:{container}/")]
            guest = {name: m for name, m in phase.metrics.items() if name == f"guest:{container}"}
            used += max(cores - math.fsum(others) - (hypervisor_cpu(guest) or 0.0), 0.0) * phase.seconds
    return used / _transactions(trial)


def _client(plan: Phase, phase: PhaseResult, target: TargetResult) -> float | None:
    """Return the CPU of a driver in the container of its database, in cores. None: not observed."""
    load = plan.loads.get(target.target)
    if load is None or load.client_placement != "inside" or load.host is not None:
        return 0.0
    return phase.metrics.get(f"driver:{target.target}", {}).get("cpu.usage", target.client_cpu)


def _wal(trial: TrialResult) -> float | None:
    """Return the WAL of a transaction in MB. None: a server was not observed."""
    written = 0.0
    for phase in trial.phases:
        for container, servers in _loaded(phase).items():
            for server in servers:
                rate = phase.metrics.get(f"server:{container}/{server}", {}).get("wal.bytes")
                if rate is None:
                    return None
                written += rate * phase.seconds
    return written / MB_PER_SECOND / _transactions(trial)


def _requests(trial: TrialResult, kind: Literal["reads", "writes"]) -> float | None:
    """Return the requests of a transaction to devices. Writes are without flushes. None: those of a server were not observed.

    They are those of all devices with files of the servers, or of a container whose servers are on no observed device.
    """
    requests = 0.0
    for phase in trial.phases:
        views = [view for view in phase.io.devices if math.fsum(view.series.seconds) > 0] if phase.io is not None else []
        data, wal = ({server for view in views for server in view.roles.get(role, ())} for role in ("data", "wal"))
        on_devices: set[str] = set()
        for container, servers in _loaded(phase).items():
            names = {f"{container}/{server}" for server in servers}
            if names <= data & wal:
                on_devices |= names
                continue
            rate = phase.metrics.get(f"container:{container}", {}).get(kind)
            if rate is None:
                return None
            requests += rate * phase.seconds
        below = [view.series for view in views if any(on_devices.intersection(names) for names in view.roles.values())]
        requests += math.fsum(_mean(one, kind) for one in below) * phase.seconds
    return requests / _transactions(trial)


def _mean(series: DeviceSeries, kind: Literal["reads", "writes"]) -> float:
    rates: list[float] = getattr(series, kind)
    return math.fsum(rate * seconds for rate, seconds in zip(rates, series.seconds, strict=False)) / math.fsum(series.seconds)


def _may_have_huge_pages(trial: TrialResult, run: Run) -> bool:
    """Return True if a server may have huge pages, which the memory controller of the kernel does not count.

    The settings of an external server are unknown. Without huge pages of its host it has none.
    """
    reserved = any(pages for facts in run.record.hosts.values() for pages in facts.huge_pages.values())
    servers = [server.settings for _, _, server in trial.trial.deployment.servers()]
    return any(requires_huge_pages(settings) or (reserved and not refuses_huge_pages(settings)) for settings in servers)


def _memory(trial: TrialResult) -> float | None:
    """Return the memory of the largest container without its inactive page cache, in MB. None: not observed, or not that of a database.

    A container with several databases has the memory of all.
    """
    sizes = []
    databases = Counter(container.name for _, _, container, _, _ in trial.trial.deployment.databases())
    for phase in trial.phases:
        for container in _loaded(phase):
            if databases[container] > 1:
                return None
            memory: Mapping[str, float] = phase.metrics.get(f"container:{container}", {})
            if not {"memory.usage", "memory.inactive_file"} <= memory.keys():
                return None
            sizes.append(memory["memory.usage"] - memory["memory.inactive_file"])
    return max(sizes) / _MB


_MEASURES: Mapping[str, Callable[[TrialResult], float | None]] = {
    "cpu_cores": _cpu,
    "memory_mb": _memory,
    "read_iops": partial(_requests, kind="reads"),
    "write_iops": partial(_requests, kind="writes"),
    "wal_mb_s": _wal,
}
"""Resource → its function, per transaction or at any rate."""
