from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.model.errors import RunDirectoryError
from pgherd.store.run_directory import RunDirectory
from pgherd.ui import live_runs
from pgherd.ui.live_runs import HEIGHT, WIDTH, LiveRuns, sparkline


@pytest.fixture
def directory(runs):
    return RunDirectory(sorted(runs.iterdir())[0])


def test_many_pages_are_one_look(directory, monkeypatch):
    seen = LiveRuns()
    first = seen.poll(directory)
    assert first.present.run == directory.name and first.cpu is None and first.throughput is None
    monkeypatch.setattr(live_runs, "_POLL_INTERVAL_S", 1e9)
    assert seen.poll(RunDirectory(directory.path)) is first
    monkeypatch.setattr(live_runs, "_POLL_INTERVAL_S", 0.0)
    assert seen.poll(directory) is not first


def test_what_nobody_watches_is_forgotten(directory, runs, monkeypatch):
    seen = LiveRuns()
    seen.poll(directory)
    monkeypatch.setattr(live_runs, "_DROP_AFTER_S", -1.0)
    seen.poll(RunDirectory(sorted(runs.iterdir())[1]))
    assert list(seen._runs) == [str(sorted(runs.iterdir())[1])]


def test_what_is_no_run(tmp_path):
    with pytest.raises(RunDirectoryError):
        LiveRuns().poll(RunDirectory(tmp_path))


@pytest.mark.parametrize("series", [[], [(100.0, 1.0)], [(1.0, 1.0), (2.0, 1.0)]])
def test_two_points_of_late_make_a_curve(series):
    assert sparkline(series, 200.0, 120.0) is None


def test_places():
    drawn = sparkline([(100.0, 0.0), (105.0, 2.0), (110.0, 1.0)], 110.0, 60.0, 2.0)
    assert drawn.line == f"M0.0,{HEIGHT:.1f}L300.0,4.0L600.0,50.0" and (drawn.top, drawn.last, drawn.seconds) == (2.0, 1.0, 10.0)


def test_the_axis_grows_with_what_is_beyond_it():
    assert sparkline([(0.0, 1.0), (10.0, 4.0)], 10.0, 60.0, 2.0).top == pytest.approx(4.4)
    assert sparkline([(0.0, 1.0), (10.0, 2.02)], 10.0, 60.0, 2.0).top == 2.0
    assert sparkline([(0.0, 0.0), (10.0, 0.0)], 10.0, 60.0).top == 1.0


def test_of_one_instant_the_latest_word_counts():
    assert sparkline([(0.0, 1.0), (5.0, 0.0), (5.0, 2.0), (10.0, 1.0)], 10.0, 60.0, 2.0).line.count("L") == 2


@given(st.lists(st.floats(0, 1e12), min_size=2, max_size=200), st.none() | st.floats(0.1, 1e12))
def test_stays_in_its_box(values, top):
    drawn = sparkline([(float(i), value) for i, value in enumerate(values)], float(len(values)), 500.0, top)
    numbers = [float(text) for text in re.findall(r"-?\d+\.\d", drawn.line)]
    assert all(0 <= x <= WIDTH for x in numbers[::2]) and all(-0.1 <= y <= HEIGHT for y in numbers[1::2])
