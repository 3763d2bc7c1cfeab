"""A trial that a study wants of one host, on the hosts of a cluster; and its result as the study knows it. Pure.

A study sees the cluster as one large host, ``local``: a new study needs nothing for it. Its containers are placed by the run's rule,
a load on the host itself becomes one on every host, and the host's memory is divided as the budgets are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pgherd.distributed.metrics import device_of, merged
from pgherd.metrics.cgroup import BUDGET
from pgherd.model import placing
from pgherd.model.deployment import Container, Host, Place
from pgherd.model.load import Load, Phase
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.model.run import Cluster
from pgherd.model.trial import Trial
from pgherd.study.cluster_options import PIN

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
