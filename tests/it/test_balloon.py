"""``pgherd balloon`` as a user calls it: a server that loads what was built, its status, and a short demo."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import psycopg.conninfo
import pytest

from pgherd.host.facts import gather
from pgherd.host.server_user import server_account
from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.postgres import installations, pg_balloon
from pgherd.postgres.installations import Installation
from pgherd.postgres.instance import Instance, initdb
from pgherd.postgres.pg_balloon import BalloonLibrary

_spec = importlib.util.spec_from_file_location("further_postgres", Path(__file__).with_name("further_postgres.py"))
assert _spec and _spec.loader
further = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(further)

NODE = LocalNode()
MB = 2**20


@pytest.fixture(scope="module")
def cache() -> Iterator[Path]:
    """A cache that the servers' account can enter."""
    root = Path(tempfile.mkdtemp(prefix="pgherd-balloon-", dir="/tmp"))
    root.chmod(0o755)
    yield root
    shutil.rmtree(root)


def built(major: int, cache: Path) -> tuple[Installation, BalloonLibrary]:
    """The library for a major, where that can be had here with its headers."""
    try:
        if major in further.MAJORS:
            found = installations.choose(NODE, further.bin_of(major))
        else:
            found = next((one for one in installations.find_all(NODE) if one.major == major), None)
        if found is None:
            pytest.skip(f"there is no PostgreSQL {major} here")
        usable = installations.reachable_copy(NODE, found, server_account(), str(cache))
        return usable, pg_balloon.ensure_balloon(NODE, usable, str(cache), account=server_account())
    except (further.NotToBeHad, CapabilityError) as error:
        pytest.skip(f"PostgreSQL {major}: {error}")


@contextlib.contextmanager
def server(installation: Installation, settings: dict[str, str]) -> Iterator[Instance]:
    place = Path(tempfile.mkdtemp(prefix="pgherd-test-", dir="/tmp"))
    place.chmod(0o755)
    one = Instance(NODE, installation, str(place / "data"), str(place / "s"), account=server_account(), name="balloon")
    try:
        initdb(NODE, installation, one.data_dir, account=server_account())
        one.write_settings({"fsync": "off", "shared_buffers": "64MB", **settings})
        one.start()
        one.wait_ready()
        yield one
    finally:
        one.stop("immediate", 10)
        shutil.rmtree(place, ignore_errors=True)


@pytest.mark.parametrize("major", [15, 16, 17, 18])
def test_a_server_loads_what_was_built_and_tells_its_status(major: int, cache: Path, pgherd) -> None:
    """By settings alone; nothing is installed. What it loaded already stays loaded."""
    installation, library = built(major, cache)
    assert not pg_balloon.ensure_balloon(NODE, installation, str(cache)).built, "the second time it is in the cache"
    settings = pg_balloon.with_balloon({"shared_preload_libraries": "plpgsql"}, library, {"enabled": "on", "target": "40MB"})
    with server(installation, settings) as one:
        dsn = one.conninfo()
        before = pgherd("balloon", "status", dsn)
        assert before.code == 0 and "this database lacks its functions" in before.out, before
        pg_balloon.create_functions(NODE, installation, library, dsn)
        pg_balloon.create_functions(NODE, installation, library, dsn)  # again: nothing happens
        one.sql("CREATE DATABASE other")
        pgherd.wait_until(lambda: one.sql("SELECT ballooned_bytes FROM pg_balloon_status()")[0][0] > 0)
        said = pgherd("balloon", "status", dsn, "--json")
        document = json.loads(said.out)
        assert said.code == 0 and document["loaded"] and document["status"]["shared_buffers_bytes"] == 64 * MB
        assert pgherd("balloon", "status", dsn).out.count("pg_balloon.target") >= 1
        one.sql("CREATE ROLE nobody_special LOGIN")
        refused = pgherd("balloon", "status", psycopg.conninfo.make_conninfo(dsn, user="nobody_special"))
        assert refused.code == 2 and "pg_monitor" in refused.message
        if major >= 18:
            with psycopg.connect(one.conninfo("other"), autocommit=True) as connection:
                connection.execute("CREATE EXTENSION pg_balloon")
                assert connection.execute("SELECT pg_balloon_check()").fetchone() == (0,)
        assert one.sql("SELECT pg_balloon_check()") == [(0,)]


def test_functions_of_these_names_that_another_role_made_are_not_run(cache: Path, pgherd) -> None:
    """They would run with the rights of the DSN's user, a superuser here."""
    installation, library = built(15, cache)
    with server(installation, pg_balloon.with_balloon({}, library)) as one:
        one.sql("CREATE SCHEMA another")
        for name in ("pg_balloon_status", "pg_balloon_counters"):
            one.sql(f"CREATE FUNCTION another.{name}() RETURNS int LANGUAGE plpgsql AS 'BEGIN RAISE ''planted''; END'")
        found = pgherd("balloon", "status", one.conninfo())
        assert found.code == 0 and "this database lacks its functions" in found.out, found


def test_its_functions_are_created_where_transactions_are_read_only_by_default(cache: Path) -> None:
    installation, library = built(15, cache)
    with server(installation, pg_balloon.with_balloon({"default_transaction_read_only": "on"}, library)) as one:
        pg_balloon.create_functions(NODE, installation, library, one.conninfo())
        assert one.sql("SELECT 1 FROM pg_proc WHERE proname = 'pg_balloon_status'") == [(1,)]
        assert one.sql("SHOW transaction_read_only") == [("on",)]


def test_the_status_of_a_server_without_it(cache: Path, pgherd) -> None:
    found = installations.find_all(NODE)
    if not found:
        pytest.skip("there is no PostgreSQL here")
    usable = installations.reachable_copy(NODE, found[0], server_account(), str(cache))
    with server(usable, {}) as one:
        said = pgherd("balloon", "status", one.conninfo())
        assert said.code == 1 and "has not loaded pg_balloon" in said.out


needs_groups = pytest.mark.skipif(gather(NODE).cgroup_writable is None, reason="control groups cannot be made here")
DEMO = ("balloon", "demo", "--memory", "256MB", "--phase-length", "4s", "--phases", "2", "--clients", "2", "--yes")


def _skip_where_it_cannot_be_built() -> None:
    chosen = installations.choose(NODE)
    if lacking := pg_balloon.missing_to_build(NODE, chosen):
        pytest.skip(lacking)


@needs_groups
def test_the_demo_ends_with_what_was_seen_and_leaves_nothing(pgherd) -> None:
    _skip_where_it_cannot_be_built()
    said = pgherd(*DEMO, "--json")
    assert said.code == 0, said
    document = json.loads(said.out)
    assert document["finished"] and [phase["busy"] for phase in document["phases"]] == ["a", "b"]
    moments = document["moments"]
    assert moments and all(set(moment["sides"]) == {"a", "b"} for moment in moments)
    assert any(side["ballooned"] > 0 for moment in moments for side in moment["sides"].values())
    pgherd.nothing_left()


@needs_groups
def test_the_demo_interrupted_leaves_nothing(pgherd) -> None:
    _skip_where_it_cannot_be_built()
    process = pgherd.start(*DEMO, "--phases", "50")
    pgherd.wait_until(lambda: len(pgherd.programs("postgres")) == 2 and pgherd.programs("pgbench"))
    os.kill(process.pid, signal.SIGINT)
    ended = pgherd.end(process)
    assert ended.code == 130 and "Traceback" not in ended.err, ended
    pgherd.nothing_left()
