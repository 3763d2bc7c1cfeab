import threading
import time

import pytest

from pgherd.model.errors import TrialError
from pgherd.runner.deploy.targets import NO_ROOM, Reach
from pgherd.runner.hosts.agents_stage import AgentsStage

FAR = Reach(NO_ROOM, host="10.0.0.1", port=5001)


class Fleet:
    """Reaches what is its own, and says so."""

    account = "someone"

    def __init__(self):
        self.checked = 0

    def reach(self, target):
        return Reach(NO_ROOM, host="/socket")

    def view(self):
        return "view"

    def check(self):
        self.checked += 1

    def said(self, target):
        return f"the log of {target}"

    def guests(self):
        return {}

    def script(self, script):
        return script


class Ways:
    def get(self, target):
        return FAR if target.startswith("a/") else None


def stage(begin=0.0, called_off=None):
    return AgentsStage(Fleet(), Ways(), called_off or threading.Event(), begin)


def test_servers_of_other_hosts_are_reached_by_the_way_that_is_known():
    own = stage()
    assert own.reach("a/db1/pg/bench") is FAR and own.reach("b/db1/pg/bench").host == "/socket"
    assert own.said("a/db1/pg/bench") == "its server runs on host a" and own.said("b/x/pg/y") == "the log of b/x/pg/y"
    assert (own.account, own.guests(), own.script("s")) == ("someone", {}, "s")


def test_how_early_it_was_ready_is_when_it_was_last_asked_before_the_begin():
    early = stage(begin=time.time() + 100)
    assert early.view() == "view" and 90 < early.ready <= 100
    late = stage(begin=time.time() - 1)
    late.reach("b/x/pg/y")
    assert late.ready == 0.0


def test_a_play_that_is_called_off_ends_with_the_next_look():
    off = threading.Event()
    own = stage(called_off=off)
    own.check()
    off.set()
    with pytest.raises(TrialError, match="called off by the driver"):
        own.check()
