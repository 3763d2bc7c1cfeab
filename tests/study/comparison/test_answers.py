import pytest

from pgherd.analysis.group_sequential import Decision
from pgherd.analysis.intervals import Estimate
from pgherd.study.comparison import answers
from pgherd.study.comparison.metrics import METRICS, metric


def estimate(value, low=None, high=None):
    return Estimate(value, low, high, 0.95 if low else None, 8, "method")


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(1.01, 1.2, "higher"), (0.8, 0.99, "lower"), (0.99, 1.01, "equivalent"), (0.9, 1.1, "inconclusive")]
)
def test_an_interval_is_judged(low, high, verdict):
    assert answers.outcome_of(estimate(1.0, low, high), 0.02) == verdict


def test_without_an_interval_nothing_can_be_told():
    assert answers.outcome_of(estimate(2.0), 0.02) == "inconclusive"


def test_a_change_has_as_many_digits_as_it_deserves():
    assert answers.as_change(1.048, 1.031, 1.064) == "+4.8 % (+3.1 … +6.4 %)"
    assert answers.as_change(0.9995, 0.9981, 1.0012) == "−0.05 % (−0.19 … +0.12 %)"
    assert answers.as_change(0.5, None, None) == "−50 %"
    assert answers.as_change(1.02, 1.02, 1.02) == "+2.0 %", "a size has no interval of any width"


@pytest.mark.parametrize(
    ("ratio", "spread", "text"),
    [
        (1.048, 0.016, "+4.8 %"),
        (0.95, None, "−5.0 %"),
        (1.71, 0.35, "+71 %"),
        (0.99999, 0.001, "+0.00 %"),
        (1.00333, 0.004, "+0.33 %"),
        (0.003, None, "−99.7 %"),
        (0.00031, 0.4, "−99.97 %"),
        (0.0, 0.4, "−100 %"),
        (1e-9, 0.4, "−100 %"),
    ],
)
def test_ratios_as_changes(ratio, spread, text):
    assert answers.percent_change(ratio, spread) == text


def test_an_end_that_says_nothing_is_left_out():
    assert answers.as_change(0.03, 0.001, 7e16) == "−97 % (unbounded)"
    assert answers.as_change(120, 116, 124) == "+11900 % (+11500 … +12300 %)", "it is known well"
    assert answers.as_change(3, 1.5, 7e16) == "+200 % (+50 % … unbounded)"
    assert answers.as_change(0.003, 0.001, 0.9) == "−99.7 % (−99.9 … −10 %)", "it is not nothing"


@pytest.mark.parametrize(
    ("name", "decided", "message"),
    [
        ("throughput", "higher", "faster"),
        ("p95", "higher", "slower"),
        ("cpu_per_tx", "higher", "higher cost"),
        ("cpu_per_tx", "equivalent", "equivalent (±2 %)"),
        ("p99", "inconclusive", "inconclusive"),
    ],
)
def test_a_verdict_is_in_the_metrics_words(name, decided, message):
    assert answers.conclusion(METRICS[name], decided, 0.02) == message


def answer(options, verdict, result, more=None, why="because", name="throughput", aa_ratio=None):
    decision = Decision(verdict, result, True, more, why)
    return answers.answer(options, metric(name), {"other": decision}, aa_ratio, 8)


def test_the_sentence(options):
    study_options = options()
    aa_ratio = estimate(1.002, 0.989, 1.011)
    assert answer(study_options, "higher", estimate(1.048, 1.031, 1.064), aa_ratio=aa_ratio) == (
        "other is faster than base: throughput +4.8 % (95 % interval +3.1 … +6.4 %, 8 blocks); base against itself (A/A): "
        "+0.2 % (−1.1 … +1.1 %)."
    )
    assert answer(study_options, "lower", estimate(0.985, 0.981, 0.99)) == (
        "other is slower than base: throughput −1.50 % (95 % interval −1.90 … −1.00 %, 8 blocks), which is significant but less than 2 %."
    )
    assert answer(study_options, "equivalent", estimate(1.0, 0.99, 1.01)).startswith(
        "other and base do not differ by more than 2 %: throughput"
    )
    assert answer(study_options, "inconclusive", estimate(1.0, 0.9, 1.1), more=12) == (
        "No difference between other and base established yet (inconclusive): throughput +0.0 % (95 % interval −10.0 … +10.0 %, 8 blocks); "
        "about 12 more blocks would decide it."
    )
    assert "more blocks are unlikely" in answer(study_options, "inconclusive", estimate(1.0, 0.9, 1.1))
    assert answer(study_options, "inconclusive", estimate(1.1), why="3 blocks so far; the next look is at 6", aa_ratio=estimate(0.98)) == (
        "No difference between other and base established yet (inconclusive): throughput +10.0 % (8 blocks, too few for an interval); "
        "3 blocks so far; the next look is at 6; base against itself (A/A): −2.0 %."
    )
    assert "+200 % (95 % interval +50 % … unbounded, 8 blocks)" in answer(study_options, "higher", estimate(3, 1.5, 1e9))
    assert "+0.00 % (95 % interval of zero width, 8 blocks)" in answer(study_options, "equivalent", estimate(1.0, 1.0, 1.0))
    assert answer(study_options, "higher", estimate(1.2, 1.1, 1.3), name="wal_per_tx").startswith("other has more WAL than base: WAL per ")
    assert answer(study_options, "lower", estimate(0.8, 0.7, 0.9), name="context_switches_per_tx").startswith(
        "other has fewer switches than base: "
    )
    assert answer(study_options, "lower", estimate(0.8, 0.7, 0.9), name="memory").startswith("other is smaller than base: memory ")
    assert answer(study_options, "higher", estimate(1.2, 1.1, 1.3), name="capacity") == (
        "other has a higher capacity than base: capacity +20.0 % (95 % interval +10.0 … +30.0 %, 8 blocks)."
    )


def test_what_goes_for_all_variants_is_said_once(options, server):
    study_options = options({"base": server(), "one": server(protocol="simple"), "two": server(vcpus=2)})
    few = Decision("inconclusive", estimate(1.1), True, 4, "3 blocks decide nothing")
    text = answers.answer(study_options, metric("throughput"), {"one": few, "two": few}, None, 3)
    assert text.startswith("No difference between one and base") and "; no difference between two and base" in text
    assert text.count("3 blocks decide nothing") == 1 and text.endswith("; 3 blocks decide nothing.")


def test_how_far_a_ratio_reaches_from_one():
    assert answers.max_deviation(estimate(1.0, 0.95, 1.02)) == pytest.approx(0.05)
    assert answers.max_deviation(estimate(1.1)) is None
