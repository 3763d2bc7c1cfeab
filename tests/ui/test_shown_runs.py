from __future__ import annotations

import json
import os
import re
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.model.errors import RunDirectoryError
from pgherd.store.run_directory import RunDirectory
from pgherd.ui import shown_runs
from pgherd.ui.shown_runs import HEIGHT, WIDTH, LiveRuns, RunCache, RunIndex, sparkline

FIRST, SECOND = "20260131-120000-density-0001", "20260131-130000-density-0002"


@pytest.fixture
def runs_index(runs, tmp_path):
    return RunIndex(runs, tmp_path / "kept.json")


def test_newest_first_with_what_the_list_shows(runs_index):
    newest, oldest = runs_index.runs()
    assert (newest.run, oldest.run) == (SECOND, FIRST)
    assert newest.study == "density" and newest.state == "finished" and newest.grade == "B" and newest.host == "db-host-1"
    assert newest.answer and newest.trials > 10 and not newest.live and not newest.resumable


def test_nothing_is_read_twice(runs_index, monkeypatch):
    runs_index.runs()
    monkeypatch.setattr(shown_runs, "_summary", lambda *_: pytest.fail("read again"))
    assert len(runs_index.runs()) == 2


def test_the_next_start_reads_nothing_either(runs_index, runs, tmp_path, monkeypatch):
    before = runs_index.runs()
    monkeypatch.setattr(shown_runs, "_summary", lambda *_: pytest.fail("read again"))
    assert RunIndex(runs, tmp_path / "kept.json").runs() == before


def test_a_changed_run_is_read_again_and_a_removed_one_is_gone(runs_index, runs):
    runs_index.runs()
    file = runs / FIRST / "run.json"
    document = json.loads(file.read_text())
    document["analysis"]["answer"] = "Something else."
    file.write_text(json.dumps(document))
    shutil.rmtree(runs / SECOND)
    (only,) = runs_index.runs()
    assert only.answer == "Something else."


def test_all_hosts_of_a_run_are_known(runs_index, runs):
    file = runs / FIRST / "run.json"
    document = json.loads(file.read_text())
    document["hosts"] = {f"host-{n}": document["hosts"]["local"] | {"hostname": f"host-{n}.example"} for n in range(100)}
    file.write_text(json.dumps(document))
    found = next(run for run in runs_index.runs() if run.run == FIRST)
    assert found.hosts == [f"host-{n}.example" for n in range(100)]
    assert found.hosts_shown == "host-0.example, host-1.example, host-2.example, host-3.example and 96 more"
    document["hosts"]["host-7"]["hostname"] = "host-8.example"
    file.write_text(json.dumps(document, indent=1))
    found = next(run for run in runs_index.runs() if run.run == FIRST)
    assert found.hosts == [f"host-{n}" for n in range(100)], "by their own names they cannot be told apart"


@pytest.mark.parametrize("kept", ["", "[]", '{"schema": "pgherd/ui-index/2", "runs": [{"stamp": [], "summary": {}}]}', "\x00"])
def test_a_damaged_index_is_made_anew(runs, tmp_path, kept):
    (tmp_path / "kept.json").write_text(kept)
    assert len(RunIndex(runs, tmp_path / "kept.json").runs()) == 2


@pytest.mark.parametrize("text", ["", "[]", '{"state": 1}', '{"study": "x", "state": "finished", "started": "soon"}', "[" * 100_000])
def test_an_unreadable_run_is_listed_as_such(runs_index, runs, text):
    (runs / FIRST / "run.json").write_text(text)
    found = next(run for run in runs_index.runs() if run.run == FIRST)
    assert found.state == "unreadable" and "cannot be read" in found.answer


