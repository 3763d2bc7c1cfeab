from __future__ import annotations

import os
import pwd
import socket
import stat
import tempfile
from pathlib import Path

import pytest

from pgherd.host import paths
from pgherd.host.journal import Journal
from pgherd.host.paths import free_ports
from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode

NODE = LocalNode()


def test_root_keeps_its_state_where_other_accounts_can_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert paths.state_dir() == Path("/var/lib/pgherd")
    assert paths.cache_dir() == Path("/var/cache/pgherd")


@pytest.mark.parametrize("uid", [0, 1000])
def test_xdg_variables_win(monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setenv("XDG_STATE_HOME", "/srv/state")
    monkeypatch.setenv("XDG_CACHE_HOME", "/srv/cache")
    assert paths.state_dir() == Path("/srv/state/pgherd")
    assert paths.cache_dir() == Path("/srv/cache/pgherd")


@pytest.mark.skipif(os.geteuid() != 0, reason="directories of another user need root")
@pytest.mark.parametrize("variable, location", [("XDG_STATE_HOME", paths.state_dir), ("XDG_CACHE_HOME", paths.cache_dir)])
def test_root_uses_no_directory_that_another_user_can_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, location
) -> None:
    """As with ``sudo -E`` from an account that sets the variable."""
    (tmp_path / "home/state").mkdir(parents=True)
    monkeypatch.setenv(variable, str(tmp_path / "home/state"))
    assert location() == tmp_path / "home/state/pgherd"
    os.chown(tmp_path / "home", 54321, 54321)
    with pytest.raises(CapabilityError, match=f"unset {variable} to use /var/"):
        location()
    monkeypatch.setenv(variable, str(tmp_path / "home/new/state"))
    with pytest.raises(CapabilityError, match="other users can exchange files"):
        location()


def test_a_user_keeps_it_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/alice")
    assert paths.state_dir() == Path("/home/alice/.local/state/pgherd")


def test_sockets_get_a_short_private_directory(tmp_path: Path) -> None:
    journal = Journal.open(NODE, tmp_path, "run")
    root = Path(paths.socket_root(NODE, journal))
    try:
        assert len(os.fsencode(root)) <= paths.SOCKET_ROOT_MAX
        assert stat.S_IMODE(root.stat().st_mode) == 0o711
        assert len(os.fsencode(f"{root}/{'c' * 12}/{'s' * 12}/.s.PGSQL.65535")) < paths.SOCKET_PATH_MAX
    finally:
        journal.close()
    assert not root.exists()


def test_a_long_runtime_directory_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("x" * 60)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    journal = Journal.open(NODE, tmp_path, "run")
    try:
        assert paths.socket_root(NODE, journal).startswith("/tmp/pgherd-")
    finally:
        journal.close()


def test_the_first_closed_directory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Judged for an account that owns nothing here."""
    stranger = pwd.struct_passwd(("stranger", "x", 3_999_999, 3_999_999, "", "/", "/bin/false"))
    monkeypatch.setattr(pwd, "getpwnam", lambda name: stranger)
    monkeypatch.setattr(os, "getgrouplist", lambda name, group: [group])
    (tmp_path / "open/closed/data").mkdir(parents=True)
    (tmp_path / "open/closed").chmod(0o700)
    (tmp_path / "open").chmod(0o711)
    above = next((str(x) for x in [*reversed(tmp_path.parents), tmp_path] if not x.stat().st_mode & stat.S_IXOTH), None)
    assert paths.unreachable(tmp_path / "open/closed/data", "stranger") == (above or str(tmp_path / "open/closed"))
    assert paths.unreachable(tmp_path / "open", "stranger") == above
    assert paths.unreachable("/usr/bin", "stranger") is None
    assert paths.unreachable("/usr/does-not-exist/x", "stranger") is None
    assert paths.unreachable(tmp_path / "open/closed", None) is None


def test_owner_and_group_bits_count_for_owner_and_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getgrouplist", lambda name, group: [group])
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        result = os.stat(directory)
        for uid, gid, mode, may in (
            (result.st_uid, result.st_gid, 0o700, True),
            (result.st_uid + 1, result.st_gid, 0o710, True),
            (result.st_uid + 1, result.st_gid, 0o701, False),
            (result.st_uid + 1, result.st_gid + 1, 0o701, True),
            (result.st_uid + 1, result.st_gid + 1, 0o710, False),
        ):
            os.chmod(directory, mode)
            account = pwd.struct_passwd(("one", "x", uid, gid, "", "/", "/bin/false"))
            monkeypatch.setattr(pwd, "getpwnam", lambda name, account=account: account)
            assert paths.unreachable(directory, "one") == (None if may else directory)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only then servers run under another account")
def test_a_work_tree_is_made_where_the_account_can_enter_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o755)
        monkeypatch.setenv("XDG_CACHE_HOME", name)
        journal = Journal.open(NODE, tmp_path, "run")
        work = paths.work_tree(NODE, journal, "run", "nobody")
        assert work.is_dir() and stat.S_IMODE(work.stat().st_mode) == 0o711
        os.chmod(name, 0o700)
        with pytest.raises(CapabilityError, match=f"'nobody', which cannot enter {name}; run 'chmod o\\+x {name}', or set XDG_CACHE_HOME"):
            paths.work_tree(NODE, journal, "other", "nobody")
        assert journal.close() and not work.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only then servers run under another account")
def test_the_account_can_enter_a_new_cache_whatever_the_umask_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o755)
        monkeypatch.setenv("XDG_CACHE_HOME", f"{name}/of/mine")
        journal = Journal.open(NODE, tmp_path, "run")
        before = os.umask(0o077)
        try:
            work = paths.work_tree(NODE, journal, "run", "nobody")
        finally:
            os.umask(before)
        assert paths.unreachable(work, "nobody") is None
        assert journal.close()


def test_a_free_port_can_be_listened_on():
    (port,) = free_ports("127.0.0.1", 1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        assert port not in free_ports("127.0.0.1", 3)


def test_ports_are_different_and_none_of_those_that_are_taken(monkeypatch):
    inputs = iter([5000, 5001, 5000, 5002])

    class Probe(socket.socket):
        def bind(self, address):
            pass

        def getsockname(self):
            return ("127.0.0.1", next(inputs))

    assert len(set(free_ports("127.0.0.1", 50))) == 50
    monkeypatch.setattr(socket, "socket", Probe)
    assert free_ports("127.0.0.1", 2, {5000}) == [5001, 5002]
