import json
import threading
import time

import pytest
from rich.console import Console

from pgherd.cli import watch
from pgherd.cli.main import run
from pgherd.store.live_state import LiveState, write_live
from pgherd.store.run_directory import RunDirectory


def state_of(path, state):
    record = json.loads((path / "run.json").read_text())
    record |= {"state": state} | ({"analysis": None} if state != "finished" else {})
    (path / "run.json").write_text(json.dumps(record))


def test_a_finished_run_shows_its_answer(runs, name, capsys):
    assert run(["watch", name, "--runs-dir", str(runs)]) == 0
    output = capsys.readouterr().out
    assert "finished after" in output and "Grade" in output


def test_without_one_that_runs_the_newest_is_named(runs, name, capsys, tmp_path):
    assert run(["watch", "--runs-dir", str(runs)]) == 2
    assert f"no run in {runs} is running; 'pgherd watch {runs / name}' shows the newest one" in capsys.readouterr().err
    assert run(["watch", "--runs-dir", str(tmp_path / "none")]) == 2
    assert "there are no runs" in capsys.readouterr().err


def test_what_is_no_run_is_said(runs, capsys):
    assert run(["watch", "nothing", "--runs-dir", str(runs)]) == 2
    assert "no run 'nothing'" in capsys.readouterr().err


def test_a_killed_one_is_told_with_how_to_go_on(runs, name, capsys):
    state_of(runs / name, "running")
    (runs / name / "lock").touch()
    assert run(["watch", name, "--runs-dir", str(runs)]) == 1
    text = "".join(capsys.readouterr().out.split())  # a long path is folded where the line ends
    assert "waskilled" in text and f"Resumeitwith:pgherdresume{runs / name}" in text


@pytest.mark.parametrize(("state", "stands"), [("interrupted", "is interrupted"), ("failed", "failed")])
def test_one_that_ended_without_an_answer_says_so(state, stands, runs, name, capsys):
    state_of(runs / name, state)
    assert run(["watch", "last", "--runs-dir", str(runs)]) == 1
    assert f"No answer: this run {stands}." in capsys.readouterr().out


def test_the_present_state_as_a_document(runs, name, capsys):
    state_of(runs / name, "running")
    write_live(runs / name, LiveState(pid=1, written=0, step="copying", trials_remaining=2, seconds_left=30.0))
    with RunDirectory(runs / name).locked():
        assert run(["watch", "--runs-dir", str(runs), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "pgherd/watch/2" and document["run"] == name and document["state"] == "running"
    assert (document["setup_step"], document["trials_remaining"], document["seconds_remaining"]) == ("copying", 2, 30.0)
    assert document["trials"][0]["unit"] == "tps"


@pytest.mark.parametrize("terminal", [False, True])
def test_it_watches_until_the_run_ends(terminal, runs, name, capsys, monkeypatch):
    """A run that sets something up and then is finished, by another thread."""
    finished = (runs / name / "run.json").read_bytes()
    state_of(runs / name, "running")
    write_live(runs / name, LiveState(pid=1, written=0, step="copying 8 databases"))
    monkeypatch.setattr(watch, "_POLL_INTERVAL_S", 0.02)
    monkeypatch.setenv("TERM", "xterm")
    looked = threading.Event()

    def console():
        looked.set()
        return Console(highlight=False, force_terminal=terminal)

    monkeypatch.setattr(watch, "answer_console", console)
    directory = RunDirectory(runs / name)

    def end():
        with directory.locked():
            event.set()
            looked.wait(20)
            time.sleep(0.2)
            directory.write("run.json", finished)

    event = threading.Event()
    thread = threading.Thread(target=end)
    thread.start()
    event.wait(20)
    assert run(["watch", "--runs-dir", str(runs)]) == 0
    thread.join(20)
    output = capsys.readouterr().out
    assert "finished after" in output and "Grade" in output and ("copying 8 databases" in output)


def test_leaving_it_is_no_error_of_the_run(runs, name, capsys, monkeypatch):
    state_of(runs / name, "running")
    write_live(runs / name, LiveState(pid=1, written=0))

    def interrupted(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(watch.time, "sleep", interrupted)
    with RunDirectory(runs / name).locked():
        assert run(["watch", "--runs-dir", str(runs)]) == 130
    assert json.loads((runs / name / "run.json").read_text())["state"] == "running"
