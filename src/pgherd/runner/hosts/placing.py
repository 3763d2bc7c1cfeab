"""A trial that a study wants of one host, on the hosts of a cluster; and its result as the study knows it. Pure.

A study sees the cluster as one large host, ``local``: a new study needs nothing for it. Its containers are placed by the run's rule,
a load on the host itself becomes one on every host, and the host's memory is divided as the budgets are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from pgherd.metrics.accounting import BUDGET
from pgherd.model import placing
from pgherd.model.base import Model
from pgherd.model.cluster import Cluster
from pgherd.model.deployment import Container, Host, Place
from pgherd.model.finding import Analysis, Proposal
from pgherd.model.load import Load, Phase, Script
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.model.run import Surroundings
from pgherd.model.study import Study
from pgherd.model.trial import Trial
from pgherd.runner.hosts.merging import device_of, merged
from pgherd.studies.hosts import with_hosts
from pgherd.studies.spread import PIN

ONE = "local"
"""The name under which a study knows all hosts together."""


def placed(trial: Trial, cluster: Cluster, present: Sequence[str] | None = None) -> Trial:
    """The trial on the cluster's hosts; on those that are ``present`` alone, where some are lost.

    Raises:
        ValueError: the rule does not fit these containers or hosts.
    """
    own = next((host for host in trial.deployment.hosts if host.name == ONE), None)
    if own is None:
        return trial if present is None else _on(trial, present)
    carriers = [host for host in cluster.carriers if present is None or host.name in present]
    if not carriers:
        raise ValueError("none of the hosts that carry servers is left")
    if cluster.client is not None and present is not None and cluster.client not in present:
        raise ValueError(f"host {cluster.client}, on which the clients run, is lost")
    if own.labels.get(PIN):  # another host does as well, as long as a block of trials stays on it
        carriers = [next((host for host in carriers if host.name == own.labels[PIN]), carriers[0])]
    rule = cluster.placement
    if len(carriers) < len(cluster.carriers) and not rule.startswith("label:"):
        rule = "pack" if rule == "pack" else "spread"
    where = placing.place(own.containers, carriers, rule)
    whole = carriers if own.labels.get(PIN) else cluster.carriers
    given: dict[str, list[Container]] = {one.name: [] for one in carriers}
    for container in own.containers:
        given[where[container.name]].append(container)
    deployed = tuple(_host(one, own, whole, given[one.name]) for one in carriers)
    if cluster.client is not None and any(phase.loads for phase in trial.phases):
        deployed = (*deployed, cluster.host(cluster.client))
    names = [one.name for one in carriers]
    phases = tuple(phase.model_copy(update={"loads": _loads(phase, where, names, cluster.client)}) for phase in trial.phases)
    deployment = trial.deployment.model_copy(update={"hosts": deployed})
    return trial.model_copy(update={"deployment": deployment, "phases": phases})


def _on(trial: Trial, present: Sequence[str]) -> Trial:
    """A trial that names its hosts itself, without those that are not there, and without links to them."""
    gone = {host.name for host in trial.deployment.hosts} - set(present)
    if not gone:
        return trial
    hosts = tuple(host for host in trial.deployment.hosts if host.name not in gone)
    volumes = tuple(volume for volume in trial.deployment.volumes if volume.host not in gone)
    links = tuple(link for link in trial.deployment.links if link.kind != "hosts" or not {link.near, link.name} & gone)
    cut = {link.target for link in trial.deployment.links} - {link.target for link in links}
    phases = []
    for phase in trial.phases:
        loads = {target: load for target, load in phase.loads.items() if target.split("/", 1)[0] not in gone and target not in cut}
        phases.append(phase.model_copy(update={"loads": loads}))
    deployment = trial.deployment.model_copy(update={"hosts": hosts, "volumes": volumes, "links": links})
    return trial.model_copy(update={"deployment": deployment, "phases": tuple(phases)})


def named(trial: Trial) -> frozenset[str]:
    """The hosts that a trial names itself; empty where it knows them only as one."""
    hosts = frozenset(host.name for host in trial.deployment.hosts)
    return frozenset() if ONE in hosts else hosts


def nothing_left(trial: Trial) -> bool:
    """Whether a placed trial has phases and nothing to do in any: all that it was to load went with hosts that are lost."""
    return bool(trial.phases) and not any(phase.loads for phase in trial.phases)


def _host(one: Host, own: Host, carriers: Sequence[Host], containers: Sequence[Container]) -> Host:
    memory = one.memory
    whole = sum(host.memory or 0 for host in carriers)
    if memory is not None and own.memory is not None and own.memory < whole:  # overcommitted: all of them alike
        memory = int(memory * (own.memory / whole))
    return one.model_copy(update={"memory": memory, "swap": own.swap, "staging": own.staging, "containers": tuple(containers)})


def _loads(phase: Phase, where: Mapping[str, str], hosts: Sequence[str], client: str | None) -> dict[str, Load]:
    found: dict[str, Load] = {}
    for target, load in phase.loads.items():
        if target == ONE:
            found |= dict.fromkeys(hosts, load)
        elif target.count("/") == 3:
            container = target.split("/")[1]
            elsewhere = {} if client is None else {"host": client, "place": "outside"}
            found[target.replace(ONE, where[container], 1)] = load.model_copy(update=elsewhere)
        else:
            found[target] = load
    return found


def home(result: TrialResult) -> TrialResult:
    """A placed trial's result as its study knows it: all databases on one host, whose clients may run on another."""
    everywhere = result.trial.deployment.hosts
    if any(host.name == ONE for host in everywhere) or not any(host.containers for host in everywhere):
        return result
    clients = {load.host for phase in result.trial.phases for load in phase.loads.values()}
    hosts = [host for host in everywhere if host.name not in clients]
    cores = [host.cores for host in hosts if host.cores is not None]
    memory = [host.memory for host in hosts if host.memory is not None]
    containers = tuple(sorted((c for host in hosts for c in host.containers), key=lambda container: container.name))
    whole = Host(
        name=ONE,
        cores=sum(cores) if len(cores) == len(hosts) else None,
        memory=sum(memory) if len(memory) == len(hosts) else None,
        swap=hosts[0].swap,
        staging=hosts[0].staging,
        containers=containers,
    )
    deployment = result.trial.deployment.model_copy(update={"hosts": (whole, *(_bare(host) for host in everywhere))})
    phases = tuple(p.model_copy(update={"loads": {_home(t): load for t, load in p.loads.items()}}) for p in result.trial.phases)
    trial = result.trial.model_copy(update={"deployment": deployment, "phases": phases})
    return result.model_copy(update={"trial": trial, "phases": [_phase(phase, hosts, clients) for phase in result.phases]})


