"""Figures of scaling runs."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from pgherd.model.analysis import Analysis, Finding
from pgherd.report import chart_style, drawing, overlay
from pgherd.report.drawing import FigureInputs, FigureUnavailable
from pgherd.studies.scaling import figures
from pgherd.studies.scaling.figures import MAX_VARIANT_LABEL, clients, last_clients, points, variant_series


def about(value: float | None, spread: float = 0.0, unit: str = "tps") -> Finding:
    if value is None or not spread:
        return Finding(value=value, unit=unit, note="no interval: few")
    return Finding(value=value, unit=unit, low=value * (1 - spread), high=value * (1 + spread), confidence=0.95)


def row(clients: int, tps: float, *, variant: str | None = None, limit: str = "host-cpu", p99: float | None = 1.0) -> dict:
    ms = 1000 * clients / tps
    own = {} if variant is None else {"variant": variant, "ratio_to_baseline": about(1.0)}
    return {
        **own,
        "clients": clients,
        "clients_per_core": clients / 4,
        "throughput": about(tps, 0.02),
        "server_cpu_per_tx": about(0.05, 0.01, "ms"),
        "client_cpu_share": about(0.3),
        "p50": about(ms, 0.02, "ms"),
        "p95": about(2 * ms, 0.02, "ms"),
        "p99": about(None if p99 is None else 3 * ms, 0.02, "ms"),
        "bottleneck": limit,
        "trials": 3,
        "tainted_trials": 1 if clients == 8 else 0,
    }


CURVE = [
    (1, 10_000, "too-few-clients"),
    (2, 20_000, "too-few-clients"),
    (4, 39_000, "host-cpu"),
    (8, 45_000, "host-cpu"),
    (16, 43_000, "host-cpu"),
]
FINDINGS = {
    "peak_clients": about(8, unit="clients"),
    "linear_slope": about(10_000, unit="tps per client"),
    "linear_range_end": Finding(value=4, unit="clients", low=4, high=8),
    "saturation_point": about(8, unit="clients"),
    "knee": about(4.4, unit="clients"),
}
MODELS = {
    "piecewise-linear": {"n": [0, 4.4, 16], "x": [0, 44_000, 46_000]},
    "usl": {"n": [0, 8, 16], "x": [0, 45_000, 42_000]},
    "best": "piecewise-linear",
}


@pytest.fixture(scope="module")
def record(synthetic):
    return synthetic.density_run(8)[0].model_copy(update={"study": "scaling"})


def inputs(record, rows, findings=FINDINGS, **tables) -> FigureInputs:
    analysis = Analysis(answer="", grade="A", findings=findings, tables={"scaling": rows, **tables}, figures={"models": MODELS})
    return FigureInputs(record, analysis, [])


def one(record) -> FigureInputs:
    return inputs(record, [row(n, tps, limit=limit, p99=None if n == 1 else 1.0) for n, tps, limit in CURVE])


def two(record) -> FigureInputs:
    rows = [row(n, tps * times, variant=name) for name, times in (("old", 1.0), ("new", 1.4)) for n, tps, _ in CURVE]
    ratio = {"variant": "new", "baseline": "old", "peak_ratio": about(1.4, 0.02, "ratio"), "slope_ratio": about(1.4, 0.01, "ratio")}
    ratio |= {"linear_range_ratio": about(None, unit="ratio"), "server_cpu_per_tx_ratio": about(0.7, unit="ratio")}
    return inputs(record, rows, {"peak_ratio.new": about(1.4, 0.02, "ratio")}, ratios=[ratio])


def words(figure: drawing.Figure) -> str:
    return " ".join(ElementTree.fromstring(drawing.svg(figure, prefix="x")).itertext())


def drawn_rows(figure: drawing.Figure) -> list[dict]:
    spec = drawing.specification(figure, validate=True)
    return [each for dataset in spec["datasets"].values() for each in json.loads(dataset)]


def test_one_curve_states_its_peak_and_marks_what_bends_it(record):
    figure = figures.throughput(one(record))
    assert figure.title == "Throughput peaks at 45k transactions/s with 8 clients; it is linear up to 4 clients"
    message = words(figure)
    for text in (
        "best fit: piecewise linear",
        "one client per core",
        "linear up to 4",
        "95 % of the peak from 8 on",
        "knee of the piecewise linear model: 4.4",
    ):
        assert text in message
    for text in ("limited by the number of clients", "limited by the host's cores", "has tainted trials", "clients"):
        assert text in message
    bars = [each for each in drawn_rows(figure) if each.get("low") is not None and "kind" not in each]
    assert {each["x"] for each in bars} == {1, 2, 4, 8, 16}, "every interval is drawn"


def test_a_peak_beyond_the_data_is_not_claimed(record):
    findings = {**FINDINGS, "peak_clients": about(None, unit="clients"), "linear_range_end": about(16, unit="clients")}
    rows = [row(n, 10_000 * n) for n in (1, 4, 16)]
    assert figures.throughput(inputs(record, rows, findings)).title == (
        "The highest measured throughput is 160k transactions/s with 16 clients, and the peak is at more clients; it is linear up to 16 "
        "clients, the end of the data"
    )


def test_the_largest_number_measured_is_not_called_a_peak(record):
    rows = [row(n, 10_000 * n) for n in (1, 4, 8)]
    title = figures.throughput(inputs(record, rows, FINDINGS)).title
    assert title.startswith(
        "The highest measured throughput is 80k transactions/s with 8 clients, the largest number measured; it is linear up to 4"
    )


def test_curves_of_variants_share_a_figure(record):
    figure = figures.throughput(two(record))
    assert figure.title == "'old' peaks at 45k transactions/s, 'new' at 63k (1.40 times, 1.37 to 1.43)"
    assert {"old", "new"} <= set(words(figure).split())
    assert len({each["x"] for each in drawn_rows(figure) if "low" in each}) == 10, "bars at one number do not overlap"


def test_each_variants_model_is_dashed_in_its_colour(record):
    inputs = two(record)
    inputs.analysis.figures["variant_models"] = {"old": {"usl": {"n": [0, 16], "x": [0, 45_000]}, "best": "usl"}}
    figure = figures.throughput(inputs)
    dashed = [each for each in drawn_rows(figure) if each.get("dash") == [4, 4]]
    assert [each["colour"] for each in dashed] == [chart_style.SERIES[0]] * 2
    assert "Dashed: the best model of each variant." in words(figure)
    assert "Dashed" not in words(figures.throughput(two(record)))


def test_ratios_have_a_bar_each_and_those_without_a_number_are_left_out(record):
    figure = figures.ratios(two(record))
    assert figure.title == "Relative to the peak of 'old': 'new' has 1.40 times that"
    text = words(figure)
    assert "new: peak" in text and "1.40 (1.37 to 1.43)" in text and "0.70" in text
    assert "new: end of the linear region" not in text
    alike = two(record)
    alike.analysis.tables["ratios"][0]["peak_ratio"] = about(1.01, 0.05, "ratio")
    assert figures.ratios(alike).title == "Relative to the peak of 'old': 'new' has no significant difference"
    with pytest.raises(FigureUnavailable):
        figures.ratios(one(record))


def test_latency_goes_along_the_clients_and_not_along_throughput(record):
    figure = figures.latency(one(record))
    assert figure.title.startswith(
        "At the highest throughput, with 8 clients, p95 is 0.356 ms and p99 is 0.533 ms; with 16, p95 is 0.744 ms"
    )
    spec = drawing.specification(figure, validate=True)
    assert spec["layer"][0]["encoding"]["order"]["field"] == "clients"
    assert {"p50", "p95", "p99"} <= set(words(figure).split())
    several = figures.latency(two(record))
    assert several.title == "At the highest throughput p95 is 0.356 ms for 'old', 0.254 ms for 'new'"
    assert "p95 latency, ms" in words(several)


def test_too_little_is_no_curve(record):
    with pytest.raises(FigureUnavailable, match="two numbers of clients"):
        figures.throughput(inputs(record, [row(4, 40_000)]))
    with pytest.raises(FigureUnavailable, match="fewer than two numbers"):
        figures.latency(inputs(record, []))


def test_hostile_names_are_cleaned(record):
    rows = [row(n, tps, variant=name) for name in ("a\x1b[31m", "<b>") for n, tps, _ in CURVE]
    text = words(figures.throughput(inputs(record, rows, {})))
    assert "\x1b" not in text and "<b>" in text


def value_of(value: float | None, low: float | None = None, high: float | None = None) -> Finding:
    return Finding(value=value, unit="tps", low=low, high=high)


ROWS = [
    {"variant": "b", "clients": 4, "throughput": value_of(40, 38, 42)},
    {"variant": "b", "clients": 1, "throughput": value_of(10)},
    {"variant": "a" * 40, "clients": 2, "throughput": value_of(20)},
    {"variant": "c", "clients": 2, "throughput": value_of(None)},
    {"clients": None, "throughput": value_of(5)},
]
ANALYSIS = Analysis(answer="", grade="A", tables={"scaling": ROWS}, findings={"linear_slope.b": value_of(3), "linear_slope": value_of(7)})


def test_a_series_of_each_variant_in_ascending_order():
    result = variant_series(ANALYSIS, "scaling", "throughput")
    assert [item.name for item in result] == ["b", "a" * 40]
    assert [clients(row) for row in result[0].rows] == [1, 4]
    assert clients(result[0].best) == 4
    assert last_clients(result) == 4
    assert len({(element.colour, element.shape) for element in result}) == 2
    assert len(result[1].shown) == MAX_VARIANT_LABEL and result[1].shown.endswith("…")
    assert result[0].finding(ANALYSIS, "linear_slope").value == 3
    assert variant_series(ANALYSIS, "cpu", "idle") == []


def test_points_carry_their_intervals():
    (item, _) = variant_series(ANALYSIS, "scaling", "throughput")
    assert points(item.rows, "throughput", 10) == [
        {"x": 1, "y": 1.0, "low": None, "high": None},
        {"x": 4, "y": 4.0, "low": 3.8, "high": 4.2},
    ]


def test_without_variants_the_findings_have_no_name_added():
    rows = [{"clients": 1, "throughput": value_of(10)}]
    (item,) = variant_series(ANALYSIS.model_copy(update={"tables": {"scaling": rows}}), "scaling", "throughput")
    assert item.name == "" and item.finding(ANALYSIS, "linear_slope").value == 7


MODEL = {"n": [0, 1, 2, 4, 8], "x": [0, 9_000, 17_000, 30_000, 40_000]}


def scaling(record, factor=1.0, variants=("",), models=True):
    def found(value):
        return Finding(value=value, unit="tps", low=value * 0.98, high=value * 1.02)

    rows = [
        {**({"variant": name} if name else {}), "clients": n, "throughput": found(factor * x)}
        for name in variants
        for n, x in zip(MODEL["n"][1:], MODEL["x"][1:], strict=True)
    ]
    fitted = {"piecewise-linear": {"n": MODEL["n"], "x": [factor * x for x in MODEL["x"]]}, "best": "piecewise-linear"}
    figure = ({"models": fitted} if variants == ("",) else {"variant_models": dict.fromkeys(variants, fitted)}) if models else {}
    return record.model_copy(
        update={"study": "scaling", "analysis": Analysis(answer="", grade="A", tables={"scaling": rows}, figures=figure)}
    )


def test_each_run_has_its_points_and_its_best_model(run8):
    runs = [("old", scaling(run8[0])), ("new", scaling(run8[0], 1.2)), ("odd", scaling(run8[0], models=False))]
    curves = figures.overlay_lines(runs)
    assert [len(curve.model) for curve in curves] == [5, 5, 0] and len({item.rows.colour for item in curves}) == 3
    figure = figures.overlay_throughput(runs)
    assert figure.title == "Highest throughput: old 40k tps, new 48k tps, odd 40k tps"
    subtitle = " ".join(drawing.specification(figure, validate=True)["title"]["subtitle"])
    assert "Dashed: the best model" in subtitle


def test_each_variant_of_a_run_is_a_curve_with_its_model(run8):
    record = scaling(run8[0], variants=("a", "b"))
    del record.analysis.figures["variant_models"]["b"]
    curves = figures.overlay_lines([("run", record)])
    assert [curve.name for curve in curves] == ["run: a", "run: b"]
    assert [item.model[-1:] for item in curves] == [((8, 40_000),), ()], "b has no model"


def test_equal_variants_of_runs_with_long_names_have_distinct_labels(run8):
    record = scaling(run8[0], variants=("synchronous-commit-off", "synchronous-commit-on"))
    runs = [(f"20261122-125315-scaling-{end}", record) for end in ("ab12", "cd34")]
    names = [overlay_line.name for overlay_line in figures.overlay_lines(runs)]
    assert len(set(names)) == 4 and max(map(len, names)) <= 30, names


def test_nothing_to_draw(run8):
    with pytest.raises(FigureUnavailable):
        figures.overlay_throughput([("density", run8[0])])


def test_the_page_shows_it_and_does_not_miss_densitys_figures(run8):
    record = scaling(run8[0])
    page = overlay.render([("one", record, run8[1]), ("two", scaling(run8[0], 1.1), run8[1])])
    assert "Highest throughput: one 40k tps, two 44k tps" in page
    assert "numbers of databases" not in page
