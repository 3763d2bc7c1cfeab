"""``pgherd cluster``: start, inspect and stop agents on several hosts."""

from __future__ import annotations

import shlex
from typing import Any

import click

from pgherd.cli.output import answer_console, json_option, print_document, progress_console

DEFAULT = "default"

_name = click.option("--name", default=DEFAULT, show_default=True, metavar="NAME", help="Cluster name.")


@click.group("cluster", short_help="Start, inspect and stop agents on several hosts.")
def command() -> None:
    """Start, inspect and stop agents on several hosts. Studies run on all of them with --cluster NAME. See docs/howto/cluster.md."""


@command.command("start", short_help="Start an agent on each host over SSH.")
@click.option("--hosts", required=True, metavar="A,B,…", help="Hosts to start agents on, as arguments of ssh (also USER@HOST).")
@_name
@click.option(
    "--ssh-config",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True),
    metavar="FILE",
    help="ssh configuration file.",
)
@click.option("--listen", metavar="ADDRESS", help="Address the hosts connect to.  [default: that of the route to them]")
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="PORT", help="Scheduler port.  [default: a free one]")
@click.option("--label", "label", multiple=True, metavar="HOST:KEY=VALUE", help="Host label (repeatable).")
@click.option("--private-venv", is_flag=True, help="Install pgherd into a new virtual environment on every host.")
@json_option
def start(
    hosts: str,
    name: str,
    ssh_config: str | None,
    listen: str | None,
    port: int,
    label: tuple[str, ...],
    private_venv: bool,
    as_json: bool,
) -> int:
    """Start an agent on each host over SSH, which must work without a password, and a scheduler on this machine. They communicate
    over TLS.

    A host that lacks pgherd at the same path in the same version gets a private environment. The same command restarts agents
    that have ended. Otherwise hosts are left unchanged until a study runs.
    """
    from pgherd.cluster import labels
    from pgherd.cluster import start as starting
    from pgherd.cluster.ssh import Ssh, check_hosts, joined_name

    names = check_hosts(hosts)
    labels_by_host = labels.given(label, [joined_name(name) for name in names])
    request = starting.StartRequest(name, names, Ssh(ssh_config), listen, port, private_venv, labels_by_host)
    progress = progress_console()
    cluster = starting.start(request, lambda sentence: progress.print(sentence, markup=False, style="dim"))
    return _show(cluster.name, as_json)


@command.command("status", short_help="Show hosts, their users, clocks and differences.")
@click.option("--name", default=DEFAULT, show_default=True, metavar="NAME|ADDRESS", help="Cluster name or scheduler address.")
@json_option
def status(name: str, as_json: bool) -> int:
    """Show the hosts of a cluster, their users, clock offsets and differences. Exit code 1 if a host is missing.

    Use the address for a scheduler that was not started here. PGHERD_CLUSTER_CERTS sets the directory of its certificates.
    """
    from pgherd.cluster import cluster_file, start
    from pgherd.model.errors import UsageError

    if "://" in name:
        return _show(name, as_json)
    cluster = cluster_file.load(name)
    if cluster is None:
        others = [other for other in cluster_file.names() if other != name]
        hint = f"; choose with --name: {', '.join(others)}" if others else "; start one with 'pgherd cluster start --hosts A,B,…'"
        raise UsageError(f"no cluster called '{name}' has been started here{hint}")
    if not start.scheduler_lives(cluster):
        raise UsageError(f"the scheduler of cluster '{name}' has ended; stop its agents with 'pgherd cluster stop --name {name}'")
    return _show(name, as_json)


@command.command("stop", short_help="Stop agents and scheduler.")
@_name
@click.option("--forget", is_flag=True, help="Forget unreachable hosts.")
@json_option
def stop(name: str, forget: bool, as_json: bool) -> int:
    """Stop the agents and the scheduler. Each agent stops its processes and cleans up. Exit code 1 if a host is unreachable
    or cannot be cleaned.

    An unreachable host stays in the cluster's file for the next 'stop', unless --forget is given. Its agent ends 15 minutes after
    it has lost the scheduler.
    """
    from pgherd.cluster import start as starting

    messages: list[str] = []
    unreachable = starting.stop(name, messages.append, forget=forget)
    if as_json:
        print_document(
            {
                "schema": "pgherd/cluster-stop/2",
                "cluster": name,
                "messages": messages,
                "unreachable": unreachable,
                "forgotten": unreachable if forget else [],
            }
        )
    else:
        console = answer_console()
        for sentence in messages:
            console.print(sentence, markup=False, soft_wrap=True)
        console.print(_summary(name, unreachable, forget), markup=False, soft_wrap=True)
    return 1 if unreachable and not forget else 0


def _summary(name: str, unreachable: list[str], forget: bool) -> str:
    stopped = f"Cluster '{name}' has ended."
    if not unreachable:
        return stopped
    if forget:
        return f"{stopped} Forgotten: {', '.join(unreachable)}."
    hosts = ", ".join(unreachable)
    return f"Unreachable or not clean: {hosts}. Try again later, or use 'pgherd cluster stop --forget' if they will not return."


def _show(cluster: str, as_json: bool) -> int:
    """Show the state of a running cluster. Return 1 if a host is missing."""
    from pgherd.cluster.status import read_status

    status = read_status(cluster)
    if as_json:
        print_document({"schema": "pgherd/cluster/2", **status.document()})
    else:
        _print(status)
    return 1 if status.gone else 0


def _print(status: Any) -> None:
    from rich.table import Table

    from pgherd.cluster import cluster_file
    from pgherd.cluster.labels import text as label_text

    console = answer_console()
    joined = len(status.hosts) - len(status.gone)
    title = "Cluster" if "://" in status.name else f"Cluster '{status.name}'"
    console.print(f"{title} at {status.address}: {joined} of {len(status.hosts)} hosts joined.", markup=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    labelled = ("labels",) if any(host.labels for host in status.hosts) else ()
    for heading in ("host", "address", "state", "clock", "agent", "PostgreSQL", *labelled):
        table.add_column(heading, overflow="fold")
    for host in status.hosts:
        row = (host.name, host.address, host.state, host.clock, host.agent_usage, host.postgres)
        table.add_row(*row, *([label_text(host.labels)] if labelled else []))
    console.print(table)
    for difference in status.differences:
        label = "Different, which prevents studies" if difference.refused else "Different"
        console.print(f"{label}: {difference}", markup=False, soft_wrap=True)
    cluster = cluster_file.load(status.name)
    if status.gone and cluster is not None:
        hosts = ",".join(host.name for host in cluster.hosts)  # with the users for ssh
        command = ["pgherd", "cluster", "start", "--hosts", hosts]
        command += [] if cluster.name == DEFAULT else ["--name", cluster.name]
        command += [] if cluster.ssh_config is None else ["--ssh-config", cluster.ssh_config]
        command += ["--private-venv"] if cluster.private else []
        console.print(f"Restart the missing hosts: {shlex.join(command)}", markup=False, soft_wrap=True)
