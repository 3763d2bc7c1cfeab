from types import SimpleNamespace

import psycopg
import pytest

from pgherd.model.deployment import Container, Database, Server
from pgherd.model.errors import TrialError, UsageError
from pgherd.postgres.external import Address
from pgherd.runner.deploy import attached as module
from pgherd.runner.deploy.attached import Attached
from pgherd.runtimes.runtime import Room

KEY = ("theirs", "pg")


class Pretended:
    """Somebody's server; ``refuses`` those that let nobody in, ``gone`` those that answer no more."""

    major = 17
    refuses: set = set()  # noqa: RUF012
    gone: set = set()  # noqa: RUF012
    let_go: list = []  # noqa: RUF012

    def __init__(self, node, dsn, *, name, passfile, account):
        if dsn in self.refuses:
            raise UsageError(f"{dsn}: no connection")
        self.dsn, self.passfile = dsn, passfile

    def address(self, *, writes):
        return Address("h", 1, "u", "app", {} if writes else {"PGOPTIONS": "ro"})

    def conninfo(self):
        return self.dsn

    def differing(self):
        if self.dsn in self.gone:
            raise psycopg.OperationalError("gone")
        return {"work_mem": "5MB"}

    def disconnect(self):
        self.let_go.append(self.dsn)


@pytest.fixture
def attached(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "External", Pretended)
    for name in ("refuses", "gone"):
        monkeypatch.setattr(Pretended, name, set())
    monkeypatch.setattr(Pretended, "let_go", [])
    return Attached(SimpleNamespace(node=None, work=tmp_path, account=None))


def wanted(dsn="host=h"):
    server = Server(bin="/pg", version="17.1", dsn=dsn, databases=(Database(scale=4),))
    return {KEY: (Container(name="theirs", runtime="external", servers=(server,)), server)}


def test_the_way_there_is_read_only_unless_the_load_writes(attached):
    attached.attach(wanted())
    assert KEY in attached and ("other", "pg") not in attached
    for writes, environment in ((False, {"PGOPTIONS": "ro"}), (True, {})):
        reach = attached.reach(KEY, Room("theirs"), "/usable", Database(scale=4), writes=writes)
        assert (reach.bin, reach.host, reach.port, reach.database, reach.user, reach.scale) == ("/usable", "h", 1, "app", "u", 4)
        assert reach.environment == environment


def test_what_is_seen_of_it_is_what_it_says(attached):
    assert attached.settings() is None
    attached.attach(wanted())
    (view,) = attached.views()
    assert (view.name, view.conninfo, view.major, view.pid) == ("theirs/pg", "host=h", 17, 0)
    assert attached.settings() == {"work_mem": "5MB"}
    Pretended.gone.add("host=h")
    assert attached.settings() is None


def test_one_that_never_was_there_ends_the_run_and_one_that_was_fails_a_trial(attached):
    Pretended.refuses.add("host=h")
    with pytest.raises(UsageError, match="no connection"):
        attached.attach(wanted())
    Pretended.refuses.clear()
    attached.attach(wanted())
    Pretended.refuses.add("host=h")
    with pytest.raises(TrialError, match="no connection"):
        attached.attach(wanted())
    assert KEY not in attached


def test_it_is_let_go(attached):
    attached.attach(wanted())
    attached.attach(wanted("host=other"))
    assert Pretended.let_go == ["host=h"]
    attached.detach(KEY)
    attached.detach(KEY)
    assert Pretended.let_go == ["host=h", "host=other"] and not attached.views()
