from __future__ import annotations

import os
import pwd
import signal
import subprocess
from contextlib import contextmanager

import pytest

from pgherd.host import server_user
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.node.process import environment

UNUSED = 64999
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to change the user")


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
    accounts(0, postgres=UNUSED)
    assert server_user.server_account() == "postgres"
    accounts(0, pgherd=5, postgres=UNUSED)
    assert server_user.server_account() == "pgherd"


def test_nobody_is_never_taken(accounts) -> None:
    accounts(0, nobody=UNUSED)
    with pytest.raises(CapabilityError, match="useradd --system pgherd"):
        server_user.server_account()


@contextmanager
def running(start, *command: str):
    process = start(
        ["setpriv", f"--reuid={UNUSED}", "--clear-groups", *command, "sh", "-c", "echo; sleep 60; :"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        process.stdout.readline()
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@as_root
def test_a_user_that_runs_something_else_is_not_taken_unless_requested(accounts, monkeypatch) -> None:
    monkeypatch.setattr(server_user, "MARK", "PGHERD_OTHER")  # the tests themselves have the mark, and so would all that they start
    accounts(0, postgres=UNUSED)

    def start(argv, **options):
        return subprocess.Popen(argv, env={"PATH": os.environ["PATH"]}, **options)

    with running(start) as process:
        message = rf"user 'postgres' already runs process {process.pid} \(.*useradd --system pgherd'.* --run-as"
        with pytest.raises(CapabilityError, match=message):
            server_user.server_account()
        assert server_user.server_account("postgres") == "postgres"
        accounts(0, pgherd=UNUSED)
        assert server_user.server_account() == "pgherd"


@as_root
def test_a_process_that_has_lost_its_postmaster_may_end_by_itself(accounts, monkeypatch) -> None:
    monkeypatch.setattr(server_user, "MARK", "PGHERD_OTHER")
    accounts(0, postgres=UNUSED)
    command = ["setpriv", f"--reuid={UNUSED}", "--clear-groups", "sh", "-c", "echo; exec sleep 0.5"]
    with subprocess.Popen(command, env={"PATH": os.environ["PATH"]}, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert server_user._processes_of_others(UNUSED)
        assert server_user.server_account() == "postgres"


@as_root
def test_processes_of_pgherd_and_what_they_start_are_no_others(accounts) -> None:
    """The inner process has no mark of its own, as a backend, which writes its title over its environment."""
    accounts(0, postgres=UNUSED)

    def start(argv, **options):
        return subprocess.Popen(argv, env=environment({}), **options)

    for command in ((), ("sh", "-c", 'env --unset=PGHERD_PROCESS "$@"; :', "sh")):
        with running(start, *command):
            assert server_user.server_account() == "postgres"


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
