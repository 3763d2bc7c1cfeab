import pytest
from pydantic import ValidationError

from pgherd.studies.compression.study import STUDY


@pytest.mark.parametrize("blocks", [(), (3000,), (256,), (2**21,)])
def test_a_block_is_a_power_of_two_within_a_segment(options, blocks):
    with pytest.raises(ValidationError, match="a power of two from 512 bytes to 1 MB"):
        options(block_sizes=blocks)


def test_the_headline_is_the_first_codec_and_32_kb_where_there_is_one(options):
    assert options().headline == ("lz4", 32768)
    assert options(block_sizes=(4096, 8192, 16384), codecs=("zstd-3",)).headline == ("zstd-3", 8192)


def test_one_trial_per_kind_and_form_and_then_it_stops(options, results):
    first = STUDY.propose(options(), [])
    assert [(trial.point["data"], trial.point["form"]) for trial in first.trials][:2] == [("pgbench", "plain"), ("pgbench", "encrypted")]
    assert first.max_trials == 6 and all(trial.probe == "compression" and trial.phases == () for trial in first.trials)
    assert len(STUDY.propose(options(), results()[:2]).trials) == 4
    assert "every kind" in STUDY.propose(options(), results(failed=("orders",))).stop, "what failed is not tried again"


def test_a_time_budget_ends_it_between_two_trials(options, results):
    study_options = options(time_budget=3.5)  # each made-up trial takes a second
    assert len(STUDY.propose(study_options, []).trials) == 1
    assert len(STUDY.propose(study_options, results()[:2]).trials) == 1
    assert STUDY.propose(study_options, results()[:3]).stop == "the budget of 3.5 s is used up; 3 of 6 planned trials were run"


def test_without_encryption_there_is_one_form(options):
    assert len(STUDY.propose(options(encrypt=False), []).trials) == 3


def test_the_same_segments_are_asked_for_in_every_form(options):
    trials = STUDY.propose(options(), []).trials
    assert {trial.probe_options["seed"] for trial in trials} == {"1"}
    assert trials[0].probe_options["blocks"] == "4096,8192,16384,32768,131072,1048576"
