import pytest
from pydantic import ValidationError

from pgherd.studies.compare.options import CompareRequest


@pytest.mark.parametrize(("text", "share"), [("2%", 0.02), ("0.5 %", 0.005), ("0.02", 0.02), (0.1, 0.1)])
def test_a_share_is_written_in_percent_or_as_a_number(text, share):
    assert CompareRequest(precision=text).precision == pytest.approx(share)


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        ({"precision": "two"}, "a share is written as 2% or 0.02"),
        ({"precision": "2"}, "less than 0.5"),
        ({"equivalence_margin": "0%"}, "greater than 0"),
        ({"repeats": 3}, "counts blocks, not repeats"),
        ({"max_blocks": 0}, "greater than or equal to 1"),
        ({"scenarios": [{"name": "a b", "study": "density"}]}, "match pattern"),
        ({"variants": ["a"]}, "Extra inputs"),
    ],
)
def test_invalid_options_are_rejected(requested, message):
    with pytest.raises(ValidationError, match=message):
        CompareRequest(**requested)


def test_everything_has_a_default():
    assert CompareRequest().equivalence_margin == 0.02
