"""What one host of several did in a trial of databases, as if it had been alone: a script repeats a trial on one host."""

from __future__ import annotations

from pgherd.model.errors import UsageError
from pgherd.model.result import TrialResult


def of_one_host(result: TrialResult) -> tuple[TrialResult, str]:
    """The part of the first host that had servers, and a sentence that says so; the trial itself and '' where it ran on one host.

    Raises UsageError when clients ran on another host than their servers: then no host's part is the trial.
    """
    trial = result.trial
    away = {load.host: target.split("/")[0] for phase in trial.phases for target, load in phase.loads.items() if load.host is not None}
    if away:
        client, server = next(iter(away.items()))
        raise UsageError(
            f"trial {result.id} cannot be repeated by a script, which runs on one host: its clients were on host {client}, its server on "
            f"{server}, reached over TLS with a password made for the run. Run the study without --client-host to have a script of it"
        )
    used = [host for host in trial.deployment.hosts if host.containers]
    if len(used) < 2:
        hosts = tuple(used) or trial.deployment.hosts
        deployment = trial.deployment.model_copy(update={"hosts": hosts[:1]})
        return result.model_copy(update={"trial": trial.model_copy(update={"deployment": deployment})}), ""
    own = used[0]

    def here(target: str) -> bool:
        return target.startswith(f"{own.name}/")

    volumes = tuple(volume for volume in trial.deployment.volumes if volume.host in (None, own.name))
    deployment = trial.deployment.model_copy(update={"hosts": (own,), "volumes": volumes})
    planned = tuple(one.model_copy(update={"loads": {t: load for t, load in one.loads.items() if here(t)}}) for one in trial.phases)
    measured = [one.model_copy(update={"targets": [t for t in one.targets if here(t.target)]}) for one in result.phases]
    alone = trial.model_copy(update={"deployment": deployment, "phases": planned})
    said = f"In the run {len(used)} hosts did this at the same time: {', '.join(host.name for host in used)}. This is what {own.name} did."
    return result.model_copy(update={"trial": alone, "phases": measured}), said
