from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.model.analysis import Finding
from pgherd.report import formatting


def test_a_grade_means_something_where_there_were_trials():
    assert formatting.grade_meaning("C", 0) == "no trials" and formatting.grade_meaning("C", 1) == formatting.GRADE_MEANING["C"]


def test_an_indication_says_all_that_makes_one():
    meaning = formatting.GRADE_MEANING["C"].lower()
    assert all(reason in meaning for reason in ("half or more of the results", "their reference", "too little data"))


@pytest.mark.parametrize(
    ("value", "spread", "text"),
    [
        (121_934.4, 1_234.0, "121,900"),
        (85.7042, 1.23, "85.7"),
        (0.85704, 0.0123, "0.857"),
        (0.061234, None, "0.06123"),
        (64_000.0, None, "64,000"),
        (2_194_000.0, None, "2,194,000"),
        (0.0, None, "0"),
        (-0.04, 1.0, "0.0"),
        (28.0, None, "28"),
        (None, 1.0, "–"),
        (math.nan, None, "–"),
        (math.inf, None, "–"),
    ],
)
def test_a_number_has_no_more_digits_than_it_deserves(value, spread, text):
    assert formatting.number(value, spread) == text


@given(st.floats(-1e12, 1e12, allow_nan=False), st.none() | st.floats(1e-6, 1e9))
def test_a_shown_number_is_within_half_a_digit_of_its_spread(value, spread):
    shown = float(formatting.number(value, spread).replace(",", ""))
    if spread is None:
        assert shown == pytest.approx(value, rel=6e-4, abs=1e-6)
    else:
        assert abs(shown - value) <= max(0.05 * spread, 1e-6) * 1.0001 + abs(value) * 1e-12


@pytest.mark.parametrize(
    ("value", "text"), [(999.0, "999"), (121_934.0, "121.9k"), (2_190_000.0, "2.19M"), (3.2e9, "3.2G"), (0.061, "0.061"), (None, "–")]
)
def test_compact(value, text):
    assert formatting.compact(value) == text


def test_brief_has_three_significant_digits():
    assert [formatting.brief(value) for value in (0.81412, 5.2, 12_345.0, None)] == ["0.814", "5.2", "12,300", "–"]


def test_shares_are_shown_in_percent_whatever_they_are_counted_in():
    assert (
        formatting.percent(0.857)
        == formatting.percent(Finding(value=85.7, unit="%"))
        == formatting.percent(Finding(value=0.857, unit="ratio"))
    )
    assert formatting.percent(None) == "–"
    in_percent = formatting.as_percent(Finding(value=0.5, unit="ratio", low=0.4, high=0.7, n=3))
    assert (in_percent.value, in_percent.low, in_percent.high, in_percent.unit, in_percent.n) == (50, 40, pytest.approx(70), "%", 3)


def test_an_interval_has_the_digits_of_its_value_and_none_where_there_is_none():
    assert formatting.interval(Finding(value=85.7042, unit="%", low=84.1, high=87.21)) == "84.1 to 87.2"
    assert formatting.interval(Finding(value=85.7, unit="%")) == ""
    assert formatting.interval(Finding(value=None, unit="%", low=1.0, high=2.0)) == ""


def test_explained_says_interval_confidence_repeats_method_and_note():
    finding = Finding(value=2.0, unit="ms", low=1.5, high=2.5, confidence=0.95, n=3, method="t interval", note="quiet host")
    assert formatting.explained(finding) == "1.50 to 2.50 ms at 95% confidence; n = 3; t interval; quiet host"


@pytest.mark.parametrize("value", [True, "3", None, math.nan, -math.inf, Finding(value=None, unit="s")])
def test_what_is_no_finite_number_is_none(value):
    assert formatting.finite(value) is None


def test_a_failed_trial_has_no_throughput(run8):
    results = run8[1]
    assert formatting.trial_throughput(results[-1]) is None
    assert formatting.trial_throughput(results[0]) == pytest.approx(results[0].phases[0].throughput)


def test_instants_beyond_any_calendar_are_a_dash():
    assert formatting.instant(0) == "1970-01-01 00:00:00 UTC"
    assert formatting.instant(1e30) == formatting.instant(None) == "–"


def test_names_in_words():
    assert formatting.label("cpu_efficiency") == "CPU efficiency"
    assert formatting.label("usl_peak_load") == "USL peak load"
    assert formatting.label("platform.controller") == "platform: controller"
    name = "retention_ratio{layout=dedicated,shared_buffers_percent=25,overcommit=0.55}"
    assert formatting.label(name) == "retention ratio: layout dedicated, shared buffers percent 25, overcommit 0.55"
    assert formatting.label("max_safe_overcommit") == "max. safe overcommitment"
    assert formatting.label("working_set_from_misses.30") == "working set from misses: 30"
    assert formatting.point_text({"databases": 4, "huge_pages": "off"}) == "databases 4, huge pages off"


def test_a_host_s_name_in_a_column_s_head_stays_as_it_is():
    assert formatting.label("to db_1.example.com") == "to db_1.example.com" and formatting.label("rtt_idle") == "rtt idle"


def test_what_stands_in_an_answers_place():
    assert formatting.no_answer("failed", "the disk is full") == "No answer: this run failed: the disk is full."
    assert formatting.no_answer("interrupted", "interrupted by the user") == "No answer: this run was interrupted by the user."
    assert formatting.no_answer("interrupted", None) == "No answer: this run is interrupted."


def test_a_number_that_no_float_holds_is_none() -> None:
    assert formatting.finite(10**400) is None and formatting.finite(2**70) == float(2**70)
