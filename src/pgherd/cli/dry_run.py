"""``--dry-run``: the plan of a study as text and as a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from pgherd.distributed.place_trial import placed
from pgherd.distributed.prepare_cluster import counted
from pgherd.model.analysis import Proposal
from pgherd.model.deployment import Deployment
from pgherd.model.errors import UsageError
from pgherd.model.trial import Trial
from pgherd.model.units import format_bytes, format_seconds
from pgherd.prepare.prepared_study import PreparedStudy
from pgherd.study.shared_options import StudyOptions
from pgherd.study.study import study_of


def document(prepared: PreparedStudy, proposal: Proposal) -> dict[str, Any]:
    """Return the plan as the document of ``--dry-run --json``."""
    trials: tuple[Trial, ...] = proposal.trials
    return {
        "schema": "pgherd/plan/2",
        "study": prepared.study,
        "options": prepared.options,
        "deployment": deployment(prepared, trials),
        "hosts": host_tasks(prepared, trials),
        "trials": [
            {"trial": t.key(), "point": t.point, "state": t.state, "seconds": t.seconds(), "validity_checks": t.validity_checks}
            for t in trials
        ],
        "max_trials": proposal.max_trials,
        "seconds": sum(trial.seconds() for trial in trials),
        "disk_bytes": prepared.disk,
        "memory_bytes": prepared.memory,
        "host_changes": list(prepared.host_changes),
        "needs_confirmation": list(prepared.confirm),
        "defaults_chosen": list(prepared.defaults_chosen),
        "settings": [
            {"name": setting.name, "value": setting.value, "default": setting.default, "reason": setting.why}
            for setting in prepared.settings
        ],
    }


def show(console: Console, prepared: PreparedStudy, proposal: Proposal) -> None:
    """Print the plan."""
    trials: tuple[Trial, ...] = proposal.trials

    def echo(text: str) -> None:
        console.print(text, markup=False)

    for line in _study_lines(prepared, trials):
        echo(line)
    for choice in prepared.defaults_chosen:
        echo(f"  {choice}")
    for line in host_lines(prepared, trials):
        echo(line)
    echo("Trials in run order:")
    console.print(_trials(trials))
    worst = f", at most {proposal.max_trials} with reruns and further repeats" if proposal.max_trials != len(trials) else ""
    echo(f"Time: {len(trials)} trials, {_time(trials)}{worst}.")
    echo(f"Disk: {format_bytes(prepared.disk)}{disk_location(prepared)} while it runs. Memory: {format_bytes(prepared.memory)}.")
    undone = "Host changes" if prepared.study == "exec" else "Host changes, undone at the end"
    echo(f"{undone}: " + "; ".join(prepared.host_changes) + ".")
    if prepared.settings:
        console.print(_settings(prepared))


def _time(trials: Sequence[Trial]) -> str:
    """Return text such as ``1 min 30 s under load``."""
    if any(trial.open_ended for trial in trials):
        longest = max(phase.seconds for trial in trials for phase in trial.phases)
        return f"each ends with its command, at most {format_seconds(longest)}"
    seconds = sum(trial.seconds() for trial in trials)
    return f"{format_seconds(seconds)} under load" if seconds else "without load"


def _study_lines(prepared: PreparedStudy, trials: Sequence[Trial]) -> list[str]:
    if (study_lines := study_of(prepared.study).hook("prepare", "plan_lines")) is not None:
        lines: list[str] = study_lines(prepared.options, trials, prepared.environment.vm_memory_policy)
        if lines:
            return lines
    return _deployments(trials) if trials[0].phases else [f"Probe '{trials[0].probe}', without load."]


def _deployments(trials: Sequence[Trial]) -> list[str]:
    """Return lines on each deployment and its load, with the name of its variant."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        separate = any(True for _ in trial.deployment.servers()) or "variant" in trial.point
        groups.setdefault(trial.deployment.model_dump_json() if separate else "", []).append(trial)
    lines = []
    for group in groups.values():
        variant = group[0].point.get("variant")
        lines += _deployment(group, f" of '{variant}'" if variant is not None and len(groups) > 1 else "")
    return lines


def _deployment(trials: Sequence[Trial], variant: str) -> list[str]:
    servers = list(trials[0].deployment.servers())
    if not servers:
        return [f"No server is deployed{variant}. Load: {line}." for line in _targets(trials)]
    _, container, server = servers[0]
    mode = "" if container.cpu_mode == "none" else f" by {container.cpu_mode}"
    limits = [f"{container.vcpus:g} vCPU{mode}" if container.vcpus and container.cpu_limited else "no CPU limit"]
    limits.append(f"{format_bytes(container.memory)}" if container.memory else "no memory limit")
    limits += [f"weight {container.weight}"] if container.weight else []
    limits += [f"{container.iops} IOPS"] if container.iops else []
    limits += [f"{format_bytes(container.io_bandwidth)}/s"] if container.io_bandwidth else []
    if server.sched_batch:
        limits.append("servers under SCHED_BATCH")
    many, each = (f"{len(servers)} containers", " each") if len(servers) > 1 else ("1 container", "")
    comma = "," if each else ""
    return [
        f"Deployment{variant}: {many} ({container.runtime}; {', '.join(limits)}{each}){comma}{each} with one PostgreSQL {server.version}",
        f"  from {server.bin}{comma}{each} with one database of scale {server.databases[0].scale}.",
        f"Load: {_load(trials)}.",
    ]


def _targets(trials: Sequence[Trial]) -> list[str]:
    """Return lines such as ``fio on disk0, disk1``: each driver with its targets that are no databases."""
    by_driver: dict[str, dict[str, None]] = {}
    for trial in trials:
        for phase in trial.phases:
            for target, load in phase.loads.items():
                by_driver.setdefault(load.driver, {})[target] = None
    return [f"{driver} on {', '.join(targets)}" for driver, targets in by_driver.items()]


