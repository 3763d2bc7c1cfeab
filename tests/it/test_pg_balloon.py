"""pg_balloon on real servers, the newest system PostgreSQL and the embedded one: regression tests, crashes, torture."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgherd.host.account import server_account
from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command
from pgherd.postgres import installations
from pgherd.postgres.initdb import initdb
from pgherd.postgres.instance import Instance


def _load(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


built_module = _load("pg_balloon_built", Path(__file__).parents[1] / "extension/built.py")

MB = 1024 * 1024
SETTINGS = {
    "shared_preload_libraries": "pg_balloon",
    "shared_buffers": "64MB",
    "max_connections": "60",
    "fsync": "off",
    "autovacuum_naptime": "1s",
    "pg_balloon.floor": "8MB",
    "pg_balloon.floor_per_backend": "64kB",
}
PATIENCE = 60.0


@pytest.fixture(scope="module")
def node() -> LocalNode:
    return LocalNode()


@pytest.fixture(scope="module")
def account() -> str | None:
    return server_account()


FURTHER = [path for path in os.environ.get("PGHERD_TEST_POSTGRES", "").split(":") if path]
"""More bin directories to test with, as in PGHERD_TEST_POSTGRES=/opt/pg16/bin:/opt/pg17/bin."""


@pytest.fixture(scope="module", params=["system", "embedded", *FURTHER])
def built(request: pytest.FixtureRequest, node: LocalNode) -> Iterator[Any]:
    """The extension in a private copy of the newest system installation, of the embedded one, and of further ones."""
    if request.param.startswith("/"):
        found = [installations.choose(node, request.param)]
    else:
        found = [one for one in installations.find_all(node) if one.kind == request.param]
    if not found:
        pytest.skip(f"there is no {request.param} PostgreSQL here")
    root = Path(tempfile.mkdtemp(prefix="pgherd-balloon-", dir="/tmp"))
    root.chmod(0o755)
    try:
        yield built_module.build(found[0], root)
    except CapabilityError as error:
        pytest.skip(str(error))
    finally:
        shutil.rmtree(root, ignore_errors=True)


class Balloon:
    """A server with the extension, and what tests ask of it."""

    def __init__(self, server: Instance) -> None:
        self.server = server

    def __call__(self, statement: str, *parameters: Any) -> Any:
        """The first column of the first row, on a connection of its own."""
        with psycopg.connect(self.server.conninfo(), autocommit=True) as connection:
            row = connection.execute(statement, parameters).fetchone()
            return row[0] if row else None

    def run(self, *statements: str, database: str = "postgres") -> None:
        with psycopg.connect(self.server.conninfo(database), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def status(self, column: str) -> Any:
        with psycopg.connect(self.server.conninfo(), autocommit=True) as connection:
            cursor = connection.execute("SELECT * FROM pg_balloon_status()")
            assert cursor.description
            return dict(zip([c.name for c in cursor.description], cursor.fetchone() or (), strict=True))[column]

    def set(self, **settings: str) -> None:
        """Change settings below pg_balloon. and reload."""
        self.server.write_settings(SETTINGS | {f"pg_balloon.{name}": value for name, value in settings.items()})
        self.server.reload()

    def wait_until(self, done: Callable[[], Any]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < deadline, self.server.log_tail(15)
            time.sleep(0.05)

    def back_in_use(self) -> None:
        """Wait until it serves again after a crash of one of its processes."""

        def answers() -> bool:
            with contextlib.suppress(psycopg.Error):
                return bool(self("SELECT 1"))
            return False

        self.wait_until(answers)

    def sound(self) -> None:
        """No rule broken, no assertion failed, no page damaged; indexes hold what their tables hold."""
        assert self("SELECT pg_balloon_check()") == 0
        self.run("CREATE EXTENSION IF NOT EXISTS amcheck")
        assert self("SELECT count(*) FROM pg_class, verify_heapam(oid::regclass) WHERE relkind = 'r' AND relpersistence = 'p'") == 0
        self.run("""
            SELECT bt_index_check(c.oid, true) FROM pg_class c JOIN pg_am a ON a.oid = relam
            WHERE amname = 'btree' AND relkind = 'i' AND relpersistence = 'p'""")
        log = Path(self.server.log).read_text(errors="replace")
        for bad in ("PANIC", "TRAP", "no unpinned buffers", "invalid page", "checksum", "could not return memory"):
            assert bad not in log, self.server.log_tail(30)


@contextlib.contextmanager
def started(built: Any, node: LocalNode, account: str | None) -> Iterator[Balloon]:
    """A server with the extension; page checksums are on."""
    place = Path(tempfile.mkdtemp(prefix="pgherd-test-", dir="/tmp"))
    place.chmod(0o755)
    server = Instance(node, built.installation, str(place / "data"), str(place / "s"), account=account, name="balloon")
    try:
        initdb(node, built.installation, str(place / "data"), account=account)
        tool = Command([built.installation.tool("pg_checksums"), "--enable", "-D", str(place / "data")], user=account)
        enabled = node.run(tool, timeout=60)  # the embedded version's initdb has switched them on already
        assert enabled.code == 0 or "already enabled" in enabled.err, enabled.err
        server.write_settings(SETTINGS)
        server.start()
        server.wait_ready()
        one = Balloon(server)
        one.run("CREATE EXTENSION pg_balloon")
        yield one
    finally:
        server.stop("immediate", 10)
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def balloon(built: Any, node: LocalNode, account: str | None) -> Iterator[Balloon]:
    with started(built, node, account) as one:
        yield one


def as_account(node: LocalNode, account: str | None, argv: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
    prefix = ["setpriv", f"--reuid={account}", "--init-groups", f"--regid={_group(account)}", "--"] if account else []
    return subprocess.run([*prefix, *argv], capture_output=True, text=True, timeout=280, **more)


def _group(account: str) -> int:
    import pwd

    return pwd.getpwnam(account).pw_gid


def test_regression(built: Any, node: LocalNode, account: str | None) -> None:
    """The extension's own SQL tests, by pg_regress."""
    place = Path(tempfile.mkdtemp(prefix="pgherd-test-", dir="/tmp"))
    try:
        for name in ("sql", "expected"):
            shutil.copytree(built.tree / name, place / name)
        shutil.copy(built.tree / "pg_balloon.conf", place)
        shutil.copy(built.pgxs / "src/test/regress/pg_regress", place)
        for path in (place, *place.rglob("*")):
            path.chmod(0o755)
            if account:
                shutil.chown(path, account)
        tests = sorted(path.stem for path in (built.tree / "sql").glob("*.sql"))
        order = [name for name in ("interface", "privileges", "resize", "objects") if name in tests]
        assert sorted(order) == tests, "each test is in the list"
        argv = [f"{place}/pg_regress", f"--temp-instance={place}/server", f"--temp-config={place}/pg_balloon.conf"]
        argv += [f"--bindir={built.installation.bin}", f"--inputdir={place}", f"--outputdir={place}", "--no-locale", "--encoding=UTF8"]
        done = as_account(node, account, [*argv, *order], cwd=place, env={"PATH": os.environ["PATH"], "LC_ALL": "C"} | built.library_path)
        differences = place / "regression.diffs"
        assert done.returncode == 0, done.stdout + done.stderr + (differences.read_text() if differences.exists() else "")
    finally:
        shutil.rmtree(place, ignore_errors=True)


