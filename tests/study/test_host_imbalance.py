import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.study.per_host import imbalance, relative_rates, slowest

RATES = st.dictionaries(st.sampled_from("abcd"), st.floats(0.1, 1e6), min_size=2)


def test_hosts_are_compared_within_each_trial():
    trials = [{"a": 100.0, "b": 80.0}, {"a": 10.0, "b": 8.2}, {"a": 1.0, "b": 0.78}]
    found = imbalance(trials, "I/Os per second")
    assert found.value == pytest.approx(0.2) and found.n == 3 and "in I/Os per second" in found.method
    slow = slowest(trials, "I/Os per second")
    assert slow.note.startswith("host b") and slow.high < 1 and slow.value == pytest.approx(0.889, abs=0.001)


def test_a_difference_that_may_be_chance_is_said_so():
    assert "not shown" in slowest([{"a": 9.0, "b": 10.0}, {"a": 10.0, "b": 9.0}, {"a": 9.5, "b": 9.6}], "x").note


def test_of_many_equal_hosts_none_is_called_slow():
    """The least of sixteen is chosen by the same trials: by its own 95 % interval it is 'slower' in every third study."""
    rng = random.Random(1)
    equal = [[{f"h{n}": math.exp(rng.gauss(0, 0.03)) for n in range(16)} for _ in range(6)] for _ in range(200)]
    assert sum("not shown" not in slowest(trials, "x").note for trials in equal) <= 18  # 5 % are 10
    slow = [{name: rate * (0.8 if name == "h3" else 1) for name, rate in trial.items()} for trial in equal[0]]
    assert slowest(slow, "x").note == "host h3"


def test_the_interval_holds_for_all_hosts_together():
    """By hand: shares of the mean 0.89, 0.9 and 0.91; t is 7.649 for 1 - 0.05/3 and 2 degrees of freedom (4.303 for 0.95)."""
    found = slowest([{"a": 89.0, "b": 100.0, "c": 111.0}, {"a": 90.0, "b": 100.0, "c": 110.0}, {"a": 91.0, "b": 100.0, "c": 109.0}], "x")
    half = 7.649 * 0.01 / math.sqrt(3)
    assert (found.value, found.low, found.high) == pytest.approx((0.9, 0.9 - half, 0.9 + half), abs=1e-5)
    assert found.confidence == 0.95 and "all 3 hosts together" in found.method
    two = slowest([{"a": 89.0, "b": 111.0}, {"a": 90.0, "b": 110.0}, {"a": 91.0, "b": 109.0}], "x")
    assert two.high == pytest.approx(0.9 + 4.303 * 0.01 / math.sqrt(3), abs=1e-5) and "together" not in two.method


def test_nothing_is_said_of_nothing():
    for trials in ([], [{}], [{"a": 0.0, "b": 0.0}]):
        assert imbalance(trials, "x").value is None and slowest(trials, "x").value is None


@given(RATES)
def test_shares_of_the_mean_have_the_mean_one(rates):
    shares = relative_rates(rates)
    assert sum(shares.values()) / len(shares) == pytest.approx(1)
    assert 0 <= imbalance([rates], "x").value < 1
    assert slowest([rates], "x").value <= 1 + 1e-9
