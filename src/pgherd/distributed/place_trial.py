"""Placement of a trial on the hosts of a cluster, its division into one part per host, and its result as the study knows
it. Pure.

A study sees the cluster as one large host, ``local``, so it needs no code for clusters. Its containers are placed by
the run's rule, a load on the host itself becomes one on every host, and the host's memory is divided like the run's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from pgherd.distributed.merge_results import device_of, merged
from pgherd.metrics.cgroup import RUN_CGROUP
from pgherd.model import placement
from pgherd.model.analysis import Analysis, Proposal
from pgherd.model.base import Model
from pgherd.model.deployment import Container, DatabaseAddress, Host
from pgherd.model.load import Load, Phase, Script
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.model.run import Cluster, RunEnvironment
from pgherd.model.study import RunnableStudy
from pgherd.model.trial import Trial
from pgherd.study.per_host import with_hosts
from pgherd.study.shared_options import PIN

ONE = "local"
"""Name of all hosts together in a study."""


def placed(trial: Trial, cluster: Cluster, present: Sequence[str] | None = None) -> Trial:
    """Return the trial on the cluster's hosts, or only on those that are ``present``.

    Raises:
        ValueError: the rule does not fit these containers or hosts.
    """
    study_host = next((host for host in trial.deployment.hosts if host.name == ONE), None)
    if study_host is None:
        return trial if present is None else _on(trial, present)
    carriers = [host for host in cluster.carriers if present is None or host.name in present]
    if not carriers:
        raise ValueError("no host for servers remains")
    if cluster.client is not None and present is not None and cluster.client not in present:
        raise ValueError(f"host {cluster.client}, on which the clients run, is lost")
    if study_host.labels.get(PIN):  # any host is suitable if a block of trials stays on it
        carriers = [next((host for host in carriers if host.name == study_host.labels[PIN]), carriers[0])]
    rule = cluster.placement
    if len(carriers) < len(cluster.carriers) and not rule.startswith("label:"):
        rule = "pack" if rule == "pack" else "spread"
    host_of = placement.place(study_host.containers, carriers, rule)
    reference_hosts = carriers if study_host.labels.get(PIN) else cluster.carriers
    by_host: dict[str, list[Container]] = {carrier.name: [] for carrier in carriers}
    for container in study_host.containers:
        by_host[host_of[container.name]].append(container)
    deployed = tuple(_host(carrier, study_host, reference_hosts, by_host[carrier.name]) for carrier in carriers)
    if cluster.client is not None and any(phase.loads for phase in trial.phases):
        deployed = (*deployed, cluster.host(cluster.client))
    names = [carrier.name for carrier in carriers]
    phases = tuple(phase.model_copy(update={"loads": _loads(phase, host_of, names, cluster.client)}) for phase in trial.phases)
    deployment = trial.deployment.model_copy(update={"hosts": deployed})
    return trial.model_copy(update={"deployment": deployment, "phases": phases})


def _on(trial: Trial, present: Sequence[str]) -> Trial:
    """Return a trial that names its hosts, without the missing hosts and the links to them."""
    missing = {host.name for host in trial.deployment.hosts} - set(present)
    if not missing:
        return trial
    hosts = tuple(host for host in trial.deployment.hosts if host.name not in missing)
    volumes = tuple(volume for volume in trial.deployment.volumes if volume.host not in missing)
    links = tuple(link for link in trial.deployment.links if link.kind != "hosts" or not {link.near, link.name} & missing)
    removed_links = {link.target for link in trial.deployment.links} - {link.target for link in links}
    phases = []
    for phase in trial.phases:
        loads = {
            target: load for target, load in phase.loads.items() if target.split("/", 1)[0] not in missing and target not in removed_links
        }
        phases.append(phase.model_copy(update={"loads": loads}))
    deployment = trial.deployment.model_copy(update={"hosts": hosts, "volumes": volumes, "links": links})
    return trial.model_copy(update={"deployment": deployment, "phases": tuple(phases)})


def named(trial: Trial) -> frozenset[str]:
    """Return the hosts that a trial names, or an empty set if it uses all hosts as one."""
    hosts = frozenset(host.name for host in trial.deployment.hosts)
    return frozenset() if ONE in hosts else hosts


def _host(host: Host, study_host: Host, carriers: Sequence[Host], containers: Sequence[Container]) -> Host:
    memory = host.memory
    total = sum(carrier.memory or 0 for carrier in carriers)
    if memory is not None and study_host.memory is not None and study_host.memory < total:  # overcommit all hosts equally
        memory = int(memory * (study_host.memory / total))
    update = {"memory": memory, "swap": study_host.swap, "overcommit_by": study_host.overcommit_by, "containers": tuple(containers)}
    return host.model_copy(update=update)


def _loads(phase: Phase, host_of: Mapping[str, str], hosts: Sequence[str], client: str | None) -> dict[str, Load]:
    loads: dict[str, Load] = {}
    for target, load in phase.loads.items():
        if target == ONE:
            loads |= dict.fromkeys(hosts, load)
        elif target.count("/") == 3:
            container = target.split("/")[1]
            on_client = {} if client is None else {"host": client, "client_placement": "outside"}
            loads[target.replace(ONE, host_of[container], 1)] = load.model_copy(update=on_client)
        else:
            loads[target] = load
    return loads


def home(result: TrialResult) -> TrialResult:
    """Return a placed trial's result as its study knows it: all databases on one host, whose clients may run on another."""
    all_hosts = result.trial.deployment.hosts
    if any(host.name == ONE for host in all_hosts) or not any(host.containers for host in all_hosts):
        return result
    clients = {load.host for phase in result.trial.phases for load in phase.loads.values()}
    hosts = [host for host in all_hosts if host.name not in clients]
    cores = [host.cores for host in hosts if host.cores is not None]
    memory = [host.memory for host in hosts if host.memory is not None]
    containers = tuple(sorted((c for host in hosts for c in host.containers), key=lambda container: container.name))
    study_host = Host(
        name=ONE,
        cores=sum(cores) if len(cores) == len(hosts) else None,
        memory=sum(memory) if len(memory) == len(hosts) else None,
        swap=hosts[0].swap,
        overcommit_by=hosts[0].overcommit_by,
        containers=containers,
    )
    deployment = result.trial.deployment.model_copy(update={"hosts": (study_host, *(_bare(host) for host in all_hosts))})
    phases = tuple(p.model_copy(update={"loads": {_home(t): load for t, load in p.loads.items()}}) for p in result.trial.phases)
    trial = result.trial.model_copy(update={"deployment": deployment, "phases": phases})
    return result.model_copy(update={"trial": trial, "phases": [_phase(phase, hosts, clients) for phase in result.phases]})


