import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from pgherd.model.errors import CapabilityError
from pgherd.model.trial import Trial
from pgherd.node.local import LocalNode
from pgherd.postgres.installations import Installation
from pgherd.runner.deploy.targets import NO_ROOM, Reach
from pgherd.runner.hosts import distant_clients
from pgherd.runner.hosts.distant_clients import Opened, Ways, insist_tls

pytest.importorskip("cryptography", reason="the extra [cluster] is not installed")

HERE = Installation("/here/bin", "18.6", 18, "system")


def session(tmp_path, name):
    work = tmp_path / name
    work.mkdir()
    return SimpleNamespace(work=work, account=None, node=LocalNode())


def trial():
    servers = [{"bin": "/pg", "version": "18.6", "databases": [{"name": "bench", "scale": 7}]}]
    containers = [{"name": name, "servers": servers} for name in ("db1", "db2")]
    deployment = {"hosts": [{"name": "a", "containers": containers}]}
    return Trial.model_validate({"point": {"x": 1}, "deployment": deployment, "phases": [{}]})


class Stage:
    def reach(self, target):
        port = 5001 if "db1" in target else 5002
        return Reach(NO_ROOM, "/copied/bin", "/socket", port, "bench", "postgres", 7)


def test_the_way_to_every_server_of_a_host_is_known_on_the_other(tmp_path):
    opened = Opened(session(tmp_path, "a"), "10.0.0.1")
    assert opened.opening.address == "10.0.0.1" and stat.S_IMODE(os.stat(opened.opening.pem).st_mode) == 0o600
    ways = opened.ways(trial(), Stage())
    assert set(ways) == {"a/db1/pg/bench", "a/db2/pg/bench"}
    way = ways["a/db2/pg/bench"]
    assert (way.bin, way.host, way.port, way.database, way.user, way.scale) == ("/pg", "10.0.0.1", 5002, "bench", "postgres", 7)
    assert way.password not in repr(way) and way.password not in repr(opened.opening), "it is shown nowhere"
    assert "PRIVATE" not in way.authority, "the key stays with the server"

    there = session(tmp_path, "b")
    known = Ways()
    assert known.get("a/db1/pg/bench") is None
    known.learn(ways, there, {"/pg": HERE})
    reach = known.get("a/db1/pg/bench")
    assert (reach.bin, reach.host, reach.port, reach.database, reach.user, reach.scale) == (
        "/here/bin",
        "10.0.0.1",
        5001,
        "bench",
        "postgres",
        7,
    )
    assert reach.room is NO_ROOM and reach.environment["PGSSLMODE"] == "verify-ca"
    passwords = (there.work / "passwords").read_text()
    assert passwords.splitlines() == [f"10.0.0.1:{port}:*:postgres:{way.password}" for port in (5001, 5002)]
    assert stat.S_IMODE(os.stat(reach.environment["PGPASSFILE"]).st_mode) == 0o600
    assert Path(reach.environment["PGSSLROOTCERT"]).read_text() == way.authority
    known.learn({}, there, {})
    assert known.get("a/db1/pg/bench") is None


def test_two_runs_share_no_password_and_no_authority(tmp_path):
    one, other = (Opened(session(tmp_path, name), "10.0.0.1") for name in ("a", "b"))
    first, second = (opened.ways(trial(), Stage())["a/db1/pg/bench"] for opened in (one, other))
    assert first.password != second.password and first.authority != second.authority


def test_a_postgresql_without_tls_is_refused_with_what_helps(tmp_path, monkeypatch):
    monkeypatch.setattr(distant_clients.validation, "no_tls", lambda *_: "SSL is not supported by this build")
    with pytest.raises(
        CapabilityError, match=r"18\.6 in /here/bin cannot have \(SSL is not supported.*--pg-bin, or leave --client-host out"
    ):
        insist_tls(session(tmp_path, "a"), HERE)
    monkeypatch.setattr(distant_clients.validation, "no_tls", lambda *_: "")
    insist_tls(session(tmp_path, "c"), HERE)
