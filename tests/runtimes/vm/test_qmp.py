from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from pgherd.model.errors import TrialError
from pgherd.runtimes.vm import qmp as module
from pgherd.runtimes.vm.qmp import READER_THREAD, QmpClient

GREETING = {"QMP": {"version": {"qemu": {"micro": 0, "minor": 2, "major": 7}, "package": ""}, "capabilities": ["oob"]}}
MOVED = {"event": "BALLOON_CHANGE", "data": {"actual": 1}, "timestamp": {"seconds": 1, "microseconds": 1}}
LATEST = 30.0


class Qemu:
    """A monitor with one client after the other, as QEMU's: a test reads what it was asked, and says what it answers."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(self.path)
        self._server.listen(1)
        self._server.settimeout(LATEST)
        self._client: socket.socket | None = None
        self._lines: Iterator[bytes] = iter(())

    def accept(self) -> socket.socket:
        self._client = self._server.accept()[0]
        self._client.settimeout(LATEST)
        return self._client

    def asked(self, number: int = 1) -> list[dict]:
        """The next commands; a new client's negotiation comes before."""
        if self._client is None:
            self._lines = self.accept().makefile("rb")
            self.say(GREETING)
            assert json.loads(next(self._lines)) == {"execute": "qmp_capabilities", "arguments": {}}
            self.say({"return": {}})
        return [json.loads(next(self._lines)) for _ in range(number)]

    def say(self, *documents: dict) -> None:
        assert self._client is not None
        self._client.sendall(b"".join(json.dumps(document).encode() + b"\r\n" for document in documents))

    def hang_up(self) -> None:
        assert self._client is not None
        self._client.shutdown(socket.SHUT_RDWR)
        self._client.close()
        self._client = None

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._server.close()


def expect_an_answer(qemu: Qemu, client: QmpClient) -> None:
    """To a question like the first one, over a connection anew where the former one is gone."""
    again = client.ask([("query-balloon", None)], list)
    qemu.asked()
    qemu.say({"return": 5})
    assert again.result(LATEST) == [5]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[str], tuple[Qemu, QmpClient]]]:
    created: list[Qemu | QmpClient] = []

    def pair(name: str = "db01") -> tuple[Qemu, QmpClient]:
        qemu = Qemu(tmp_path / name)
        client = QmpClient(qemu.path, name)
        created.extend((client, qemu))
        return qemu, client

    yield pair
    for item in created:
        item.close()
    assert not module._clients


def test_all_of_a_question_goes_out_before_anything_is_answered(make) -> None:
    qemu, client = make()
    request = client.ask([("query-balloon", None), ("balloon", {"value": 2**28})], sum)
    assert qemu.asked(2) == [{"execute": "query-balloon", "arguments": {}}, {"execute": "balloon", "arguments": {"value": 2**28}}]
    qemu.say({"return": 1})
    assert not request.done()
    qemu.say({"return": 2})
    assert request.result(LATEST) == 3


def test_an_answer_may_come_in_pieces_and_with_events_between(make) -> None:
    qemu, client = make()
    request = client.ask([("query-balloon", None)], list)
    qemu.asked()
    before = client.heard("BALLOON_CHANGE"), client.heard("STOP")
    assert before[0] == client.heard("BALLOON_CHANGE")
    qemu.say(MOVED)
    qemu._client.sendall(b'{"return": {"actual"')
    qemu._client.sendall(b": 7}}\r\n")
    assert request.result(LATEST) == [{"actual": 7}]
    assert client.heard("BALLOON_CHANGE") != before[0] and client.heard("STOP") == before[1]


def test_answers_belong_to_client_in_their_order(make) -> None:
    qemu, client = make()
    request = [client.ask([("query-status", None)], list) for _ in range(3)]
    qemu.asked(3)
    qemu.say({"return": 1}, {"error": {"class": "GenericError", "desc": "not now"}}, {"return": 3})
    assert request[0].result(LATEST) == [1] and request[2].result(LATEST) == [3]
    with pytest.raises(TrialError, match="QEMU of guest db01 refuses query-status: not now"):
        request[1].result(LATEST)


