"""Servers started for real, on the newest system PostgreSQL and on the embedded one."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pgherd.host import processes
from pgherd.model.errors import TrialError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command
from pgherd.postgres import relation_files
from pgherd.postgres.imported_settings import import_settings
from pgherd.postgres.installations import Installation
from pgherd.postgres.instance import WRITABLE, Instance, initdb, start_all, stop_all
from pgherd.postgres.settings import choose_settings, reload_or_restart
from pgherd.postgres.settings_validation import contexts
from pgherd.runner.deploy.servers import buffer_readings

_spec = importlib.util.spec_from_file_location("postgres_conftest", Path(__file__).parents[1] / "postgres/conftest.py")
assert _spec and _spec.loader
_shared = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_shared)
node, account, installation = _shared.node, _shared.account, _shared.installation

SMALL = {"shared_buffers": "8MB", "max_connections": "20", "fsync": "off"}


@pytest.fixture
def server(node: LocalNode, installation: Installation, account: str | None, place: Path) -> Iterator[Instance]:
    """A server that has not been started yet."""
    initdb(node, installation, str(place / "data"), account=account)
    instance = Instance(node, installation, str(place / "data"), str(place / "s"), account=account, name="db01/pg")
    instance.write_settings(SMALL)
    yield instance
    instance.stop("immediate", 5)


def again(instance: Instance) -> Instance:
    return Instance(
        instance.node,
        instance.installation,
        instance.data_dir,
        instance.socket_dir,
        account=instance.account,
        name="again",
        log=f"{instance.log}.2",
    )


def test_life_of_a_server(server: Instance, account: str | None) -> None:
    server.start()
    server.wait_ready()
    assert server.sql("SELECT %s + 1", [41]) == [(42,)]
    assert server.sql("SHOW listen_addresses") == [("",)]
    assert server.sql("SHOW cluster_name") == [("db01/pg",)]
    assert server.differing() == SMALL
    assert Path(f"/proc/{server.pid}").owner() == (account or Path("/proc/self").owner())
    assert Path(server.socket_dir).stat().st_mode & 0o777 == 0o700
    server.checkpoint()
    server.stop()
    assert server.ending() == "ended with exit code 0"
    assert "database system is shut down" in server.log_tail()


def test_reload_takes_what_it_can_and_refuses_what_is_wrong(server: Instance, node: LocalNode) -> None:
    server.start()
    server.wait_ready()
    known = contexts(node, server.installation)
    for new, step in (({**SMALL, "work_mem": "7MB"}, "reload"), ({**SMALL, "max_connections": "30"}, "restart")):
        assert reload_or_restart(SMALL, new, known) == step
        server.write_settings(new)
        server.reload()  # a setting that waits for a restart is no error
        assert server.differing() == (new if step == "reload" else SMALL)
    server.write_settings({**SMALL, "work_mem": "banana"})
    with pytest.raises(TrialError, match='invalid value for parameter "work_mem": "banana"'):
        server.reload()


def test_pgherd_writes_where_transactions_are_read_only_by_default(
    server: Instance, node: LocalNode, account: str | None, place: Path
) -> None:
    settings = {**SMALL, "default_transaction_read_only": "on"}
    directories = [str(place / name) for name in ("temp", "one")]
    server.write_settings(settings)
    server.start()
    server.wait_ready()
    for statement in (WRITABLE, "CREATE TABLE mine (id int)"):
        server.sql(statement)
    server.disconnect()
    for directory in directories:
        node.make_dir(directory, mode=0o700, user=account)
    relation_files.create(server, ["postgres"], relation_files.TablespaceDirs(directories[0], (directories[1],)))
    server.disconnect()
    moved = "SELECT spcname FROM pg_class c JOIN pg_tablespace t ON t.oid = c.reltablespace WHERE relname = 'mine'"
    assert server.sql("SHOW temp_tablespaces") == [("pgherd_temp",)] and server.sql(moved) == [("pgherd_space_0",)]
    if server.sql("SELECT 1 FROM pg_available_extensions WHERE name = 'pg_buffercache'"):
        wanted: Any = SimpleNamespace(final_readings=("buffers",))
        readings = buffer_readings(node, wanted, {("db01", "pg"): server})
        assert readings["server:db01/pg"]["buffers.filled"] > 0
    assert server.differing()["default_transaction_read_only"] == "on"
    assert server.sql("SHOW transaction_read_only") == [("on",)], "as it was configured"


def test_a_wrong_setting_shows_at_the_start_in_postgresqls_words(server: Instance) -> None:
    server.write_settings({**SMALL, "no_such_thing": "1"})
    server.start()
    with pytest.raises(TrialError, match=r'(?s)db01/pg ended with exit code 1 .*unrecognized configuration parameter "no_such_thing"'):
        server.wait_ready()


@pytest.mark.parametrize("earlier", ["version", "build"])
def test_a_postgresql_that_was_upgraded_meanwhile_is_no_longer_the_runs(server: Instance, earlier: str) -> None:
    now = server.installation
    was = {"version": f"{now.major}.0", "build": f"{now.version} (first package)"}[earlier]
    then = replace(now, build=was, version=was.split()[0])
    instance = Instance(server.node, then, server.data_dir, server.socket_dir, account=server.account, name="db01/pg")
    with pytest.raises(TrialError, match=re.escape(f"is PostgreSQL {now.build}, but {now.bin} held {was} when")):
        start_all([(instance, (), None)])
    assert not instance.running


def test_a_killed_server_is_noticed_cleaned_up_after_and_recovers(server: Instance, node: LocalNode) -> None:
    server.start()
    server.wait_ready()
    server.sql("CREATE TABLE kept AS SELECT 1 AS x")
    pid = server.pid
    os.kill(pid, signal.SIGKILL)
    assert processes.wait_until(lambda: not server.running)
    assert server.ending() == "was ended by signal SIGKILL"
    assert any(line.split()[4] == str(pid) for line in _segments(node))
    server.stop()
    assert not any(line.split()[4] == str(pid) for line in _segments(node)), "its shared memory is removed"
    server.start()
    server.wait_ready()
    assert server.sql("SELECT x FROM kept") == [(1,)]
    assert "was interrupted" in server.log_tail(50)


def _segments(node: LocalNode) -> list[str]:
    return node.read("/proc/sysvipc/shm").decode().splitlines()[1:]


def test_a_data_directory_or_socket_that_is_taken(server: Instance, node: LocalNode, place: Path) -> None:
    server.start()
    server.wait_ready()
    other = again(server)
    other.start()
    with pytest.raises(TrialError, match=r'lock file "postmaster\.pid" already exists'):
        other.wait_ready()
    assert server.sql("SELECT 1") == [(1,)]
    initdb(node, server.installation, str(place / "data2"), account=server.account)
    third = Instance(node, server.installation, str(place / "data2"), server.socket_dir, account=server.account, name="third")
    third.write_settings(SMALL)
    third.start()
    with pytest.raises(TrialError, match=r'lock file ".*\.s\.PGSQL\.5432\.lock" already exists'):
        third.wait_ready()
    assert server.running


def test_all_or_none_start(node: LocalNode, installation: Installation, account: str | None, place: Path) -> None:
    servers = []
    for number in range(3):
        data = place / str(number)
        initdb(node, installation, str(data), account=account)
        servers.append(Instance(node, installation, str(data), str(place / f"s{number}"), account=account, name=f"db{number}"))
        servers[-1].write_settings(SMALL)
    try:
        cpu = (min(os.sched_getaffinity(0)),)
        start_all([(server, (), cpu) for server in servers])
        assert [item.sql("SHOW cluster_name")[0][0] for item in servers] == ["db0", "db1", "db2"]
        assert {tuple(os.sched_getaffinity(element.pid)) for element in servers} == {cpu}
        stop_all(servers)
        assert [server.ending() for server in servers] == ["ended with exit code 0"] * 3
        servers[1].write_settings({"shared_buffers": "nonsense"})
        with pytest.raises(TrialError, match="server db1 ended"):
            start_all([(server, (), None) for server in servers])
        assert not any(server.running for server in servers)
    finally:
        stop_all(servers, "immediate", 5)


HOLDER = """
import os, sys
from pgherd.node.local import LocalNode
from pgherd.postgres.instance import initdb
from pgherd.postgres.installations import Installation
from pgherd.postgres.instance import Instance

