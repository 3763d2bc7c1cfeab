"""Programs on a host, through a client that only pretends."""

from __future__ import annotations

import os
import shlex
import stat
import sys
import threading

import pytest

from pgherd.cluster.ssh import _REMOTE, Ssh, _run_with_input, check_hosts, joined_name
from pgherd.model.errors import CapabilityError, TrialError, UsageError

# The last word is the remote command: a host's own shell runs it, as sshd would have it.
CLIENT = """#!/bin/sh
printf '%s\\n' "$@" >>"$FAKE_LOG"
case "$*" in *-G*) echo "user root"; echo "hostname 10.1.2.3"; exit;; esac
[ -z "$FAKE_CODE" ] || { echo "ssh: $FAKE_SAYS" >&2; exit "$FAKE_CODE"; }
for last; do :; done
exec /bin/sh -c "$last"
"""


@pytest.fixture
def client(tmp_path, monkeypatch):
    """A client in the PATH; the file with the words that it was called with, one a line."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/ssh"
    program.write_text(CLIENT)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "bin/python3").symlink_to(os.path.realpath(sys.executable))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("FAKE_CODE", "")
    return tmp_path / "log"


def test_the_program_travels_and_answers(client, tmp_path):
    (tmp_path / "log file").write_text("")
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent/log").write_text("one\nit said; `this` $HOME 'and' \"that\"\n")
    answer = Ssh("/some/config").run("db1", {"action": "log", "directory": str(tmp_path / "agent")})
    assert answer == {"log": "one\nit said; `this` $HOME 'and' \"that\""}
    text = client.read_text()
    assert "-F\n/some/config\n" in text and "BatchMode=yes\n" in text and "\n--\ndb1\n" in text
    assert str(tmp_path / "agent") not in text, "nothing of the orders is in the command line"


def test_what_follows_the_orders_reaches_the_program_or_is_left_unread(client, tmp_path, monkeypatch):
    parts = (b"one", b"2" * 300_000, b"three")
    program = "import json, sys; print(json.dumps({'got': len(sys.stdin.buffer.read())}))"
    monkeypatch.setattr("pgherd.cluster.ssh.files", lambda package: tmp_path)
    (tmp_path / "bootstrap.py").write_text(program)
    assert Ssh().run("db1", {}, *parts) == {"got": sum(map(len, parts))}
    (tmp_path / "bootstrap.py").write_text("print('{}')")
    assert Ssh().run("db1", {}, *parts) == {}, "it has what it needs"


def test_a_host_that_takes_what_it_is_sent_is_not_silent(client, monkeypatch):
    """However long all of it takes: the watch begins anew with every piece."""
    begun = []

    class Timer(threading.Timer):
        def start(self):
            begun.append(self.interval)
            super().start()

    monkeypatch.setattr("pgherd.cluster.ssh.threading.Timer", Timer)
    monkeypatch.setattr("pgherd.cluster.ssh._CHUNK", 1000)
    with_input = _run_with_input(["cat"], (b"x" * 5000, b"", b"y" * 1001), 60.0)
    assert with_input.stdout == b"x" * 5000 + b"y" * 1001 and begun == [60.0] * 8


OTHER = """#!/bin/sh
case "$3" in *version_info*) exit 1 ;; esac
echo '{"took": "another version"}'
"""
"""A Python that is of another version."""


def test_a_python_of_the_driver_s_version_is_taken_before_others(client, tmp_path, monkeypatch):
    """Also where what lies at the driver's own path is not; and any at all where there is none, to say why it will not do."""
    own = tmp_path / "bin/own python"
    monkeypatch.setattr("pgherd.cluster.ssh._REMOTE", _REMOTE.replace(shlex.quote(sys.executable), shlex.quote(str(own))))
    for path in (own, tmp_path / f"bin/python3.{sys.version_info[1]}"):
        path.write_text(OTHER)
        path.chmod(0o755)
    (tmp_path / "agent").mkdir()
    orders = {"action": "log", "directory": str(tmp_path / "agent")}
    assert Ssh().run("db1", orders)["log"].startswith("no log")
    (tmp_path / "bin/python3").unlink()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}")
    assert Ssh().run("db1", orders) == {"took": "another version"}


