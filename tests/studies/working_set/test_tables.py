"""The tables of a working-set run."""

from __future__ import annotations

import pytest

from pgherd.studies.working_set.curves import Measured
from pgherd.studies.working_set.tables import difference_rows, summary_rows, sweep_rows


@pytest.fixture
def curves(server, options):
    own = options(budget_seconds=600.0)
    results, _ = server(own, lives=130.0).until_stop()
    return own, [Measured(curve, results) for sweep in own.sweeps for curve in own.curves(sweep)]


def test_one_row_for_each_curve(curves):
    rows = summary_rows(*curves)
    assert [(row["varied"], row["clients"]) for row in rows] == [
        ("container memory", 30),
        ("container memory", 2),
        ("shared buffers", 30),
        ("shared buffers", 2),
    ]
    assert rows[0]["shape"] == "a knee" and rows[0]["dead"] == "100" and rows[0]["tainted"] == 0
    assert rows[2]["by_pressure"] is None and rows[0]["by_pressure"].value


def test_one_row_for_each_size(curves):
    own, measured = curves
    rows = sweep_rows(own, measured)
    assert len(rows) == sum(len(each.sizes) for each in measured)
    first = rows[0]
    assert (first["memory"], first["state"], first["throughput"]) == (100, "does not live", None)
    lived = next(row for row in rows if row["state"] == "lives")
    assert lived["throughput"].value > 0 and lived["fitted"] > 0 and lived["swapped"] == 0
    assert 0 < lived["buffers_share"] < 1 and lived["reused_buffers"] == pytest.approx(70)
    assert {row["memory"] - row["buffers"] for row in rows if row["varied"] == "shared buffers" and row["clients"] == 2} == {
        difference_rows(own, measured)[1]["difference"]
    }


def test_no_difference_without_the_second_sweep(server, options):
    own = options(sweeps=("memory",))
    assert difference_rows(own, []) == []
