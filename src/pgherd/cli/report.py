"""``pgherd report``: write the report of a run, or one page that overlays several runs."""

from __future__ import annotations

import shlex
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pgherd import __version__
from pgherd.cli.output import answer_console, json_option, print_document, runs_option
from pgherd.model.errors import RunDirectoryError, UsageError
from pgherd.model.result import TrialResult
from pgherd.model.run import SCHEMA, RunRecord
from pgherd.study.study import study_of

if TYPE_CHECKING:
    from pgherd.store.run_directory import RunDirectory


@click.command("report")
@click.argument("names", metavar="RUN…", nargs=-1, required=True)
@click.option("--png", is_flag=True, help="Also write figures as PNG.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Directory for the report of one run [default: the run's directory], or file for several runs [default: overlay.html].",
)
@runs_option
@json_option
def command(names: tuple[str, ...], png: bool, output: Path | None, runs: Path, as_json: bool) -> int:
    """Write the HTML report of a run, or one page that overlays several runs. Only the directories of the runs are required,
    no PostgreSQL and no access to the measured host. RUN is a name, a part of one, a path with a slash, or 'last'. The report
    of another user's run requires --output."""
    from pgherd.report import write_report
    from pgherd.report.overlay import overlay
    from pgherd.store.run_directory import RunDirectory, without_process

    directories = [RunDirectory.find(name, runs) for name in names]
    if len(directories) > 1:
        if png:
            raise UsageError("--png writes the figures of one run as files, but the page of several runs has no figure files")
        target = output or Path("overlay.html")
        if target.is_dir():
            raise UsageError(f"--output is a file for several runs, but {target} is a directory")
        overlay([_concluded(directory) for directory in directories], target)
        written = [target]
    else:
        directory = directories[0]
        if output is not None and (output.suffix == ".html" or (output.exists() and not output.is_dir())):
            raise UsageError(f"--output is a directory for the report of one run, but {output} is the name of a file")
        if output is None and not directory.is_ours():
            raise UsageError(
                f"{directory.foreign_text()}, and pgherd does not write into it; --output DIR writes the report to a directory"
            )
        if not directory.trial_names():
            raise UsageError(f"run {directory.name} has no finished trial to report; resume it with 'pgherd resume {directory.argument}'")
        alive = directory.alive()  # before run.json is read, because the run may end in between
        saved = output is None and not alive
        with directory.locked() if saved else nullcontext():
            record, results = directory.standing(), directory.results()
            if saved:  # only this process has the lock
                record = without_process(record)
            if not alive:
                record = _analysed(directory, record, results)
            if saved:
                directory.save(record)
        written = write_report.build(directory.path, record, results, png=png, output=output)
    if as_json:
        print_document({"schema": "pgherd/report/2", "runs": [directory.name for directory in directories], "files": written})
    else:
        for path in written:
            answer_console().print(str(path), markup=False, soft_wrap=True)
    return 0


def _concluded(directory: RunDirectory) -> tuple[str, RunRecord, list[TrialResult]]:
    """Return name, record and results of a run. The record of an unfinished run gets the analysis of its finished trials."""
    record, results = directory.standing(), directory.results()
    if results and not directory.alive():
        with suppress(RunDirectoryError):
            record = _analysed(directory, record, results)
    return directory.name, record, results


def _analysed(directory: RunDirectory, record: RunRecord, results: list[TrialResult]) -> RunRecord:
    """Return the record with a new analysis of its results.

    It keeps the present analysis if this version made it from all results, or if another version defined its options. Raises
    RunDirectoryError if the latter has none with the present names.
    """
    if record.analysis is not None and record.state == "finished" and record.pgherd == __version__ and record.schema_ == SCHEMA:
        return record
    from pgherd.study.analyse_run import conclude, recorded_options

    study = study_of(record.study)
    try:
        options = recorded_options(study, record)
    except RunDirectoryError:
        if record.analysis is None or record.schema_ != SCHEMA:
            raise
        return record
    # The remaining trials of an unfinished run include the reruns of tainted ones. A soak has no reruns.
    continues = record.state != "finished" and not getattr(options, "soak_seconds", None)
    command = ["pgherd", "resume", *shlex.split(directory.argument)] if continues else record.command
    return record.model_copy(
        update={"analysis": conclude(study, options, results, record.resumed_on_changed_host, command, goes_on=continues)}
    )
