"""Properties of all addresses: errors as pages, no access without the token, no harm from hostile data."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from starlette.testclient import TestClient

from pgherd.ui import app
from pgherd.ui.app import application
from pgherd.ui.app_state import AppState
from pgherd.ui.security import COOKIE, AccessPolicy

FIRST = "20260131-120000-density-0001"
MARKUP = "<img src=x onerror=alert(1)>\"'"
PAGES = (
    "/",
    "/compare",
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
    monkeypatch.setattr(app, "_WRONG_TOKEN_DELAY_S", 0.0)
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
