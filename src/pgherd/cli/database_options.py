"""The options that all studies of databases share, as one decorator: which databases, how they are loaded and measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from pgherd.cli.cluster_options import cluster_options
from pgherd.cli.study_options import RUN, SEED, THRESHOLD, TRACE, F, options

GUEST_MEMORY_POLICIES = ("static", "guest-balloon", "free-page-reporting")
WORKLOADS = ("select-only", "tpcb-like", "simple-update", "orders", "random-block")

_SHOWN = "deployments, trials, order, time, disk and host changes"

_DEPLOYED = (
    click.option("--vcpus", type=float, help="Cores given to each database.  [default: {vcpus}]"),
    click.option("--memory", metavar="SIZE", help="Memory of each database's container.  [default: {memory}]"),
    click.option("--runtime", type=click.Choice(["process", "cgroup", "vm"]), help="What isolates them.  [default: the best here]"),
    click.option(
        "--guest-memory",
        type=click.Choice(GUEST_MEMORY_POLICIES),
        help="Virtual machines: who gives their memory back to the host.  [default: static: nobody]",
    ),
    click.option("--guest-minimum", metavar="SIZE", help="Virtual machines: what each balloon leaves its guest.  [default: a quarter]"),
    click.option("--guest-shares", multiple=True, metavar="NAME=WEIGHT", help="Virtual machines: a guest's weight.  [default: 1]"),
    click.option("--guest-tax", type=float, metavar="SHARE", help="Virtual machines: of idle memory taken for others.  [default: 0.75]"),
    click.option("--guest-pages", metavar="SIZE", help="Virtual machines: their memory lies on reserved huge pages (2MB, 1GB)."),
    click.option("--pin-vcpus", is_flag=True, default=None, help="Virtual machines: each vCPU runs on a CPU of its own."),
    click.option("--ksm", is_flag=True, default=None, help="Virtual machines: the host merges equal pages of their memory."),
    click.option("--cpu-mode", type=click.Choice(["quota", "cpuset", "none"]), help="How vCPUs are enforced.  [default: quota]"),
    click.option("--cores", type=float, help="Cores of this host that the run may use.  [default: all]"),
    click.option("--host-memory", metavar="SIZE", help="Memory of this host that the run may use.  [default: 80 % of what is free]"),
    click.option("--pg-bin", metavar="DIR", help="Directory of postgres, initdb and pgbench."),
    click.option("--pg-version", metavar="MAJOR", help="A PostgreSQL by its major version: this machine's, else the embedded 18."),
    click.option("--set", "set", multiple=True, metavar="NAME=VALUE", help="A PostgreSQL setting; may be given several times."),
    click.option("--like", metavar="FILE|DSN", help="Take settings from a postgresql.conf or from a running server."),
    click.option("--huge-pages", metavar="SIZE|thp|off", help="Pages of shared memory: reserved ones (2MB, 1GB), transparent, or none."),
    click.option("--checksums/--no-checksums", default=None, help="Data checksums, the same for all versions.  [default: on]"),
    click.option("--wal-dir", metavar="DIR", help="An existing directory below which the servers' WAL lies.  [default: with the data]"),
    click.option("--data-on", metavar="VOLUME", help="Where the servers' data lie: [NAME=]DIR, loop:SIZE[@DIR] or device:/dev/X."),
    click.option("--wal-on", metavar="VOLUME", help="Where their WAL lies, as --data-on."),
    click.option("--temp-on", metavar="VOLUME", help="Where their temporary files lie, as --data-on."),
    click.option("--tablespaces-on", multiple=True, metavar="VOLUME", help="Spread tables and indexes; may be given several times."),
    click.option("--allow-format", multiple=True, metavar="/dev/X", help="This empty device may be formatted; its name is asked for."),
    click.option("--server", metavar="DSN", help="Load a server that is there, by its DSN; nothing on it is changed."),
    click.option("--allow-write", is_flag=True, default=None, help="Transactions on --server may write."),
    click.option("--run-as", metavar="ACCOUNT", help="As root: the account that servers run as."),
)
_LOADED = (
    click.option("--workload", type=click.Choice(WORKLOADS), help="pgbench's builtin, or pgherd's own.  [default: {workload}]"),
    click.option("--think", type=float, metavar="FACTOR", help="orders: keying and think times, × the specification's.  [default: 0]"),
    click.option("--zipf", type=float, metavar="S", help="random-block: skew of the choice of rows.  [default: uniform]"),
    click.option("--updates", type=int, metavar="PERCENT", help="random-block: share of updates.  [default: 25]"),
    click.option("--check-consistency", is_flag=True, default=None, help="orders: check its conditions after every trial."),
    click.option("--script", multiple=True, metavar="FILE[@WEIGHT]", help="Your own pgbench script; may be given several times."),
    click.option("--read-only", is_flag=True, default=None, help="Your scripts write nothing; PostgreSQL refuses what would."),
    click.option("--init", metavar="FILE", help="SQL that fills the database for --script.  [default: pgbench's tables]"),
    click.option("--scale", type=int, help="pgbench's scale (15 MB each), warehouses (110 MB), or MiB.  [default: 10, 1, 256]"),
    click.option("--partitions", type=int, metavar="N", help="The large table in N parts, for --tablespaces-on to spread.  [default: 1]"),
    click.option("--threads", type=int, help="pgbench threads of each database.  [default: one per vCPU]"),
    click.option("--rate", type=float, metavar="TPS", help="Open loop: transactions per second of each database."),
    click.option("--protocol", type=click.Choice(["simple", "extended", "prepared"]), help="[default: prepared]"),
    click.option("--client-place", type=click.Choice(["inside", "outside"]), help="pgbench in the container or not.  [default: {place}]"),
)
_MEASURED = (
    TRACE,
    click.option("--repeats", type=int, help="{repeats}"),
    click.option("--seconds", metavar="TIME", help="Measured period of a trial.  [default: {seconds}]"),
    click.option("--ramp", metavar="TIME", help="Ramp-up before it.  [default: {ramp}]"),
    click.option("--budget", metavar="TIME", help="Time for all trials, reruns included.  [default: {budget}]"),
    click.option("--state", type=click.Choice(["fresh", "restarted", "warm"]), help="Servers at a trial's start.  [default: {state}]"),
    SEED,
    click.option("--platform", multiple=True, metavar="process=NAME|cgroup=PATH", help="Account for a part of the platform by name."),
    THRESHOLD,
)

_CLIENT_HOST = click.option("--client-host", metavar="HOST", help="The host of the cluster that runs pgbench, and no server.")


def database_options(own: tuple[Callable[[Any], Any], ...], *, without: frozenset[str] = frozenset(), **defaults: str) -> Callable[[F], F]:
    """A decorator that gives a verb the shared options, its ``own`` among the first, and those of every run.

    ``defaults`` are the words for what differs between studies: ``vcpus``, ``memory``, ``repeats`` (the whole help), ``seconds``,
    ``ramp``, ``budget``, ``state`` (else warm), ``place`` of the clients (else inside). Options named in ``without`` are left out.
    """
    words = {"state": "warm", "place": "inside", "workload": "select-only", "shown": _SHOWN, **defaults}
    return options((*own, *_DEPLOYED, *_LOADED, *_MEASURED, cluster_options, _CLIENT_HOST, *RUN), without=without, **words)
