"""Made-up sizes: on a line, as PostgreSQL 15 to 18 make them."""

from __future__ import annotations

import pytest

from pgherd.model.result import TrialResult
from pgherd.studies.database_size.options import DatabaseSizeOptions
from pgherd.studies.database_size.study import STUDY

FIXED, TABLES, INDEXES = 7_700_000.0, 13_430_000.0, 2_250_000.0


@pytest.fixture
def options():
    def make(**changes):
        return DatabaseSizeOptions(**{"pg_bin": "/pg/bin", "pg_version": "18.6"} | changes)

    return make


@pytest.fixture
def results(options):
    """Finished trials of some scales; ``sizes`` gives other totals, ``failed`` are scales that failed, ``parts`` false leaves them out."""

    def make(scales, sizes=None, failed=(), parts=True):
        trials = STUDY.propose(options(scales=tuple(scales)), []).trials
        collected = []
        for number, (scale, trial) in enumerate(zip(scales, trials, strict=True), start=1):
            probe = {"database_bytes": (sizes or {}).get(scale, FIXED + (TABLES + INDEXES) * scale)}
            if parts:
                probe |= {"tables_bytes": TABLES * scale, "indexes_bytes": INDEXES * scale, "other_bytes": FIXED}
            error = "no room" if scale in failed else None
            collected.append(TrialResult(id=f"{number:04d}", trial=trial, started=0, ended=1, probe={} if error else probe, error=error))
        return collected

    return make
