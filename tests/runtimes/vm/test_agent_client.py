from __future__ import annotations

import errno
import os
import socket
import threading
import time

import pytest

from pgherd.runtimes.vm import agent_client as channel_module
from pgherd.runtimes.vm import agent_wire
from pgherd.runtimes.vm.agent_client import AgentClient, GuestError, watchdog


@pytest.fixture
def channel(port):
    made = AgentClient.open(port.path, "db01", 60)
    yield made
    made.close()


class Peer:
    """An agent that does as the test says, on the other end of a socket pair."""

    def __init__(self) -> None:
        ours, self.socket = socket.socketpair()
        self.events: list[list] = []
        self.channel = AgentClient(ours, "db01", self.events.append)
        self._frames = agent_wire.FrameDecoder()

    def question(self):
        while True:
            for session, number, body in self._frames.feed(self.socket.recv(65536)):
                return session, number, agent_wire.decode(body)

    def answer(self, session: int, number: int, value) -> None:
        self.socket.sendall(agent_wire.frame(session, number, agent_wire.encode(value)))

    def close(self) -> None:
        self.socket.close()
        self.channel.close()


@pytest.fixture
def peer():
    made = Peer()
    yield made
    made.close()


def asked(channel: AgentClient, *question, timeout: float = 30.0):
    """A call in a thread of its own, and where its outcome will be."""
    outcome: list = []

    def call() -> None:
        try:
            outcome.append(channel.call(*question, timeout=timeout))
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    return thread, outcome


def test_it_answers(channel):
    received, sent = channel.call(b"ping")
    assert received <= sent and abs(sent / 1e9 - time.time()) < 60


