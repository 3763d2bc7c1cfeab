"""How the threads that warm servers end. Real servers: tests/it/test_kill_resume.py."""

from __future__ import annotations

import signal
import threading

import pytest

from pgherd.model.errors import TrialError
from pgherd.runner.deploy.warming import warm_all

PATIENCE = 60.0


def nobody():
    """Calls nothing off."""


class Server:
    """Answers whoever waits for it once it is told to shut down."""

    def __init__(self, reached=True):
        self.told, self.down, self.reached = [], threading.Event(), reached

    def signal_stop(self, mode):
        self.told.append(mode)
        self.down.set()
        if not self.reached:
            raise OSError("the guest does not answer")


@pytest.fixture
def interruptible():
    """Whoever runs the tests may ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_all_are_warmed_side_by_side():
    servers, together = {("a", "pg"): Server(), ("b", "pg"): Server()}, threading.Barrier(2, timeout=PATIENCE)
    warmed = []
    warm_all(servers, lambda key: warmed.append((key, together.wait())), nobody)
    assert sorted(key for key, _ in warmed) == sorted(servers) and not any(one.told for one in servers.values())


def test_one_that_fails_is_told_once_the_others_are_warm():
    servers, failed, warmed = {("a", "pg"): Server(), ("b", "pg"): Server()}, threading.Event(), []

    def warm(key):
        if key == ("a", "pg"):
            failed.set()
            raise OSError("it is gone")
        assert failed.wait(PATIENCE)
        warmed.append(key)

    with pytest.raises(OSError, match="it is gone"):
        warm_all(servers, warm, nobody)
    assert warmed == [("b", "pg")] and not servers["b", "pg"].told


def test_an_interruption_ends_all_that_are_still_read(interruptible):
    servers, begun, answered = {("a", "pg"): Server(reached=False), ("b", "pg"): Server()}, threading.Barrier(2, timeout=PATIENCE), []
    waiting = threading.Event()  # set by whoever waits for both threads: before that, one of them may not be known to the pool

    def warm(key):
        if begun.wait() == 0:
            assert waiting.wait(PATIENCE)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        answered.append(servers[key].down.wait(PATIENCE))

    with pytest.raises(KeyboardInterrupt):
        warm_all(servers, warm, waiting.set)
    assert [one.told for one in servers.values()] == [["immediate"]] * 2 and answered == [True, True]


def test_what_is_called_off_ends_all_that_are_still_read():
    servers, answered = {("a", "pg"): Server(), ("b", "pg"): Server()}, []

    def called_off():
        raise TrialError("called off by the driver")

    with pytest.raises(TrialError, match="called off"):
        warm_all(servers, lambda key: answered.append(servers[key].down.wait(PATIENCE)), called_off)
    assert [one.told for one in servers.values()] == [["immediate"]] * 2 and answered == [True, True]
