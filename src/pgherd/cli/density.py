"""``pgherd density``: how many databases does this host hold?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pgherd.cli.output import json_option, runs_option, whole_numbers

_WORKLOADS = click.Choice(["select-only", "tpcb-like", "simple-update"])


@click.command("density", short_help="How many databases does this host hold?")
@click.option("--vcpus", type=float, help="Cores given to each database.  [default: 4, or cores/8 on hosts of fewer than 32]")
@click.option("--memory", metavar="SIZE", help="Memory of each database's container.  [default: an equal share]")
@click.option("--points", callback=whole_numbers, metavar="N,N,…", help="Numbers of databases.  [default: E1's fractions, past 100 %]")
@click.option("--runtime", type=click.Choice(["process", "cgroup"]), help="What isolates them.  [default: the best here]")
@click.option("--cpu-mode", type=click.Choice(["quota", "cpuset", "none"]), help="How vCPUs are enforced.  [default: quota]")
@click.option("--cores", type=float, help="Cores of this host that the run may use.  [default: all]")
@click.option("--host-memory", metavar="SIZE", help="Memory of this host that the run may use.  [default: 80 % of what is free]")
@click.option("--pg-bin", metavar="DIR", help="Directory of postgres, initdb and pgbench.")
@click.option("--pg-version", metavar="MAJOR", help="A PostgreSQL by its major version: this machine's, else the embedded 18.")
@click.option("--set", "set", multiple=True, metavar="NAME=VALUE", help="A PostgreSQL setting; may be given several times.")
@click.option("--like", metavar="FILE|DSN", help="Take settings from a postgresql.conf or from a running server.")
@click.option("--run-as", metavar="ACCOUNT", help="As root: the account that servers run as.")
@click.option("--workload", type=_WORKLOADS, help="pgbench's builtin script.  [default: select-only]")
@click.option("--script", multiple=True, metavar="FILE[@WEIGHT]", help="Your own pgbench script; may be given several times.")
@click.option("--init", metavar="FILE", help="SQL that fills the database for --script.  [default: pgbench's tables]")
@click.option("--scale", type=int, help="pgbench scale factor, about 15 MB each.  [default: 10]")
@click.option("--clients", type=int, help="Clients of each database.  [default: two per vCPU, at least 2]")
@click.option("--threads", type=int, help="pgbench threads of each database.  [default: one per vCPU]")
@click.option("--rate", type=float, metavar="TPS", help="Open loop: transactions per second of each database.")
@click.option("--protocol", type=click.Choice(["simple", "extended", "prepared"]), help="[default: prepared]")
@click.option("--client-place", type=click.Choice(["inside", "outside"]), help="pgbench in the container or not.  [default: inside]")
@click.option("--repeats", type=int, help="Trials per point; the one-database point gets two more.  [default: 3]")
@click.option("--seconds", metavar="TIME", help="Measured period of a trial.  [default: 9s]")
@click.option("--ramp", metavar="TIME", help="Ramp-up before it.  [default: 1s]")
@click.option("--budget", metavar="TIME", help="Time for all trials, reruns included.  [default: 4m30s here, more for more points]")
@click.option("--state", type=click.Choice(["fresh", "restarted", "warm"]), help="Servers at a trial's start.  [default: warm]")
@click.option("--seed", type=int, help="Seed of the order of trials.  [default: random, recorded]")
@click.option("--at", type=float, help="Say how many databases are held at this efficiency.  [default: 0.85]")
@click.option("--intent", type=click.Choice(["cpu-bound", "io-bound"]), help="What it is meant to be bound by.  [default: cpu-bound]")
@click.option("--soak", metavar="TIME", help="Hold the last point for this long and judge steadiness.")
@click.option("--platform", multiple=True, metavar="process=NAME|cgroup=PATH", help="Account for a part of the platform by name.")
@click.option("--threshold", multiple=True, metavar="NAME=VALUE", help="Change a verdict's threshold (docs/method.md lists them).")
@click.option("--dry-run", is_flag=True, help="Show deployments, trials, order, time, disk and host changes; do nothing.")
@click.option("--write-scenario", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write this command as a scenario.")
@click.option("--no-report", is_flag=True, help="Skip the HTML report ('pgherd report' makes it later).")
@runs_option
@json_option
def command(dry_run: bool, write_scenario: Path | None, no_report: bool, runs: Path, as_json: bool, **given: Any) -> int:
    """Deploy databases on this host, add them one by one until the cores are used and beyond, and say how many it
    holds, how far from perfect it scales, and why (experiments E1 and E2).

    \b
    pgherd density                            this host, in under five minutes
    pgherd density --dry-run                  what that would do
    pgherd density --points 1,8,16 --vcpus 2 --scale 100
    """
    from pgherd.cli.launch import launch

    options = {name: value for name, value in given.items() if value not in (None, ())}
    return launch("density", options, runs=runs, dry_run=dry_run, scenario=write_scenario, report=not no_report, as_json=as_json)
