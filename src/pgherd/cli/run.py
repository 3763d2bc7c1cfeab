"""``pgherd run`` and ``pgherd resume``: run a study from a scenario file, and resume an interrupted run."""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
from pydantic import ValidationError

from pgherd.cli.metrics_options import metrics_options
from pgherd.cli.output import json_option, print_document, progress_console, runs_option, yes_option
from pgherd.model.errors import UsageError
from pgherd.model.text import clean as clean_text
from pgherd.study.study import studies, study_of

if TYPE_CHECKING:
    from pgherd.store.run_directory import RunDirectory


@click.command("run")
@click.argument("scenario", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option("--print-schema", is_flag=True, help="Print the JSON Schema of scenario files.")
@click.option("--dry-run", is_flag=True, help="Show the plan and exit.")
@yes_option
@click.option("--no-report", is_flag=True, help="Do not write the HTML report.")
@metrics_options
@runs_option
@json_option
def command(scenario: Path | None, print_schema: bool, dry_run: bool, no_report: bool, runs: Path, as_json: bool) -> int:
    """Run a study from a scenario file (YAML). The option --write-scenario of a study writes one."""
    from pgherd.cli.run_study import run_study
    from pgherd.prepare.requests import json_schema, read_scenario

    if print_schema:
        print_document(json_schema())
        return 0
    if scenario is None:
        raise click.UsageError("name a scenario file, or give --print-schema")
    found = read_scenario(scenario)
    return run_study(found.study, found.options, runs=runs, dry_run=dry_run, report=not no_report, as_json=as_json, title=found.title)


_MAX_SHOWN = 20_000
"""Maximum number of characters that are shown before a run of another user is resumed."""


@click.command("resume")
@click.argument("run")
@click.option("--no-report", is_flag=True, help="Do not write the HTML report.")
@metrics_options
@runs_option
@json_option
def resume_command(run: str, no_report: bool, runs: Path, as_json: bool) -> int:
    """Resume an interrupted or killed run after its finished trials. RUN is a name, a part of one, a path with a slash, or 'last'.
    A run that another user can change is shown first. It continues as a copy in the directory of runs, once its name is typed."""
    from pgherd.cli.run_study import resume
    from pgherd.store.run_directory import RunDirectory

    directory = RunDirectory.find(run, runs)
    reason = directory.distrust()
    if reason is not None:
        directory = confirmed_copy(directory, runs, reason)
    return resume(directory, report=not no_report, as_json=as_json)


def confirmed_copy(directory: RunDirectory, runs: Path, reason: str) -> RunDirectory:
    """Copy a run that another user can change, show what the copy runs, and require that the user types the run's name.

    Raises:
        UsageError: there is no terminal to type on, the typed name differs, or others can change the copy, too.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"run {directory.name} is not resumed, because {reason}: its record could name any program to run; resume it on a terminal, "
            "which shows what it runs"
        )
    record = directory.record()
    if record.state == "finished":
        raise UsageError(f"run {directory.name} is finished: there is nothing to resume")
    copy = directory.copied(runs)
    try:
        if (reason_of_copy := copy.distrust()) is not None:
            raise UsageError(f"{reason_of_copy}; name a directory that only you can change with --runs-dir")
        console = progress_console()
        console.print(f"Other users can choose what run {directory.name} does, because {reason}. It would run:", markup=False)
        for line in what_it_runs(copy):
            console.print(line, markup=False, soft_wrap=True)
        typed = click.prompt(clean_text(f"Type {directory.name} to continue as {copy.name}"), default="", show_default=False, err=True)
        if typed.strip() != directory.name:
            raise UsageError(f"'{typed.strip()}' is not {directory.name}: nothing was run")
    except BaseException:
        shutil.rmtree(copy.path, ignore_errors=True)
        raise
    return copy


def what_it_runs(directory: RunDirectory) -> list[str]:
    """Return the study, options, environment and input files of a run as lines without control characters.

    Raises:
        UsageError: they are too long to be read by a person.
    """
    from pgherd.model.text import clean

    record = directory.record()
    options = record.options
    if record.study in studies():
        with suppress(ValidationError):
            options = study_of(record.study).options.model_validate(options).model_dump(mode="json", exclude_defaults=True)
    environment = record.environment.model_dump(mode="json", exclude_defaults=True) if record.environment else {}
    lines = [f"  study: {record.study}"]
    for kind, values in (("option", options), ("environment", environment), ("PostgreSQL", record.postgres)):
        lines += [f"  {kind} {name}: {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]
    inputs = directory.path / "inputs"
    lines += [f"  input file {path} ({path.stat().st_size} bytes)" for path in sorted(inputs.rglob("*")) if path.is_file()]
    if sum(map(len, lines)) > _MAX_SHOWN:
        raise UsageError(f"run {directory.name} has more than {_MAX_SHOWN:,} characters of options, too many to check; nothing was run")
    return [clean(line).replace("\n", " ") for line in lines]
