import pytest
from pydantic import ValidationError

from pgherd.studies.isolation.options import AGGRESSORS, IsolationRequest


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"schemes": ["quota", "quota"]}, "each name once"),
        ({"aggressors": []}, "at least one name"),
        ({"aggressors": ["noise"]}, "aggressors"),
        ({"workload": "orders"}, "workload"),
        ({"dsn": "host=x"}, "isolation starts the servers"),
        ({"cpu_mode": "quota"}, "the scheme decides how CPU is limited"),
    ],
)
def test_what_is_refused(given, words):
    with pytest.raises(ValidationError, match=words):
        IsolationRequest.model_validate(given)


def test_null_is_the_default_and_all_aggressors_can_be_named():
    assert IsolationRequest.model_validate({"clients": None}).clients == 8
    assert IsolationRequest(aggressors=tuple(AGGRESSORS)).aggressors == tuple(AGGRESSORS)


def test_comparisons(make_options):
    assert make_options().comparisons == 4
