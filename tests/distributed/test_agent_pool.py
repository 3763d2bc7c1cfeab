import threading
import time

import pytest

from pgherd.cluster.remote import HostLost
from pgherd.distributed.agent_pool import AgentPool
from pgherd.model.errors import CapabilityError, TrialError, UsageError
from pgherd.node import interruption


class Agent:
    """Does what it is told, or waits until it is called off."""

    def __init__(self):
        self.off = threading.Event()

    def echo(self, word):
        return word

    def fail(self, error):
        raise error

    def linger(self, error=None):
        if error is not None:
            raise error
        if not self.off.wait(20):
            raise AssertionError("it was not called off")
        raise TrialError("called off by the driver")

    def call_off(self):
        self.off.set()


@pytest.fixture
def crew(engine_of):
    engine = engine_of(["a", "b", "c"])
    made = AgentPool(engine, Agent)
    assert made.gather(["a", "b", "c"]) == ["a", "b", "c"]
    yield made
    made.dismiss()


def test_all_hosts_are_asked_side_by_side(crew):
    assert crew.all("echo", {"a": (1,), "c": (3,)}, timeout=5) == {"a": 1, "c": 3}


def test_meanwhile_goes_on_until_all_have_answered(crew):
    asked = []

    def meanwhile():
        asked.append(time.monotonic())
        if len(asked) == 2:
            crew.engine.actors_of["a"].off.set()

    with pytest.raises(TrialError, match="on host a: called off"):
        crew.all("linger", {"a": ()}, timeout=20, meanwhile=meanwhile)
    assert len(asked) >= 2


def test_what_is_asked_meanwhile_does_not_wait_for_what_is_done(crew):
    heard = []

    def meanwhile():
        heard.append(crew.each("echo", {host: (host,) for host in "abc"}))
        for actor in crew.engine.actors_of.values():
            actor.off.set()

    with pytest.raises(TrialError, match="called off"):
        crew.all("linger", {"a": (), "b": (), "c": ()}, timeout=20, meanwhile=meanwhile)
    assert heard[0] == {"a": "a", "b": "b", "c": "c"}


def test_one_that_fails_calls_the_others_off(crew):
    with pytest.raises(TrialError, match="^on host b: the server died$"):
        crew.all("linger", {"a": (), "b": (TrialError("the server died"),), "c": ()}, timeout=20)
    assert crew.engine.actors_of["a"].off.is_set() and crew.engine.actors_of["c"].off.is_set()


@pytest.mark.parametrize("error", [UsageError("no such version"), CapabilityError("no control groups")])
def test_errors_keep_their_kind_and_say_where(crew, error):
    with pytest.raises(type(error), match=f"^on host c: {error}$"):
        crew.all("fail", {"c": (error,)}, timeout=5)


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (OSError(28, "No space left on device", "/x"), OSError, r"\[Errno 28\] No space left on device: '/x on host a'"),
        (FileNotFoundError(2, "No such file or directory"), FileNotFoundError, "No such file or directory: 'a file on host a'"),
        (OSError("of no number"), OSError, "^on host a: of no number$"),
    ],
)
def test_errors_of_the_system_keep_their_number_and_say_where(crew, error, kind, words):
    with pytest.raises(kind, match=words) as told:
        crew.call("a", "fail", error)
    assert told.value.errno == error.errno


def test_what_is_asked_beside_the_work_does_not_lose_a_host(crew):
    assert crew.ask("a", "echo", 7).result(10) == 7
    with pytest.raises(TrialError):
        crew.ask("b", "fail", TrialError("the server died")).result(10)
    crew.engine.lose("c")
    with pytest.raises(HostLost):
        crew.ask("c", "echo", 7).result(10)
    assert crew.lost == {}


def test_a_lost_host_is_remembered_and_the_others_are_called_off(crew):
    timer = threading.Timer(0.3, crew.engine.lose, ["b"])
    timer.start()
    with pytest.raises(HostLost, match="host b is lost: no sign of life"):
        crew.all("linger", {"a": (), "b": ()}, timeout=20)
    assert crew.engine.actors_of["a"].off.is_set()
    assert crew.lost == {"b": "no sign of life for 8 s"} and crew.hosts() == ["a", "c"]
    assert not crew.returned()
    crew.engine.find("b")
    assert crew.returned()
    assert crew.gather(["a", "b", "c"]) == ["a", "b", "c"] and not crew.lost


def test_a_host_that_does_not_finish_counts_as_lost(crew):
    with pytest.raises(HostLost, match="host a is lost: 'linger' did not finish within 0 s"):
        crew.call("a", "linger", timeout=0.2)
    assert crew.hosts() == ["b", "c"]


def test_hosts_that_are_not_there_are_lost_from_the_beginning(engine_of):
    engine = engine_of(["a"])
    crew = AgentPool(engine, Agent)
    crew.gather(["a", "b"])
    assert crew.lost == {"b": "it has not joined"}
    crew.dismiss()


def test_each_keeps_the_answers_there_are(crew):
    crew.engine.lose("c")
    assert crew.each("fail", {"a": (TrialError("no"),)}) == {}
    assert crew.each("echo", {"a": (1,), "c": (3,)}) == {"a": 1}


def test_a_signal_calls_the_work_off(crew, monkeypatch):
    def signalled():
        monkeypatch.setattr(interruption, "_asked", True)

    with pytest.raises(KeyboardInterrupt):
        crew.all("linger", {"a": (), "b": ()}, timeout=20, meanwhile=signalled)
    monkeypatch.setattr(interruption, "_asked", False)
    assert crew.engine.actors_of["a"].off.is_set() and crew.engine.actors_of["b"].off.is_set()


def test_something_else_is_done_side_by_side(crew):
    done = []
    crew.side_by_side(done.append, ["a", "b"])
    assert sorted(done) == ["a", "b"]

    def fails(host):
        raise TrialError(host)

    with pytest.raises(TrialError, match="a"):
        crew.side_by_side(fails, ["a"])


def test_where_the_others_reach_each_host(crew):
    assert crew.addresses() == dict.fromkeys("abc", "127.0.0.1")