def test_killed_is_told_from_running(runs_index, runs):
    import fcntl

    file = runs / FIRST / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"state": "running", "analysis": None, "ended": None}))
    assert next(run for run in runs_index.runs() if run.run == FIRST).state == "killed"
    with open(runs / FIRST / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert next(run for run in runs_index.runs() if run.run == FIRST).live


@pytest.mark.parametrize("name", ["..", ".", "", "../runs", "/etc", f"{FIRST}/trials", f"{FIRST}/../{SECOND}", "x" * 5000, "a\0b", "<b>"])
def test_a_name_is_no_path(runs_index, name):
    assert runs_index.directory(name) is None


def test_a_run_is_found_by_its_name_only(runs_index, runs):
    assert runs_index.directory(FIRST).path == runs / FIRST
    os.rename(runs / FIRST, runs / "<b>run")
    assert runs_index.directory("<b>run") is None and [run.run for run in runs_index.runs()] == [SECOND]


def test_no_directory_holds_no_run(tmp_path):
    made = RunIndex(tmp_path / "none", tmp_path / "kept.json")
    assert made.runs() == [] and made.directory(FIRST) is None


@pytest.fixture
def directory(runs):
    return RunDirectory(sorted(runs.iterdir())[0])


def test_read_once_while_nothing_changes(directory):
    reader = RunCache()
    whole = reader.read(directory)
    assert whole.name == directory.name and len(whole.results) == len(directory.results())
    assert reader.read(RunDirectory(directory.path)) is whole


def test_a_new_trial_is_seen(directory):
    reader = RunCache()
    before = reader.read(directory)
    directory.finish_trial(before.results[0].model_copy(update={"id": "0999"}))
    assert len(reader.read(directory).results) == len(before.results) + 1


def test_a_run_that_is_killed_after_it_was_read_was_interrupted(directory):
    reader = RunCache()
    directory.save(directory.record().model_copy(update={"state": "running", "analysis": None, "ended": None}))
    with directory.locked():
        running = reader.read(directory)
        assert running.record.state == "running" and reader.read(directory) is running
    killed = reader.read(directory)
    assert (killed.record.state, killed.record.error) == ("interrupted", "its process was killed") and killed.results is running.results
    with directory.locked():
        assert reader.read(directory) is running, "it is resumed"


def test_few_are_kept(directory, tmp_path):
    import shutil

    reader = RunCache()
    first = reader.read(directory)
    for number in range(9):
        reader.read(RunDirectory(shutil.copytree(directory.path, tmp_path / f"copy{number}")))
    assert reader.read(directory) is not first


def test_what_cannot_be_read_is_a_message(tmp_path):
    with pytest.raises(RunDirectoryError):
        RunCache().read(RunDirectory(tmp_path))


@pytest.mark.parametrize("kind", ["fifo", "device", "deep"])
def test_a_hostile_record_hides_no_other_run(runs_index, runs, kind):
    file = runs / FIRST / "run.json"
    file.unlink()
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "device":
        file.symlink_to("/dev/zero")
    else:
        file.write_text("[" * 200_000)
    assert [(summary.run, summary.state) for summary in runs_index.runs()] == [(SECOND, "finished"), (FIRST, "unreadable")]


@pytest.fixture
def live_directory(runs):
    return RunDirectory(sorted(runs.iterdir())[0])


def test_many_pages_are_one_look(live_directory, monkeypatch):
    seen = LiveRuns()
    first = seen.poll(live_directory)
    assert first.present.run == live_directory.name and first.cpu is None and first.throughput is None
    monkeypatch.setattr(shown_runs, "_POLL_INTERVAL_S", 1e9)
    assert seen.poll(RunDirectory(live_directory.path)) is first
    monkeypatch.setattr(shown_runs, "_POLL_INTERVAL_S", 0.0)
    assert seen.poll(live_directory) is not first


def test_what_nobody_watches_is_forgotten(live_directory, runs, monkeypatch):
    seen = LiveRuns()
    seen.poll(live_directory)
    monkeypatch.setattr(shown_runs, "_DROP_AFTER_S", -1.0)
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
