from pgherd.studies.database_size.study import STUDY


def test_every_scale_once_smallest_first(options):
    proposal = STUDY.propose(options(scales=(10, 1, 5)), [])
    assert [trial.key() for trial in proposal.trials] == ["scale=1#0", "scale=5#0", "scale=10#0"]
    assert {trial.probe for trial in proposal.trials} == {"database-size"} and not any(trial.phases for trial in proposal.trials)
    assert proposal.worst_case == 3 and proposal.stop is None


def test_resuming_goes_on_with_what_is_missing(options, results):
    asked = options(scales=(1, 2, 5))
    assert [trial.key() for trial in STUDY.propose(asked, results((1, 5))).trials] == ["scale=2#0"]


def test_it_stops_when_all_have_been_tried(options, results):
    proposal = STUDY.propose(options(scales=(1, 2)), results((1, 2), failed=(2,)))
    assert not proposal.trials and "every scale" in proposal.stop