def _bare(host: Host) -> Host:
    """Return the host as a target, without its containers, which belong to the study's host."""
    return host.model_copy(update={"containers": ()})


def _home(target: str) -> str:
    if target.count("/") != 3:
        return target
    _, container, server, database = target.split("/")
    return str(DatabaseAddress(host=ONE, container=container, server=server, database=database))


def _phase(phase: PhaseResult, hosts: Sequence[Host], clients: Collection[str | None]) -> PhaseResult:
    """Return the phase with the study's target names. ``host`` and devices cover only hosts with servers, not those of
    ``clients`` alone.
    """
    targets = [target.model_copy(update={"target": _home(target.target)}) for target in phase.targets]
    metrics = {
        f"driver:{_home(entity.removeprefix('driver:'))}" if entity.startswith("driver:") else entity: values
        for entity, values in phase.metrics.items()
        if not device_of(entity, clients)
    }
    for entity in ("host", RUN_CGROUP, "pgherd") if any(clients) else ():
        metrics.pop(entity, None)
        tables = {host.name: {entity: values} for host in hosts if (values := metrics.get(f"{entity}:{host.name}")) is not None}
        if tables:
            metrics[entity] = merged(tables)[entity]
    return phase.model_copy(update={"targets": targets, "metrics": metrics})


def part(trial: Trial, host: str) -> Trial:
    """Return one host's part of a trial: its containers with their memory limits, and loads on them, on the host, and on its links
    and volumes.

    A load whose driver runs on a separate host belongs to that host. Raises KeyError if the trial does not have the
    host.

    Every part has all phases and their times, so that all hosts switch at the same instants; a phase may load nothing
    here. It also has all links, because a host may be the far end of one.
    """
    own_host = {candidate.name: candidate for candidate in trial.deployment.hosts}[host]
    containers = {container.name for container in own_host.containers}
    phases = tuple(
        phase.model_copy(
            update={
                "loads": {target: load for target, load in phase.loads.items() if _on_host(target, load, own_host, trial)},
                "memory": {name: limit for name, limit in phase.memory.items() if name in containers},
            }
        )
        for phase in trial.phases
    )
    volumes = tuple(volume for volume in trial.deployment.volumes if volume.host in (None, host))
    deployment = trial.deployment.model_copy(update={"hosts": (own_host,), "volumes": volumes})
    return trial.model_copy(update={"deployment": deployment, "phases": phases})


