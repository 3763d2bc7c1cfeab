import pytest
from pydantic import ValidationError

from pgherd.studies.io_profile.options import IoProfileOptions, IoProfileRequest


def test_several_variants_are_compared(build):
    assert build().single and not build("0.5", "0.9").single
    assert build("0.5", "0.9").of("0.5 (A/A)")["settings"] == {"checkpoint_completion_target": "0.5"}


def test_options_survive_a_record(build):
    options = build("0.5", "0.9", checkpoint_timeout=30.0)
    assert IoProfileOptions.model_validate(options.model_dump(mode="json")) == options


def test_a_variant_is_required():
    with pytest.raises(ValidationError):
        IoProfileOptions(variants=(), baseline="x")


def test_everything_has_a_default():
    request = IoProfileRequest()
    assert request.workload == "tpcb-like" and request.compare_setting is None and request.memory_ratio is None and not request.trace_io


@pytest.mark.parametrize(
    "bad", [{"dsn": "host=x"}, {"memory_ratio": 1.0}, {"checkpoints": 0}, {"equivalence_margin": "high"}, {"nonsense": 1}]
)
def test_invalid_options_are_rejected(bad):
    with pytest.raises(ValidationError):
        IoProfileRequest.model_validate(bad)
