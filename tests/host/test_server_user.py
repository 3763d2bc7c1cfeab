from __future__ import annotations

import os
import pwd

import pytest

from pgherd.host import server_user
from pgherd.model.errors import CapabilityError, UsageError


def entry(name: str, uid: int) -> pwd.struct_passwd:
    return pwd.struct_passwd((name, "x", uid, uid, "", "/", "/bin/false"))


@pytest.fixture
def accounts(monkeypatch: pytest.MonkeyPatch):
    """Set the existing users and the current user."""

    def given(uid: int, **known: int) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: uid)
        monkeypatch.setattr(pwd, "getpwnam", lambda name: entry(name, known[name]))

    return given


def test_root_takes_the_first_that_exists(accounts) -> None:
    accounts(0, postgres=101, nobody=65534)
    assert server_user.server_account() == "postgres"
    accounts(0, pgherd=5, postgres=101)
    assert server_user.server_account() == "pgherd"


def test_root_takes_the_requested_one(accounts) -> None:
    accounts(0, postgres=101, alice=1000)
    assert server_user.server_account("alice") == "alice"


def test_an_ordinary_user_runs_servers_as_itself(accounts) -> None:
    accounts(1000, postgres=101, alice=1000)
    assert server_user.server_account() is None
    assert server_user.server_account("alice") is None
    with pytest.raises(CapabilityError, match="only root"):
        server_user.server_account("postgres")


def test_an_unknown_account(accounts) -> None:
    accounts(0, postgres=101)
    with pytest.raises(UsageError, match="no user 'bob'"):
        server_user.server_account("bob")


def test_root_is_no_account_for_servers(accounts) -> None:
    accounts(0, root=0)
    with pytest.raises(UsageError, match="refuses"):
        server_user.server_account("root")


def test_no_account_at_all(accounts) -> None:
    accounts(0)
    with pytest.raises(CapabilityError, match="useradd --system pgherd"):
        server_user.server_account()
