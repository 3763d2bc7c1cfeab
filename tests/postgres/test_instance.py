"""Instances without a PostgreSQL server, and initdb. tests/it/test_postgres.py starts real servers."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

import pytest

from pgherd.host.paths import SOCKET_PATH_MAX
from pgherd.model.errors import TrialError, UsageError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command
from pgherd.postgres import configuration
from pgherd.postgres.installations import Installation
from pgherd.postgres.instance import Instance, checksums_default, initdb, initdb_arguments, stop_all
from pgherd.postgres.tcp_access import TcpAccess, TcpListener

SCRIPTED = """#!{python}
import os, signal, sys, time
data = sys.argv[sys.argv.index("-D") + 1]
print("LOG:  hello")
{body}
"""


def scripted(directory: Path, body: str) -> Installation:
    """Bin directory whose postgres is a short Python script."""
    directory.mkdir()
    program = directory / "postgres"
    program.write_text(SCRIPTED.format(python=sys.executable, body=body))
    program.chmod(0o755)
    return Installation(str(directory), "18.6", 18, "system")


def instance(tmp_path: Path, body: str = "sys.exit(0)", name: str = "db01/pg") -> Instance:
    (tmp_path / "data").mkdir()
    return Instance(LocalNode(), scripted(tmp_path / "bin", body), str(tmp_path / "data"), str(tmp_path / "s"), name=name)


def test_a_socket_path_that_the_kernel_would_refuse() -> None:
    installation = Installation("/x", "18.6", 18, "system")
    longest = "/" + "s" * (SOCKET_PATH_MAX - len("//.s.PGSQL.5432"))
    Instance(LocalNode(), installation, "/d", longest)
    with pytest.raises(UsageError, match="has 108 bytes, but the kernel allows 107"):
        Instance(LocalNode(), installation, "/d", longest + "s")


def test_settings_are_written_whole_with_what_makes_the_server_private(tmp_path: Path) -> None:
    server = instance(tmp_path)
    (tmp_path / "data/postgresql.conf").write_text("old = 1\n")
    server.write_settings({"work_mem": "64MB", "search_path": "it's"})
    assert configuration.read((tmp_path / "data/postgresql.conf").read_text()).settings == {
        "work_mem": "64MB",
        "search_path": "it's",
        "listen_addresses": "",
        "unix_socket_directories": str(tmp_path / "s"),
        "port": "5432",
        "cluster_name": "db01/pg",
    }


def test_a_server_that_is_open_to_other_hosts_wants_tls_and_a_password_of_them(tmp_path: Path) -> None:
    opening = TcpListener("10.0.0.1", "/run/own/tls.pem", "secret")
    (tmp_path / "data").mkdir()
    server = Instance(LocalNode(), scripted(tmp_path / "bin", ""), str(tmp_path / "data"), str(tmp_path / "s"), port=6000, opening=opening)
    server.write_settings({"work_mem": "64MB"})
    settings = configuration.read((tmp_path / "data/postgresql.conf").read_text()).settings
    assert settings["listen_addresses"] == "10.0.0.1" and settings["port"] == "6000" and settings["ssl"] == "on"
    assert settings["ssl_cert_file"] == settings["ssl_key_file"] == "/run/own/tls.pem" and settings["ssl_min_protocol_version"] == "TLSv1.3"
    rules = [line.split() for line in (tmp_path / "data/pg_hba.conf").read_text().splitlines()]
    assert rules[0] == ["local", "all", "all", "trust"] and [rule[0] for rule in rules[1:]] == ["hostssl", "hostssl"]
    assert {rule[-1] for rule in rules[1:]} == {"scram-sha-256"}
    assert str(tmp_path / "s") in server.conninfo(), "pgherd connects by the socket"


def test_a_server_that_ends_while_starting_is_told_with_its_log(tmp_path: Path) -> None:
    server = instance(tmp_path, "print('FATAL:  no room'); sys.exit(3)")
    Path(server.log).write_text("from an earlier start\n")
    server.start()
    with pytest.raises(TrialError, match=r"server db01/pg ended with exit code 3 while starting") as error:
        server.wait_ready(30)
    assert "FATAL:  no room" in str(error.value)
    assert "earlier" not in str(error.value)
    assert not server.running


def test_a_log_of_any_size_is_read_from_its_end(tmp_path: Path) -> None:
    body = "os.truncate(data + '.log', 2**40); print('x' * 2**19); print('FATAL:  no room'); sys.exit(3)"
    server = instance(tmp_path, body)
    server.start()
    with pytest.raises(TrialError, match=r"FATAL:  no room$") as error:
        server.wait_ready(30)
    assert len(str(error.value)) < 2**19


def test_a_log_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret")
    server = instance(tmp_path)
    Path(server.log).symlink_to(tmp_path / "secret")
    assert "is a link" in server.log_tail()
    assert "s3cret" not in server.log_tail()


def test_missing_programs_are_told_too(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    server = Instance(
        LocalNode(), Installation(str(tmp_path / "nowhere"), "18.6", 18, "system"), str(tmp_path / "data"), str(tmp_path / "s")
    )
    server.start()
    with pytest.raises(TrialError, match="nowhere/postgres: (not found|No such file)"):
        server.wait_ready(30)


READY = """
pid_file = os.path.join(data, "postmaster.pid")
status = "ready" if {ready} else "starting"
open(pid_file, "w").write(f"{{os.getpid() + {offset}}}\\n{{data}}\\n1\\n5432\\n/s\\n\\n 1 2\\n{{status}}   \\n")
{more}
time.sleep(60)
"""


@pytest.mark.parametrize(("says", "mine"), [(True, True), (False, True), (True, False)])
def test_ready_is_what_its_own_pid_file_says(tmp_path: Path, says: bool, mine: bool) -> None:
    """The pid file of another process (left by a killed server, or cloned) is ignored."""
    server = instance(tmp_path, READY.format(ready=says, offset=0 if mine else 1, more=""))
    server.start()
    try:
        while not (tmp_path / "data/postmaster.pid").exists():
            assert server.running
        while not (tmp_path / "data/postmaster.pid").read_text().endswith("\n"):
            assert server.running
        assert server.ready() == (says and mine)
        with pytest.raises(TrialError, match="already runs"):
            server.start()
    finally:
        server.stop("immediate", 0.1)


def test_waiting_ends(tmp_path: Path) -> None:
    server = instance(tmp_path, "time.sleep(60)")
    server.start()
    with pytest.raises(TrialError, match="not ready within 0 s: db01/pg"):
        server.wait_ready(0.3)
    server.stop("immediate", 5)


def test_what_ignores_a_shutdown_is_made_to_end(tmp_path: Path) -> None:
    body = "signal.signal(signal.SIGINT, signal.SIG_IGN); open(os.path.join(data, 'up'), 'w'); time.sleep(60)"
    server = instance(tmp_path, body)
    server.start()
    while not (tmp_path / "data/up").exists():
        assert server.running
    server.stop("fast", 2.0)  # SIGINT is ignored, SIGQUIT is not
    assert server.ending() == "was ended by signal SIGQUIT"


def test_one_that_never_ran_can_be_stopped(tmp_path: Path) -> None:
    server = instance(tmp_path)
    stop_all([server, server])
    assert server.ending() == "has not ended"
    assert server.log_tail() == ""
    with pytest.raises(TrialError, match="has not been started"):
        _ = server.pid


def test_conninfo_names_the_socket(tmp_path: Path) -> None:
    server = instance(tmp_path)
    assert f"host={tmp_path}/s" in server.conninfo("bench")
    assert "dbname=bench" in server.conninfo("bench")
    assert "user=postgres" in server.conninfo()


def test_arguments_follow_the_version() -> None:
    assert "--locale-provider=builtin" in initdb_arguments(17)
    assert "--locale-provider=builtin" not in initdb_arguments(16)
    assert "huge_pages=off" in initdb_arguments(16) and "huge_pages=off" not in initdb_arguments(15)  # which has no --set
    assert "--data-checksums" not in initdb_arguments(18, checksums=True)  # its default
    assert "--no-data-checksums" in initdb_arguments(18, checksums=False)
    assert "--data-checksums" in initdb_arguments(15, checksums=True)
    assert not [argument for argument in initdb_arguments(15, checksums=False) if "checksums" in argument]
    assert "--auth-host=reject" in initdb_arguments(15)


@pytest.mark.parametrize("checksums", [None, True, False])
def test_initdb_makes_a_cluster_of_the_account(node: LocalNode, installation: Installation, account, place: Path, checksums) -> None:
    data = place / "data"
    initdb(node, installation, str(data), account=account, checksums=checksums)
    assert (data / "PG_VERSION").read_text().strip() == str(installation.major)
    assert data.stat().st_mode & 0o777 == 0o700
    assert account is None or data.owner() == account
    output = node.run(Command([installation.tool("pg_controldata"), str(data)], user=account)).out
    on = checksums_default(installation.major) if checksums is None else checksums
    version = int(next(line.split(":")[1] for line in output.splitlines() if line.startswith("Data page checksum version")))
    assert (version != 0) == on


def test_a_failed_initdb_reports_its_error(node: LocalNode, installation: Installation, account: str | None, place: Path) -> None:
    data = place / "data"
    node.make_dir(str(data), user=account)
    (data / "something").write_bytes(struct.pack("i", 1))
    with pytest.raises(TrialError, match=r"exists but is not empty"):
        initdb(node, installation, str(data), account=account)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for another user")
def test_settings_replace_links_of_the_servers_user(tmp_path: Path) -> None:
    server = instance(tmp_path)
    server.account, server.access = "nobody", TcpAccess("127.0.0.1", 1, "/x", "p")
    victims = []
    for name in ("postgresql.conf", "pg_hba.conf"):
        victims.append(tmp_path / f"victim of {name}")
        victims[-1].write_text("kept")
        (tmp_path / "data" / name).symlink_to(victims[-1])
    os.chown(tmp_path / "data", 65534, 65534)
    server.write_settings({"work_mem": "64MB"})
    assert [victim.read_text() for victim in victims] == ["kept", "kept"]
    for name in ("postgresql.conf", "pg_hba.conf"):
        file = tmp_path / "data" / name
        assert not file.is_symlink() and file.owner() == "nobody" and file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("link", ["/etc/passwd", None])
def test_a_lock_file_that_is_a_link_or_a_pipe_fails_the_start(tmp_path: Path, link: str | None) -> None:
    server = instance(tmp_path, "time.sleep(60)")
    path = tmp_path / "data/postmaster.pid"
    path.symlink_to(link) if link else os.mkfifo(path)
    server.start()
    try:
        with pytest.raises(TrialError, match="cannot be watched: .*postmaster.pid is (a link|no regular file)"):
            server.ready()
    finally:
        server.kill()