def test_perl(built: Any, node: LocalNode, account: str | None) -> None:
    """The extension's TAP tests, where PostgreSQL's Perl modules are."""
    perl = built.pgxs / "src/test/perl"
    if not (perl / "PostgreSQL/Test/Cluster.pm").exists():
        pytest.skip(f"PostgreSQL {built.installation.version} came without its Perl test modules")
    if shutil.which("prove") is None or subprocess.run(["perl", "-MIPC::Run", "-e", "1"], capture_output=True).returncode:
        pytest.skip("prove or Perl's IPC::Run is missing (on Debian: libipc-run-perl)")
    place = Path(tempfile.mkdtemp(prefix="pgherd-test-", dir="/tmp"))
    try:
        shutil.copytree(built.tree / "t", place / "t")
        for path in (place, *place.rglob("*")):
            path.chmod(0o755)
            if account:
                shutil.chown(path, account)
        environment = {
            "PATH": f"{built.installation.bin}:{os.environ['PATH']}",
            "PG_REGRESS": str(built.pgxs / "src/test/regress/pg_regress"),
        }
        environment |= {"TESTDATADIR": str(place / "tmp_check"), "TESTLOGDIR": str(place / "log"), "LC_ALL": "C"} | built.library_path
        done = as_account(
            node, account, ["prove", "-I", str(perl), *map(str, sorted((place / "t").glob("*.pl")))], cwd=place, env=environment
        )
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        shutil.rmtree(place, ignore_errors=True)