bin_, place, account, ending = sys.argv[1:]
installation = Installation(bin_, "{version}", {major}, "system")
data = place + "/held"
initdb(LocalNode(), installation, data, account=account or None)
server = Instance(LocalNode(), installation, data, place + "/h", account=account or None)
server.write_settings({settings!r})
server.start()
server.wait_ready()
print(server.pid, flush=True)
if ending == "die":
    os.kill(os.getpid(), 9)
server.stop()
print(server.ending(), flush=True)
"""


def _hold(installation: Installation, place: Path, account: str | None, ending: str, prefix: list[str]) -> subprocess.CompletedProcess[str]:
    program = textwrap.dedent(HOLDER).format(version=installation.version, major=installation.major, settings=SMALL)
    argv = [*prefix, sys.executable, "-c", program, installation.bin, str(place), account or "", ending]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, cwd="/")


def test_a_server_ends_with_whoever_started_it(node, installation: Installation, account: str | None, place: Path) -> None:
    finished = _hold(installation, place, account, "die", [])
    assert finished.returncode == -signal.SIGKILL, finished.stderr
    pid = int(finished.stdout)
    assert processes.wait_until(lambda: processes.start_time(node, pid) is None, 30)
    assert "received immediate shutdown request" in (place / "held.log").read_text()


def test_as_an_ordinary_user(node, installation: Installation, account: str | None, place: Path) -> None:
    """The same without root: nothing but our own account."""
    prefix: list[str] = []
    if account is not None:
        prefix = ["setpriv", "--reuid", account, "--regid", str(place.stat().st_gid), "--clear-groups", "--"]
        if node.run(Command([sys.executable, "-c", "import pgherd.postgres.instance, psycopg"], user=account)).code:
            pytest.skip(f"account {account} cannot run this Python")
        home = place / "own"
        node.make_dir(str(home), user=account)
    else:
        home = place
    finished = _hold(installation, home, None, "stop", prefix)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines()[1] == "ended with exit code 0"


def test_like_a_running_server(server: Instance, node: LocalNode, account: str | None, place: Path) -> None:
    server.write_settings({**SMALL, "work_mem": "17MB", "archive_command": "scp secret"})
    server.start()
    server.wait_ready()
    server.sql("ALTER ROLE postgres SET random_page_cost = 1.5")
    server.disconnect()
    taken = import_settings(node, server.conninfo(), server.installation, account, str(place))
    assert taken.settings == {**SMALL, "work_mem": "17MB", "random_page_cost": "1.5"}
    assert {"port", "listen_addresses", "unix_socket_directories", "cluster_name"} <= {item.name for item in taken.dropped}
    assert "secret" not in str(taken)
    chosen = choose_settings(major=server.installation.major, database_bytes=10**6, clients=2, like=taken.settings)
    assert chosen.settings["work_mem"] == "17MB"
