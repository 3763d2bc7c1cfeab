"""``--dry-run``: what a command would do, in words and as a document. Nothing happens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from pgherd.cli import plan_hosts
from pgherd.model.finding import Proposal
from pgherd.model.trial import Trial
from pgherd.model.units import format_bytes, format_seconds
from pgherd.prepare.prepared_study import Prepared
from pgherd.study.registry import study_of


def document(prepared: Prepared, proposal: Proposal) -> dict[str, Any]:
    """The plan as the JSON document of ``--dry-run --json``."""
    trials: tuple[Trial, ...] = proposal.trials
    return {
        "schema": "pgherd/plan/1",
        "study": prepared.study,
        "options": prepared.options,
        "deployment": plan_hosts.deployment(prepared, trials),
        "hosts": plan_hosts.tasks(prepared, trials),
        "trials": [{"trial": t.key(), "point": t.point, "state": t.state, "seconds": t.seconds(), "intents": t.intents} for t in trials],
        "worst_case_trials": proposal.worst_case,
        "seconds": sum(trial.seconds() for trial in trials),
        "disk_bytes": prepared.disk,
        "memory_bytes": prepared.memory,
        "host_changes": list(prepared.host_changes),
        "confirm": list(prepared.confirm),
        "choices": list(prepared.choices),
        "settings": [setting.__dict__ for setting in prepared.settings],
    }


def show(console: Console, prepared: Prepared, proposal: Proposal) -> None:
    """The plan for a reader."""
    trials: tuple[Trial, ...] = proposal.trials

    def say(text: str) -> None:
        console.print(text, markup=False)

    for line in _what(prepared, trials):
        say(line)
    for choice in prepared.choices:
        say(f"  {choice}")
    for line in plan_hosts.lines(prepared, trials):
        say(line)
    say("Trials, in the order in which they run:")
    console.print(_trials(trials))
    worst = f", at most {proposal.worst_case} with reruns and further repeats" if proposal.worst_case != len(trials) else ""
    say(f"Time: {len(trials)} trials, {_time(trials)}{worst}.")
    say(f"Disk: {format_bytes(prepared.disk)}{plan_hosts.where_disk(prepared)} while it runs. Memory: {format_bytes(prepared.memory)}.")
    say("Host changes, all taken back at the end: " + "; ".join(prepared.host_changes) + ".")
    if prepared.settings:
        console.print(_settings(prepared))


def _time(trials: Sequence[Trial]) -> str:
    """``1 min 30 s under load``."""
    if any(trial.open_ended for trial in trials):
        longest = max(phase.seconds for trial in trials for phase in trial.phases)
        return f"each as long as its command takes, {format_seconds(longest)} at most"
    seconds = sum(trial.seconds() for trial in trials)
    return f"{format_seconds(seconds)} under load" if seconds else "without load"


def _what(prepared: Prepared, trials: Sequence[Trial]) -> list[str]:
    if (own_lines := study_of(prepared.study).hook("prepare_plan", "lines")) is not None:
        lines: list[str] = own_lines(prepared.options, trials, prepared.surroundings.guest_memory)
        return lines
    return _deployments(trials) if trials[0].phases else [f"Probe '{trials[0].probe}', without load."]


def _deployments(trials: Sequence[Trial]) -> list[str]:
    """Lines on each thing that is deployed, with the variant's name where there are variants, and on its load."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        told = any(True for _ in trial.deployment.servers()) or "variant" in trial.point
        groups.setdefault(trial.deployment.model_dump_json() if told else "", []).append(trial)
    lines = []
    for group in groups.values():
        variant = group[0].point.get("variant")
        lines += _deployment(group, f" of '{variant}'" if variant is not None and len(groups) > 1 else "")
    return lines


def _deployment(trials: Sequence[Trial], whose: str) -> list[str]:
    servers = list(trials[0].deployment.servers())
    if not servers:
        return [f"No server is deployed{whose}. Load: {line}." for line in _targets(trials)]
    _, container, server = servers[0]
    limits = [f"{container.vcpus:g} vCPU by {container.cpu_mode}" if container.vcpus and container.cpu_mode != "none" else "no CPU limit"]
    limits.append(f"{format_bytes(container.memory)}" if container.memory else "no memory limit")
    many, each = (f"{len(servers)} containers", " each") if len(servers) > 1 else ("1 container", "")
    comma = "," if each else ""
    return [
        f"Deployment{whose}: {many} ({container.runtime}; {', '.join(limits)}{each}){comma}{each} with one PostgreSQL {server.version}",
        f"  from {server.bin}{comma}{each} with one database of scale {server.databases[0].scale}.",
        f"Load: {_load(trials)}.",
    ]


def _targets(trials: Sequence[Trial]) -> list[str]:
    """``fio on disk0, disk1``: each driver with the targets that are no databases."""
    found: dict[str, dict[str, None]] = {}
    for trial in trials:
        for phase in trial.phases:
            for target, load in phase.loads.items():
                found.setdefault(load.driver, {})[target] = None
    return [f"{driver} on {', '.join(targets)}" for driver, targets in found.items()]


def _trials(trials: Sequence[Trial]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    loaded = any(trial.phases for trial in trials)
    counted = "loaded databases" if any(True for _ in trials[0].deployment.servers()) else "loaded targets"
    for name in ("trial", "state", counted, "seconds") if loaded else ("trial", "state"):
        table.add_column(name, justify="left" if name in ("trial", "state") else "right")
    for trial in trials:
        load = [str(len(trial.phases[0].loads)) if trial.phases else "0", f"{trial.seconds():g}"]
        table.add_row(trial.key(), trial.state, *(load if loaded else []))
    return table


def _settings(prepared: Prepared) -> Table:
    title = "Settings that differ from PostgreSQL's default"
    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    for name in ("setting", "value", "default", "why"):
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
    clients, threads = ([one.clients for one in loads], [one.threads for one in loads])
    return (
        f"{load.driver} {scripts}, {_range(clients, 'client')} on {_range(threads, 'thread')} per database, {kind}, "
        f"protocol {load.protocol}, clients {load.place} the containers"
    )


def _range(counts: Sequence[int], what: str) -> str:
    """``1 client``, ``1 to 8 clients``."""
    least, most = min(counts), max(counts)
    return f"{most} {what}{'' if most == 1 else 's'}" if least == most else f"{least} to {most} {what}s"
