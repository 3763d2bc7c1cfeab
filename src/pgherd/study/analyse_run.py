"""Analysis of a run: the study's conclusions, extended by device I/O, guest memory and external servers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from pgherd.model.analysis import Analysis
from pgherd.model.base import Model
from pgherd.model.errors import RunDirectoryError
from pgherd.model.result import TrialResult
from pgherd.model.run import SCHEMA, RunRecord
from pgherd.model.study import RunnableStudy
from pgherd.study.device_io import with_device_io
from pgherd.study.external_servers import with_external_servers
from pgherd.study.grade import rerun_hints
from pgherd.study.guests import FUNCTIONAL_TABLE, with_emulation, with_guest_memory
from pgherd.study.repeats import join_continuations
from pgherd.study.study import study_of


def conclude(
    study: RunnableStudy[Any],
    options: Model,
    results: Sequence[TrialResult],
    resumed: Sequence[str] = (),
    command: Sequence[str] = (),
    *,
    goes_on: bool = False,
) -> Analysis:
    """Return the study's analysis with the tables and hints that all studies share.

    Adds device I/O, guest memory and external servers' views if they were measured, and hints on rerunning trials that background
    load tainted. If guests' processors were emulated, the analysis only states which trials finished.

    Args:
        study: the study of the run.
        options: its complete options.
        results: all trials of the run.
        resumed: changes of the host, of pgherd or of an external server during the run, as sentences of the run record. Grade A becomes B
            with any.
        command: command that repeats the run, or that resumes it if ``goes_on``.
        goes_on: ``command`` resumes this run, so it reruns tainted trials.
    """
    analysis = with_emulation(study.analyse(options, results), results)
    combined = join_continuations(results)
    if FUNCTIONAL_TABLE not in analysis.tables:  # emulation distorts device latencies, too
        hints = rerun_hints(analysis.grade, results, command, goes_on=goes_on)
        analysis = with_device_io(analysis.model_copy(update={"next_steps": [*hints, *analysis.next_steps]}), combined)
    if resumed and analysis.grade == "A":
        analysis = analysis.model_copy(update={"grade": "B"})
    return with_external_servers(with_guest_memory(analysis, combined), combined)


def recorded_options(study: RunnableStudy[Any], record: RunRecord) -> Model:
    """Return the complete options of a run. Raises RunDirectoryError if this version does not have them."""
    try:
        return study.options.model_validate(record.options)
    except ValidationError:
        raise RunDirectoryError(
            f"run {record.run} was made by pgherd {record.pgherd} with options that this version does not have; use that version"
        ) from None


def refreshed(record: RunRecord, results: Sequence[TrialResult]) -> RunRecord:
    """Return the record. If it is of a former schema and has an analysis, this analysis is made anew, with present names.

    Raises:
        RunDirectoryError: this version does not have the options of the run.
    """
    if record.schema_ == SCHEMA or record.analysis is None or not results:
        return record
    study = study_of(record.study)
    options = recorded_options(study, record)
    return record.model_copy(update={"analysis": conclude(study, options, results, record.resumed_on_changed_host, record.command)})
