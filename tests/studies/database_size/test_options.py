import pytest
from pydantic import ValidationError

from pgherd.studies.database_size.options import PREDICTED, SCALES, DatabaseSizeRequest, deployment
from pgherd.studies.database_size.study import STUDY


def test_scales_are_put_in_order(options):
    assert options(scales=(20, 1, 5, 1)).scales == (1, 5, 20)
    assert options().scales == SCALES and options().predict == PREDICTED


@pytest.mark.parametrize("scales", [(), (0, 1), (-5,)])
def test_what_is_no_scale_is_refused(options, scales):
    with pytest.raises(ValidationError, match="give one or more scales, each at least 1"):
        options(scales=scales)
    with pytest.raises(ValidationError):
        DatabaseSizeRequest(predict=scales)


def test_one_server_with_one_database_and_no_limits(options):
    ((_, _, container, server, database),) = deployment(options(), 7).databases()
    assert (database.scale, server.version, container.runtime, container.cpu_mode, container.memory) == (7, "18.6", "process", "none", None)


def test_every_scale_once_smallest_first(options):
    proposal = STUDY.propose(options(scales=(10, 1, 5)), [])
    assert [trial.key() for trial in proposal.trials] == ["scale=1#0", "scale=5#0", "scale=10#0"]
    assert {trial.probe for trial in proposal.trials} == {"database-size"} and not any(trial.phases for trial in proposal.trials)
    assert proposal.max_trials == 3 and proposal.stop is None


def test_resuming_goes_on_with_what_is_missing(options, results):
    study_options = options(scales=(1, 2, 5))
    assert [trial.key() for trial in STUDY.propose(study_options, results((1, 5))).trials] == ["scale=2#0"]


def test_a_time_budget_lets_the_first_start_and_others_while_the_longest_would_fit(options, results):
    study_options = options(scales=(1, 2, 5), time_budget=3.5)  # each made-up trial takes a second
    assert [trial.key() for trial in STUDY.propose(study_options, []).trials] == ["scale=1#0"]
    assert [trial.key() for trial in STUDY.propose(study_options, results((1,))).trials] == ["scale=2#0"]
    stopped = STUDY.propose(study_options, results((1, 2)))
    assert not stopped.trials and stopped.stop == "the budget of 3.5 s is used up; 2 of 3 planned trials were run"
    assert STUDY.propose(options(scales=(1, 2), time_budget=0.1), []).trials, "the first starts in any case"
    assert "every scale" in STUDY.propose(study_options, results((1, 2, 5))).stop


def test_it_stops_when_all_have_been_tried(options, results):
    proposal = STUDY.propose(options(scales=(1, 2)), results((1, 2), failed=(2,)))
    assert not proposal.trials and "every scale" in proposal.stop
