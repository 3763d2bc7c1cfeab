import pytest
from pydantic import ValidationError

from pgherd.studies.io_profile.options import StorageOptions


def test_one_arm_is_watched_and_more_are_compared(build):
    assert build().single and not build("0.5", "0.9").single
    assert build("0.5", "0.9").of("0.5 again")["settings"] == {"checkpoint_completion_target": "0.5"}


def test_options_are_kept_whole_in_a_record(build):
    options = build("0.5", "0.9", every=30.0)
    assert StorageOptions.model_validate(options.model_dump(mode="json")) == options


def test_without_an_arm_there_is_nothing():
    with pytest.raises(ValidationError):
        StorageOptions(arms=(), baseline="x")
