import time
from dataclasses import replace
from pathlib import Path

import pytest

from pgherd.drivers.command import DRIVER, ENDED, read_ending
from pgherd.model.errors import TrialError
from pgherd.model.load import Load
from pgherd.node import interruption
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command
from pgherd.runner.play import own_end
from pgherd.runner.play.launching import Launch, Running


class Stage:
    """Nothing that could die, unless told so."""

    def __init__(self, dies=False):
        self.dies = dies

    def check(self):
        if self.dies:
            raise TrialError("a server has died")


@pytest.fixture
def start(tmp_path):
    started = []

    def one(*words, target="local"):
        output = tmp_path / target
        output.mkdir()
        launch = Launch(target, Load(driver="command"), DRIVER, Command(list(words)), output, LocalNode())
        started.append(Running.start(launch))
        return started[-1]

    yield one
    for running in started:
        running.process.signal(9)
        running.process.wait(10)


def ending(running):
    return read_ending({ENDED: (running.output / ENDED).read_text()})


def test_it_waits_for_the_last_and_keeps_how_each_ended(start):
    quick, slow = start("sh", "-c", "exit 3", target="a"), start("sleep", "0.3", target="b")
    own_end.wait(LocalNode(), time.time() + 20, [quick, slow], Stage())
    assert ending(quick).code == 3 and ending(slow).code == 0
    assert ending(slow).at - slow.started == pytest.approx(0.3, abs=0.25)
    assert ending(quick).at < ending(slow).at and slow.ended == ending(slow).at


def test_a_signal_is_an_ending_too(start):
    one = start("sh", "-c", "kill -9 $$")
    own_end.wait(LocalNode(), time.time() + 20, [one], Stage())
    assert ending(one).code == -9


def test_what_does_not_end_is_a_failure_that_says_what_to_do(start):
    one = start("sleep", "60")
    with pytest.raises(TrialError, match=r"command on local had not ended after 0\.2\d* s.*--timeout.*--seconds"):
        own_end.wait(LocalNode(), time.time() + 0.2, [one], Stage())
    assert not (one.output / ENDED).exists()


def test_what_else_dies_meanwhile_fails_the_trial(start):
    with pytest.raises(TrialError, match="a server has died"):
        own_end.wait(LocalNode(), time.time() + 20, [start("sleep", "60")], Stage(dies=True))


def test_a_signal_to_us_ends_the_waiting(start, monkeypatch):
    monkeypatch.setattr(interruption, "_asked", True)
    with pytest.raises(KeyboardInterrupt):
        own_end.wait(LocalNode(), time.time() + 20, [start("sleep", "60")], Stage())


def test_what_cannot_be_ended_keeps_nobody_from_being_ended(start, monkeypatch):
    stubborn, deaf, other = start("sleep", "60", target="a"), start("sleep", "60", target="b"), start("sleep", "60", target="c")

    class Refusing:
        pid = stubborn.process.pid

        def signal(self, number):
            raise PermissionError(1, "Operation not permitted")

        def wait(self, timeout):
            raise TimeoutError

    class Deaf(Refusing):
        pid = deaf.process.pid

        def signal(self, number):
            pass

    started = [replace(stubborn, process=Refusing()), replace(deaf, process=Deaf()), other]
    monkeypatch.setattr(own_end, "_end_session", lambda one: None)
    own_end.end(started)
    assert other.process.poll() is not None and stubborn.process.poll() is None


def test_nothing_to_wait_for_is_over_at_once():
    own_end.wait(LocalNode(), time.time(), [], Stage())
    assert not list(Path.cwd().glob(ENDED))
