from __future__ import annotations

import socket

import pytest
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from pgherd.ui.security import COOKIE, HEADERS, LARGEST_BODY, LONGEST_PATH, LONGEST_QUERY, AccessPolicy, Guard, is_loopback

HOST = "127.0.0.1:8765"


async def _echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse(str(len(await request.body())))


def client(policy: AccessPolicy | None = None) -> TestClient:
    """A browser that has signed in, or one that has not for a policy."""
    inner = Starlette(routes=[Route("/{rest:path}", _echo, methods=["GET", "POST", "PUT", "DELETE"])])
    guard = policy or AccessPolicy.for_server("127.0.0.1", 8765)
    browser = TestClient(Guard(inner, guard), base_url=f"http://{HOST}", follow_redirects=False)
    if policy is None:
        browser.cookies.set(guard.cookie, guard.session)
    return browser


def test_own_pages_may():
    assert client().get("/").status_code == 200
    assert client().post("/", headers={"Origin": f"http://{HOST}", "Sec-Fetch-Site": "same-origin"}).status_code == 200
    assert client().post("/", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200
    assert client().post("/", headers={"Origin": f"https://{HOST}"}).status_code == 200  # a proxy before it speaks TLS


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "null"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "file://"},
        {"Origin": f"http://{HOST}", "Sec-Fetch-Site": "cross-site"},
        {"Origin": f"http://{HOST}", "Sec-Fetch-Site": "same-site"},
        {"Origin": "http://[", "Sec-Fetch-Site": "same-origin"},
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_another_site_s_page_changes_nothing(headers, method):
    assert client().request(method, "/", headers=headers).status_code == 403


@pytest.mark.parametrize("mode, code", [("navigate", 200), ("cors", 403), ("no-cors", 403), ("", 403)])
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_may_link_but_not_read(site, mode, code):
    assert client().get("/", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}).status_code == code


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8765", "LOCALHOST", "localhost.", "[::1]:8765", "127.0.0.1:22"])
def test_names_of_this_server(host):
    assert client().get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "192.0.2.7", "user@127.0.0.1", "", "[::1", "localhost@evil.example"]
)
def test_names_of_others(host):
    assert client().get("/", headers={"Host": host}).status_code == 421


def test_beyond_loopback_any_address_will_do_as_no_name_can():
    policy = AccessPolicy.for_server("192.0.2.7", 8765)
    assert policy.knows_host("192.0.2.7:8765") and policy.knows_host("[2001:db8::1]") and not policy.knows_host("evil.example")
    assert AccessPolicy.for_server("192.0.2.7", 8765, "Bench.lan").knows_host("bench.lan:8765"), "as --listen names it"
    assert not policy.knows_host("bench.lan")
    assert policy.knows_host(socket.gethostname()) and not AccessPolicy.for_server("127.0.0.1", 8765).knows_host("192.0.2.7")


def test_sizes_are_bounded():
    assert client().get("/" + "x" * LONGEST_PATH).status_code == 414
    assert client().get("/?" + "x" * (LONGEST_QUERY + 1)).status_code == 414
    own = {"Origin": f"http://{HOST}"}
    assert client().post("/", content=b"x" * LARGEST_BODY, headers=own).text == str(LARGEST_BODY)
    assert client().post("/", content=b"x" * (LARGEST_BODY + 1), headers=own).status_code == 413


def test_a_body_without_a_length_is_bounded_too():
    def chunks():
        for _ in range(3):
            yield b"x" * (LARGEST_BODY // 2)

    assert client().post("/", content=chunks(), headers={"Origin": f"http://{HOST}"}).status_code == 413


def test_without_the_token_nothing_is_seen():
    policy = AccessPolicy.for_server("127.0.0.1", 8765)
    held = client(policy)
    answer = held.get("/runs/x")
    assert answer.status_code == 303 and answer.headers["location"] == "/sign-in"
    assert held.get("/", headers={"HX-Request": "true"}).status_code == 401
    assert held.post("/", headers={"Origin": f"http://{HOST}"}).status_code == 401
    assert held.get("/sign-in").status_code == held.get("/static/x").status_code == 200
    for name, value in ((policy.cookie, "wrong"), (policy.cookie, policy.token), (COOKIE, policy.session)):
        held.cookies.clear()
        held.cookies.set(name, value)
        assert held.get("/").status_code == 303
    held.cookies.set(policy.cookie, policy.session)
    assert held.get("/").status_code == 200


def test_tokens():
    policy = AccessPolicy(frozenset({"localhost"}), "secret")
    assert policy.accepts_token("secret") and not policy.accepts_token("") and not policy.accepts_token("Secret")
    assert not policy.accepts_token("geheim ü")
    assert policy.accepts_form(policy.form_token) and not policy.accepts_form("") and not policy.accepts_form(None)
    first, second = (AccessPolicy.for_server("127.0.0.1", 8765) for _ in range(2))
    assert first.session != second.session and first.token != second.token and len(first.token) >= 40


@pytest.mark.parametrize("path", ["/", "/x" * 900])
def test_every_answer_carries_the_headers(path):
    answer = client().get(path)
    assert all(answer.headers[name] == value for name, value in HEADERS.items())
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy and "default-src 'none'" in policy and "frame-ancestors 'none'" in policy


@pytest.mark.parametrize("address, expected", [("127.0.0.1", True), ("::1", True), ("192.0.2.7", False), ("0.0.0.0", False), ("::", False)])
def test_loopback(address, expected):
    assert is_loopback(address) is expected


def test_secrets_are_compared_in_constant_time(monkeypatch):
    compared = []
    monkeypatch.setattr("pgherd.ui.security.hmac.compare_digest", lambda given, wanted: compared.append((given, wanted)) or False)
    policy = AccessPolicy.for_server("127.0.0.1", 8765)
    cookie = {"type": "http", "headers": [(b"cookie", f"{policy.cookie}=c".encode())]}
    assert not policy.accepts_token(policy.token) and not policy.accepts_form("f") and not policy.signed_in(HTTPConnection(cookie))
    assert compared == [(policy.token.encode(),) * 2, (b"f", policy.form_token.encode()), (b"c", policy.session.encode())]
