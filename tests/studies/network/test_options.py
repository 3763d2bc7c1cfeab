import pytest
from pydantic import ValidationError

from pgherd.studies.network.study import STUDY


def test_one_stream_is_always_among_them(options):
    assert options(streams=(8, 4, 4)).streams == (1, 4, 8)


@pytest.mark.parametrize("streams", [(), (0,), (1, 129)])
def test_what_iperf3_does_not_take_is_refused(options, streams):
    with pytest.raises(ValidationError, match="from 1 to 128"):
        options(streams=streams)


def test_every_block_holds_every_number_of_streams_and_the_idle_one(options):
    trials = STUDY.propose(options(), []).trials
    assert len(trials) == 15
    for block in (trials[:5], trials[5:10], trials[10:]):
        assert sorted(trial.point["streams"] for trial in block) == [0, 1, 2, 4, 8]
    assert trials == STUDY.propose(options(), []).trials, "the seed decides the order"


def test_loads_are_iperf3s_with_so_many_streams(options):
    trials = {trial.point["streams"]: trial for trial in STUDY.propose(options(reverse=True, window=65536), []).trials}
    load = trials[4].phases[0].loads["db2"]
    assert (load.driver, load.clients, load.options) == ("iperf3", 4, {"reverse": "1", "window": "65536"})
    idle = trials[0].phases[0].loads["db2"].options
    assert (idle["rate"], idle["length"]) == ("1000000", "512"), "a block of 128 KiB would itself queue"


def test_it_stops_when_all_is_measured(options, results):
    assert STUDY.propose(options(), results()).stop


def test_a_tainted_point_is_measured_again(options, results):
    again = STUDY.propose(options(), results(tainted=(2,))).trials
    assert again and {trial.point["streams"] for trial in again} == {2} and min(trial.repeat for trial in again) == 3
