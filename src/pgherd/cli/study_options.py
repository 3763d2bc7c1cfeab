"""The options that verbs of studies share, whatever they measure: how much, as whom, and what is done with the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from pgherd.cli.metrics_options import metrics_options
from pgherd.cli.output import json_option, runs_option, yes_option

F = TypeVar("F", bound=Callable[..., Any])
Option = Callable[[Any], Any]

THRESHOLD: Option = click.option(
    "--threshold", multiple=True, metavar="NAME=VALUE", help="Change a verdict's threshold (docs/reference/checks.md lists them)."
)
SEED: Option = click.option("--seed", type=int, help="Seed of the order of trials.  [default: random, recorded]")
TRACE: Option = click.option(
    "--trace", is_flag=True, default=None, help="Trace the devices' block requests one by one (needs perf and its rights)."
)
RUN: Sequence[Option] = (
    click.option("--dry-run", is_flag=True, help="Show {shown}; do nothing."),
    click.option(
        "--write-scenario", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write this command as a scenario."
    ),
    yes_option,
    click.option("--no-report", is_flag=True, help="Skip the HTML report ('pgherd report' makes it later)."),
    metrics_options,
    runs_option,
    json_option,
)
"""Of every verb that executes a run. Words: ``shown`` by a dry run."""

MEASURED: Sequence[Option] = (
    click.option("--repeats", type=int, help="{repeats}"),
    click.option("--seconds", metavar="TIME", help="Measured period of a trial.  [default: {seconds}]"),
    click.option("--ramp", metavar="TIME", help="Ramp-up before it.  [default: {ramp}]"),
    click.option("--budget", metavar="TIME", help="Time for all trials, reruns included; what is left makes the least certain surer."),
    SEED,
    click.option("--cores", type=float, help="Cores of this host that the run reserves.  [default: all]"),
    click.option("--run-as", metavar="ACCOUNT", help="As root: the account that {program} runs as."),
    THRESHOLD,
)
"""Of studies that load no databases. Words: ``repeats`` (the whole help), ``seconds``, ``ramp``, ``program``."""

COMPARED: Sequence[Option] = (
    click.option("--metric", metavar="NAME", help="The metric that decides{such}.  [default: throughput]"),
    click.option("--blocks", type=int, help="{blocks}"),
    click.option("--precision", metavar="SHARE", help="Go on until the interval is at most ± this, such as 2%.{until}"),
    click.option("--equivalence", metavar="SHARE", help="Differences up to this are not worth having.  [default: {equivalence}]"),
)
"""Of studies that compare. Words: ``such`` (as which metrics), ``blocks`` (the whole help), ``until`` (when by itself), ``equivalence``."""

INSTALLED: Sequence[Option] = (
    click.option("--pg-bin", metavar="DIR", help="Directory of postgres, initdb and pgbench."),
    click.option("--pg-version", metavar="MAJOR", help="A PostgreSQL on this machine by its major version, or 'embedded'."),
    click.option("--run-as", metavar="ACCOUNT", help="As root: the account that servers run as."),
)
"""Of studies that need a PostgreSQL for a moment, and measure no time."""


def options(parts: Sequence[Option], *, without: frozenset[str] = frozenset(), **words: str) -> Callable[[F], F]:
    """A decorator that gives a verb these options, in their order, but for those named in ``without``; ``{NAME}`` in a help becomes
    the word of that name."""

    def decorate(function: F) -> F:
        for part in reversed(parts):
            function = part(function)
        kept = []
        for parameter in getattr(function, "__click_params__", []):
            if parameter.name in without:
                continue
            if getattr(parameter, "help", None) and "{" in parameter.help:
                parameter.help = parameter.help.format(**words)
            kept.append(parameter)
        function.__click_params__ = kept  # type: ignore[attr-defined]
        return function

    return decorate


def given_options(given: dict[str, Any]) -> dict[str, Any]:
    """What the user has said: options that were not given are left to the request's own defaults."""
    return {name: value for name, value in given.items() if value not in (None, ())}


def run_study(study: str, given: dict[str, Any], **more: Any) -> int:
    """Launch a study as its verb was called; returns the exit code.

    ``given`` are all parameters of the verb: those of ``RUN`` say what is done with the run, the others are the study's options, and
    ``more`` are further ones. Raises as ``pgherd.cli.launch.launch``.
    """
    from pgherd.cli.launch import launch

    of_run = {"runs", "dry_run", "write_scenario", "no_report", "as_json"}
    return launch(
        study,
        {**given_options({name: value for name, value in given.items() if name not in of_run}), **more},
        runs=given["runs"],
        dry_run=given["dry_run"],
        scenario=given["write_scenario"],
        report=not given["no_report"],
        as_json=given["as_json"],
    )


def listed(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    """Callback of an option that takes a list of words such as ``a,b``."""
    if value is None:
        return None
    words = tuple(word.strip() for word in value.split(",") if word.strip())
    if not words:
        raise click.BadParameter(f"'{value}' names nothing; give words such as a,b")
    return words
