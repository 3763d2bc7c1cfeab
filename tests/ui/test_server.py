from __future__ import annotations

import contextlib
import glob
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

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


OTHER = 65534
"""Uid of another user of the machine."""


@pytest.fixture
def program(runs):
    """``pgherd ui`` in a process of its own: its document."""
    words = [sys.executable, "-P", "-m", "pgherd", "ui", "--port", "0", "--json", "--runs-dir", str(runs)]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            text = ""
            for line in process.stdout:
                text += line
                if line == "}\n":
                    break
            yield json.loads(text)
        finally:
            process.kill()


def as_another_user(address, requests):
    """The answers to requests (method, path, headers, body) of a process with another uid: status, body, cookie."""
    receiving, sending = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(OTHER, OTHER, OTHER)
            os.setresuid(OTHER, OTHER, OTHER)
            answers = []
            for method, path, headers, body in requests:
                connection = http.client.HTTPConnection(address[0], address[1], timeout=20)
                connection.request(method, path, body=body, headers={"Host": f"127.0.0.1:{address[1]}", **headers})
                answer = connection.getresponse()
                answers.append((answer.status, answer.read().decode(errors="replace"), answer.headers.get("set-cookie")))
            os.write(sending, json.dumps(answers).encode())
        finally:
            os._exit(0)
    os.close(sending)
    with open(receiving, "rb") as answers:
        text = answers.read()
    os.waitpid(pid, 0)
    return json.loads(text)


@pytest.mark.skipif(os.geteuid() != 0, reason="requests of another user need root")
@pytest.mark.parametrize("host", ["127.0.0.1", "::ffff:127.0.0.1"])
def test_another_user_of_the_machine_gets_nothing_without_the_token(program, runs, host):
    """By an IPv4 address that an IPv6 socket names as little as by the plain one."""
    port = int(program["address"].rstrip("/").rsplit(":", 1)[1])
    origin = {"Origin": f"http://127.0.0.1:{port}", "Sec-Fetch-Site": "same-origin"}
    form = {**origin, "Content-Type": "application/x-www-form-urlencoded"}
    run = next(path.name for path in runs.iterdir() if path.is_dir())
    paths = ("/", "/compare", "/start", "/start/compression", f"/runs/{run}", f"/runs/{run}/files/run.json", f"/runs/{run}/live")
    wrong = {"Cookie": f"pgherd-session-{port}=wrong; pgherd-session=wrong"}
    requests = [("GET", path, headers, None) for path in paths for headers in ({}, wrong)]
    requests += [
        ("POST", path, form, "seconds=5") for path in ("/start/compression", "/started", f"/runs/{run}/stop", f"/runs/{run}/resume")
    ]
    requests += [("GET", "/sign-in", {}, None), ("GET", "/sign-in?token=wrong", {}, None), ("POST", "/sign-in", form, "token=wrong")]
    *guarded, form_page, by_address, by_form = as_another_user((host, port), requests)
    for (status, body, cookie), (method, *_) in zip(guarded, requests, strict=False):
        assert (status, body) == ((303, "") if method == "GET" else (401, "Sign in first.\n")) and cookie is None
    assert [form_page[0], by_address[0], by_form[0]] == [200, 401, 401]
    for _, body, cookie in (form_page, by_address, by_form):
        assert cookie is None and not any(secret in body for secret in (run, program["token"], "form_token"))

    ((status, _, cookie),) = as_another_user((host, port), [("GET", f"/sign-in?token={program['token']}", {}, None)])
    assert status == 303, "whoever has been given the token may"
    attributes = {word.strip().lower() for word in cookie.split(";")[1:]}
    assert {"httponly", "samesite=strict"} <= attributes
    ((status, body, _),) = as_another_user((host, port), [("GET", "/", {"Cookie": cookie.partition(";")[0]}, None)])
    assert status == 200 and run in body


@pytest.mark.skipif(os.geteuid() != 0, reason="another user needs root")
def test_the_token_is_not_in_the_process_list(program):
    token = program["token"].encode()
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            assert token not in Path(path).read_bytes()