def test_other_versions_are_refused(built: Any) -> None:
    """A version that nobody has looked at is refused by the compiler, with the reason."""
    source = '#include "postgres.h"\n#undef PG_VERSION_NUM\n#define PG_VERSION_NUM 190000\n#include "compat.h"\n'
    include = ["-I", built.config("includedir-server"), "-I", str(built.tree / "src")]
    done = subprocess.run(["gcc", "-fsyntax-only", "-x", "c", *include, "-"], input=source, capture_output=True, text=True)
    assert done.returncode != 0 and "supports PostgreSQL 15 to 18 only" in done.stderr


def test_not_preloaded(balloon: Balloon) -> None:
    """Without shared_preload_libraries the functions say what to do."""
    balloon.server.stop()
    balloon.server.write_settings(
        {name: value for name, value in SETTINGS.items() if not name.startswith(("pg_balloon", "shared_preload"))}
    )
    balloon.server.start()
    balloon.server.wait_ready()
    for call in ("pg_balloon_inflate(1)", "pg_balloon_check()", "pg_balloon_status()", "pg_balloon_counters()"):
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="Add it to shared_preload_libraries"):
            balloon(f"SELECT {call}")


def test_a_target_is_followed_and_switching_off_gives_all_back(balloon: Balloon) -> None:
    balloon.set(enabled="on", target="40MB", interval="20ms")
    balloon.wait_until(lambda: balloon.status("ballooned_bytes") == 40 * MB)
    assert balloon.status("decision_reason") == "pg_balloon.target"
    assert balloon.status("resident_bytes") <= 24 * MB and balloon.status("stuck_bytes") == 0
    balloon.set(enabled="on", target="1GB", interval="20ms")
    balloon.wait_until(lambda: balloon.status("ballooned_bytes") >= 55 * MB)
    assert balloon.status("pool_bytes") - balloon.status("ballooned_bytes") >= balloon.status("floor_bytes")
    balloon.set(enabled="off")
    balloon.wait_until(lambda: balloon.status("ballooned_bytes") == 0)
    log = balloon.server.log_tail(20)
    assert "pg_balloon inflated by" in log and "pg_balloon.enabled was switched off" in log


def test_evicted_pages_are_read_back(balloon: Balloon) -> None:
    """Those of tables that are still there; dropped, truncated and rewritten ones, and a dropped database, are no trouble."""
    balloon.run("CREATE DATABASE other")
    balloon.run("CREATE TABLE t AS SELECT g, repeat('o', 400) FROM generate_series(1, 5000) g", database="other")
    for name in ("kept", "dropped", "truncated", "rewritten"):
        balloon.run(f"CREATE TABLE {name} AS SELECT g AS id, repeat('x', 400) AS filler FROM generate_series(1, 20000) g")
    balloon.run("CHECKPOINT")
    balloon.set(enabled="on", target="55MB", interval="20ms", prefetch="on")
    balloon.wait_until(lambda: balloon.status("ballooned_bytes") >= 54 * MB)
    balloon.run("DROP TABLE dropped", "TRUNCATE truncated", "VACUUM FULL rewritten", "DROP DATABASE other")
    balloon.set(enabled="on", target="0", interval="20ms", prefetch="on")
    balloon.wait_until(lambda: balloon.status("ballooned_bytes") == 0)
    balloon.wait_until(lambda: balloon("SELECT prefetched FROM pg_stat_balloon") >= 300)
    balloon.wait_until(lambda: (balloon.status("miss_ms") or 0) > 0)  # told by the worker's next tick
    assert balloon("SELECT sum(id) FROM kept") == balloon("SELECT sum(id) FROM rewritten") == 200010000
    balloon.sound()


