"""Trials of a density run and their order.

Pure. Imports no scientific library, because it runs between the trials.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from pgherd.model import placement
from pgherd.model.analysis import Proposal
from pgherd.model.deployment import Deployment, Host
from pgherd.model.load import Load, Phase
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial, ValidityCheck
from pgherd.studies.density import objective, tenants
from pgherd.studies.density.options import SOAK_STRETCH, DensityOptions, answer_by_cpu, container_names, deployment, reference_point
from pgherd.study import trial_schedule
from pgherd.study.database_options import target
from pgherd.study.observation import Observation, observe
from pgherd.study.trial_schedule import Point, SchedulePlan


def propose(options: DensityOptions, results: Sequence[TrialResult]) -> Proposal:
    """Return the next trials, or the reason to stop. The result depends on the arguments only."""
    if options.tenants:
        return tenants.propose(options, results)
    if options.objectives:
        return objective.propose(options, results, build_trial)
    if options.soak_seconds:
        return _propose_soak(options, results)
    return trial_schedule.propose(options, _design(options), results)


def planned(options: DensityOptions) -> tuple[Trial, ...]:
    """Return all trials planned at the start, including those that may not fit into the time budget."""
    if options.objectives or options.tenants:
        return tuple(propose(options, ()).trials)
    return _soak(options) if options.soak_seconds else _design(options).planned


def worst_case(options: DensityOptions) -> int:
    """Return the maximum number of trials."""
    return len(_soak(options)) if options.soak_seconds else trial_schedule.worst_case(options, _design(options))


def _design(options: DensityOptions) -> SchedulePlan:
    def build(point: Point, repeat: int, reason: str) -> Trial:
        return build_trial(options, int(point["databases"]), repeat, reason)

    points = [{"databases": databases} for databases in options.databases]
    return SchedulePlan(_blocks(options), points, build, lambda point: options.repeats, focus=lambda results: _crossing(options, results))


def _blocks(options: DensityOptions) -> list[tuple[Trial, ...]]:
    """Plan the trials in blocks.

    Each block has every point once, in random order, so that drift of the host does not look like scaling.
    """
    rng = random.Random(f"order {options.seed}")
    blocks = []
    for repeat in range(options.repeats):
        order = list(options.databases)
        rng.shuffle(order)
        blocks.append(tuple(build_trial(options, databases, repeat, "planned") for databases in order))
    return blocks


def _crossing(options: DensityOptions, results: Sequence[TrialResult]) -> list[Point]:
    """Return the points on both sides of the target efficiency, which decide the answer: by CPU received where that is the answer."""
    points: dict[int, list[Observation]] = {}
    for result in results:
        observation = None if result.tainted else observe(options, result)
        if observation is not None:
            points.setdefault(int(result.trial.point["databases"]), []).append(observation)
    if not points:
        return []
    shares = {n: [o.given for o in observations if o.given is not None] for n, observations in sorted(points.items())}
    if answer_by_cpu(options) and all(shares.values()):
        efficiencies, needed = {n: sum(values) / len(values) for n, values in shares.items()}, options.efficiency
    else:
        efficiencies = {n: sum(o.throughput for o in points[n]) / len(points[n]) / n for n in shares}
        needed = options.efficiency * efficiencies[int(reference_point(options, list(efficiencies)))]
    reached = max((n for n, efficiency in efficiencies.items() if efficiency >= needed), default=min(efficiencies))
    beyond = min((n for n in efficiencies if n > reached), default=reached)
    return [{"databases": n} for n in sorted({reached, beyond})]


def _intents(options: DensityOptions) -> tuple[ValidityCheck, ...]:
    rate: tuple[ValidityCheck, ...] = ("rate-achieved",) if options.rate else ()
    if options.bound_by == "io":
        return ("io-bound", *rate, "not-client-bound")
    return (*(rate or ("cpu-bound",)), "cached", "not-client-bound")


def _loads(options: DensityOptions, databases: int, repeat: int) -> dict[str, Load]:
    """Choose the loaded databases, with their load.

    The containers form a ring, shuffled once per point, and each repeat starts where the last one ended. An unusual container, or its
    location on the host, then does not affect the same repeat of every point. Of containers that share hosts, NUMA nodes or CPUs, the
    choice loads these evenly: two databases on the same CPU while another one is idle would halve the throughput.
    """
    ring = container_names(options)
    random.Random(f"containers {options.seed} {databases}").shuffle(ring)
    start = repeat * databases % len(ring)
    order = ring[start:] + ring[:start]
    resources, capacity = _cached_resources(options.model_dump_json())
    chosen = placement.balanced(order, resources, capacity, databases) if capacity else order[:databases]
    load = options.load(options.clients)
    return {target(name): load for name in sorted(chosen)}


@lru_cache(maxsize=4)
def _cached_resources(text: str) -> tuple[dict[str, tuple[str, ...]], dict[str, float]]:
    """Return what each container shares with others, by name, and the capacities of these resources. Both are empty if they share all."""
    options = DensityOptions.model_validate_json(text)
    if options.fleet:
        hosts_of = {server.name: server.host for server in options.fleet}
        return {name: (host,) for name, host in hosts_of.items()}, {host: float(n) for host, n in Counter(hosts_of.values()).items()}
    names = container_names(options)
    hosts = options.over or (Host(name="local", cores=options.host_cores, cpu_nodes=options.cpu_nodes),)
    where = placement.place((options.container(name) for name in names), hosts, options.placement) if options.over else {}
    cores = {host.name: host.cores or 1.0 for host in hosts}
    if not options.over and options.cpu_mode != "cpuset":
        return {}, {}
    resources: dict[str, tuple[str, ...]] = {}
    capacity = dict(cores)
    for host in hosts:
        own = [name for name in names if where.get(name, "local") == host.name]
        if options.cpu_mode != "cpuset":
            resources.update(dict.fromkeys(own, (host.name,)))
            continue
        capacity.update({f"{host.name} node {node}": float(cpus) for node, cpus in Counter(host.cpu_nodes).items()})
        for name, cpus in zip(own, placement.pinned_cpus([options.vcpus] * len(own), cores[host.name]), strict=True):
            nodes = sorted({host.cpu_nodes[cpu] for cpu in cpus} if host.cpu_nodes else ())
            resources[name] = (host.name, *(f"{host.name} node {node}" for node in nodes), *(f"{host.name} CPU {cpu}" for cpu in cpus))
            capacity.update(dict.fromkeys((f"{host.name} CPU {cpu}" for cpu in cpus), 1.0))
    return resources, capacity


@lru_cache(maxsize=4)
def _cached_deployment(text: str) -> Deployment:
    return deployment(DensityOptions.model_validate_json(text))


def _deployment(options: DensityOptions) -> Deployment:
    # Cached, because hundreds of trials share one deployment, which takes longer to build than the trials.
    return _cached_deployment(options.model_dump_json())


def build_trial(options: DensityOptions, databases: int, repeat: int, reason: str) -> Trial:
    """Return a trial that loads a number of databases."""
    phase = Phase(name="steady", warmup=options.warmup, seconds=options.duration, loads=_loads(options, databases, repeat))
    return _build(options, databases, repeat, reason, (phase,))


def _propose_soak(options: DensityOptions, results: Sequence[TrialResult]) -> Proposal:
    """Propose the remaining stretches. A failed one is not repeated, since its time has passed."""
    stretches = _soak(options)
    remaining = stretches[len(results) :]
    if remaining:
        return Proposal(trials=remaining, max_trials=len(stretches))
    return Proposal(stop="the soak is over", max_trials=len(stretches))


def _soak(options: DensityOptions) -> tuple[Trial, ...]:
    """Plan a soak as trials of several windows, so that an interruption after hours costs the last trial only.

    Drivers of consecutive windows have a short warm-up between them. Between trials the servers keep running, unless they have to
    be created again.
    """
    window = min(options.soak_window, options.soak_seconds or options.soak_window)
    loads, count = _loads(options, options.soak_point, 0), options.soak_count
    phases = [
        Phase(name=f"w{i:04d}", warmup=min(options.warmup, 1.0) if i % SOAK_STRETCH else options.warmup, seconds=window, loads=loads)
        for i in range(count)
    ]
    first, *others = (tuple(phases[start : start + SOAK_STRETCH]) for start in range(0, count, SOAK_STRETCH))
    trial = _build(options, options.soak_point, 0, "planned", first)
    continued = {"continues_previous": True, "state": "warm"}
    return (
        trial,
        *(trial.model_copy(update={**continued, "repeat": number, "phases": stretch}) for number, stretch in enumerate(others, 1)),
    )


def _build(options: DensityOptions, databases: int, repeat: int, reason: str, phases: tuple[Phase, ...]) -> Trial:
    return Trial(
        point={"databases": databases},
        repeat=repeat,
        reason=reason,
        deployment=_deployment(options),
        state=options.start_state,
        phases=phases,
        validity_checks=_intents(options),
    )
