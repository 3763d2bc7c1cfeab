"""``pgherd cluster``: start agents on many hosts over SSH, see how they stand, stop them."""

from __future__ import annotations

import shlex
from typing import Any

import click

from pgherd.cli.output import answer_console, json_option, print_document, progress_console

DEFAULT = "default"

_name = click.option("--name", default=DEFAULT, show_default=True, metavar="NAME", help="The cluster's name, where there are several.")


@click.group("cluster", short_help="Start agents on many hosts over SSH, see how they stand, stop them.")
def command() -> None:
    """Agents on many hosts, for studies on all of them at once (--cluster NAME). See docs/howto/cluster.md."""


@command.command("start", short_help="Start an agent on each host over SSH.")
@click.option("--hosts", required=True, metavar="A,B,…", help="The hosts, as ssh knows them (user@host is fine).")
@_name
@click.option(
    "--ssh-config",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True),
    metavar="FILE",
    help="A configuration file for ssh (-F).",
)
@click.option("--listen", metavar="ADDRESS", help="This machine's address for the hosts.  [default: the one on the way to them]")
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="PORT", help="Port of the scheduler.  [default: any free one]")
@click.option("--label", "label", multiple=True, metavar="HOST:KEY=VALUE", help="A host's label, for --placement label:KEY=VALUE.")
@click.option("--private-environment", is_flag=True, help="Install pgherd anew on every host, although this environment is there, too.")
@json_option
def start(
    hosts: str,
    name: str,
    ssh_config: str | None,
    listen: str | None,
    port: int,
    label: tuple[str, ...],
    private_environment: bool,
    as_json: bool,
) -> int:
    """Start an agent on each host over SSH (no password is asked for), and a scheduler here that joins them, over TLS.

    pgherd is installed into a private environment on a host that has not got it at the same place in the same version. Agents that
    have ended are started again by the same command. Nothing on a host is changed before a study runs there.
    """
    from pgherd.cluster import labels
    from pgherd.cluster import start as starting
    from pgherd.cluster.ssh import Ssh, check_hosts, joined_name

    names = check_hosts(hosts)
    given = labels.given(label, [joined_name(one) for one in names])
    wanted = starting.Wanted(name, names, Ssh(ssh_config), listen, port, private_environment, given)
    progress = progress_console()
    known = starting.start(wanted, lambda sentence: progress.print(sentence, markup=False, style="dim"))
    return _show(known.name, as_json)


@command.command("status", short_help="Which hosts have joined, what runs on them, how their clocks stand.")
@click.option("--name", default=DEFAULT, show_default=True, metavar="NAME|ADDRESS", help="The cluster's name, or its scheduler's address.")
@json_option
def status(name: str, as_json: bool) -> int:
    """Which hosts have joined, who uses them, how far their clocks are off, and in what they differ. Exit code 1 when one is gone.

    A scheduler that was not started here is named by its address; its certificates by the environment variable PGHERD_CLUSTER_TLS.
    """
    from pgherd.cluster import record, start
    from pgherd.model.errors import UsageError

    if "://" in name:
        return _show(name, as_json)
    known = record.load(name)
    if known is None:
        others = [one for one in record.names() if one != name]
        hint = f"; there is {', '.join(others)} (--name)" if others else "; start one with 'pgherd cluster start --hosts A,B,…'"
        raise UsageError(f"no cluster called '{name}' has been started here{hint}")
    if not start.scheduler_lives(known):
        raise UsageError(f"the scheduler of cluster '{name}' has ended; end its agents with 'pgherd cluster stop --name {name}'")
    return _show(name, as_json)


@command.command("stop", short_help="End the agents and the scheduler.")
@_name
@click.option("--forget", is_flag=True, help="Forget the hosts that cannot be reached: they are gone for good.")
@json_option
def stop(name: str, forget: bool, as_json: bool) -> int:
    """End the agents, each of which stops what it runs and cleans up, then the scheduler. Exit code 1 when a host cannot be reached.

    Such a host stays written down, and the next 'stop' tries again; with --forget it does not. Should it live after all, its agent
    ends by itself a quarter of an hour after it has lost the scheduler.
    """
    from pgherd.cluster import start as starting

    said: list[str] = []
    left = starting.stop(name, said.append, forget=forget)
    if as_json:
        print_document(
            {"schema": "pgherd/cluster-stop/1", "cluster": name, "said": said, "left": left, "forgotten": left if forget else []}
        )
    else:
        console = answer_console()
        for sentence in said:
            console.print(sentence, markup=False, soft_wrap=True)
        console.print(_ended(name, left, forget), markup=False, soft_wrap=True)
    return 1 if left and not forget else 0


def _ended(name: str, left: list[str], forget: bool) -> str:
    ended = f"Cluster '{name}' has ended."
    if not left:
        return ended
    if forget:
        return f"{ended} Forgotten: {', '.join(left)}."
    return f"Left: {', '.join(left)}. Try again when they can be reached, or 'pgherd cluster stop --forget' if they are gone for good."


def _show(cluster: str, as_json: bool) -> int:
    """The state of a cluster that runs; 1 when a host is gone."""
    from pgherd.cluster import state

    seen = state.look(cluster)
    if as_json:
        print_document({"schema": "pgherd/cluster/1", **seen.document()})
    else:
        _print(seen)
    return 1 if seen.gone else 0


def _print(seen: Any) -> None:
    from rich.table import Table

    from pgherd.cluster import record
    from pgherd.cluster.labels import text as label_text

    console = answer_console()
    there = len(seen.hosts) - len(seen.gone)
    called = "Cluster" if "://" in seen.name else f"Cluster '{seen.name}'"
    console.print(f"{called} at {seen.address}: {there} of {len(seen.hosts)} hosts are there.", markup=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    labelled = ("labels",) if any(host.labels for host in seen.hosts) else ()
    for heading in ("host", "address", "state", "clock", "agent", "PostgreSQL", *labelled):
        table.add_column(heading, overflow="fold")
    for host in seen.hosts:
        row = (host.name, host.address, host.state, host.clock, host.took, host.postgres)
        table.add_row(*row, *([label_text(host.labels)] if labelled else []))
    console.print(table)
    for difference in seen.differences:
        label = "Not equal, and no study will run" if difference.refused else "Different"
        console.print(f"{label}: {difference}", markup=False, soft_wrap=True)
    known = record.load(seen.name)
    if seen.gone and known is not None:
        hosts = ",".join(host.name for host in known.hosts)  # with the users as whom ssh reaches them
        words = ["pgherd", "cluster", "start", "--hosts", hosts]
        words += [] if known.name == DEFAULT else ["--name", known.name]
        words += [] if known.ssh_config is None else ["--ssh-config", known.ssh_config]
        words += ["--private-environment"] if known.private else []
        console.print(f"Start what is gone again: {shlex.join(words)}", markup=False, soft_wrap=True)