@pytest.mark.parametrize("victim", ["worker", "backend", "postmaster"])
def test_kill_9(balloon: Balloon, victim: str, seed: int) -> None:
    """Whoever is killed at whatever moment: the server recovers, with no balloon and nothing lost."""
    rng = random.Random(f"{seed} {victim}")
    balloon.run("CREATE TABLE kept AS SELECT g AS id, repeat('x', 400) AS filler FROM generate_series(1, 20000) g")
    assert balloon("SELECT pg_balloon_inflate(%s)", 40 * MB) == 40 * MB
    with psycopg.connect(balloon.server.conninfo(), autocommit=True) as mover:
        (moving,) = mover.execute("SELECT pg_backend_pid()").fetchone() or (0,)

        def move() -> None:
            with contextlib.suppress(psycopg.Error):
                while True:
                    mover.execute("SELECT pg_balloon_deflate(30000000), pg_balloon_inflate(30000000)")

        thread = threading.Thread(target=move, daemon=True)
        thread.start()
        time.sleep(rng.uniform(0.05, 0.3))
        if victim == "postmaster":
            os.kill(balloon.server.pid, signal.SIGKILL)
            balloon.server.wait_stopped(30)
        else:
            worker = balloon.status("worker_pid")
            os.kill(worker if victim == "worker" else moving, signal.SIGKILL)
        thread.join(PATIENCE)
        assert not thread.is_alive()
    if victim == "postmaster":
        balloon.server.stop("immediate", 10)
        balloon.server.start()
        balloon.server.wait_ready()
    balloon.back_in_use()
    assert balloon.status("ballooned_bytes") == 0
    assert balloon("SELECT sum(id) FROM kept") == 200010000
    balloon.wait_until(lambda: balloon.status("worker_pid"))
    assert balloon("SELECT pg_balloon_inflate(%s)", 40 * MB) == 40 * MB
    balloon.sound()