def test_what_cannot_be_made_of_an_answer_is_told_to_who_asked(make) -> None:
    qemu, client = make()
    request = client.ask([("query-balloon", None)], lambda answers: answers[0]["actual"])
    qemu.asked()
    qemu.say({"return": {}})
    with pytest.raises(KeyError):
        request.result(LATEST)
    expect_an_answer(qemu, client)


def test_who_waits_is_told_that_qemu_has_gone_and_the_next_question_connects_anew(make) -> None:
    qemu, client = make()
    request = client.ask([("query-balloon", None), ("query-blockstats", None)], list)
    qemu.asked(2)
    qemu.say({"return": 1})
    heard = client.heard("BALLOON_CHANGE")
    qemu.hang_up()
    with pytest.raises(TrialError, match="QEMU of guest db01 has not answered query-balloon: it has closed its monitor"):
        request.result(LATEST)
    expect_an_answer(qemu, client)
    assert client.heard("BALLOON_CHANGE") != heard, "events may have been missed"


@pytest.mark.parametrize(
    "message", [b"no JSON", b"7", b'{"return": 1}\n{"return": 2}', b'{"event": []}', b'{"error": 7}', b'{"error": null}']
)
def test_what_no_qemu_says_ends_the_connection_and_not_the_thread(make, message) -> None:
    qemu, client = make()
    request = client.ask([("query-balloon", None)], list)
    qemu.asked()
    qemu._client.sendall(message + b"\n")
    assert qemu._client.recv(1) == b"", "it is closed"
    qemu.hang_up()
    if message.startswith(b'{"return": 1}'):
        assert request.result(LATEST) == [1], "it is the second answer that nobody has asked for"
    else:
        with pytest.raises(TrialError, match="QEMU of guest db01 has not answered query-balloon: [A-Z][A-Za-z]*Error: "):
            request.result(LATEST)
    expect_an_answer(qemu, client)


def test_a_line_may_be_long_but_not_without_an_end(make) -> None:
    qemu, client = make()
    request = [client.ask([("human-monitor-command", None)], lambda answers: len(answers[0])) for _ in range(2)]
    qemu.asked(2)
    qemu.say({"return": "x" * (9 << 20)})
    assert request[0].result(LATEST) == 9 << 20
    with contextlib.suppress(OSError):  # it is closed while this is sent
        qemu._client.sendall(b"x" * (12 << 20))
    with pytest.raises(TrialError, match="QEMU of guest db01 has not answered human-monitor-command: ValueError: a line without an end"):
        request[1].result(LATEST)


def test_of_events_only_those_are_counted_that_somebody_asks_for(make) -> None:
    qemu, client = make()
    before = client.heard("BALLOON_CHANGE")
    request = client.ask([("query-balloon", None)], list)
    qemu.asked()
    qemu.say(*({"event": f"E{number}", "data": {}} for number in range(1000)), MOVED, {"return": 1})
    assert request.result(LATEST) == [1]
    assert client.heard("BALLOON_CHANGE") != before and list(client._event_counts) == ["BALLOON_CHANGE"]


