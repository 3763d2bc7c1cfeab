"""``pgherd show``: what a run or one of its trials holds, and how to repeat it by hand."""

from __future__ import annotations

from pathlib import Path

import click

from pgherd.cli.output import answer_console, json_option, print_document, runs_option
from pgherd.model.errors import UsageError


@click.command("show")
@click.argument("run")
@click.argument("trial", required=False)
@click.option("--commands", is_flag=True, help="Print a shell script that repeats the trial with PostgreSQL and pgbench alone.")
@runs_option
@json_option
def command(run: str, trial: str | None, commands: bool, runs: Path, as_json: bool) -> int:
    """Show a run, or one of its trials. RUN is a name, a part of one, a path, or 'last'; TRIAL a number.

    \b
    pgherd show last                   the answer again
    pgherd show last 7                 trial 7: what was measured and judged, and where its raw files are
    pgherd show last 7 --commands      a script that repeats it without pgherd
    """
    from pgherd.report import data_files, terminal
    from pgherd.store.run_directory import RunDirectory

    directory = RunDirectory.find(run, runs)
    record, results = directory.standing(), directory.results()
    if trial is None:
        if commands:
            raise UsageError(f"--commands needs a trial; run {directory.name} has {_range(len(results))}")
        if as_json:
            print_document(data_files.document(record, results))
        else:
            terminal.show(answer_console(), record, results, directory.path)
        return 0
    found = next((result for result in results if result.id == trial.zfill(4)), None)
    if found is None:
        raise UsageError(f"run {directory.name} has no trial '{trial}'; it has {_range(len(results))}")
    if commands:
        from pgherd.report.repro_script import script

        click.echo(script(found, record, directory.path / "inputs"), nl=False)
    elif as_json:
        print_document(
            {"schema": "pgherd/trial/1", "run": directory.name, "trial": found, "path": str(directory.path / "trials" / found.id)}
        )
    else:
        from pgherd.cli.trial import show_trial

        show_trial(answer_console(), found, directory.path / "trials" / found.id, directory.name)
    return 0


def _range(count: int) -> str:
    return "no finished trial" if count == 0 else "trial 1" if count == 1 else f"trials 1 to {count}"