@pytest.fixture(scope="module")
def injected(node: LocalNode) -> Iterator[Any]:
    """The extension with its points of injection, in a private copy whose server also has writes fail while a file says so."""
    found = [one for one in installations.find_all(node) if one.kind == "system"] or installations.find_all(node)
    if not found:
        pytest.skip("there is no PostgreSQL here")
    root = Path(tempfile.mkdtemp(prefix="pgherd-balloon-", dir="/tmp"))
    root.chmod(0o755)
    try:
        made = built_module.build(found[0], root, "-DPG_BALLOON_INJECTION")
        _fail_writes(Path(made.installation.bin), root)
        yield made
    except CapabilityError as error:
        pytest.skip(str(error))
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _fail_writes(bin_: Path, root: Path) -> None:
    """Make the copy's server load failing_writes.c."""
    library = root / "failing.so"
    source = Path(__file__).parent / "failing_writes.c"
    flags = ["-shared", "-fPIC", "-O1", f'-DFLAG="{root}/no-writes"', str(source), "-o", str(library), "-ldl"]
    done = subprocess.run(["gcc", *flags], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    library.chmod(0o755)
    (bin_ / "postgres").rename(bin_ / "postgres.real")
    (bin_ / "postgres").write_text(f'#!/bin/sh\nLD_PRELOAD={library} exec "{bin_}/postgres.real" "$@"\n')
    (bin_ / "postgres").chmod(0o755)


def test_kill_9_in_the_critical_section(injected: Any, node: LocalNode, account: str | None, seed: int) -> None:
    """Killed between a buffer's mark and its removal from the mapping table, or from the balloon to the free list."""
    rng = random.Random(seed)
    with started(injected, node, account) as one:
        one.run("CREATE TABLE kept AS SELECT g AS id, repeat('x', 400) AS filler FROM generate_series(1, 20000) g")
        for call in ("inflate", "deflate"):
            with pytest.raises(psycopg.OperationalError), psycopg.connect(one.server.conninfo(), autocommit=True) as doomed:
                if call == "deflate":
                    doomed.execute("SELECT pg_balloon_inflate(%s)", (50 * MB,))
                doomed.execute(f"SET pg_balloon.die_after = {rng.randrange(1, 5000)}")
                doomed.execute(f"SELECT pg_balloon_{call}(%s)", (50 * MB,))
            one.back_in_use()
            assert one.status("ballooned_bytes") == 0
            assert one("SELECT sum(id) FROM kept") == 200010000
            assert one("SELECT pg_balloon_inflate(%s)", 40 * MB) == 40 * MB
            one.sound()


def test_a_write_that_fails_is_an_error_and_leaves_a_sound_balloon(injected: Any, node: LocalNode, account: str | None) -> None:
    """A disk that does not take dirty pages: the call fails, the worker goes on, nothing is lost, and later all works again."""
    flag = injected.root / "no-writes"
    with started(injected, node, account) as one:
        one.run("CREATE TABLE kept AS SELECT g AS id, repeat('x', 400) AS filler FROM generate_series(1, 100000) g")
        with psycopg.connect(one.server.conninfo(), autocommit=True) as before:
            # A new session would have to write a page itself to read its catalogs, once all that is left is dirty.
            before.execute("SELECT pg_balloon_check(), pg_balloon_inflate(1, true)")
            one.server.write_settings(SETTINGS | {"pg_balloon.enabled": "on", "pg_balloon.target": "60MB", "pg_balloon.interval": "20ms"})
            flag.touch()
            try:
                with pytest.raises(psycopg.Error, match="could not write block"):
                    before.execute("SELECT pg_balloon_inflate(%s, true)", (64 * MB,))
                assert before.execute("SELECT pg_balloon_check()").fetchone() == (0,)
                os.kill(one.server.pid, signal.SIGHUP)
                one.wait_until(lambda: Path(one.server.log).read_text().count("could not write block") >= 3)
                assert before.execute("SELECT pg_balloon_check()").fetchone() == (0,)
            finally:
                flag.unlink()
        one.wait_until(lambda: one.status("ballooned_bytes") >= 50 * MB)
        assert one.status("worker_pid") is not None
        one.set(enabled="on", target="0", interval="20ms")
        one.wait_until(lambda: one.status("ballooned_bytes") == 0)
        assert one("SELECT sum(id) FROM kept") == 5000050000
        one.sound()


def test_cancelled_and_terminated_calls_leave_a_sound_balloon(balloon: Balloon, seed: int) -> None:
    rng = random.Random(seed)
    for ending in ("pg_cancel_backend", "pg_terminate_backend") * 3:
        with psycopg.connect(balloon.server.conninfo(), autocommit=True) as mover:
            (moving,) = mover.execute("SELECT pg_backend_pid()").fetchone() or (0,)

            def move(on: psycopg.Connection[Any] = mover) -> None:
                with contextlib.suppress(psycopg.Error):
                    while True:
                        on.execute("SELECT pg_balloon_inflate(50000000), pg_balloon_deflate(50000000)")

            thread = threading.Thread(target=move, daemon=True)
            thread.start()
            time.sleep(rng.uniform(0.01, 0.1))

            def ended(moving: int = moving, ending: str = ending, thread: threading.Thread = thread) -> bool:
                balloon(f"SELECT {ending}(%s)", moving)  # again, since it may have been between two statements
                return not thread.is_alive()

            balloon.wait_until(ended)
    balloon("SELECT pg_balloon_deflate(%s)", 64 * MB)
    assert balloon.status("ballooned_bytes") == 0
    balloon.sound()


def test_sessions_with_many_pins_never_run_out_of_buffers(balloon: Balloon) -> None:
    """Fifty sessions with open scans on a pool that is as small as the balloon may make it."""
    balloon.run(
        "CREATE TABLE wide AS SELECT g AS id, repeat('x', 700) AS filler FROM generate_series(1, 20000) g", "CREATE INDEX ON wide (id)"
    )
    balloon("SELECT pg_balloon_inflate(%s)", 64 * MB)
    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(psycopg.connect(balloon.server.conninfo())) for _ in range(50)]
        for number, session in enumerate(sessions):
            for cursor in range(10):
                session.execute(f"DECLARE c{cursor} CURSOR FOR SELECT * FROM wide WHERE id > {(number * 10 + cursor) * 37} ORDER BY id")
                session.execute(f"FETCH 5 FROM c{cursor}")
            session.execute("SELECT pg_balloon_inflate(%s)", (64 * MB,))
        assert balloon("SELECT count(*) FROM wide") == 20000
        assert balloon.status("pool_bytes") - balloon.status("ballooned_bytes") >= balloon.status("floor_bytes")
        assert balloon.status("floor_bytes") >= 8 * MB
    balloon.sound()


def test_new_sessions_raise_the_floor(balloon: Balloon) -> None:
    balloon.set(floor="1MB", floor_per_backend="1MB")
    before = balloon.status("floor_bytes")
    balloon("SELECT pg_balloon_inflate(%s)", 64 * MB)
    with contextlib.ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(psycopg.connect(balloon.server.conninfo()))
        assert balloon.status("floor_bytes") == before + 10 * MB
        assert balloon.status("pool_bytes") - balloon.status("ballooned_bytes") >= before + 10 * MB


