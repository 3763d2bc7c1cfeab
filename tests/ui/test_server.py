"""Properties of all addresses: errors as pages, no access without the token, no harm from hostile data."""

from __future__ import annotations

import contextlib
import glob
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from pgherd.model.errors import UsageError
from pgherd.ui import server
from pgherd.ui.app_state import AppState
from pgherd.ui.security import COOKIE, AccessPolicy
from pgherd.ui.server import ServerAddress, application, serve

FIRST = "20260131-120000-density-0001"
MARKUP = "<img src=x onerror=alert(1)>\"'"
PAGES = (
    "/",
    "/compare",
    "/placement",
    "/start",
    "/start/density",
    f"/runs/{FIRST}",
    f"/runs/{FIRST}/explore",
    f"/runs/{FIRST}/resume",
    f"/runs/{FIRST}/stop",
)


class _Page(HTMLParser):
    """What of a page's markup matters: scripts, addresses, inline handlers and styles, ids, what labels name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.inline: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        for name, value in attributes:
            if name in ("href", "src", "action", "formaction") or name.startswith("hx-get"):
                self.addresses.append(value)
            if name.startswith("on") or name == "style":
                self.inline.append(f"{tag} {name}")
            if name == "id":
                self.ids.append(value)
        if tag == "style" or (tag == "script" and dict(attributes).get("type") != "application/json" and "src" not in dict(attributes)):
            self.inline.append(tag)


@pytest.mark.parametrize("path", PAGES)
def test_pages_are_whole_and_ask_for_nothing_elsewhere(client, path):
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    page = _Page(answer.text)
    assert all(address.startswith(("/", "#")) and not address.startswith("//") for address in page.addresses)
    assert page.inline == [] and len(set(page.ids)) == len(page.ids)
    assert page.tags.count("h1") == page.tags.count("main") == 1 and re.search(r"<title>[^<]+ · pgherd</title>", answer.text)


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/runs/",
        "/runs/nothing",
        "/runs/%2e%2e",
        "/runs/..%2f..%2fetc",
        "/start/gate",
        "/started/x",
        "/static/x/ui.js",
    ],
)
def test_what_is_not_there(client, path):
    answer = client.get(path)
    assert answer.status_code == 404 and "<h1>Not found</h1>" in answer.text


def test_a_wrong_method(client):
    assert client.get("/started").status_code == 405
    assert client.post("/", headers={"Origin": "http://127.0.0.1:8765"}).status_code == 405


def test_errors_of_a_part_are_parts(client):
    answer = client.get("/?grade=Z", headers={"HX-Request": "true"})
    assert answer.status_code == 400 and answer.text.startswith('<p class="problem"') and "<html" not in answer.text


def test_markup_in_a_run_stays_text(client, runs):
    file = runs / FIRST / "run.json"
    text = file.read_text()
    document = json.loads(text)
    document["analysis"]["answer"] = MARKUP
    document["analysis"]["warnings"] = [MARKUP]
    document["hosts"]["local"]["hostname"] = MARKUP
    document["study"] = MARKUP
    document["command"] = [MARKUP]
    file.write_text(json.dumps(document))
    for path in ("/", "/compare", f"/runs/{FIRST}", f"/compare?run={FIRST}&run=20260131-130000-density-0002"):
        answer = client.get(path)
        assert answer.status_code == 200 and "&lt;img" in answer.text
        assert "<img src=x" not in answer.text and _Page(answer.text).inline == []


def test_markup_in_samples_stays_text(client, runs, spec_of):
    from pgherd.store.samples import write_samples

    trial = runs / FIRST / "trials" / "0001"
    entity = f"container:</script>{MARKUP}"
    write_samples(trial, [(float(i), "cgroup_memory", entity, {"memory.usage": 1.0 + i}) for i in range(5)])
    answer = client.get(f"/runs/{FIRST}/explore?trial=0001&metric=container/cgroup_memory/memory.usage")
    assert answer.status_code == 200 and _Page(answer.text).inline == []
    assert spec_of(answer.text)["datasets"]["series"][0]["e"] == entity


@pytest.mark.parametrize("query", ["page=" + "9" * 8000, "text=" + "x" * 500, "since=" + "%00", "size=1e9", "grade=%3Cscript%3E"])
def test_huge_and_odd_parameters_are_refused(client, query):
    answer = client.get(f"/?{query}")
    assert 400 <= answer.status_code < 500 and "<script>alert" not in answer.text


def test_a_defect_is_a_sentence(site, monkeypatch, capsys):
    monkeypatch.setattr(site.index, "runs", lambda: 1 / 0)
    client = TestClient(application(site), base_url="http://127.0.0.1:8765", raise_server_exceptions=False)
    client.cookies.set(site.policy.cookie, site.policy.session)
    answer = client.get("/")
    assert answer.status_code == 500 and "ZeroDivisionError" in answer.text and "Traceback" not in answer.text
    assert "Traceback" in capsys.readouterr().err


def test_static_files_are_kept_for_good_under_their_own_address(client):
    address = re.search(r'src="(/static/[^"]+/ui\.js)"', client.get("/").text)[1]
    answer = client.get(address)
    assert answer.status_code == 200 and "immutable" in answer.headers["cache-control"]
    assert client.get(address.replace("/static/", "/static/x")).status_code == 404
    assert client.get("/").headers["cache-control"] == "no-store"


OUTSIDE = {"Origin": "http://192.0.2.7:8765"}


@pytest.fixture
def outside(runs, monkeypatch):
    monkeypatch.setattr(server, "_WRONG_TOKEN_DELAY_S", 0.0)
    policy = replace(AccessPolicy.for_server("192.0.2.7", 8765), token="secret")
    return TestClient(application(AppState.for_runs(runs, policy)), base_url="http://192.0.2.7:8765", follow_redirects=False)


def test_the_printed_address_lets_in(outside):
    assert outside.get("/").headers["location"] == "/sign-in"
    answer = outside.get("/sign-in?token=secret")
    assert answer.status_code == 303 and answer.headers["location"] == "/"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "secret" not in cookie and cookie.startswith(COOKIE)
    assert outside.get("/").status_code == 200


def test_typed(outside):
    assert 'type="password"' in outside.get("/sign-in").text
    assert outside.post("/sign-in", data={"token": " secret "}, headers=OUTSIDE).status_code == 303
    assert outside.get("/").status_code == 200


@pytest.mark.parametrize("token", ["", "Secret", "secret2", "ü", "x" * 300])
def test_a_wrong_token(outside, token):
    for answer in (
        outside.post("/sign-in", data={"token": token}, headers=OUTSIDE),
        outside.get("/sign-in", params={"token": token or " "}),
    ):
        assert answer.status_code == 401 and "Wrong token" in answer.text and "set-cookie" not in answer.headers
    assert outside.get("/").status_code == 303


def test_the_token_is_required_on_loopback_too(site):
    client = TestClient(application(site), base_url="http://127.0.0.1:8765", follow_redirects=False)
    for path in PAGES:
        assert client.get(path).headers["location"] == "/sign-in"
    assert client.get(f"/sign-in?token={site.policy.token}").headers["set-cookie"].startswith("pgherd-session-8765=")
    assert client.get("/").status_code == 200


def test_servers_on_two_ports_keep_their_sessions(site):
    other = AccessPolicy.for_server("127.0.0.1", 8766)
    assert other.cookie != site.policy.cookie and other.session != site.policy.session and other.token != site.policy.token


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
