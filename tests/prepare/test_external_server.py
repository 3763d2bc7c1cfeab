from dataclasses import fields, replace

import pytest

from pgherd.model.errors import UsageError
from pgherd.node.local import LocalNode
from pgherd.postgres.external_connections import Pooler
from pgherd.postgres.external_server import ExternalDatabaseInfo
from pgherd.prepare import servers
from pgherd.prepare.load import RequestedLoad

FOUND = ExternalDatabaseInfo(dsn="host=h", version="17.2", major=17, database="app", bytes=2**20, scale=5)


@pytest.fixture(autouse=True)
def looked(monkeypatch):
    """Nobody is connected to; what was asked of whom is noted."""
    calls = []

    def look(dsn, *, writes, option, node):
        calls.append((dsn, writes))
        return FOUND

    monkeypatch.setattr(servers.external_server, "read_database_info", look)
    return calls


def find(read_only=True, **asked):
    not_external = tuple(name for name in servers.ONLY_OWN if name in asked)
    load = dict.fromkeys(field.name for field in fields(RequestedLoad)) | {"workload": "select-only", "scripts": (), "protocol": "prepared"}
    load |= {"start_state": "warm", "given": frozenset(asked)} | {name: asked[name] for name in asked if name not in not_external}
    return servers.find_external(LocalNode(), "postgresql://h", not_external, RequestedLoad(**load), read_only=read_only)


def test_a_server_is_looked_at(looked):
    assert find() is FOUND
    assert find(read_only=False, allow_writes=True, workload="tpcb-like") is FOUND
    assert looked == [("host=h", False), ("host=h", True)]


def test_clients_of_an_external_server_may_run_under_sched_batch(looked):
    assert find(scheduler="batch-clients") is FOUND


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"set": ("work_mem=1MB",)}, "--set does not go with --dsn: host=h is external"),
        ({"settings_from": "x.conf"}, "--settings-from does not go"),
        ({"wal_volume": "/tmp"}, "--wal-volume does not go"),
        ({"init_script": "x.sql"}, "--init-script does not go"),
        ({"runtime": "cgroup"}, "--runtime does not go"),
        ({"memory": "1GB"}, "--memory does not go"),
        ({"cpu_mode": "quota"}, "--cpu-mode does not go"),
        ({"data_checksums": False}, "--data-checksums does not go"),
        ({"start_state": "restarted"}, "--start-state restarted does not go"),
        ({"client_placement": "inside"}, "--client-placement inside does not go"),
        ({"scheduler": "batch"}, "--scheduler batch does not go.*CPUSchedulingPolicy=batch.*--scheduler batch-clients"),
        ({"scheduler": "batch-servers"}, "--scheduler batch-servers does not go"),
        ({"scale": 6}, "--scale is 6"),
    ],
)
def test_what_is_of_servers_of_our_own_is_refused(asked, message, looked):
    with pytest.raises(UsageError, match=message):
        find(**asked)
    assert "scale" in asked or not looked, "nobody is connected to for nothing"


@pytest.mark.parametrize(
    ("asked", "what"),
    [({"workload": "tpcb-like"}, "--workload tpcb-like writes"), ({"scripts": ("x.sql",)}, "--script is assumed to write")],
)
def test_writing_must_be_allowed(asked, what, looked):
    with pytest.raises(UsageError, match=f"is read only by default, and {what}.*--allow-writes"):
        find(read_only=False, **asked)
    assert not looked


def test_what_a_reader_is_told():
    said = servers.describe_external(FOUND, read_only=True, vcpus=2, trace_io=True)
    assert said[0] == "Server host=h: PostgreSQL 17.2; database 'app' of 1 MB, pgbench's tables of scale 5."
    assert "only read" in said[1] and said[2].startswith("Warning: --vcpus 2 does not apply")
    assert said[3].startswith("Warning: --trace-io cannot trace an external server")
    assert "--allow-writes" in servers.describe_external(FOUND, read_only=False, vcpus=2, trace_io=True)[1]


def test_what_a_reader_is_told_behind_a_pooler():
    said = servers.describe_external(replace(FOUND, pooler=Pooler("PgBouncer 1.18.0")), read_only=True, vcpus=None, trace_io=False)
    assert "only read" in said[1] and "of this user behind PgBouncer 1.18.0" in said[1]
    assert "every session starts with" not in said[1], "a pooler does not pass that on"
    assert said[2].startswith("Warning: --query-timeout does not apply behind PgBouncer 1.18.0")


@pytest.mark.parametrize(("shared", "protocol", "refused"), [(True, "prepared", True), (True, "simple", False), (False, "prepared", False)])
def test_prepared_statements_do_not_stay_in_shared_sessions(monkeypatch, shared, protocol, refused):
    found = replace(FOUND, pooler=Pooler("PgBouncer 1.18.0", shared=shared))
    monkeypatch.setattr(servers.external_server, "read_database_info", lambda dsn, *, writes, option, node: found)
    if not refused:
        assert find(protocol=protocol) is found
        return
    with pytest.raises(UsageError, match="--protocol prepared does not go with --dsn host=h: PgBouncer 1.18.0 shares sessions"):
        find(protocol=protocol)
