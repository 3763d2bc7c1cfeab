import threading
import time

import pytest

from pgherd.cluster.interfaces import HostLost
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
def pool(engine_of):
    engine = engine_of(["a", "b", "c"])
    created = AgentPool(engine, Agent)
    assert created.gather(["a", "b", "c"]) == ["a", "b", "c"]
    yield created
    created.dismiss()


def test_all_hosts_are_asked_side_by_side(pool):
    assert pool.all("echo", {"a": (1,), "c": (3,)}, timeout=5) == {"a": 1, "c": 3}


def test_a_large_file_has_time_to_arrive(pool, monkeypatch):
    timeouts = []
    monkeypatch.setattr(pool, "call", lambda *_, timeout: timeouts.append(timeout) or "/there/dump.sql")
    assert pool.put("a", "dump.sql", b"1") == "/there/dump.sql"
    assert pool.put("a", "dump.sql", bytes(10**8)) and timeouts[1] > timeouts[0] + 99, "100 MB at 8 Mbit/s"


def test_meanwhile_goes_on_until_all_have_answered(pool):
    requests = []

    def meanwhile():
        requests.append(time.monotonic())
        if len(requests) == 2:
            pool.engine.actors_of["a"].off.set()

    with pytest.raises(TrialError, match="on host a: called off"):
        pool.all("linger", {"a": ()}, timeout=20, meanwhile=meanwhile)
    assert len(requests) >= 2


def test_what_is_asked_meanwhile_does_not_wait_for_what_is_done(pool):
    heard = []

    def meanwhile():
        heard.append(pool.each("echo", {host: (host,) for host in "abc"}))
        for actor in pool.engine.actors_of.values():
            actor.off.set()

    with pytest.raises(TrialError, match="called off"):
        pool.all("linger", {"a": (), "b": (), "c": ()}, timeout=20, meanwhile=meanwhile)
    assert heard[0] == {"a": "a", "b": "b", "c": "c"}


def test_one_that_fails_calls_the_others_off(pool):
    with pytest.raises(TrialError, match="^on host b: the server died$"):
        pool.all("linger", {"a": (), "b": (TrialError("the server died"),), "c": ()}, timeout=20)
    assert pool.engine.actors_of["a"].off.is_set() and pool.engine.actors_of["c"].off.is_set()


@pytest.mark.parametrize("error", [UsageError("no such version"), CapabilityError("no control groups")])
def test_errors_keep_their_kind_and_say_where(pool, error):
    with pytest.raises(type(error), match=f"^on host c: {error}$"):
        pool.all("fail", {"c": (error,)}, timeout=5)


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (OSError(28, "No space left on device", "/x"), OSError, r"\[Errno 28\] No space left on device: '/x on host a'"),
        (FileNotFoundError(2, "No such file or directory"), FileNotFoundError, "No such file or directory: 'a file on host a'"),
        (OSError("of no number"), OSError, "^on host a: of no number$"),
    ],
)
def test_errors_of_the_system_keep_their_number_and_say_where(pool, error, kind, text):
    with pytest.raises(kind, match=text) as raised:
        pool.call("a", "fail", error)
    assert raised.value.errno == error.errno


def test_what_is_asked_beside_the_work_does_not_lose_a_host(pool):
    assert pool.ask("a", "echo", 7).result(10) == 7
    with pytest.raises(TrialError):
        pool.ask("b", "fail", TrialError("the server died")).result(10)
    pool.engine.lose("c")
    with pytest.raises(HostLost):
        pool.ask("c", "echo", 7).result(10)
    assert pool.lost == {}


def test_a_lost_host_is_remembered_and_the_others_are_called_off(pool):
    timer = threading.Timer(0.3, pool.engine.lose, ["b"])
    timer.start()
    with pytest.raises(HostLost, match="host b is lost: no sign of life"):
        pool.all("linger", {"a": (), "b": ()}, timeout=20)
    assert pool.engine.actors_of["a"].off.is_set()
    assert pool.lost == {"b": "no sign of life for 8 s"} and pool.hosts() == ["a", "c"]
    assert not pool.returned()
    pool.engine.find("b")
    assert pool.returned()
    assert pool.gather(["a", "b", "c"]) == ["a", "b", "c"] and not pool.lost


def test_a_host_that_does_not_finish_counts_as_lost(pool):
    with pytest.raises(HostLost, match="host a is lost: 'linger' did not finish within 0 s"):
        pool.call("a", "linger", timeout=0.2)
    assert pool.hosts() == ["b", "c"]


def test_hosts_that_are_not_there_are_lost_from_the_beginning(engine_of):
    engine = engine_of(["a"])
    pool = AgentPool(engine, Agent)
    pool.gather(["a", "b"])
    assert pool.lost == {"b": "it has not joined"}
    pool.dismiss()


def test_each_keeps_the_answers_there_are(pool):
    pool.engine.lose("c")
    assert pool.each("fail", {"a": (TrialError("no"),)}) == {}
    assert pool.each("echo", {"a": (1,), "c": (3,)}) == {"a": 1}


def test_a_signal_calls_the_work_off(pool, monkeypatch):
    def signalled():
        monkeypatch.setattr(interruption, "_asked", True)

    with pytest.raises(KeyboardInterrupt):
        pool.all("linger", {"a": (), "b": ()}, timeout=20, meanwhile=signalled)
    monkeypatch.setattr(interruption, "_asked", False)
    assert pool.engine.actors_of["a"].off.is_set() and pool.engine.actors_of["b"].off.is_set()


def test_something_else_is_done_side_by_side(pool):
    finished = []
    pool.side_by_side(finished.append, ["a", "b"])
    assert sorted(finished) == ["a", "b"]

    def fails(host):
        raise TrialError(host)

    with pytest.raises(TrialError, match="a"):
        pool.side_by_side(fails, ["a"])


def test_where_the_others_reach_each_host(pool):
    assert pool.addresses() == dict.fromkeys("abc", "127.0.0.1")
