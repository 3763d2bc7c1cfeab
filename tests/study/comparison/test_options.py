import pytest
from pydantic import ValidationError

from pgherd.study.comparison.options import CompareOptions, Variant


def arm(name):
    return Variant(name=name, study="density", options={})


def test_a_block_holds_the_baseline_twice():
    options = CompareOptions(arms=(arm("a"), arm("b"), arm("c")), baseline="b")
    assert options.variants == ("a", "c")
    assert options.block_variants == ("b", "b again", "a", "c")
    assert options.arm("b again") == options.arm("b") == arm("b")


@pytest.mark.parametrize(
    ("names", "baseline", "message"),
    [
        (["a"], "a", "at least 2"),
        (["a", "a"], "a", "names of variants must be unique"),
        (["a", "b"], "c", "baseline 'c' is not among the variants a, b"),
        (["a", "b again"], "a", "match pattern"),
    ],
)
def test_arms_that_cannot_be_told_apart_are_refused(names, baseline, message):
    with pytest.raises(ValidationError, match=message):
        CompareOptions(arms=tuple(map(arm, names)), baseline=baseline)
