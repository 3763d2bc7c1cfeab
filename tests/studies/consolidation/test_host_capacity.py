from __future__ import annotations

import pytest

from pgherd.analysis.host_measurement import HostRun
from pgherd.model.errors import UsageError
from pgherd.model.run import RunRecord
from pgherd.studies.consolidation.analyse import analyse
from pgherd.studies.consolidation.host_capacity import measure_host

MB = 2**20
WORKING_SETS = (4096 * MB, 3600 * MB)
"""Of a busy and of a quiet database. They need 7,696 MB of the 8,192 MB that are configured."""


@pytest.fixture
def measured(make_options, simulate):
    """A function that measures a simulated host, with or without the balloon. At 40 % it retains 84 % or 92 % of the throughput."""

    def measured(balloon, kill=lambda trial: None, **changes):
        options = make_options(**{"overcommit": (0.0, 0.2, 0.4), "repeats": 3, "working_set_size": WORKING_SETS, **changes})
        results = simulate(options, kill=kill).all()
        record = RunRecord(
            run="r",
            study="consolidation",
            options=options.model_dump(mode="json"),
            started=0.0,
            pgherd="0",
            analysis=analyse(options, results),
        )
        return measure_host(HostRun("--host-run r", "r", record, results, balloon=balloon))

    return measured


@pytest.mark.parametrize("balloon, layout, level", [(False, "dedicated", 0.2), (True, "dedicated-balloon", 0.4)])
def test_working_sets_may_exceed_the_memory_at_the_highest_safe_level(measured, balloon, layout, level):
    found = measured(balloon)
    assert found.memory_factor.value == pytest.approx(7696 / (8192 * (1 - level)))
    assert (found.memory_factor.n, found.memory_factor.source) == (3, "run r") and not found.capacity
    assert f"in the layout {layout} kept 90% of their throughput" in found.notes[0]


def test_a_level_with_an_oom_kill_is_not_safe(measured):
    def kill(trial):
        return "c" if trial.point["overcommit"] == 0.4 and trial.repeat == 1 and trial.point["layout"] == "dedicated-balloon" else None

    assert measured(True, kill).memory_factor.value == pytest.approx(7696 / (8192 * 0.8))


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"working_set_size": ()},
            "--host-run r: run r does not have the working sets of its databases; repeat it with --working-set-size",
        ),
        ({"repeats": 1}, "at no overcommitment of run r the layout dedicated certainly keeps 90% of its throughput; give a run with"),
        ({"overcommit": (0.0, 0.4)}, "at no overcommitment of run r the layout dedicated"),
        ({"overcommit": (0.0,)}, "at no overcommitment of run r the layout dedicated"),
        ({"schemes": ("shared-server",)}, "at no overcommitment of run r the layout dedicated"),
        ({"working_set_size": (1376 * MB, 1152 * MB)}, "at 20%, the highest safe overcommitment of run r, the working sets still fit"),
    ],
)
def test_a_run_without_a_safe_overcommitment_is_refused(measured, changes, message):
    with pytest.raises(UsageError, match=message):
        measured(False, **changes)
