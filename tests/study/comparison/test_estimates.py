from pgherd.analysis.intervals import Estimate
from pgherd.analysis.sequential import Decision
from pgherd.study.comparison.blocks import MetricSeries
from pgherd.study.comparison.blocks import Block
from pgherd.study.comparison.tables import ComparisonEstimates
from pgherd.study.comparison.metrics import metric

ONE = Estimate(1.1, 1.0, 1.2, 0.95, 3, "m")


def test_the_metric_that_decides_comes_first(options):
    series = {name: MetricSeries(metric(name), dict.fromkeys(("base", "base again", "other"), (1.0, 2.0))) for name in ("throughput", "p95")}
    series["p99"] = MetricSeries(metric("p99"), dict.fromkeys(("base", "base again", "other"), (None, None)))
    decision = Decision("cannot tell", ONE, True, None, "")
    block = Block(0, {}, ())
    found = ComparisonEstimates(options(), [block], [block] * 3, series["p95"], series, {"other": decision}, {"other": {"throughput": ONE}}, {})
    assert found.compared == ["p95", "throughput"]
    assert found.ratio("other", "p95") is ONE and found.ratio("other", "throughput") is ONE and found.ratio("other", "p50") is None
    assert found.clean
    assert not ComparisonEstimates(options(), [block], [block] * 2, series["p95"], series, {"other": None}, {}, {}).clean
