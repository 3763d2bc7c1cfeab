import json

import pytest

from pgherd.model.finding import Analysis, Finding
from pgherd.model.run import RunRecord
from pgherd.report.drawing import FigureInputs, FigureUnavailable, specification
from pgherd.studies.consolidation.figures_overcommitment import overcommitment

WHAT = {1: "1/1/M", 3: "M/M/M"}


def row(scheme, rate, kept=None, killed=0, percent=75):
    value = None if kept is None else Finding(value=1000 * kept, unit="tps")
    return {
        "buffers": percent,
        "rate": rate,
        "scheme": scheme,
        "what": WHAT[scheme],
        "throughput": Finding(value=1000.0, unit="tps") if rate == 0 else value,
        "normalised": Finding(value=None, unit="ratio", note="why")
        if rate == 0 or kept is None
        else Finding(value=kept, unit="ratio", low=kept - 0.05, high=kept + 0.05),
        "killed": killed,
    }


ROWS = [row(1, 0.0), row(3, 0.0), row(1, 0.3, 0.8), row(3, 0.3, 0.95), row(1, 0.55, killed=1), row(3, 0.55, 0.6)]


def inputs(rows, runtime="cgroup", honest=None):
    findings = {} if honest is None else {"honest_rate": Finding(value=honest, unit="share")}
    analysis = Analysis(answer="…", grade="A", tables={"consolidation": rows}, findings=findings)
    record = RunRecord(run="r", study="consolidation", options={"runtime": runtime}, started=0.0, pgherd="0", analysis=analysis)
    return FigureInputs(record=record, analysis=analysis, results=[])


def marks(figure):
    found = specification(figure, validate=True)["datasets"].values()
    return [one for rows in found for one in (json.loads(rows) if isinstance(rows, str) else rows)]


def test_curves_begin_at_their_own_baseline_and_have_intervals():
    points = [one for one in marks(overcommitment(inputs(ROWS))) if "low" in one]
    assert {one["y"] for one in points if one["x"] == 0} == {100}
    assert any(one["y"] == pytest.approx(95) and one["low"] == pytest.approx(90) for one in points)


def test_what_was_ended_for_want_of_memory_is_a_cross():
    figure = overcommitment(inputs(ROWS))
    assert "A cross: the kernel ended servers" in " ".join(specification(figure)["title"]["subtitle"])
    without = overcommitment(inputs([one for one in ROWS if not one["killed"]]))
    assert "cross" not in " ".join(specification(without)["title"]["subtitle"])


def test_the_title_says_what_is_left():
    assert overcommitment(inputs(ROWS)).title == (
        "Left of the own baseline: at 55 % and 75 % buffers M/M/M 60 % (the kernel ended servers for want of memory: 1/1/M at 55 %)"
    )
    dead = [row(1, 0.0), row(1, 0.55, killed=1)]
    assert overcommitment(inputs(dead)).title == (
        "Left of the own baseline: with 75 % buffers the kernel ended servers for want of memory: 1/1/M at 55 %"
    )


def test_under_one_kernel_the_published_curve_is_not_judged_against():
    assert "not judged against E5" in overcommitment(inputs(ROWS)).caption
    assert overcommitment(inputs(ROWS, runtime="vm")).caption == ""


def test_the_honest_rate_is_marked():
    texts = [one.get("text", "") for one in marks(overcommitment(inputs(ROWS, honest=0.4)))]
    assert "working sets fit up to here" in texts
    assert "working sets fit up to here" not in [one.get("text", "") for one in marks(overcommitment(inputs(ROWS, honest=0.69)))]


def test_undercommitted_runs_do_not_miss_it():
    with pytest.raises(FigureUnavailable) as caught:
        overcommitment(inputs(ROWS[:2]))
    assert str(caught.value) == ""


def test_without_any_number_it_is_said():
    with pytest.raises(FigureUnavailable, match="no overcommitted trial"):
        overcommitment(inputs([row(1, 0.0), row(1, 0.3)]))