def _trials(trials: Sequence[Trial]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    loaded = any(trial.phases for trial in trials)
    noun = "loaded databases" if any(True for _ in trials[0].deployment.servers()) else "loaded targets"
    for name in ("trial", "state", noun, "seconds") if loaded else ("trial", "state"):
        table.add_column(name, justify="left" if name in ("trial", "state") else "right")
    for trial in trials:
        load = [str(len(trial.phases[0].loads)) if trial.phases else "0", f"{trial.seconds():g}"]
        table.add_row(trial.key(), trial.state, *(load if loaded else []))
    return table


def _settings(prepared: PreparedStudy) -> Table:
    title = "Non-default settings"
    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    for name in ("setting", "value", "default", "reason"):
        table.add_column(name, overflow="fold")
    for setting in prepared.settings:
        table.add_row(setting.name, setting.value, setting.default, setting.why)
    return table


def _load(trials: Sequence[Trial]) -> str:
    loads = [load for trial in trials for load in trial.phases[0].loads.values()]
    load = loads[0]
    names = [(script.source.removeprefix("builtin:"), script.weight) for script in load.scripts]
    scripts = ", ".join(name + (f"@{weight}" if len(names) > 1 else "") for name, weight in names)
    kind = f"open loop at {load.rate:g} transactions/s" if load.rate else "closed loop"
    clients, threads = ([load.clients for load in loads], [load.threads for load in loads])
    return (
        f"{load.driver} {scripts}, {_range(clients, 'client')} on {_range(threads, 'thread')} per database, {kind}, "
        f"protocol {load.protocol}, clients {load.client_placement} the containers{' under SCHED_BATCH' if load.sched_batch else ''}"
    )


def _range(counts: Sequence[int], noun: str) -> str:
    """Return ``1 client`` or ``1 to 8 clients``."""
    minimum, maximum = min(counts), max(counts)
    return f"{maximum} {noun}{'' if maximum == 1 else 's'}" if minimum == maximum else f"{minimum} to {maximum} {noun}s"


def deployment(prepared: PreparedStudy, trials: Sequence[Trial]) -> Deployment | None:
    """Return the deployment of the first trial on its hosts. Raises UsageError if the containers cannot be placed."""
    if not trials:
        return None
    cluster = prepared.environment.cluster
    if cluster is None:
        return trials[0].deployment
    try:
        return placed(trials[0], cluster).deployment
    except ValueError as error:
        raise UsageError(str(error)) from None


def host_tasks(prepared: PreparedStudy, trials: Sequence[Trial]) -> dict[str, list[str]]:
    """Return host of a cluster → its tasks except servers, over all trials. Empty for a run on this host."""
    cluster = prepared.environment.cluster
    tasks: dict[str, dict[str, None]] = {} if cluster is None else {host.name: {} for host in cluster.hosts}
    sends: dict[tuple[str, str], set[str]] = {}
    for trial in trials if tasks else ():
        volumes = {volume.target: volume for volume in trial.deployment.volumes}
        links = {link.target: link for link in trial.deployment.links}
        for target, load in ((target, load) for phase in trial.phases for target, load in phase.loads.items()):
            host = target.partition("/")[0]
            if host not in tasks:
                continue
            if target in links:
                link = links[target]
                sends.setdefault((host, load.driver), set()).add(link.name)
                tasks[link.name][f"{load.driver}'s server at {link.host} port {link.port}"] = None
            elif target in volumes:
                volume = volumes[target]
                tasks[host][f"{load.driver} on {volume.name} ({' '.join(filter(None, (volume.kind, volume.path)))})"] = None
            else:
                tasks[host][load.driver] = None
    for (host, driver), receivers in sends.items():
        tasks[host][f"{driver} to {', '.join(name for name in tasks if name in receivers)}"] = None
    return {host: list(descriptions) for host, descriptions in tasks.items()}


def disk_location(prepared: PreparedStudy) -> str:
    """Return a suffix for the disk space of a plan: with databases on several hosts it is that of the fullest one."""
    cluster = prepared.environment.cluster
    several = cluster is not None and len(cluster.carriers) > 1 and prepared.installation is not None
    return " on the host with the most data" if several else ""


def host_lines(prepared: PreparedStudy, trials: Sequence[Trial]) -> list[str]:
    """Return a line for each host of a cluster, or none for a run on this host. Raises as ``deployment``."""
    cluster, deployed = prepared.environment.cluster, deployment(prepared, trials)
    if cluster is None or deployed is None:
        return []
    if not any(host.containers for host in deployed.hosts):
        tasks = host_tasks(prepared, trials)
        if not any(tasks.values()):
            return [f"On the hosts of {cluster.address}: {', '.join(host.name for host in deployed.hosts)}."]
        return [f"Tasks of the hosts of {cluster.address}:", *(f"  {host}: {'; '.join(names) or 'none'}" for host, names in tasks.items())]
    in_turn = prepared.options.hosts_in_turn if isinstance(prepared.options, StudyOptions) else ()
    if len(in_turn) > 1:
        lines = [f"Placement on the hosts of {cluster.address}: each block on one host, alternating {', '.join(in_turn)}. The first:"]
    else:
        lines = [f"Placement on the hosts of {cluster.address} ({cluster.placement}):"]
    for host in deployed.hosts:
        if host.name == cluster.client:
            lines.append(f"  {host.name}: the clients")
            continue
        names = [container.name for container in host.containers]
        containers = f"{len(names)} container{'' if len(names) == 1 else 's'}"
        lines.append(f"  {host.name}, {counted(host.cores)}: {containers}{': ' + ', '.join(names) if names else ''}")
    return lines