def _bare(host: Host) -> Host:
    """A host as a target: its containers are shown on the whole."""
    return host.model_copy(update={"containers": ()})


def _home(target: str) -> str:
    if target.count("/") != 3:
        return target
    _, container, server, database = target.split("/")
    return str(Place(host=ONE, container=container, server=server, database=database))


def _phase(phase: PhaseResult, hosts: Sequence[Host], clients: Collection[str | None]) -> PhaseResult:
    """The phase with the targets' own names; what is ``host`` and which devices there are is a matter of those hosts that carry servers,
    not of those of ``clients`` alone."""
    targets = [target.model_copy(update={"target": _home(target.target)}) for target in phase.targets]
    metrics = {
        f"driver:{_home(entity.removeprefix('driver:'))}" if entity.startswith("driver:") else entity: values
        for entity, values in phase.metrics.items()
        if not device_of(entity, clients)
    }
    for entity in ("host", BUDGET, "pgherd") if any(clients) else ():
        metrics.pop(entity, None)
        tables = {host.name: {entity: own} for host in hosts if (own := metrics.get(f"{entity}:{host.name}")) is not None}
        if tables:
            metrics[entity] = merged(tables)[entity]
    return phase.model_copy(update={"targets": targets, "metrics": metrics})


def part(trial: Trial, host: str) -> Trial:
    """What one host does of a trial: its containers, and the loads on them, on itself, and on links and volumes that stand in no
    container. A load whose driver runs on a host of its own is that host's. Raises KeyError where the trial does not know the host.

    Every part has all phases, with their times, so that all hosts switch at the same instants; a phase may load nothing here. It has
    all links, too: a host may be the far end of one.
    """
    own = {one.name: one for one in trial.deployment.hosts}[host]
    phases = tuple(
        phase.model_copy(update={"loads": {target: load for target, load in phase.loads.items() if _here(target, load, own, trial)}})
        for phase in trial.phases
    )
    volumes = tuple(volume for volume in trial.deployment.volumes if volume.host in (None, host))
    deployment = trial.deployment.model_copy(update={"hosts": (own,), "volumes": volumes})
    return trial.model_copy(update={"deployment": deployment, "phases": phases})


