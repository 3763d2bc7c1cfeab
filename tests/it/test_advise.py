"""`pgherd advise --dsn`: a real server's practice is read, by a superuser and by an ordinary user; nothing is changed."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pgherd.host.server_user import server_account
from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.postgres import installations
from pgherd.postgres.instance import Instance, initdb

NODE = LocalNode()
BAD = {"fsync": "off", "checkpoint_completion_target": "0.5", "autovacuum": "off", "shared_buffers": "32MB", "wal_compression": "off"}


@pytest.fixture(scope="module", params=["system", "embedded"])
def theirs(request: pytest.FixtureRequest) -> Iterator[Instance]:
    found = [one for one in installations.find_all(NODE) if one.kind == request.param]
    if not found:
        pytest.skip(f"there is no {request.param} PostgreSQL here")
    root = Path(tempfile.mkdtemp(prefix="theirs-", dir="/tmp"))
    root.chmod(0o755)
    account = server_account()
    try:
        usable = installations.reachable_copy(NODE, found[0], account, str(root))
    except CapabilityError as error:
        shutil.rmtree(root)
        pytest.skip(str(error))
    one = Instance(NODE, usable, str(root / "data"), str(root / "s"), account=account, name="theirs")
    try:
        initdb(NODE, usable, one.data_dir, account=account)
        one.write_settings(BAD)
        one.start()
        one.wait_ready()
        with psycopg.connect(one.conninfo(), autocommit=True) as connection:
            for statement in ("CREATE ROLE stranger LOGIN", "CREATE DATABASE a", "CREATE DATABASE b"):
                connection.execute(statement.encode())
        yield one
    finally:
        one.disconnect(["postgres"])
        one.stop("immediate", 10)
        shutil.rmtree(root)


def advice(pgherd, theirs, user):
    ended = pgherd("advise", "--dsn", f"host={theirs.socket_dir} user={user} dbname=postgres", "--json")
    assert ended.code == 0, ended
    document = json.loads(ended.out)
    return document, {one["check"]: one for one in document["advice"] if one["scope"] == "server"}


def test_a_badly_set_server_is_told_so_and_left_alone(pgherd, theirs):
    before = theirs.sql("SELECT name, setting FROM pg_settings ORDER BY 1"), Path(theirs.data_dir, "postgresql.auto.conf").read_bytes()
    document, found = advice(pgherd, theirs, theirs.user)
    assert {name for name, one in found.items() if one["outcome"] == "change"} == {"fsync", "checkpoint-completion-target", "autovacuum"}
    assert found["dedicated-server"]["outcome"] == "consider" and "2 databases" in found["dedicated-server"]["observed"]
    assert found["data-checksums"]["outcome"] in ("ok", "consider") and found["shared-buffers"]["observed"].startswith("32 MB")
    assert document["server"]["local"] is True
    if document["server"]["data"]:
        assert found["separate-wal-device"]["outcome"] == "consider", "data and WAL are both in its data directory"
    after = theirs.sql("SELECT name, setting FROM pg_settings ORDER BY 1"), Path(theirs.data_dir, "postgresql.auto.conf").read_bytes()
    assert before == after


def test_what_an_ordinary_user_may_not_see_is_unknown(pgherd, theirs):
    _, found = advice(pgherd, theirs, "stranger")
    assert found["separate-wal-device"]["outcome"] == "unknown", "the data directory is not shown to everybody"
    assert found["fsync"]["outcome"] == "change"