@pytest.mark.skipif(os.geteuid() != 0, reason="files of another user need root")
@pytest.mark.parametrize("kind", ["ours", "their directory", "a writable directory", "a writable file", "their link", "a link to theirs"])
def test_a_python_that_another_user_of_the_host_can_exchange_is_not_run(client, tmp_path, monkeypatch, kind):
    """At the driver's path, a user of the host may have made one, which root would run."""
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    python = home / "bin/own python"
    python.write_text('#!/bin/sh\necho \'{"took": "it"}\'\n')
    python.chmod(0o755)
    used = python
    match kind:
        case "their directory":
            os.chown(home, 54321, 54321)
        case "a writable directory":
            home.chmod(0o777)
        case "a writable file":
            python.chmod(0o775)
        case "their link":
            used = tmp_path / "link"
            used.symlink_to(python)
            os.chown(used, 54321, 54321, follow_symlinks=False)
        case "a link to theirs":
            used = tmp_path / "link"
            used.symlink_to(python)
            os.chown(home, 54321, 54321)
    monkeypatch.setattr("pgherd.cluster.ssh._REMOTE", _REMOTE.replace(shlex.quote(sys.executable), shlex.quote(str(used))))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    (tmp_path / "agent").mkdir()
    answer = Ssh().run("db1", {"action": "log", "directory": str(tmp_path / "agent")})
    assert ("took" in answer) == (kind == "ours")


@pytest.mark.parametrize(
    "code, says, kind, reason",
    [
        ("255", "connect to host db1 port 22: Connection refused", UsageError, r"db1 cannot be reached: .*Connection refused.*BatchMode"),
        ("127", "not found", CapabilityError, rf"db1 has no Python; install python3\.{sys.version_info[1]} there"),
        ("1", "a riddle", CapabilityError, "sent an unexpected answer: ssh: a riddle"),
    ],
)
def test_what_goes_wrong_is_said(client, monkeypatch, code, says, kind, reason):
    monkeypatch.setenv("FAKE_CODE", code)
    monkeypatch.setenv("FAKE_SAYS", says)
    with pytest.raises(kind, match=reason):
        Ssh().run("db1", {"action": "log", "directory": "/x"})


def test_what_the_host_refuses_is_its_own_message(client, tmp_path):
    (tmp_path / "agent").write_text("a file where a directory should be")
    orders = {"action": "stop", "directory": str(tmp_path / "agent"), "python": "/nonexistent/python"}
    with pytest.raises(CapabilityError, match=r"host db1: FileNotFoundError: .*/nonexistent/python"):
        Ssh().run("db1", orders)


def test_a_host_that_does_not_answer_in_time(client, tmp_path):
    (tmp_path / "bin/ssh").write_text("#!/bin/sh\nexec sleep 20\n")
    for payload in (b"", b"x" * 300_000):  # more than a pipe holds: it would be written for ever
        with pytest.raises(TrialError, match="did not respond over ssh within 0 s"):
            Ssh().run("db1", {"action": "log", "directory": "/x"}, payload, timeout=0.2)


def test_the_address_is_what_the_configuration_says(client):
    assert Ssh().address("db1") == "10.1.2.3"


@pytest.mark.parametrize("text", ["", "a,", "-oProxyCommand=x", "a b", "a,;rm", "a,$(x)", "@a", "a@", "_a", "fe80::1%eth0", "root@_a"])
def test_names_that_are_none(text):
    with pytest.raises(UsageError, match="is not a valid host name"):
        check_hosts(text)


def test_names_of_hosts():
    assert check_hosts(r"ann@corp.example@db1,CORP\ann@db2") == ("ann@corp.example@db1", r"CORP\ann@db2")
    assert joined_name("ann@corp.example@db1") == "db1"
    assert check_hosts("a,root@10.0.0.2, db-3.example") == ("a", "root@10.0.0.2", "db-3.example")
    with pytest.raises(UsageError, match="names a twice"):
        check_hosts("a,b,a")
    with pytest.raises(UsageError, match="names a twice"):
        check_hosts("root@a,me@a")  # both would join under one name


def test_a_host_s_name_in_its_cluster_is_without_the_user():
    assert [joined_name(host) for host in ("root@10.0.0.2", "db-3.example")] == ["10.0.0.2", "db-3.example"]


TITLE = "\x1b]0;title\x07\x1b[2J"
"""Sets a terminal's title and clears it."""


@pytest.mark.parametrize(
    "program", ["print(json.dumps({'failed': T}))", "print(T)", "print(T, file=sys.stderr)", "print(json.dumps({'log': [{T: T}]}))"]
)
def test_a_host_does_not_control_the_terminal(client, tmp_path, monkeypatch, program):
    monkeypatch.setattr("pgherd.cluster.ssh.files", lambda package: tmp_path)
    (tmp_path / "bootstrap.py").write_text(f"import json, sys; T = {TITLE!r}; {program}")
    try:
        text = str(Ssh().run("db1", {}))
    except CapabilityError as error:
        text = str(error)
    assert "]0;title" in text and "\x1b" not in text and "\\x1b" not in text and "\x07" not in text
