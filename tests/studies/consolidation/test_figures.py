import json

import pytest

from pgherd.model.finding import Analysis, Finding
from pgherd.model.run import RunRecord
from pgherd.report.drawing import FigureInputs, FigureUnavailable, builders, specification
from pgherd.report.html_model import main_table
from pgherd.report.terminal import compact_table
from pgherd.studies.consolidation.figures import number, schemes


def cell(value, spread=0.0, unit="new orders/min"):
    if value is None:
        return Finding(value=None, unit=unit, note="why")
    return Finding(value=value, unit=unit, low=value - spread if spread else None, high=value + spread if spread else None)


def row(scheme, what, value, corrected=None, percent=25, spread=0.0):
    return {
        "buffers": percent,
        "rate": 0.0,
        "scheme": scheme,
        "what": what,
        "throughput": cell(value, spread),
        "corrected": cell(corrected),
        "ratio": cell(None, unit="ratio"),
        "variation": cell(3.0, unit="%"),
        "cpu_used": cell(140.0, unit="%"),
        "per_core": cell(3000.0),
        "trials": 3,
        "tainted": 0,
        "killed": 0,
    }


ROWS = [row(1, "1/1/M", 4000.0, 4400.0, spread=100.0), row(3, "M/M/M", 5000.0, spread=100.0)]
PERIODS = [
    {
        "buffers": 25,
        "rate": 0.0,
        "scheme": scheme,
        "period": period,
        "database": f"DB_{database}",
        "clients": 30 if (period + database) % 2 == 0 else 2,
        "throughput": cell(1000.0 * scheme + 100.0 * database),
        "cpu_used": None,
    }
    for scheme in (1, 3)
    for period in (1, 2)
    for database in (1, 2)
]


def inputs(rows=ROWS, periods=PERIODS):
    tables = {name: found for name, found in {"consolidation": rows, "periods": periods}.items() if found}
    analysis = Analysis(answer="…", grade="A", tables=tables)
    record = RunRecord(run="r", study="consolidation", options={"runtime": "cgroup"}, started=0.0, pgherd="0", analysis=analysis)
    return FigureInputs(record=record, analysis=analysis, results=[])


def marks(figure):
    """The rows behind all layers."""
    found = specification(figure, validate=True)["datasets"].values()
    return [one for rows in found for one in (json.loads(rows) if isinstance(rows, str) else rows)]


def test_databases_are_stacked_period_by_period():
    bars = marks(schemes(inputs()))
    third = [(bar["database"], bar["low"], bar["high"]) for bar in bars if bar["scheme"] == "3: M/M/M" and bar["period"] == 1]
    assert sorted(third) == [("DB_1", 0, 3100), ("DB_2", 3100, 6300)]


def test_the_subtitle_says_who_is_busy_when():
    subtitle = " ".join(specification(schemes(inputs()))["title"]["subtitle"])
    assert "DB_1 30, 2; DB_2 2, 30" in subtitle.replace("\N{NO-BREAK SPACE}", " ")


def test_of_many_databases_the_last_are_put_together():
    many = [one | {"database": f"DB_{n}"} for n in range(1, 13) for one in PERIODS[:1]]
    names = {bar["database"] for bar in marks(schemes(inputs(periods=many)))}
    assert "the others" in names and len(names) <= 7


def test_the_correction_stands_beside_the_raw_number():
    points = [(one["scheme"], one["kind"], one["x"], one["low"]) for one in marks(number(inputs())) if "kind" in one]
    assert ("1: 1/1/M", "measured", 4000, 3900) in points
    assert ("1: 1/1/M", "with E4's correction", 4400, None) in points
    assert not any(scheme.startswith("3") and "correction" in kind for scheme, kind, *_ in points)


def test_the_title_is_the_finding():
    assert number(inputs()).title == "New orders/min: with 25 % buffers M/M/M 5,000, 1/1/M 4,000"
    assert schemes(inputs()).title == "With 25 % buffers M/M/M came to the most, 5,000 new orders/min"


def test_what_schemes_of_different_vcpus_did_is_told_with_the_correction():
    uneven = [one | {"corrected_ratio": cell(1.1, unit="ratio")} for one in ROWS]
    assert "E4's correction" in schemes(inputs(uneven)).caption and "E4's correction" not in schemes(inputs()).caption


def test_databases_with_different_loads_are_not_called_unfair():
    with pytest.raises(FigureUnavailable) as caught:
        builders("consolidation")["fairness"](inputs())
    assert str(caught.value) == ""


@pytest.mark.parametrize("figure", [schemes, number])
def test_without_a_baseline_nothing_is_drawn(figure):
    with pytest.raises(FigureUnavailable, match="no undercommitted trial finished"):
        figure(inputs(rows=[], periods=[]))


def test_the_studys_own_figures_come_before_those_of_every_study():
    assert set(list(builders("consolidation"))[:5]) == {"schemes", "fairness", "number", "cpu_over_time", "overcommitment"}


def test_the_terminals_table_has_the_baseline_only_where_memory_was_short():
    plain, _ = compact_table("consolidation", ROWS, 200)
    assert not any("baseline" in str(column.header) for column in plain.columns)
    over, _ = compact_table("consolidation", [*ROWS, row(1, "1/1/M", 2000.0) | {"rate": 0.5, "normalised": cell(0.5, unit="ratio")}], 200)
    assert any("baseline" in str(column.header) for column in over.columns)


def test_the_curves_of_overcommitment_have_room_on_a_terminal_with_their_intervals():
    kept = Finding(value=0.55, unit="ratio", low=0.51, high=0.59)
    wide = [one | {"rate": 0.5, "what": "M/M/M + balloon", "normalised": kept, "ratio": kept, "corrected_ratio": kept} for one in ROWS]
    table, _ = compact_table("consolidation", wide)
    heads = [str(column.header).replace("\n", " ") for column in table.columns]
    assert heads == ["buffers %", "over- commit", "scheme", "measured", "of own baseline", "to the first"]


def test_the_pages_first_table_is_short():
    assert "trials" not in main_table("consolidation", ROWS).heads
