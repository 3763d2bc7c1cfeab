import pytest
from pydantic import ValidationError

from pgherd.studies.consolidation.options import ConsolidationRequest


def test_defaults_are_those_of_the_experiment():
    asked = ConsolidationRequest()
    assert (asked.workload, asked.client_place, asked.state, asked.pattern) == ("orders", "outside", "fresh", "alternating")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"repeats": 3}, "give blocks"),
        ({"duration": "5s"}, "give the length of one with period"),
        ({"huge_pages": "2MB"}, "no control group counts huge pages"),
        ({"runtime": "vm", "vm_huge_pages": "2MB"}, "no control group counts huge pages"),
        ({"dsn": "host=x"}, "makes its own servers"),
        ({"rate": 5.0}, "makes its own servers"),
        ({"working_set_size": ("1GB", "2GB", "3GB")}, "and then that of a quiet one"),
        ({"databases": 1}, "greater than or equal to 2"),
        ({"preset": "E9"}, "'E4', 'E5' or 'E6'"),
        ({"overcommit_by": "dummy"}, "'limit' or 'locked'"),
        ({"schemas": (1,)}, "Extra inputs"),
    ],
)
def test_what_does_not_belong_is_refused(given, told):
    with pytest.raises(ValidationError, match=told):
        ConsolidationRequest.model_validate(given)
