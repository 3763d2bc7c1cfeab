"""Parameters of libpq from every source. tests/it/test_external.py gives them to a real pgbench."""

import pytest

from pgherd.model.errors import UsageError
from pgherd.postgres import libpq_parameters
from pgherd.postgres.libpq_parameters import explicit, for_driver


@pytest.fixture(autouse=True)
def bare(monkeypatch, tmp_path):
    import os

    for name in [name for name in os.environ if name.startswith("PG")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_the_dsn_comes_before_the_environment(monkeypatch):
    monkeypatch.setenv("PGSSLMODE", "require")
    monkeypatch.setenv("PGOPTIONS", "-c jit=off")
    monkeypatch.setenv("PGAPPNAME", "mine")
    found = explicit("host=/h sslmode=disable keepalives=0")
    assert found["sslmode"] == "disable" and found["keepalives"] == "0"
    assert found["options"] == "-c jit=off" and found["application_name"] == "mine"


def test_defaults_are_left_out():
    assert for_driver(explicit("host=/h user=u dbname=d"), tls=False) == {}


@pytest.mark.parametrize("named", ["dsn", "environment"])
def test_a_service_is_resolved(monkeypatch, tmp_path, named):
    (tmp_path / "services").write_text("[theirs]\nhost=/nonexistent\nkeepalives_idle=7\noptions=-c jit=off\nsslmode=allow\n")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    if named == "environment":
        monkeypatch.setenv("PGSERVICE", "theirs")
    found = explicit("service=theirs user=u" if named == "dsn" else "user=u")
    assert found["options"] == "-c jit=off", "pgherd's options come after these, not instead of them"
    assert for_driver(found, tls=False) == {"keepalives_idle": "7", "sslmode": "allow"}


def test_a_service_that_is_not_there_is_left_to_the_connection(tmp_path, monkeypatch):
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "none"))
    assert explicit("service=none user=u")["user"] == "u"


def test_no_secret_and_no_address_is_passed_on():
    given = {"password": "x", "host": "h", "port": "1", "passfile": "p", "service": "s", "tcp_user_timeout": "5"}
    assert for_driver(given, tls=True) == {"tcp_user_timeout": "5"}
    for secret in set(libpq_parameters.SECRETS) - {"password"}:
        with pytest.raises(UsageError, match=f"^{secret} cannot be passed on to pgbench"):
            for_driver({**given, secret: "x"}, tls=True)


def test_default_files_are_this_users(bare):
    (bare / ".postgresql").mkdir()
    root = bare / ".postgresql" / "root.crt"
    root.write_text("x")
    assert for_driver({}, tls=True) == {"sslrootcert": str(root)}
    assert for_driver({}, tls=False) == {}, "nothing is encrypted"
    assert for_driver({"sslrootcert": "system"}, tls=True) == {"sslrootcert": "system"}
