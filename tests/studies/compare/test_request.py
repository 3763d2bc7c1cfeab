import pytest
from pydantic import ValidationError

from pgherd.studies.compare.options import CompareRequest


@pytest.mark.parametrize(("said", "share"), [("2%", 0.02), ("0.5 %", 0.005), ("0.02", 0.02), (0.1, 0.1)])
def test_a_share_is_written_in_per_cent_or_as_a_number(said, share):
    assert CompareRequest(precision=said).precision == pytest.approx(share)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"precision": "two"}, "a share is written as 2% or 0.02"),
        ({"precision": "2"}, "less than 0.5"),
        ({"equivalence_margin": "0%"}, "greater than 0"),
        ({"repeats": 3}, "counts blocks, not repeats"),
        ({"max_blocks": 0}, "greater than or equal to 1"),
        ({"arms": [{"name": "a b", "study": "density"}]}, "match pattern"),
        ({"variants": ["a"]}, "Extra inputs"),
    ],
)
def test_what_cannot_be_meant_is_refused(asked, message):
    with pytest.raises(ValidationError, match=message):
        CompareRequest(**asked)


def test_everything_has_a_default():
    assert CompareRequest().equivalence == 0.02
