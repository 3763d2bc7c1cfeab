import pytest
from pydantic import ValidationError

from pgherd.studies.io_profile.options import StorageRequest


def test_everything_has_a_default():
    asked = StorageRequest()
    assert asked.workload == "tpcb-like" and asked.compare is None and asked.io_bound is None and not asked.trace


@pytest.mark.parametrize(
    "bad", [{"dsn": "host=x"}, {"memory_ratio": 1.0}, {"checkpoints": 0}, {"equivalence_margin": "high"}, {"nonsense": 1}]
)
def test_what_is_wrong_is_refused(bad):
    with pytest.raises(ValidationError):
        StorageRequest.model_validate(bad)
