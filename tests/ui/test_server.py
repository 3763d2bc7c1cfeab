from __future__ import annotations

import http.client
import os
import signal
import socket
import threading

import pytest

from pgherd.model.errors import UsageError
from pgherd.ui import server
from pgherd.ui.app_state import AppState
from pgherd.ui.security import AccessPolicy
from pgherd.ui.server import ServerAddress, serve


def test_addresses():
    assert server._shown("", "0.0.0.0") == socket.gethostname() and server._shown("::1", "::1") == "[::1]"
    assert server._shown("localhost", "127.0.0.1") == "127.0.0.1" and server._shown("db.example", "192.0.2.7") == "db.example"
    assert ServerAddress("http://h:1/", "t").sign_in_url == "http://h:1/sign-in?token=t"


@pytest.fixture
def served(runs, monkeypatch):
    """Serve in the main thread until the given calls have been made from another."""
    monkeypatch.setattr(server, "make_ready", lambda site: None)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it

    def run(look, **options):
        found: list = []

        def announce(where: ServerAddress) -> None:
            def ask() -> None:
                try:
                    found.append((where, look(where)))
                except Exception as error:
                    found.append((where, error))
                finally:
                    os.kill(os.getpid(), signal.SIGINT)

            threading.Thread(target=ask, daemon=True).start()

        with pytest.raises(KeyboardInterrupt):
            serve(runs, announce, port=0, **options)
        return found[0]

    yield run
    signal.signal(signal.SIGINT, before)


def get(where: ServerAddress, path: str = "/", **headers: str):
    host, port = where.address.removeprefix("http://").rstrip("/").rsplit(":", 1)
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=20)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read(), answer.headers


def signed_in(where: ServerAddress, path: str = "/"):
    _, _, headers = get(where, where.sign_in_url.removeprefix(where.address.rstrip("/")))
    return get(where, path, Cookie=headers["set-cookie"].partition(";")[0])


def test_what_cannot_be_made_ready_is_said_and_no_more(runs, monkeypatch, capsys):
    site = AppState.for_runs(runs, AccessPolicy.for_server("127.0.0.1", 1))
    monkeypatch.setattr(server.rendering, "vega", lambda: b"")
    server.make_ready(site)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(server.rendering, "vega", lambda: 1 / 0)
    server.make_ready(site)
    assert "preparation of the pages failed: ZeroDivisionError" in capsys.readouterr().err


def test_serves_until_it_is_told_to_end(served):
    where, (status, body, headers) = served(signed_in)
    assert status == 200 and b"<h1>Runs</h1>" in body and where.address.startswith("http://127.0.0.1:")
    assert "server" not in headers


def test_raw_paths_are_no_way_out(served):
    _, (status, body, _) = served(lambda where: signed_in(where, "/runs/../../../../etc/passwd"))
    assert status == 404 and b"root:" not in body


def test_huge_headers_are_refused(served):
    _, (status, *_) = served(lambda where: get(where, "/", Cookie="x" * 100_000))
    assert 400 <= status < 500


def test_a_token_on_loopback_too(served):
    where, (status, _, headers) = served(get)
    assert status == 303 and headers["location"] == "/sign-in" and where.token and len(where.token) >= 40


def test_beyond_loopback_a_token_is_made(served):
    where, (status, *_) = served(
        lambda where: get(ServerAddress(where.address.replace(socket.gethostname(), "127.0.0.1"), where.token)), listen="0.0.0.0"
    )
    assert where.token and status == 303


def test_a_port_that_is_taken(runs):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(UsageError, match="is in use"):
            serve(runs, lambda where: None, port=other.getsockname()[1])


@pytest.mark.parametrize("listen", ["192.0.2.7", "x y"])
def test_what_is_no_address_of_this_machine(runs, listen):
    with pytest.raises(UsageError, match="no address of this machine"):
        serve(runs, lambda where: None, listen=listen, port=0)
