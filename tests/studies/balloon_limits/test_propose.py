import pytest
from pydantic import ValidationError

from pgherd.model.errors import CapabilityError, UsageError
from pgherd.node.local import LocalNode
from pgherd.studies.balloon_limits.options import BalloonLimitsRequest
from pgherd.studies.balloon_limits.prepare import plan_lines, prepare
from pgherd.studies.balloon_limits.propose import deploy, planned, propose


def test_a_block_holds_a_trial_of_each_pool(make_options):
    options = make_options(repeats=2)
    trials = planned(options)
    assert len(trials) == 6 and propose(options, []).trials == trials
    for begin in (0, 3):
        assert {trial.point["pool"] for trial in trials[begin : begin + 3]} == {"small", "large", "balloon"}


def test_the_limit_changes_at_each_phase_but_the_first(make_options):
    options = make_options()
    for trial in planned(options):
        assert [phase.memory for phase in trial.phases] == [{}, *({"server": 2**30 * share // 100} for share in (100, 50, 100))]
        assert [phase.warmup for phase in trial.phases] == [5, 0, 0, 0], "a change is measured from its first instant on"
        assert trial.failure_expected


def test_every_transaction_is_logged(make_options):
    loads = [load for trial in planned(make_options()) for phase in trial.phases for load in phase.loads.values()]
    assert {load.sampling for load in loads} == {1.0}


def test_only_the_pool_differs(make_options):
    options = make_options()
    for pool, size, libraries in (("small", "320MB", None), ("large", "640MB", None), ("balloon", "640MB", "pg_balloon")):
        ((_, container),) = deploy(options, pool).containers()
        (server,) = container.servers
        assert server.settings["shared_buffers"] == size and server.settings.get("shared_preload_libraries") == libraries
        assert container.memory == 2**30


@pytest.mark.parametrize("limits", [(100,), (50, 100), (100, 120), (100, 3)])
def test_limits_that_do_not_go(limits):
    with pytest.raises(ValidationError, match="two percentages or more"):
        BalloonLimitsRequest(limits=limits)


def test_a_rate_would_be_the_answer():
    with pytest.raises(ValidationError, match="which a rate would limit"):
        BalloonLimitsRequest(rate=100)


@pytest.mark.usefixtures("own_directories")
def test_a_runtime_without_cgroups_is_refused():
    with pytest.raises(CapabilityError, match="--runtime process does not support"):
        prepare(LocalNode(), BalloonLimitsRequest(runtime="process"), dry=True)


@pytest.mark.usefixtures("own_directories")
def test_the_pools_decide_about_shared_buffers():
    try:
        with pytest.raises(UsageError, match="the pools decide"):
            prepare(LocalNode(), BalloonLimitsRequest(set=("shared_buffers=1GB",), pools=("small",)), dry=True)
    except CapabilityError as error:
        pytest.skip(str(error))


def test_the_plan_names_limits_and_pools(make_options):
    lines = plan_lines(make_options(), [])
    assert lines[0].endswith("Its limit, 10 s each: 100 %, 100 %, 50 %, 100 %.")
    assert [line.split(":")[0].strip() for line in lines[2:]] == ["small", "large", "balloon"]