def _torture(balloon: Balloon, seconds: float, seed: int, built: Any, node: LocalNode, account: str | None) -> None:
    """TPC-B-like load and everything that walks over the pool, while buffers leave and come back at random."""
    server = balloon.server
    tool = server.installation.tool("pgbench")
    connection = ["-h", server.socket_dir, "-p", str(server.port), "-U", server.user, "postgres"]
    done = node.run(Command([tool, "-i", "-q", "-s", "2", *connection], user=server.account), timeout=120)
    assert done.code == 0, done.err
    end = time.monotonic() + seconds
    failures: list[BaseException] = []

    def thread(name: str, once: Callable[[random.Random, psycopg.Connection[Any]], None]) -> threading.Thread:
        def work() -> None:
            rng = random.Random(f"{seed} {name}")
            try:
                with psycopg.connect(server.conninfo(), autocommit=True) as own:
                    while time.monotonic() < end:
                        once(rng, own)
            except BaseException as error:
                failures.append(error)

        return threading.Thread(target=work, name=name, daemon=True)

    def move(rng: random.Random, own: psycopg.Connection[Any]) -> None:
        own.execute("SELECT pg_balloon_inflate(%s, %s)", (rng.randrange(64 * MB), rng.random() < 0.7))
        time.sleep(rng.uniform(0, 0.2))
        own.execute("SELECT pg_balloon_deflate(%s)", (rng.randrange(64 * MB),))
        time.sleep(rng.uniform(0, 0.2))

    def change(rng: random.Random, own: psycopg.Connection[Any]) -> None:
        name = f"made_{rng.randrange(4)}"
        statement = rng.choice(
            [
                f"DROP TABLE IF EXISTS {name}; CREATE TABLE {name} AS SELECT id, repeat('x', 200) AS p FROM generate_series(1, 8000) id",
                f"CREATE TABLE IF NOT EXISTS {name} (id int, p text); TRUNCATE {name}",
                f"CREATE TABLE IF NOT EXISTS {name} (id int, p text); CREATE INDEX ON {name} (id); DELETE FROM {name} WHERE id % 3 = 0",
                f"CREATE UNLOGGED TABLE un{name} (id int); INSERT INTO un{name} SELECT generate_series(1, 5000); DROP TABLE un{name}",
                "CREATE TEMP TABLE own AS SELECT * FROM pgbench_branches; DROP TABLE own",
            ]
        )
        for one in statement.split("; "):
            own.execute(one)

    def look(rng: random.Random, own: psycopg.Connection[Any]) -> None:
        own.execute(
            rng.choice(
                [
                    "CHECKPOINT", "VACUUM FULL pgbench_tellers", "VACUUM pgbench_accounts", "ANALYZE",
                    "SELECT count(*) FROM pg_buffercache",
                    "SET max_parallel_workers_per_gather = 2; SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; "
                    "SELECT sum(abalance) FROM pgbench_accounts",
                    "SELECT * FROM pg_balloon_status()", "SELECT pg_balloon_check()", "REINDEX TABLE pgbench_branches",
                ]
            )
        )  # fmt: skip

    def databases(rng: random.Random, own: psycopg.Connection[Any]) -> None:
        own.execute(f"CREATE DATABASE copied STRATEGY {rng.choice(['wal_log', 'file_copy'])}")
        own.execute("DROP DATABASE copied WITH (FORCE)")
        time.sleep(0.5)

    balloon.run("CREATE EXTENSION IF NOT EXISTS pg_buffercache")
    threads = [thread(name, once) for name, once in (("move", move), ("change", change), ("look", look), ("databases", databases))]
    load = subprocess.Popen(
        [*(["setpriv", f"--reuid={account}", "--clear-groups", f"--regid={_group(account)}", "--"] if account else []),
         tool, "-n", "-c", "4", "-T", str(int(seconds)), *connection],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    for one in threads:
        one.start()
    output, _ = load.communicate(timeout=seconds + PATIENCE)
    for one in threads:
        one.join(PATIENCE)
    assert not failures, failures
    assert load.returncode == 0, output
    sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)"
    sums += " AND (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(bbalance) FROM pgbench_branches)"
    sums += " AND (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(tbalance) FROM pgbench_tellers)"
    assert balloon(sums), "the sums of TPC-B differ"
    assert balloon("SELECT taken_clean > 0 AND given_back > 0 FROM pg_stat_balloon")
    balloon.sound()
    server.stop()
    server.start()
    server.wait_ready()
    assert balloon(sums)
    balloon.sound()


def test_torture(balloon: Balloon, built: Any, node: LocalNode, account: str | None, seed: int) -> None:
    _torture(balloon, 8, seed, built, node, account)


@pytest.mark.long
@pytest.mark.timeout(5400)
def test_torture_for_half_an_hour(balloon: Balloon, built: Any, node: LocalNode, account: str | None, seed: int) -> None:
    """On each of the two installations, so an hour in all."""
    _torture(balloon, 1800, seed, built, node, account)
