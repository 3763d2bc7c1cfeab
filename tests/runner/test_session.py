import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pgherd.host import reservation
from pgherd.host.facts import gather
from pgherd.model.deployment import Container
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.run import RunEnvironment
from pgherd.node.local import LocalNode
from pgherd.runner.progress import RunObserver
from pgherd.runner.session import open_session
from pgherd.runtimes.host_runtimes import ProcessRuntime

NODE = LocalNode()
RUN = "20260101-000000-density-ab12"
GB = 2**30


class Noted(RunObserver):
    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


@pytest.fixture
def places(monkeypatch):
    """State and cache of the test's own, in a directory that the servers' account can enter."""
    root = Path(tempfile.mkdtemp(prefix="session-"))
    root.chmod(0o755)
    monkeypatch.setenv("XDG_STATE_HOME", str(root / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(root / "cache"))
    yield root
    shutil.rmtree(root)


def surroundings(**changes):
    return RunEnvironment(**{"runtime": "process", "cores": gather(NODE).cores, "memory": GB} | changes)


def left(places):
    return [path for pattern in ("cache/pgherd/work/*", "state/pgherd/*/*.json*") for path in places.glob(pattern)]


@pytest.mark.parametrize("place", ["journal.try_lock", "reservation._choose", "paths.socket_root"])
def test_a_signal_while_it_is_made_leaves_nothing(places, place):
    script = f"""
import os, pkgutil, signal
from unittest import mock
from pgherd.node import interruption
from pgherd.node.local import LocalNode
from pgherd.model.run import RunEnvironment
from pgherd.runner.session import open_session
from pgherd.runner.progress import RunObserver
real = pkgutil.resolve_name("pgherd.host.{place}")
def interrupted(*args, **named):
    os.kill(os.getpid(), signal.SIGTERM)
    return real(*args, **named)
try:
    with mock.patch("pgherd.host.{place}", interrupted), interruption.ended_by_signals():
        with open_session(LocalNode(), {RUN!r}, RunEnvironment(runtime="process", cores=1, memory={GB}), RunObserver()):
            print("begun")
except KeyboardInterrupt:
    print("ended")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "ended\n", done.stderr
    assert not left(places)


def test_what_a_run_holds_goes_with_it(places):
    with open_session(NODE, RUN, surroundings(), RunObserver()) as opened:
        assert opened.runtime("process").name == "process"
        assert opened.runtime("process") is opened.runtime("process"), "opened once"
        assert opened.work.is_relative_to(places / "cache/pgherd/work") and opened.sockets.is_dir()
        (opened.work / "data").mkdir()
        (held,) = reservation.live(places / "state/pgherd")
        assert held.run == RUN and held.memory == GB and held.cores is None, "all cores are the whole host"
        sockets = opened.sockets
    assert not left(places) and not sockets.exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt, CapabilityError("no"), ZeroDivisionError])
def test_whatever_ends_it(places, error):
    with pytest.raises(error if isinstance(error, type) else type(error)), open_session(NODE, RUN, surroundings(), RunObserver()) as opened:
        sockets = opened.sockets
        raise error
    assert not left(places) and not sockets.exists()


def test_a_budget_that_does_not_fit_is_refused_before_anything_is_made(places):
    facts = gather(NODE)
    with open_session(NODE, RUN, surroundings(memory=GB), RunObserver()):
        with (
            pytest.raises(CapabilityError, match=f"are not available: run {RUN} .pid {os.getpid()}. holds all cores and 1 GB"),
            open_session(NODE, "20260101-000001-density-cd34", surroundings(memory=facts.memory // 2), RunObserver()),
        ):
            raise AssertionError
        assert len(left(places)) == 3, "work directory, journal and reservation of the first"
    assert not left(places)


def test_the_budget_is_checked_with_the_first_runtime_before_anything_is_deployed(places):
    cores = gather(NODE).cores
    if cores < 2:
        pytest.skip("a fraction of one core cannot be told from all of it")
    with pytest.raises(CapabilityError, match="whole CPUs only"), open_session(NODE, RUN, surroundings(cores=cores - 0.5), RunObserver()):
        raise AssertionError
    assert not left(places)


def test_a_runtime_that_is_needed_later_is_opened_then(places):
    with open_session(NODE, RUN, surroundings(), RunObserver()) as opened:
        handle = opened.runtime("external").create(Container(name="theirs", runtime="external"))
        assert not handle.groups and handle.cpus is None
        with pytest.raises(UsageError, match="no runtime 'docker'"):
            opened.runtime("docker")
    assert not left(places)


def test_an_account_that_is_not_there(places):
    asked = surroundings(run_as="nobody-of-that-name")
    with pytest.raises(UsageError, match="no user 'nobody-of-that-name'"), open_session(NODE, RUN, asked, RunObserver()):
        raise AssertionError
    assert not left(places)


def test_a_runtime_that_cannot_be_closed_does_not_prevent_the_answer(places, monkeypatch):
    closed = []

    def close(runtime):
        closed.append(runtime)
        raise OSError("its cgroup is in use")

    monkeypatch.setattr(ProcessRuntime, "close", close)
    with open_session(NODE, RUN, surroundings(), RunObserver()):
        pass
    assert len(closed) == 1 and not left(places)


def test_what_cannot_be_taken_back_is_said_and_stays_in_the_journal(places, monkeypatch):
    watcher = Noted()
    with open_session(NODE, RUN, surroundings(), watcher) as opened:
        (opened.work / ".pgherd").write_text("of another journal")
    assert any(note.startswith("warning: not undone: ") and "'pgherd clean' tries again" in note for note in watcher.notes)
    assert len(left(places)) == 2, "the directory and the journal that names it"
