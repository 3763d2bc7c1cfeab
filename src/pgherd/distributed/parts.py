"""A trial on several hosts divided into one part for each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pgherd.model.deployment import Container, Host
from pgherd.model.load import Load, Script
from pgherd.model.run import Surroundings
from pgherd.model.trial import Trial


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
