"""A run's conclusion: what its study says, and what every study's trials say of devices and guests. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pgherd.model.base import Model
from pgherd.model.finding import Analysis
from pgherd.model.result import TrialResult
from pgherd.model.study import Study
from pgherd.studies.emulated import FUNCTIONAL, with_emulated
from pgherd.studies.guest_memory import with_guest_memory
from pgherd.studies.io_view import with_io_view


def conclude(study: Study[Any], options: Model, results: Sequence[TrialResult]) -> Analysis:
    """The study's analysis, unless guests' processors were emulated; the I/O view and guests' memory where they were seen."""
    analysis = with_emulated(study.analyse(options, results), results)
    if FUNCTIONAL not in analysis.tables:  # how fast devices answered is no more to be believed than the rest
        analysis = with_io_view(analysis, results)
    return with_guest_memory(analysis, results)
