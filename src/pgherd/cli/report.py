"""``pgherd report``: make a report again, or overlay several runs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
from pydantic import ValidationError

from pgherd import __version__
from pgherd.cli.output import answer_console, json_option, print_document, run_named, runs_option
from pgherd.model.errors import RunDirectoryError, UsageError
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.study.registry import study_of

if TYPE_CHECKING:
    from pgherd.store.run_directory import RunDirectory


@click.command("report")
@click.argument("runs_wanted", metavar="RUN…", nargs=-1, required=True)
@click.option("--png", is_flag=True, help="Write each figure as PNG too.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="The file for several runs.  [default: overlay.html]")
@runs_option
@json_option
def command(runs_wanted: tuple[str, ...], png: bool, out: Path | None, runs: Path, as_json: bool) -> int:
    """Make the report of one run from its directory alone, or overlay several runs in one page. It needs no PostgreSQL
    and no access to the host that was measured. RUN is a name, a part of one, a path, or 'last'."""
    from pgherd.report import write_report
    from pgherd.report.overlay import overlay
    from pgherd.store.run_directory import RunDirectory

    found = [RunDirectory.find(run, runs) for run in runs_wanted]
    if len(found) > 1:
        target = out or Path("overlay.html")
        overlay([_told(directory) for directory in found], target)
        made = [target]
    else:
        if out is not None:
            raise UsageError("--out is for several runs; the report of one run lies in its directory")
        directory = found[0]
        record, results = directory.standing(), directory.results()
        if not results:
            raise UsageError(f"run {directory.name} has no finished trial to report on; 'pgherd resume {directory.name}' goes on with it")
        if not directory.alive():
            record = _analysed(directory, record, results)
            directory.save(record)
        made = write_report.build(directory.path, record, results, png=png)
    if as_json:
        print_document({"schema": "pgherd/report/1", "runs": [directory.name for directory in found], "files": made})
    else:
        for path in made:
            answer_console().print(str(path), markup=False, soft_wrap=True)
    return 0


def _told(directory: RunDirectory) -> tuple[str, RunRecord, list[TrialResult]]:
    """A run to lay over others: its name, its record with an answer from what has finished (where this version can say), its results."""
    record, results = directory.standing(), directory.results()
    if results and not directory.alive():
        with suppress(RunDirectoryError):
            record = _analysed(directory, record, results)
    return directory.name, record, results


def _analysed(directory: RunDirectory, record: RunRecord, results: list[TrialResult]) -> RunRecord:
    """The record with its results analysed anew.

    It keeps the analysis that it has where this version made that of all its results, and where its options are of
    another version.
    """
    if record.analysis is not None and record.state == "finished" and record.pgherd == __version__:
        return record
    study = study_of(record.study)
    try:
        options = study.options.model_validate(record.options)
    except ValidationError:
        if record.analysis is None:
            raise RunDirectoryError(
                f"run {record.run} was made by pgherd {record.pgherd}, whose options this one does not know; use that version"
            ) from None
        return record
    from pgherd.study.analyse_run import conclude

    # What is left of a run that is not finished holds the reruns of its tainted trials; a soak has none.
    goes_on = record.state != "finished" and not getattr(options, "soak_seconds", None)
    command = ["pgherd", "resume", run_named(directory)] if goes_on else record.command
    return record.model_copy(update={"analysis": conclude(study, options, results, record.resumed, command, goes_on=goes_on)})
