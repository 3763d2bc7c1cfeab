"""The options that all studies of databases share, as one decorator: which databases, how they are loaded and measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from pgherd.cli.output import json_option, runs_option, yes_option

WORKLOADS = ("select-only", "tpcb-like", "simple-update", "orders", "random-block")

F = TypeVar("F", bound=Callable[..., Any])

_DEPLOYED = (
    click.option("--vcpus", type=float, help="Cores given to each database.  [default: {vcpus}]"),
    click.option("--memory", metavar="SIZE", help="Memory of each database's container.  [default: {memory}]"),
    click.option("--runtime", type=click.Choice(["process", "cgroup"]), help="What isolates them.  [default: the best here]"),
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
    click.option("--threads", type=int, help="pgbench threads of each database.  [default: one per vCPU]"),
    click.option("--rate", type=float, metavar="TPS", help="Open loop: transactions per second of each database."),
    click.option("--protocol", type=click.Choice(["simple", "extended", "prepared"]), help="[default: prepared]"),
    click.option("--client-place", type=click.Choice(["inside", "outside"]), help="pgbench in the container or not.  [default: {place}]"),
)
_MEASURED = (
    click.option("--trace", is_flag=True, default=None, help="Trace the devices' block requests one by one (needs perf and its rights)."),
    click.option("--repeats", type=int, help="{repeats}"),
    click.option("--seconds", metavar="TIME", help="Measured period of a trial.  [default: {seconds}]"),
    click.option("--ramp", metavar="TIME", help="Ramp-up before it.  [default: {ramp}]"),
    click.option("--budget", metavar="TIME", help="Time for all trials, reruns included.  [default: {budget}]"),
    click.option("--state", type=click.Choice(["fresh", "restarted", "warm"]), help="Servers at a trial's start.  [default: {state}]"),
    click.option("--seed", type=int, help="Seed of the order of trials.  [default: random, recorded]"),
    click.option("--platform", multiple=True, metavar="process=NAME|cgroup=PATH", help="Account for a part of the platform by name."),
    click.option("--threshold", multiple=True, metavar="NAME=VALUE", help="Change a verdict's threshold (docs/method.md lists them)."),
)
_RUN = (
    click.option("--dry-run", is_flag=True, help="Show deployments, trials, order, time, disk and host changes; do nothing."),
    click.option(
        "--write-scenario", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write this command as a scenario."
    ),
    yes_option,
    click.option("--no-report", is_flag=True, help="Skip the HTML report ('pgherd report' makes it later)."),
    runs_option,
    json_option,
)


def database_options(own: tuple[Callable[[Any], Any], ...], *, without: frozenset[str] = frozenset(), **defaults: str) -> Callable[[F], F]:
    """A decorator that gives a verb the shared options, its ``own`` among the first, and those of every run.

    ``defaults`` are the words for what differs between studies: ``vcpus``, ``memory``, ``repeats`` (the whole help), ``seconds``,
    ``ramp``, ``budget``, ``state`` (else warm), ``place`` of the clients (else inside). Options named in ``without`` are left out.
    """

    def decorate(function: F) -> F:
        for option in reversed((*own, *_DEPLOYED, *_LOADED, *_MEASURED, *_RUN)):
            function = option(function)
        kept = []
        for parameter in getattr(function, "__click_params__", []):
            if parameter.name in without:
                continue
            if parameter.help and "{" in parameter.help:
                parameter.help = parameter.help.format(**{"state": "warm", "place": "inside", "workload": "select-only", **defaults})
            kept.append(parameter)
        function.__click_params__ = kept  # type: ignore[attr-defined]
        return function

    return decorate


def given_options(given: dict[str, Any]) -> dict[str, Any]:
    """What the user has said: options that were not given are left to the request's own defaults."""
    return {name: value for name, value in given.items() if value not in (None, ())}