def with_addresses(trial: Trial, addresses: Mapping[str, str]) -> Trial:
    """The trial with its links between hosts leading to where these hosts are reached now (host → address): it may have been planned
    when they were reached elsewhere."""
    links = tuple(
        link.model_copy(update={"host": addresses.get(link.name) or link.host}) if link.kind == "hosts" else link
        for link in trial.deployment.links
    )
    return trial.model_copy(update={"deployment": trial.deployment.model_copy(update={"links": links})}) if links else trial


def served(trial: Trial, host: str) -> Trial:
    """A host's part with all loads on its own servers, those among them that are driven from another host; raises as ``part``."""
    phases = []
    for phase in trial.phases:
        loads = {target: load.model_copy(update={"host": None}) for target, load in phase.loads.items()}
        phases.append(phase.model_copy(update={"loads": loads}))
    return part(trial.model_copy(update={"phases": tuple(phases)}), host)


def _here(target: str, load: Load, host: Host, trial: Trial) -> bool:
    if load.host is not None:
        return load.host == host.name
    if "/" in target:  # a database's place, or a volume or link of one host
        return target.split("/", 1)[0] == host.name
    others = {one.name for one in trial.deployment.hosts} - {host.name}
    return target not in others


def loaded(trial: Trial) -> list[int]:
    """The numbers of the phases in which a part has anything to do."""
    return [number for number, phase in enumerate(trial.phases) if phase.loads]


def files_of(trials: Iterable[Trial]) -> set[str]:
    """Paths of the driver's files that these trials need: scripts, and what fills databases."""
    found: set[str] = set()
    for trial in trials:
        found |= {one.source for phase in trial.phases for load in phase.loads.values() for one in load.scripts if ":" not in one.source}
        found |= {database.init for *_, database in trial.deployment.databases() if database.init is not None}
    return found


def with_files(part: Trial, here: Mapping[str, str]) -> Trial:
    """The part with the paths of the driver's files replaced by those of their copies on the host."""
    if not here:
        return part

    def script(one: Script) -> Script:
        return one.model_copy(update={"source": here.get(one.source, one.source)})

    def container(one: Container) -> Container:
        servers = []
        for server in one.servers:
            filled = tuple(d.model_copy(update={"init": d.init and here.get(d.init, d.init)}) for d in server.databases)
            servers.append(server.model_copy(update={"databases": filled}))
        return one.model_copy(update={"servers": tuple(servers)})

    phases = []
    for phase in part.phases:
        loads = {t: load.model_copy(update={"scripts": tuple(map(script, load.scripts))}) for t, load in phase.loads.items()}
        phases.append(phase.model_copy(update={"loads": loads}))
    hosts = tuple(host.model_copy(update={"containers": tuple(map(container, host.containers))}) for host in part.deployment.hosts)
    deployment = part.deployment.model_copy(update={"hosts": hosts})
    return part.model_copy(update={"phases": tuple(phases), "deployment": deployment})


def own_surroundings(surroundings: Surroundings, host: Host) -> Surroundings:
    """What a run needs of one host of its cluster: that host's own budget."""
    cores = surroundings.cores if host.cores is None else host.cores
    memory = surroundings.memory if host.memory is None or not surroundings.memory else host.memory
    return surroundings.model_copy(update={"cores": cores, "memory": memory, "cluster": None})


class OnHosts:
    """Implements ``pgherd.model.study.Study`` over another one."""

    def __init__(self, study: Study[Any], cluster: Cluster) -> None:
        """``study`` knows nothing of the cluster."""
        self.name = study.name
        self.options: type[Model] = study.options
        self._study, self._cluster = study, cluster
        self._known: dict[str, TrialResult] = {}

    def propose(self, options: Any, results: Sequence[TrialResult]) -> Proposal:
        """What the study wants, of one host; ``runner.placing.placed`` places it."""
        return self._study.propose(options, self._home(results))

    def analyse(self, options: Any, results: Sequence[TrialResult]) -> Analysis:
        """What the study says, with the hosts beside it."""
        return with_hosts(self._study.analyse(options, self._home(results)), results, self._cluster.hosts, self._cluster.client)

    def _home(self, results: Sequence[TrialResult]) -> list[TrialResult]:
        for result in results:
            if result.id not in self._known:
                self._known[result.id] = home(result)
        return [self._known[result.id] for result in results]
