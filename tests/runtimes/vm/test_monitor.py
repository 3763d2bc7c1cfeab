from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from pgherd.model.errors import CapabilityError, TrialError
from pgherd.runtimes.vm import monitor
from pgherd.runtimes.vm.monitor import Monitor

pytest.importorskip("qemu.qmp")

GREETING = {"QMP": {"version": {"qemu": {"micro": 0, "minor": 2, "major": 7}, "package": ""}, "capabilities": []}}
Answer = Callable[[dict], dict | None]


def documents(connection: socket.socket) -> Iterator[dict]:
    """JSON documents as they come; the library ends none of them with a line feed."""
    rest = ""
    while data := connection.recv(4096):
        rest += data.decode()
        with contextlib.suppress(ValueError):
            while rest.strip():
                document, end = json.JSONDecoder().raw_decode(rest.lstrip())
                rest = rest.lstrip()[end:]
                yield document


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[Answer], str]]:
    """A server that speaks QMP (its greeting and negotiation), and answers further commands by a function; None hangs up.
    Before each answer it tells of the events ``told``."""
    opened: list[socket.socket] = []

    def start(answer: Answer, told: Sequence[dict] = ()) -> str:
        path = str(tmp_path / "qmp")
        server = socket.socket(socket.AF_UNIX)
        server.bind(path)
        server.listen(1)
        opened.append(server)

        def talk() -> None:
            connection, _ = server.accept()
            opened.append(connection)
            connection.sendall(json.dumps(GREETING).encode() + b"\r\n")
            for asked in documents(connection):
                reply = {"return": {}} if asked["execute"] == "qmp_capabilities" else answer(asked)
                if reply is None:
                    connection.shutdown(socket.SHUT_RDWR)
                    return
                for event in told if asked["execute"] != "qmp_capabilities" else ():
                    connection.sendall(json.dumps(event).encode() + b"\r\n")
                if reply:
                    connection.sendall(json.dumps({**reply, "id": asked["id"]} if "id" in asked else reply).encode() + b"\r\n")

        threading.Thread(target=talk, daemon=True).start()
        return path

    yield start
    for one in opened:
        one.close()


def test_commands_are_answered_in_plain_calls(serve) -> None:
    path = serve(lambda asked: {"return": [asked["execute"], asked.get("arguments")]})
    one = Monitor(path, "db01")
    one.connect()
    assert one.execute("balloon", {"value": 2**28}) == ["balloon", {"value": 2**28}]
    assert one.execute("query-status") == ["query-status", None]
    one.close()
    one.close()


def test_events_are_not_kept(serve) -> None:
    """The library keeps each for ever: a balloon that moves for days would fill the memory of the host that is measured."""
    moved = {"event": "BALLOON_CHANGE", "data": {"actual": 1}, "timestamp": {"seconds": 1, "microseconds": 1}}

    one = Monitor(serve(lambda asked: {"return": {}}, told=[moved] * 3), "db01")
    one.connect()
    one.execute("stop")
    one.execute("cont")
    assert one._qmp.events.empty() and one._qmp.events.history == ()
    one.close()


def test_a_refusal_holds_qemu_s_own_words(serve) -> None:
    one = Monitor(serve(lambda asked: {"error": {"class": "GenericError", "desc": "no balloon"}}), "db01")
    one.connect()
    with pytest.raises(TrialError, match="QEMU of guest db01 refuses balloon: no balloon"):
        one.execute("balloon", {"value": 1})
    one.close()


def test_no_answer_and_an_end_are_errors(serve) -> None:
    one = Monitor(serve(lambda asked: {} if asked["execute"] == "stop" else None), "db01")
    one.connect()
    with pytest.raises(TrialError, match=r"did not answer stop within 0\.2 s"):
        one.execute("stop", timeout=0.2)
    with pytest.raises(TrialError, match="has gone away during cont"):
        one.execute("cont")
    assert one.lost
    one.close()


def test_nobody_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TrialError, match="the monitor of guest x cannot be reached"):
        Monitor(str(tmp_path / "none"), "x").connect(1.0)


def test_without_the_library_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "qemu.qmp", None)
    with pytest.raises(CapabilityError, match=r"pip install 'pgherd\[vm\]'"):
        Monitor("/x", "x")
    assert monitor.Monitor is Monitor
