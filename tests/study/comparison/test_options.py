import pytest
from pydantic import ValidationError

from pgherd.study.comparison.options import CompareOptions, Variant


def variant(name):
    return Variant(name=name, study="density", options={})


def test_a_block_holds_the_baseline_twice():
    options = CompareOptions(variants=(variant("a"), variant("b"), variant("c")), baseline="b")
    assert options.other_variants == ("a", "c")
    assert options.block_variants == ("b", "b (A/A)", "a", "c")
    assert options.variant("b (A/A)") == options.variant("b") == variant("b")


@pytest.mark.parametrize(
    ("names", "baseline", "message"),
    [
        (["a"], "a", "at least 2"),
        (["a", "a"], "a", "names of variants must be unique"),
        (["a", "b"], "c", "baseline 'c' is not among the variants a, b"),
        (["a", "b (A/A)"], "a", "match pattern"),
    ],
)
def test_arms_that_cannot_be_told_apart_are_refused(names, baseline, message):
    with pytest.raises(ValidationError, match=message):
        CompareOptions(variants=tuple(map(variant, names)), baseline=baseline)
