from __future__ import annotations

import json
import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.report import chart_style


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2.2 defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(item: str, other: str) -> float:
    light, dark = sorted((luminance(item), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colour", [*chart_style.SERIES, chart_style.INK, chart_style.MUTED])
def test_words_in_a_series_colour_are_readable_on_white(colour):
    assert contrast(chart_style.text_colour(colour), "#ffffff") >= 4.5


@given(st.lists(st.floats(0, 100), min_size=1, max_size=8), st.floats(0.1, 30))
def test_labels_keep_their_order_their_distance_and_their_range(positions, gap):
    placed = chart_style.spread(positions, gap, 0, 100)
    assert all(-1e-6 <= at <= 100 + 1e-6 for at in placed)
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    expected = min(gap, 100 / max(len(positions) - 1, 1))
    for before, after in pairwise(order):
        assert placed[after] - placed[before] >= expected - 1e-6


def test_labels_with_room_stay_where_they_are():
    assert chart_style.spread([10, 50, 30], 5, 0, 100) == [10, 50, 30]
    assert chart_style.spread([], 5, 0, 100) == []


@given(st.floats(1e-9, 1e15))
def test_a_nice_ceiling_is_above_but_not_far(value):
    assert value * (1 - 1e-9) <= chart_style.nice_ceiling(value) <= value * 1.5001


@pytest.mark.parametrize("value", [0, -3, math.inf, math.nan])
def test_a_nice_ceiling_of_nothing_is_one(value):
    assert chart_style.nice_ceiling(value) == 1


def test_data_is_clean_and_has_no_number_that_json_lacks():
    text = chart_style.data([{"x": math.nan, "y": 1.5, "text": "a\x1bb"}]).to_dict()["values"]
    assert json.loads(text) == [{"x": None, "y": 1.5, "text": "a�b"}]


def test_a_title_is_wrapped_and_keeps_the_percent_sign_with_its_number():
    title = chart_style.title(("word " * 15) + "85.7 % of perfect " + "word " * 20, "how").to_dict()
    assert len(title["text"]) > 1 and max(map(len, title["text"])) <= chart_style.TITLE_CHARACTERS
    assert not any(line.startswith("%") for line in title["text"])


def test_plot_and_labels_fit_the_figure():
    assert chart_style.plot_width([]) > chart_style.plot_width(["short"]) > chart_style.plot_width(["a much longer label"]) > 300


@given(st.floats(1, 1e5), st.integers(2, 20))
def test_whole_ticks_are_whole_even_and_few(end, most):
    ticks = chart_style.whole_ticks(end, most=most)
    assert ticks[0] == 0 and ticks[-1] <= end and len(ticks) <= most + 1
    assert len({after - before for before, after in pairwise(ticks)}) == 1


@pytest.mark.parametrize("reach", [1.02, 1.2, 1.6, 2, 5, 30, 300, 1e4])
def test_labels_of_an_axis_of_ratios_stand_apart(reach):
    domain, width = (1 / reach, reach), 200
    ticks = chart_style.ratio_ticks(domain, width)
    assert 1 in ticks and domain[0] <= ticks[0] and ticks[-1] <= domain[1]
    places = [math.log(tick / domain[0]) / math.log(reach**2) * width for tick in ticks]
    assert min((after - before for before, after in pairwise(places)), default=width) >= 25
    assert len(ticks) > 1


def test_whole_ticks_of_known_axes():
    assert chart_style.whole_ticks(2.04) == [0, 1, 2]
    assert chart_style.whole_ticks(48.96) == [0, 5, 10, 15, 20, 25, 30, 35, 40, 45]
    assert chart_style.whole_ticks(27, least=1) == [1, 5, 10, 15, 20, 25]
    assert chart_style.whole_ticks(7, least=1) == [1, 2, 3, 4, 5, 6, 7]
