"""A run's conclusion: what its study says, and what every study's trials say of devices and guests. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pgherd.model.base import Model
from pgherd.model.finding import Analysis
from pgherd.model.result import TrialResult
from pgherd.model.study import RunnableStudy
from pgherd.study.device_io import with_device_io
from pgherd.study.emulation import FUNCTIONAL_TABLE, with_emulation
from pgherd.study.grade import rerun_hints
from pgherd.study.guest_memory import with_guest_memory
from pgherd.study.repeats import join_continuations


def conclude(
    study: RunnableStudy[Any],
    options: Model,
    results: Sequence[TrialResult],
    resumed: Sequence[str] = (),
    command: Sequence[str] = (),
    *,
    goes_on: bool = False,
) -> Analysis:
    """The study's analysis, unless guests' processors were emulated; the I/O view and guests' memory where they were seen; and first of
    where to look further what to do about trials that other work on the machine tainted.

    ``resumed`` are the record's sentences on how the host had changed when the run went on: numbers that mix two hosts are not of grade A.
    ``command`` is what measures again, or goes on with the run where that reruns tainted trials (``goes_on``).
    """
    analysis = with_emulation(study.analyse(options, results), results)
    whole = join_continuations(results)
    if FUNCTIONAL_TABLE not in analysis.tables:  # how fast devices answered is no more to be believed than the rest
        again = rerun_hints(analysis.grade, results, command, goes_on=goes_on)
        analysis = with_device_io(analysis.model_copy(update={"look_at": [*again, *analysis.look_at]}), whole)
    if resumed and analysis.grade == "A":
        analysis = analysis.model_copy(update={"grade": "B"})
    return with_guest_memory(analysis, whole)
