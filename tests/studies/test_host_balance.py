import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.studies.host_balance import imbalance, relative, slowest

RATES = st.dictionaries(st.sampled_from("abcd"), st.floats(0.1, 1e6), min_size=2)


def test_hosts_are_compared_within_each_trial():
    trials = [{"a": 100.0, "b": 80.0}, {"a": 10.0, "b": 8.2}, {"a": 1.0, "b": 0.78}]
    found = imbalance(trials, "I/Os per second")
    assert found.value == pytest.approx(0.2) and found.n == 3 and "in I/Os per second" in found.method
    slow = slowest(trials, "I/Os per second")
    assert slow.note.startswith("host b") and slow.high < 1 and slow.value == pytest.approx(0.889, abs=0.001)


def test_a_difference_that_may_be_chance_is_said_so():
    assert "not shown" in slowest([{"a": 9.0, "b": 10.0}, {"a": 10.0, "b": 9.0}, {"a": 9.5, "b": 9.6}], "x").note


def test_nothing_is_said_of_nothing():
    for trials in ([], [{}], [{"a": 0.0, "b": 0.0}]):
        assert imbalance(trials, "x").value is None and slowest(trials, "x").value is None


@given(RATES)
def test_shares_of_the_mean_have_the_mean_one(rates):
    shares = relative(rates)
    assert sum(shares.values()) / len(shares) == pytest.approx(1)
    assert 0 <= imbalance([rates], "x").value < 1
    assert slowest([rates], "x").value <= 1 + 1e-9
