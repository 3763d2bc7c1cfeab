from __future__ import annotations

import pytest

from pgherd.model.errors import UsageError
from pgherd.report.overlay import overlay, render


def other(synthetic):
    record, results = synthetic.density_run(6, seed=9, vcpus=0.25, alone=21_000.0, name="20260201-120000-density-bbbb")
    update = {"settings": {**record.settings, "huge_pages": "on"}, "postgres": {"/x": "17.4"}}
    return record.model_copy(update={**update, "hosts": {"local": synthetic.host_facts(1.5, "db-host-2")}}), results


def test_curves_and_numbers_stand_side_by_side(run8, synthetic, tmp_path):
    out = overlay([("first", *run8), ("second", *other(synthetic))], tmp_path / "both.html")
    text = out.read_text()
    assert text.count("<figure ") == 3 and text.count("<svg ") == 3
    assert "throughput, tps: first" in text and "throughput, tps: second" in text and "efficiency at saturation" in text
    assert text.index("first 85.6 %") and not list(tmp_path.glob("*.tmp"))


def test_what_differs_is_said_and_what_does_not_is_not_listed(run8, synthetic):
    text = render([("first", *run8), ("second", *other(synthetic))])
    assert "Options are the same in all runs; host facts, settings, versions differ." in text
    for message in ("db-host-2", "huge_pages", "17.4"):
        assert message in text
    assert "clock source" not in text and "max_connections" not in text


def test_the_same_run_twice_differs_in_nothing_and_keeps_two_names(run8):
    text = render([("run", *run8), ("run", *run8)])
    assert "Host facts, settings, options, versions are the same in all runs." in text
    assert "run (2)" in text


def test_studies_that_share_nothing_are_still_shown(run8, synthetic):
    text = render([("density", *run8), ("pages", *synthetic.other_study())])
    assert "These runs are of different studies" in text and "2 MB pages gain 7.5 %." in text
    only = render([("pages", *synthetic.other_study())])
    assert "No figure was drawn." in only and "no run has two numbers of databases" in only


def test_a_run_without_analysis_is_shown_as_such(run8):
    record = run8[0].model_copy(update={"analysis": None, "state": "interrupted"})
    assert "No answer: this run is interrupted." in render([("a", record, []), ("b", *run8)])


def test_hostile_names_stay_text(hostile8, run8, synthetic):
    text = render([(synthetic.HOSTILE, *hostile8), ("b", *run8)])
    assert "<script" not in text and "\x1b" not in text


def test_no_run_and_no_place_are_messages(run8, tmp_path):
    with pytest.raises(UsageError, match="no run"):
        overlay([], tmp_path / "x.html")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        overlay([("a", *run8)], tmp_path / "file" / "x.html")