def test_where_no_thread_can_be_started_each_question_is_told_so(make, monkeypatch: pytest.MonkeyPatch) -> None:
    qemu, client = make()
    waited: list[select.epoll] = []

    class NotStarted(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    def epoll() -> select.epoll:
        waited.append(select.epoll())
        return waited[-1]

    monkeypatch.setattr(module, "_poller", None)
    monkeypatch.setattr(module, "threading", SimpleNamespace(Thread=NotStarted))
    monkeypatch.setattr(module, "select", SimpleNamespace(epoll=epoll, EPOLLIN=select.EPOLLIN))
    for _ in range(2):
        request = client.ask([("query-balloon", None)], list)
        with pytest.raises(TrialError, match="the monitor of guest db01 cannot be reached: can't start new thread"):
            request.result(0)
        assert qemu.accept().recv(1) == b"", "it is closed"
        qemu.hang_up()
    assert len(waited) == 2 and all(item.closed for item in waited)
    monkeypatch.undo()
    request = client.ask([("query-balloon", None)], list)
    qemu.asked()
    qemu.say({"return": 5})
    assert request.result(LATEST) == [5]


def test_who_would_wait_behind_others_to_be_connected_is_told_at_once(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as other:
        server.bind(str(tmp_path / "busy"))
        server.listen(0)
        other.connect(str(tmp_path / "busy"))
        request = QmpClient(str(tmp_path / "busy"), "x").ask([("query-balloon", None)], list)
        with pytest.raises(TrialError, match="the monitor of guest x cannot be reached: .*temporarily unavailable"):
            request.result(0)


def test_nobody_there_is_told_by_the_answer(tmp_path: Path) -> None:
    request = QmpClient(str(tmp_path / "none"), "x").ask([("query-balloon", None)], list)
    with pytest.raises(TrialError, match="the monitor of guest x cannot be reached: .*No such file"):
        request.result(0)


def test_closing_ends_every_wait(make) -> None:
    qemu, client = make()
    request = client.ask([("query-balloon", None)], list)
    qemu.asked()
    client.close()
    client.close()
    with pytest.raises(TrialError, match="its monitor was closed"):
        request.result(LATEST)


def test_a_guest_that_does_not_answer_holds_up_no_other_and_one_thread_reads_for_all(make) -> None:
    frozen = [make(f"f{number}") for number in range(12)]
    waiting = [client.ask([("query-balloon", None)], list) for _, client in frozen]
    qemu, client = make("a")
    request = client.ask([("query-balloon", None)], list)
    qemu.asked()
    qemu.say({"return": 1})
    assert request.result(LATEST) == [1] and not any(item.done() for item in waiting)
    assert [thread.name for thread in threading.enumerate()].count(READER_THREAD) == 1


def test_one_command_is_a_plain_call(make) -> None:
    """One connection serves plain calls and questions together."""
    qemu, client = make()
    polled = client.ask([("query-balloon", None)], list)
    answered = threading.Thread(target=lambda: (qemu.asked(2), qemu.say({"return": 5}, {"return": {"running": True}})))
    answered.start()
    assert client.execute("query-status") == {"running": True} and polled.result(LATEST) == [5]
    answered.join()


def test_a_refused_command_holds_qemu_s_own_words(make) -> None:
    qemu, client = make()
    threading.Thread(target=lambda: (qemu.asked(), qemu.say({"error": {"class": "GenericError", "desc": "no balloon"}}))).start()
    with pytest.raises(TrialError, match="QEMU of guest db01 refuses balloon: no balloon"):
        client.execute("balloon", {"value": 1})


def test_no_answer_in_time_is_an_error_and_a_late_one_belongs_to_no_other_command(make) -> None:
    qemu, client = make()
    with pytest.raises(TrialError, match=r"did not answer stop within 0\.2 s"):
        client.execute("stop", timeout=0.2)
    qemu.asked()
    qemu.say({"return": 1})
    expect_an_answer(qemu, client)


def test_an_end_in_the_middle_of_a_command_is_an_error(make) -> None:
    qemu, client = make()
    threading.Thread(target=lambda: (qemu.asked(), qemu.hang_up())).start()
    with pytest.raises(TrialError, match="QEMU of guest db01 has not answered cont: it has closed its monitor"):
        client.execute("cont")


def test_nobody_there_is_an_error_of_a_command(tmp_path: Path) -> None:
    with pytest.raises(TrialError, match="the monitor of guest x cannot be reached"):
        QmpClient(str(tmp_path / "none"), "x").execute("query-status")
