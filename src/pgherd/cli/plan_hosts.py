"""The plan of a run on several hosts: which container lies on which, or what each of them does."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.distributed.placing import placed
from pgherd.distributed.preparation import counted
from pgherd.model.deployment import Deployment
from pgherd.model.errors import UsageError
from pgherd.model.trial import Trial
from pgherd.prepare.prepared_study import Prepared
from pgherd.study.complete_options import StudyOptions


def deployment(prepared: Prepared, trials: Sequence[Trial]) -> Deployment | None:
    """The first trial's deployment where it is to run; raises UsageError where its containers cannot be placed so."""
    if not trials:
        return None
    cluster = prepared.surroundings.cluster
    if cluster is None:
        return trials[0].deployment
    try:
        return placed(trials[0], cluster).deployment
    except ValueError as error:
        raise UsageError(str(error)) from None


def tasks(prepared: Prepared, trials: Sequence[Trial]) -> dict[str, list[str]]:
    """Host of a cluster → what it does beside servers, in some trial or other; empty for a run on this host."""
    cluster = prepared.surroundings.cluster
    found: dict[str, dict[str, None]] = {} if cluster is None else {host.name: {} for host in cluster.hosts}
    sends: dict[tuple[str, str], set[str]] = {}
    for trial in trials if found else ():
        volumes = {volume.target: volume for volume in trial.deployment.volumes}
        links = {link.target: link for link in trial.deployment.links}
        for target, load in ((target, load) for phase in trial.phases for target, load in phase.loads.items()):
            host = target.partition("/")[0]
            if host not in found:
                continue
            if target in links:
                link = links[target]
                sends.setdefault((host, load.driver), set()).add(link.name)
                found[link.name][f"{load.driver}'s server at {link.host} port {link.port}"] = None
            elif target in volumes:
                volume = volumes[target]
                found[host][f"{load.driver} on {volume.name} ({' '.join(filter(None, (volume.kind, volume.path)))})"] = None
            else:
                found[host][load.driver] = None
    for (host, driver), far in sends.items():
        found[host][f"{driver} to {', '.join(name for name in found if name in far)}"] = None
    return {host: list(said) for host, said in found.items()}


def where_disk(prepared: Prepared) -> str:
    """Where the disk space of a plan is needed, to be said after it: databases lie on several hosts, and are counted on the fullest."""
    cluster = prepared.surroundings.cluster
    several = cluster is not None and len(cluster.carriers) > 1 and prepared.installation is not None
    return " on the host that needs most" if several else ""


def lines(prepared: Prepared, trials: Sequence[Trial]) -> list[str]:
    """A line for each host of a cluster; none for a run on this host. Raises as ``deployment``."""
    cluster, deployed = prepared.surroundings.cluster, deployment(prepared, trials)
    if cluster is None or deployed is None:
        return []
    if not any(host.containers for host in deployed.hosts):
        doing = tasks(prepared, trials)
        if not any(doing.values()):
            return [f"On the hosts of {cluster.address}: {', '.join(host.name for host in deployed.hosts)}."]
        return [f"What the hosts of {cluster.address} do:", *(f"  {host}: {'; '.join(said) or 'nothing'}" for host, said in doing.items())]
    in_turn = prepared.options.hosts_in_turn if isinstance(prepared.options, StudyOptions) else ()
    if len(in_turn) > 1:
        found = [f"Placement on the hosts of {cluster.address}: each block on one of them, in turn on {', '.join(in_turn)}. The first:"]
    else:
        found = [f"Placement on the hosts of {cluster.address} ({cluster.placement}):"]
    for host in deployed.hosts:
        if host.name == cluster.client:
            found.append(f"  {host.name}: the clients")
            continue
        names = [container.name for container in host.containers]
        many = f"{len(names)} container{'' if len(names) == 1 else 's'}"
        found.append(f"  {host.name}, {counted(host.cores)}: {many}{': ' + ', '.join(names) if names else ''}")
    return found