def with_addresses(trial: Trial, addresses: Mapping[str, str]) -> Trial:
    """Return the trial with links between hosts leading to the hosts' current addresses. They may have changed since it
    was planned.
    """
    links = tuple(
        link.model_copy(update={"host": addresses.get(link.name) or link.host}) if link.kind == "hosts" else link
        for link in trial.deployment.links
    )
    return trial.model_copy(update={"deployment": trial.deployment.model_copy(update={"links": links})}) if links else trial


def served(trial: Trial, host: str) -> Trial:
    """Return a host's part with all loads on its servers, including those driven from another host. Raises as ``part``."""
    phases = []
    for phase in trial.phases:
        loads = {target: load.model_copy(update={"host": None}) for target, load in phase.loads.items()}
        phases.append(phase.model_copy(update={"loads": loads}))
    return part(trial.model_copy(update={"phases": tuple(phases)}), host)


def _on_host(target: str, load: Load, host: Host, trial: Trial) -> bool:
    if load.host is not None:
        return load.host == host.name
    if "/" in target:  # a database's address, or a volume or link of one host
        return target.split("/", 1)[0] == host.name
    others = {other.name for other in trial.deployment.hosts} - {host.name}
    return target not in others


def files_of(trials: Iterable[Trial]) -> set[str]:
    """Return paths of the driver's files that these trials need: scripts, and files that fill databases."""
    files: set[str] = set()
    for trial in trials:
        scripts = (script for phase in trial.phases for load in phase.loads.values() for script in load.scripts)
        files |= {script.source for script in scripts if ":" not in script.source}
        files |= {database.init for *_, database in trial.deployment.databases() if database.init is not None}
    return files


def with_files(part: Trial, copies: Mapping[str, str]) -> Trial:
    """Return the part with paths of the driver's files replaced by those of their copies on the host."""
    if not copies:
        return part

    def script(original: Script) -> Script:
        return original.model_copy(update={"source": copies.get(original.source, original.source)})

    def container(original: Container) -> Container:
        servers = []
        for server in original.servers:
            filled = tuple(d.model_copy(update={"init": d.init and copies.get(d.init, d.init)}) for d in server.databases)
            servers.append(server.model_copy(update={"databases": filled}))
        return original.model_copy(update={"servers": tuple(servers)})

    phases = []
    for phase in part.phases:
        loads = {t: load.model_copy(update={"scripts": tuple(map(script, load.scripts))}) for t, load in phase.loads.items()}
        phases.append(phase.model_copy(update={"loads": loads}))
    hosts = tuple(host.model_copy(update={"containers": tuple(map(container, host.containers))}) for host in part.deployment.hosts)
    deployment = part.deployment.model_copy(update={"hosts": hosts})
    return part.model_copy(update={"phases": tuple(phases), "deployment": deployment})


def own_surroundings(environment: RunEnvironment, host: Host) -> RunEnvironment:
    """Return the run's requirements for one host of its cluster, with that host's cores and memory."""
    cores = environment.cores if host.cores is None else host.cores
    memory = environment.memory if host.memory is None or not environment.memory else host.memory
    return environment.model_copy(update={"cores": cores, "memory": memory, "cluster": None})


class ClusterStudy:
    """Study on several hosts. Implements ``pgherd.model.study.RunnableStudy`` over a study that sees one large host."""

    def __init__(self, study: RunnableStudy[Any], cluster: Cluster) -> None:
        self.name = study.name
        self.options: type[Model] = study.options
        self._study, self._cluster = study, cluster
        self._at_home: dict[str, TrialResult] = {}

    def propose(self, options: Any, results: Sequence[TrialResult]) -> Proposal:
        """Return the study's proposal for one host; ``placed`` places its trials."""
        return self._study.propose(options, self._home(results))

    def analyse(self, options: Any, results: Sequence[TrialResult]) -> Analysis:
        """Return the study's analysis, completed with results by host."""
        return with_hosts(self._study.analyse(options, self._home(results)), results, self._cluster.hosts, self._cluster.client)

    def _home(self, results: Sequence[TrialResult]) -> list[TrialResult]:
        for result in results:
            if result.id not in self._at_home:
                self._at_home[result.id] = home(result)
        return [self._at_home[result.id] for result in results]
