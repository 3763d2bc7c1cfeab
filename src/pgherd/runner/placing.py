"""A trial that a study wants of one host, on the hosts of a cluster; and its result as the study knows it. Pure.

A study sees the cluster as one large host, ``local``: a new study needs nothing for it. Its containers are placed by the run's rule,
a load on the host itself becomes one on every host, and the host's memory is divided as the budgets are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pgherd.model import placing
from pgherd.model.cluster import Cluster
from pgherd.model.deployment import Host, Place
from pgherd.model.load import Load, Phase
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.model.trial import Trial

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
    hosts = [host for host in cluster.hosts if present is None or host.name in present]
    rule = cluster.placement
    if len(hosts) < len(cluster.hosts) and not rule.startswith("label:"):
        rule = "pack" if rule == "pack" else "spread"
    where = placing.place(own.containers, hosts, rule)
    deployed = tuple(_host(one, own, cluster, where) for one in hosts)
    names = [one.name for one in hosts]
    phases = tuple(phase.model_copy(update={"loads": _loads(phase, where, names)}) for phase in trial.phases)
    deployment = trial.deployment.model_copy(update={"hosts": deployed})
    return trial.model_copy(update={"deployment": deployment, "phases": phases})


def _on(trial: Trial, present: Sequence[str]) -> Trial:
    """A trial that names its hosts itself, without those that are not there."""
    gone = {host.name for host in trial.deployment.hosts} - set(present)
    if not gone:
        return trial
    hosts = tuple(host for host in trial.deployment.hosts if host.name not in gone)
    phases = []
    for phase in trial.phases:
        loads = {target: load for target, load in phase.loads.items() if target.split("/", 1)[0] not in gone}
        phases.append(phase.model_copy(update={"loads": loads}))
    deployment = trial.deployment.model_copy(update={"hosts": hosts})
    return trial.model_copy(update={"deployment": deployment, "phases": tuple(phases)})


def _host(one: Host, own: Host, cluster: Cluster, where: Mapping[str, str]) -> Host:
    memory = one.memory
    whole = sum(host.memory or 0 for host in cluster.hosts)
    if memory is not None and own.memory is not None and own.memory < whole:  # overcommitted: all of them alike
        memory = int(memory * (own.memory / whole))
    here = tuple(container for container in own.containers if where[container.name] == one.name)
    return one.model_copy(update={"memory": memory, "swap": own.swap, "staging": own.staging, "containers": here})


def _loads(phase: Phase, where: Mapping[str, str], hosts: Sequence[str]) -> dict[str, Load]:
    found: dict[str, Load] = {}
    for target, load in phase.loads.items():
        if target == ONE:
            found |= dict.fromkeys(hosts, load)
        elif target.count("/") == 3:
            container = target.split("/")[1]
            found[target.replace(ONE, where[container], 1)] = load
        else:
            found[target] = load
    return found


def home(result: TrialResult) -> TrialResult:
    """A placed trial's result as its study knows it: all databases on one host."""
    hosts = result.trial.deployment.hosts
    if any(host.name == ONE for host in hosts) or not any(host.containers for host in hosts):
        return result
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
    deployment = result.trial.deployment.model_copy(update={"hosts": (whole, *(_bare(host) for host in hosts))})
    phases = tuple(p.model_copy(update={"loads": {_home(t): load for t, load in p.loads.items()}}) for p in result.trial.phases)
    trial = result.trial.model_copy(update={"deployment": deployment, "phases": phases})
    return result.model_copy(update={"trial": trial, "phases": [_phase(phase) for phase in result.phases]})


def _bare(host: Host) -> Host:
    """A host as a target: its containers are shown on the whole."""
    return host.model_copy(update={"containers": ()})


def _home(target: str) -> str:
    if target.count("/") != 3:
        return target
    _, container, server, database = target.split("/")
    return str(Place(host=ONE, container=container, server=server, database=database))


def _phase(phase: PhaseResult) -> PhaseResult:
    targets = [target.model_copy(update={"target": _home(target.target)}) for target in phase.targets]
    metrics = {
        f"driver:{_home(entity.removeprefix('driver:'))}" if entity.startswith("driver:") else entity: values
        for entity, values in phase.metrics.items()
    }
    return phase.model_copy(update={"targets": targets, "metrics": metrics})