def test_calls_from_many_threads_get_their_own_answers(channel, tmp_path):
    for number in range(8):
        (tmp_path / str(number)).write_bytes(bytes([number]) * 3000 * number + b"\xc0\xdb")
    wrong = []

    def look(number: int) -> None:
        path = os.fsencode(tmp_path / str(number))
        wrong.extend(path for _ in range(30) if channel.call(b"read", path, 0) != (tmp_path / str(number)).read_bytes())

    threads = [threading.Thread(target=look, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_errors_are_the_same_kind_with_number_and_path(channel):
    with pytest.raises(FileNotFoundError) as told:
        channel.call(b"read", b"/nonexistent/x", 0)
    assert told.value.errno == errno.ENOENT and told.value.filename == "/nonexistent/x"
    with pytest.raises(NotADirectoryError):
        channel.call(b"listdir", b"/proc/uptime")


def test_what_the_agent_does_not_know_is_an_error_and_no_end(channel):
    with pytest.raises(OSError, match="guest db01 cannot 'dance': AttributeError"):
        channel.call(b"dance")
    with pytest.raises(OSError, match="TypeError"):
        channel.call(b"read")
    assert channel.call(b"exists", b"/proc")


def test_half_a_frame_of_an_earlier_host_is_dropped(port):
    """The host died in the middle of a question; the agent is not told."""
    half = agent_wire.frame(1, 1, agent_wire.encode([b"write", b"/nonexistent/x", b"y" * 100_000]))
    with socket.socket(socket.AF_UNIX) as first:
        first.connect(port.path)
        first.sendall(half[: len(half) // 2])
    second = AgentClient.open(port.path, "db01", 60)
    assert second.call(b"exists", b"/proc") == 1
    second.close()


def test_an_earlier_host_s_answers_are_not_taken_for_ours(port, tmp_path):
    """It asked for much, read a little, and died; its answer arrives at whoever comes next."""
    (tmp_path / "much").write_bytes(b"\xc0" * agent_wire.CHUNK_BYTES)
    with socket.socket(socket.AF_UNIX) as first:
        first.connect(port.path)
        first.sendall(
            b"".join(agent_wire.frame(7, number, agent_wire.encode([b"read", os.fsencode(tmp_path / "much"), 0])) for number in (1, 2, 3))
        )
        first.recv(1000)
    second = AgentClient.open(port.path, "db01", 60)
    for _ in range(3):
        assert second.call(b"read", b"/proc/sys/kernel/ostype", 0) == b"Linux\n"
    second.close()


def test_a_guest_that_dies_ends_every_wait_with_a_sentence(plain_port):
    channel = AgentClient.open(plain_port.path, "db01", 60)
    thread, outcome = asked(channel, b"run", 60_000, [b"sleep", b"60"], [], b"", [], [], b"", b"KILL", b"", b"", b"", 0, 0)
    time.sleep(0.1)
    plain_port.machine_dies()
    thread.join(20)
    assert isinstance(outcome[0], OSError) and "guest db01 has died" in str(outcome[0])
    with pytest.raises(OSError, match="guest db01 has died"):
        channel.call(b"ping")
    assert channel.lost
    channel.close()


def test_an_agent_that_says_nothing_is_an_error_that_names_the_question(peer):
    with pytest.raises(OSError, match="guest db01 did not answer 'read /proc/stat' within 0 s") as told:
        peer.channel.call(b"read", b"/proc/stat", 0, timeout=0.05)
    assert not isinstance(told.value, TimeoutError), "the operation may still be going on"


def test_an_answer_that_comes_too_late_is_ignored(peer):
    with pytest.raises(OSError, match="did not answer"):
        peer.channel.call(b"ping", timeout=0.05)
    session, number, _ = peer.question()
    peer.answer(session, number, [b"ok", 1])
    thread, outcome = asked(peer.channel, b"exists", b"/x")
    session, number, _ = peer.question()
    peer.answer(session, number, [b"ok", 2])
    thread.join(20)
    assert outcome == [2]


@pytest.mark.parametrize("told", [b"l", b"i1e", b"le", b"x"])
def test_nonsense_from_a_guest_does_no_harm(peer, told):
    thread, outcome = asked(peer.channel, b"ping")
    session, number, _ = peer.question()
    peer.socket.sendall(b"\xdb\xff" + agent_wire.frame(session, number, told) + agent_wire.frame(session, 0, told))
    peer.answer(session ^ 1, number, [b"ok", b"for another"])
    peer.answer(session, number + 1, [b"ok", b"never asked"])
    peer.answer(session, number, [b"ok", b"right"])
    thread.join(20)
    assert outcome == [b"right"]


@pytest.mark.parametrize("value", [[b"ok"], [b"os", 2], [b"os", b"2", b"x", b""], [b"late", 1], [b"bad"], [3], [[]], [b"ok", 1, 2]])
def test_an_answer_that_is_none_is_an_error(peer, value):
    thread, outcome = asked(peer.channel, b"read", b"/x", 0)
    session, number, _ = peer.question()
    peer.answer(session, number, value)
    thread.join(20)
    assert isinstance(outcome[0], OSError) and "guest db01" in str(outcome[0]) and "'read /x'" in str(outcome[0])


def test_events_and_the_end_are_told(peer):
    thread, _ = asked(peer.channel, b"ping")
    session, number, _ = peer.question()
    peer.answer(session, 0, [b"ended", 3, 0, 5])
    peer.answer(session, number, [b"ok", 1])
    thread.join(20)
    assert peer.events == [[b"ended", 3, 0, 5]]
    peer.socket.close()
    peer.channel._thread.join(20)
    assert peer.events[-1] == [b"lost"]


def test_a_guest_that_reads_nothing_is_told_of(peer, monkeypatch):
    peer.channel._connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, b"\0" * 8 + (50_000).to_bytes(8, "little"))
    with pytest.raises(OSError, match="guest db01 accepts no more calls"):
        peer.channel.call(b"write", b"/x", b"y" * (8 << 20))


def test_a_socket_that_never_comes(tmp_path):
    with pytest.raises(TimeoutError, match="guest db01 has no agent socket"):
        AgentClient.open(str(tmp_path / "s"), "db01", 0.1)
    with pytest.raises(OSError, match="guest db01 has ended before"):
        AgentClient.open(str(tmp_path / "s"), "db01", 60, alive=lambda: False)


def test_a_guest_that_ends_or_hangs_while_it_boots(tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        with pytest.raises(TimeoutError, match="the agent of guest db01 did not answer within"):
            AgentClient.open(str(tmp_path / "s"), "db01", 0.3)
        with pytest.raises(OSError, match="guest db01 has ended before its agent answered"):
            AgentClient.open(str(tmp_path / "s"), "db01", 60, alive=lambda: False)


def test_a_guest_that_did_not_answer_is_waited_for_a_moment_only_until_it_does(peer, monkeypatch):
    monkeypatch.setattr(channel_module, "CLOSE_TIMEOUT_S", 0.05)
    assert not peer.channel.silent
    for _ in range(2):
        with pytest.raises(GuestError, match="did not answer"):
            peer.channel.call(b"ping", timeout=0.05 if not peer.channel.silent else 600)
        assert peer.channel.silent
    session, number, _ = peer.question()
    peer.answer(session, number, [b"ok", 1])
    while peer.channel.silent:
        time.sleep(0.005)


def test_whatever_goes_wrong_with_what_a_guest_says_ends_every_wait():
    ours, theirs = socket.socketpair()

    def told(event):
        if event[0] == b"ended":
            float(event[1])

    channel = AgentClient(ours, "db01", told)
    thread, outcome = asked(channel, b"ping")
    session, _, _ = next(iter(agent_wire.FrameDecoder().feed(theirs.recv(65536))))
    theirs.sendall(agent_wire.frame(session, 0, agent_wire.encode([b"ended", b"no number"])))
    thread.join(20)
    assert isinstance(outcome[0], OSError) and "its agent sent an invalid message" in str(outcome[0]) and channel.lost
    theirs.close()
    channel.close()


def test_who_answers_is_waited_for_as_long_as_it_takes():
    asked, given_up = [], []
    with watchdog(lambda: asked.append(1), lambda: given_up.append(1), every=0.01):
        while len(asked) < 3:
            time.sleep(0.005)
    assert not given_up


def test_who_does_not_is_given_up_once():
    over = threading.Event()

    def ask():
        raise TimeoutError("nobody is there")

    with watchdog(ask, over.set, every=0.01):
        assert over.wait(30)


def test_a_short_wait_asks_nothing():
    asked = []
    with watchdog(lambda: asked.append(1), lambda: None, every=60):
        pass
    assert not asked
