import pytest
from pydantic import ValidationError

from pgherd.study.comparison.request import BlocksRequest


@pytest.mark.parametrize("text, share", [("2%", 0.02), ("0.02", 0.02), (0.1, 0.1)])
def test_a_share_is_a_percentage_or_a_fraction(text, share):
    assert BlocksRequest(precision=text).precision == pytest.approx(share)


@pytest.mark.parametrize("options", [{"precision": "wide"}, {"precision": "60%"}, {"repeats": 3}, {"min_repeats": 3}])
def test_wrong_options_are_refused(options):
    with pytest.raises(ValidationError):
        BlocksRequest(**options)
