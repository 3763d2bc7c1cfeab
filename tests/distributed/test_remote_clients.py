import os
import stat
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from pgherd.distributed import remote_clients
from pgherd.distributed.remote_clients import AgentTargetResolver, RemoteEndpoints, ServerAccess, require_tls
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.model.trial import Trial
from pgherd.node.local import LocalNode
from pgherd.postgres.installations import Installation
from pgherd.runner.deploy.targets import NO_CONTAINER, TargetEndpoint

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
    def endpoint(self, target):
        port = 5001 if "db1" in target else 5002
        return TargetEndpoint(NO_CONTAINER, "/copied/bin", "/socket", port, "bench", "postgres", 7)


def test_the_way_to_every_server_of_a_host_is_known_on_the_other(tmp_path):
    opened = ServerAccess(session(tmp_path, "a"), "10.0.0.1")
    assert opened.opening.address == "10.0.0.1" and stat.S_IMODE(os.stat(opened.opening.pem).st_mode) == 0o600
    ways = opened.ways(trial(), Stage())
    assert set(ways) == {"a/db1/pg/bench", "a/db2/pg/bench"}
    way = ways["a/db2/pg/bench"]
    assert (way.bin, way.host, way.port, way.database, way.user, way.scale) == ("/pg", "10.0.0.1", 5002, "bench", "postgres", 7)
    assert way.password not in repr(way) and way.password not in repr(opened.opening), "it is shown nowhere"
    assert "PRIVATE" not in way.authority, "the key stays with the server"

    remote = session(tmp_path, "b")
    endpoints = RemoteEndpoints()
    assert endpoints.get("a/db1/pg/bench") is None
    endpoints.learn(ways, remote, {"/pg": HERE})
    reach = endpoints.get("a/db1/pg/bench")
    assert (reach.bin, reach.host, reach.port, reach.database, reach.user, reach.scale) == (
        "/here/bin",
        "10.0.0.1",
        5001,
        "bench",
        "postgres",
        7,
    )
    assert reach.handle is NO_CONTAINER and reach.environment["PGSSLMODE"] == "verify-ca"
    passwords = (remote.work / "passwords").read_text()
    assert passwords.splitlines() == [f"10.0.0.1:{port}:*:postgres:{way.password}" for port in (5001, 5002)]
    assert stat.S_IMODE(os.stat(reach.environment["PGPASSFILE"]).st_mode) == 0o600
    assert Path(reach.environment["PGSSLROOTCERT"]).read_text() == way.authority
    endpoints.learn({}, remote, {})
    assert endpoints.get("a/db1/pg/bench") is None


def test_two_runs_share_no_password_and_no_authority(tmp_path):
    item, other = (ServerAccess(session(tmp_path, name), "10.0.0.1") for name in ("a", "b"))
    first, second = (opened.ways(trial(), Stage())["a/db1/pg/bench"] for opened in (item, other))
    assert first.password != second.password and first.authority != second.authority


def test_a_postgresql_without_tls_is_refused_with_what_helps(tmp_path, monkeypatch):
    monkeypatch.setattr(remote_clients.settings_validation, "no_tls", lambda *_: "SSL is not supported by this build")
    with pytest.raises(CapabilityError, match=r"18\.6 in /here/bin lacks it \(SSL is not supported.*--pg-bin, or omit --client-host"):
        require_tls(session(tmp_path, "a"), HERE)
    monkeypatch.setattr(remote_clients.settings_validation, "no_tls", lambda *_: "")
    require_tls(session(tmp_path, "c"), HERE)


FAR = TargetEndpoint(NO_CONTAINER, host="10.0.0.1", port=5001)


class FakeDeployer:
    """Reaches what is its own, and says so."""

    account = "someone"

    def __init__(self):
        self.checked = 0

    def endpoint(self, target):
        return TargetEndpoint(NO_CONTAINER, host="/socket")

    def view(self):
        return "view"

    def check(self):
        self.checked += 1

    def error_text(self, target):
        return f"the log of {target}"

    def guests(self):
        return {}

    def script(self, script):
        return script


class AgentsStageWays:
    def get(self, target):
        return FAR if target.startswith("a/") else None


def stage(begin=0.0, called_off=None):
    return AgentTargetResolver(FakeDeployer(), AgentsStageWays(), called_off or threading.Event(), begin)


def test_servers_of_other_hosts_are_reached_by_the_way_that_is_known():
    own = stage()
    assert own.endpoint("a/db1/pg/bench") is FAR and own.endpoint("b/db1/pg/bench").host == "/socket"
    assert own.error_text("a/db1/pg/bench") == "its server runs on host a" and own.error_text("b/x/pg/y") == "the log of b/x/pg/y"
    assert (own.account, own.guests(), own.script("s")) == ("someone", {}, "s")


def test_how_early_it_was_ready_is_when_it_was_last_asked_before_the_begin():
    early = stage(begin=time.time() + 100)
    assert early.view() == "view" and 90 < early.ready <= 100
    late = stage(begin=time.time() - 1)
    late.endpoint("b/x/pg/y")
    assert late.ready == 0.0


def test_a_play_that_is_called_off_ends_with_the_next_look():
    off = threading.Event()
    own = stage(called_off=off)
    own.check()
    off.set()
    with pytest.raises(TrialError, match="called off by the driver"):
        own.check()
