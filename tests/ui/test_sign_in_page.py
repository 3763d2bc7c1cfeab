from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from pgherd.ui import sign_in_page
from pgherd.ui.app import application
from pgherd.ui.app_state import AppState
from pgherd.ui.security import COOKIE, AccessPolicy

SAME = {"Origin": "http://192.0.2.7:8765"}


@pytest.fixture
def outside(runs, monkeypatch):
    monkeypatch.setattr(sign_in_page, "_AFTER_A_WRONG_TOKEN", 0.0)
    site = AppState.of(runs, AccessPolicy.of("192.0.2.7", "secret"))
    return TestClient(application(site), base_url="http://192.0.2.7:8765", follow_redirects=False)


def test_the_printed_address_lets_in(outside):
    assert outside.get("/").headers["location"] == "/sign-in"
    answer = outside.get("/sign-in?token=secret")
    assert answer.status_code == 303 and answer.headers["location"] == "/"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "secret" not in cookie and cookie.startswith(COOKIE)
    assert outside.get("/").status_code == 200


def test_typed(outside):
    assert 'type="password"' in outside.get("/sign-in").text
    assert outside.post("/sign-in", data={"token": " secret "}, headers=SAME).status_code == 303
    assert outside.get("/").status_code == 200


@pytest.mark.parametrize("token", ["", "Secret", "secret2", "ü", "x" * 300])
def test_a_wrong_token(outside, token):
    for answer in (outside.post("/sign-in", data={"token": token}, headers=SAME), outside.get("/sign-in", params={"token": token or " "})):
        assert answer.status_code == 401 and "That is not the token" in answer.text and "set-cookie" not in answer.headers
    assert outside.get("/").status_code == 303


def test_on_loopback_nobody_signs_in(client):
    assert client.get("/sign-in").headers["location"] == "/"
