"""The plan of a run on several hosts: which container lies on which."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.deployment import Deployment
from pgherd.model.errors import UsageError
from pgherd.model.trial import Trial
from pgherd.runner.placing import placed
from pgherd.runner.prepare_cluster import counted
from pgherd.runner.prepared import Prepared


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


def lines(prepared: Prepared, trials: Sequence[Trial]) -> list[str]:
    """A line for each host of a cluster; none for a run on this host. Raises as ``deployment``."""
    cluster, deployed = prepared.surroundings.cluster, deployment(prepared, trials)
    if cluster is None or deployed is None:
        return []
    if not any(host.containers for host in deployed.hosts):
        return [f"On the hosts of {cluster.address}: {', '.join(host.name for host in deployed.hosts)}."]
    found = [f"Placement on the hosts of {cluster.address} ({cluster.placement}):"]
    for host in deployed.hosts:
        names = [container.name for container in host.containers]
        many = f"{len(names)} container{'' if len(names) == 1 else 's'}"
        found.append(f"  {host.name}, {counted(host.cores)}: {many}{': ' + ', '.join(names) if names else ''}")
    return found
