import pytest

from pgherd.study.comparison import variants
from pgherd.study.comparison.blocks import all_series, primary_series
from pgherd.study.comparison.blocks import complete_blocks


def blocks(options, simulate, count=3, **how):
    simulator = simulate(options, **how)
    return complete_blocks(options, [result for number in range(count) for result in simulator.all(variants.block_trials(options, number))])


def test_values_stand_block_by_block_on_every_side(options, simulate):
    made = options()
    series = all_series(made, blocks(made, simulate, truth={"other": 1.5}, noise=0.0))["throughput"]
    assert dict(series.values) == {
        "base": pytest.approx([10_000] * 3),
        "base again": pytest.approx([10_000] * 3),
        "other": pytest.approx([15_000] * 3),
    }
    assert series.why_not(made) == ""


def test_every_metric_is_there_and_says_why_it_cannot_be_compared(options, simulate):
    made = options()
    every = all_series(made, blocks(made, simulate, p99=False, metrics={"server:db01/pg": {"wal.bytes": 100.0}}))
    assert every["p99"].why_not(made) == "fewer than ten sampled transactions lie beyond p99"
    assert every["memory"].why_not(made).startswith("this runtime does not account")
    assert every["wal_per_tx"].why_not(made) == "next to nothing in base (0.01 bytes)"


def test_the_metric_that_decides(options, simulate):
    made = options()
    found = blocks(made, simulate)
    assert primary_series(made, found).metric.name == "throughput"
    assert primary_series(options(metric="p95"), found).values["base"] == pytest.approx([0.2] * 3, rel=0.1)
    assert primary_series(options(metric="memory"), found).values["base"] == (None,) * 3, "asked for, though it was not seen"


def test_a_studys_own_finding_can_decide(options, server, simulate):
    arms_ = {"a": server(points=(1, 2, 4)), "b": server(points=(1, 2, 4), protocol="simple")}
    made = options(arms_, own=True, metric="efficiency_at_saturation")
    found = blocks(made, simulate, count=2, noise=0.0)
    series = primary_series(made, found)
    assert series.metric.unit == "ratio" and series.values["b"] == pytest.approx([1.0, 1.0], rel=0.01)
    with pytest.raises(KeyError, match="no trial has the metric 'nonsense'; there are throughput, cpu_per_tx"):
        primary_series(options(arms_, own=True, metric="nonsense"), found)
