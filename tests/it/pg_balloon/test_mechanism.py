"""What pg_balloon does on a real server: its own tests on every major, floors, targets, reading back."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from pgherd.host import huge_pages
from pgherd.host.journal import Journal
from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.node.process import MARK

NODE = LocalNode()
MB = 1024 * 1024
QUERIES = Path(__file__).parents[3] / "extension/pg_balloon/monitoring/queries.yaml"
ORDER = ("interface", "privileges", "resize", "objects")
"""Of the regression tests, as in the Makefile."""


@pytest.mark.parametrize("major", [15, 16, 17, 18])
def test_regression(major: int, workshop: Any, own_place: Path, as_account: Any) -> None:
    """The extension compiles against each supported major that can be had here, and its own SQL tests pass, by pg_regress."""
    built = workshop(major)
    for name in ("sql", "expected"):
        shutil.copytree(built.tree / name, own_place / name)
    shutil.copy(built.tree / "pg_balloon.conf", own_place)
    shutil.copy(built.pgxs / "src/test/regress/pg_regress", own_place)
    _give(own_place)
    assert sorted(ORDER) == sorted(path.stem for path in (built.tree / "sql").glob("*.sql")), "each test is in the list"
    argv = [f"{own_place}/pg_regress", f"--temp-instance={own_place}/server", f"--temp-config={own_place}/pg_balloon.conf"]
    argv += [f"--bindir={built.installation.bin}", f"--inputdir={own_place}", f"--outputdir={own_place}", "--no-locale", "--encoding=UTF8"]
    finished = as_account([*argv, *ORDER], cwd=own_place, env={"PATH": os.environ["PATH"], "LC_ALL": "C", MARK: "1"} | built.library_path)
    differences = own_place / "regression.diffs"
    assert finished.returncode == 0, finished.stdout + finished.stderr + (differences.read_text() if differences.exists() else "")


@pytest.mark.parametrize("major", [15, pytest.param(16, marks=pytest.mark.long), pytest.param(17, marks=pytest.mark.long), 18])
def test_perl(major: int, workshop: Any, own_place: Path, as_account: Any) -> None:
    """The extension's TAP tests, by its Makefile. PostgreSQL's Perl modules of an older major drive a newer server as well."""
    built = workshop(major)
    perl = _perl_modules(built)
    if shutil.which("prove") is None or subprocess.run(["perl", "-MIPC::Run", "-e", "1"], capture_output=True).returncode:
        pytest.skip("prove or Perl's IPC::Run is missing (on Debian: libipc-run-perl)")
    finished = made("prove_installcheck", f"PG_PERL={perl}", built=built, place=own_place, as_account=as_account)
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_installcheck(workshop: Any, own_place: Path, as_account: Any) -> None:
    """The regression tests as a user of the extension runs them."""
    finished = made("installcheck", built=workshop(15), place=own_place, as_account=as_account)
    assert finished.returncode == 0 and "All 4 tests passed" in finished.stdout, finished.stdout + finished.stderr


def made(target: str, *words: str, built: Any, place: Path, as_account: Any) -> subprocess.CompletedProcess[str]:
    """Make a target of the extension in a tree of the ordinary user."""
    tree = place / "tree"
    shutil.copytree(built.tree, tree)
    _give(place)
    argv = ["make", "-C", str(tree), f"PG_CONFIG={built.original / 'pg_config'}", f"bindir={built.installation.bin}", *words, target]
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", MARK: "1"} | built.library_path
    finished: subprocess.CompletedProcess[str] = as_account(argv, cwd=tree, env=environment)
    return finished


def _perl_modules(built: Any) -> Path:
    """Those that came with this PostgreSQL, else the newest of the system's (Debian has them beside its client programs)."""
    places = [built.pgxs / "src/test/perl", *sorted(Path("/usr/lib/postgresql").glob("*/lib/pgxs/src/test/perl"), reverse=True)]
    result = next((path for path in places if (path / "PostgreSQL/Test/Cluster.pm").exists()), None)
    if result is None:
        pytest.skip(f"neither PostgreSQL {built.installation.version} nor the system came with PostgreSQL's Perl test modules")
    return result


def _give(place: Path) -> None:
    """All below it to whoever owns it."""
    owner = place.stat()
    for path in place.rglob("*"):
        path.chmod(0o755)
        os.chown(path, owner.st_uid, owner.st_gid)


def test_other_versions_are_refused(built: Any) -> None:
    """A version that nobody has looked at is refused by the compiler, with the reason."""
    source = '#include "postgres.h"\n#undef PG_VERSION_NUM\n#define PG_VERSION_NUM 190000\n#include "compat.h"\n'
    include = ["-I", built.config("includedir-server"), "-I", str(built.tree / "src")]
    finished = subprocess.run(["gcc", "-fsyntax-only", "-x", "c", *include, "-"], input=source, capture_output=True, text=True)
    assert finished.returncode != 0 and "supports PostgreSQL 15 to 18 only" in finished.stderr


def test_a_read_by_the_kernel_is_waited_for_like_any_other(workshop: Any) -> None:
    """Few builds of PostgreSQL 18 have io_uring, so the compiler is asked whether its wait counts."""
    built = workshop(18)
    source = '#include "postgres.h"\n#include "utils/wait_event.h"\n#include "compat.h"\n'
    for event, counts in (("AIO_IO_URING_EXECUTION", ""), ("AIO_IO_COMPLETION", ""), ("DATA_FILE_READ", ""), ("DATA_FILE_WRITE", "!")):
        source += f'_Static_assert({counts}balloon_is_read(WAIT_EVENT_{event}), "{event}");\n'
    include = ["-I", built.config("includedir-server"), "-I", str(built.tree / "src")]
    finished = subprocess.run(["gcc", "-fsyntax-only", "-x", "c", *include, "-"], input=source, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr


def test_not_preloaded(balloon: Any) -> None:
    """Without shared_preload_libraries the functions say what to do."""
    balloon.server.stop()
    balloon.server.write_settings({"shared_buffers": "64MB", "fsync": "off"})
    balloon.server.start()
    balloon.server.wait_ready()
    for call in ("pg_balloon_inflate(1)", "pg_balloon_check()", "pg_balloon_status()", "pg_balloon_counters()"):
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="Add it to shared_preload_libraries"):
            balloon(f"SELECT {call}")


def test_a_pool_in_huge_pages_gets_no_balloon(balloon: Any, tmp_path: Path) -> None:
    """The server works, says why in its log and in the status, and refuses to move anything."""
    size = 2 * MB
    if os.geteuid() != 0 or not huge_pages.may_reserve(NODE, size):
        pytest.skip("huge pages cannot be reserved here: that needs root and a kernel with pages of 2 MB")
    journal = Journal.open(NODE, tmp_path, "balloon")
    try:
        try:
            huge_pages.reserve(NODE, journal, size, 64)
        except CapabilityError as error:
            pytest.skip(str(error))
        balloon.server.stop()
        balloon.write({"huge_pages": "on"}, enabled="on")
        balloon.server.start()
        balloon.server.wait_ready()
        assert balloon.status("usable") is False and "uses huge pages of 2048 kB" in balloon.status("unusable_reason")
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="cannot be used on this server"):
            balloon("SELECT pg_balloon_inflate(%s)", 8 * MB)
        balloon.run("CREATE TABLE t AS SELECT g FROM generate_series(1, 100000) g")
        assert balloon("SELECT count(*) FROM t") == 100000
        worker = balloon("SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_balloon'")
        assert worker and balloon.status("worker_pid") is None, "it waits for other memory"
        os.kill(worker, signal.SIGKILL)
        balloon.back_in_use()
        balloon.wait_until(lambda: balloon("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_balloon'") == 1)
        assert "pg_balloon cannot be used on this server" in Path(balloon.server.log).read_text()
    finally:
        balloon.server.stop("immediate", 10)
        journal.close()


def test_a_target_is_followed_and_switching_off_gives_all_back(calm: Any) -> None:
    calm.set(enabled="on", target="40MB", interval="20ms")
    calm.wait_until(lambda: calm.status("ballooned_bytes") == 40 * MB)
    assert calm.status("decision_reason") == "pg_balloon.target"
    assert calm.status("resident_bytes") <= 24 * MB and calm.status("balloon_resident_bytes") == 0
    if calm("SELECT current_setting('server_version_num')::int") >= 160000:
        assert calm("SELECT least(buffers_unused, buffers_pinned) >= 5120 FROM pg_buffercache_summary()")  # as the README has it
    calm.wait_until(lambda: (calm.status("available_bytes") or 0) > 0)
    calm.set(enabled="on", target="1GB", interval="20ms")
    calm.wait_until(lambda: calm.status("ballooned_bytes") >= 55 * MB)
    assert calm.status("shared_buffers_bytes") - calm.status("ballooned_bytes") >= calm.status("floor_bytes")
    calm.set(enabled="off")
    calm.wait_until(lambda: calm.status("ballooned_bytes") == 0)
    calm.wait_until(lambda: calm.status("available_bytes") is None)  # nobody looks any more, and what was seen last is not now
    assert calm.status("state") == "pg_balloon.enabled was switched off"
    log = calm.server.log_tail(20)
    assert "pg_balloon inflated by" in log and "pg_balloon.enabled was switched off" in log


def test_a_target_leaves_room_for_pins(calm: Any) -> None:
    """Open cursors come to pin more buffers than the floor leaves: the balloon gives way, although it is told its size."""
    calm.run("CREATE TABLE wide AS SELECT g AS id, repeat('x', 700) AS filler FROM generate_series(1, 20000) g")
    calm.set(enabled="on", target="1GB", interval="20ms")
    calm.wait_until(lambda: calm.status("ballooned_bytes") == 56 * MB)
    with psycopg.connect(calm.server.conninfo()) as holder:
        for pins in range(1, 1501):
            holder.execute(f"DECLARE c{pins} CURSOR FOR SELECT id FROM wide WHERE ctid = '({pins},1)'")
            assert holder.execute(f"FETCH c{pins}").fetchone()
            if pins % 300 == 0:  # more than a thousand are left at first
                calm.wait_until(lambda pins=pins: (64 * MB - calm.status("ballooned_bytes")) // 8192 * 0.75 >= pins)
        assert calm("SELECT count(*) FROM wide") == 20000
    calm.sound()


def test_what_comes_back_into_memory_by_being_looked_at_is_returned_again(calm: Any) -> None:
    """As PostgreSQL 18's views on NUMA nodes do, or a debugger: they read the pool as memory."""
    calm.set(enabled="on", target="40MB", interval="20ms")
    calm.wait_until(lambda: calm.status("ballooned_bytes") == 40 * MB)
    try:
        _read_shared_memory(calm.server.pid)
    except OSError as error:
        pytest.skip(f"a server's memory cannot be read here: {error}")
    assert calm.status("balloon_resident_bytes") > 30 * MB
    calm.server.reload()  # else within a minute
    calm.wait_until(lambda: calm.status("balloon_resident_bytes") == 0)
    assert calm.status("ballooned_bytes") == 40 * MB
    calm.sound()


def _read_shared_memory(pid: int) -> None:
    """Every page of a process's largest shared mapping."""
    ranges = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) rw-s ", Path(f"/proc/{pid}/maps").read_text(), re.M)
    first, end = max(((int(a, 16), int(b, 16)) for a, b in ranges), key=lambda item: item[1] - item[0])
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for at in range(first, end, MB):
            memory.seek(at)
            memory.read(min(MB, end - at))


def test_reserves_that_do_not_go_together_are_told(calm: Any) -> None:
    calm.set(enabled="on", low_watermark="10", high_watermark="6")
    calm.wait_until(lambda: "pg_balloon.low_watermark (10 %) is not below pg_balloon.high_watermark (6 %)" in calm.server.log_tail(20))


def test_what_the_worker_writes_is_counted_as_its_own(calm: Any) -> None:
    if calm("SELECT current_setting('server_version_num')::int") < 160000:
        pytest.skip("pg_stat_io came with PostgreSQL 16")
    calm.run("SELECT pg_stat_reset_shared('io')")
    calm.run("CREATE TABLE t (id int, filler text)", "INSERT INTO t SELECT g, repeat('x', 400) FROM generate_series(1, 80000) g")
    calm.set(enabled="on", target="56MB", interval="20ms")
    calm.wait_until(lambda: calm.status("ballooned_bytes") == 56 * MB)
    written = calm("SELECT buffers_written FROM pg_stat_balloon")
    assert written > 1000
    counted = "SELECT sum(writes) FROM pg_stat_io WHERE backend_type = 'background worker' AND context = 'normal'"
    calm.wait_until(lambda: calm(counted) > 0.9 * written)  # a few may have been written by another process just then


def test_evicted_pages_are_read_back(calm: Any) -> None:
    """Those of tables that are still there; dropped, truncated and rewritten ones, and a dropped database, are no trouble."""
    calm.run("CREATE DATABASE other")
    calm.run("CREATE TABLE t AS SELECT g, repeat('o', 400) FROM generate_series(1, 5000) g", database="other")
    for name in ("kept", "dropped", "truncated", "rewritten"):
        calm.run(f"CREATE TABLE {name} AS SELECT g AS id, repeat('x', 400) AS filler FROM generate_series(1, 20000) g")
    calm.run("CHECKPOINT")
    calm.set(enabled="on", target="55MB", interval="20ms", prefetch="on")
    calm.wait_until(lambda: calm.status("ballooned_bytes") >= 54 * MB)
    calm.run("DROP TABLE dropped", "TRUNCATE truncated", "VACUUM FULL rewritten", "DROP DATABASE other")
    calm.set(enabled="on", target="0", interval="20ms", prefetch="on")
    calm.wait_until(lambda: calm.status("ballooned_bytes") == 0)
    calm.wait_until(lambda: calm("SELECT prefetched FROM pg_stat_balloon") >= 300)
    calm.wait_until(lambda: (calm.status("page_read_ms") or 0) > 0)  # told by the worker's next tick
    if calm("SELECT current_setting('server_version_num')::int") >= 170000:
        named = "SELECT array_agg(name ORDER BY name) FROM pg_wait_events WHERE name LIKE 'PgBalloon%%'"
        assert calm(named) == ["PgBalloonMain", "PgBalloonPrefetch", "PgBalloonPunch"]
    assert calm("SELECT sum(id) FROM kept") == calm("SELECT sum(id) FROM rewritten") == 200010000
    calm.sound()


def test_memory_given_by_itself_comes_back_by_itself_once_it_is_needed(calm: Any) -> None:
    """No target: an idle pool gives while memory is short, and takes back out of need once there is some."""
    filled = "SELECT count(*) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('t')"
    calm.run(
        "CREATE TABLE t (id int, filler text)",  # CREATE TABLE AS writes by a ring of its own
        "INSERT INTO t SELECT g, repeat('x', 900) FROM generate_series(1, 40000) g",
        "CREATE INDEX ON t (id)",
        "CHECKPOINT",
    )
    table = calm("SELECT pg_relation_size('t')")
    calm.set(enabled="on", interval="20ms", idle_after="500ms", low_watermark="0.1", high_watermark="100")  # never so much is available
    calm.wait_until(lambda: calm(filled) * 8192 < table // 2)
    ((gives, takes),) = calm.server.sql("SELECT inflate_decisions, deflate_decisions FROM pg_stat_balloon")
    assert gives > 0

    calm.set(enabled="on", interval="20ms", idle_after="500ms", low_watermark="0.1", high_watermark="0.2")  # there is plenty
    with psycopg.connect(calm.server.conninfo(), autocommit=True) as busy:
        busy.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")

        def all_back() -> bool:
            busy.execute("SELECT sum(length(filler)) FROM t WHERE id > 0")  # page by page through the pool; a table's scan has a ring
            return bool(calm(filled) * 8192 >= table)

        calm.wait_until(all_back)
    assert calm("SELECT deflate_decisions FROM pg_stat_balloon") > takes
    log = Path(calm.server.log).read_text()
    assert "inflated" in log and "memory is short, and part of this pool is idle" in log
    assert "deflated" in log and "miss cost is high, and memory is available" in log
    calm.sound()


def test_a_pool_that_is_not_full_gives_pages_and_what_dropped_tables_have_left(balloon: Any) -> None:
    """Half of it has been in use; buffers that were never used hold no memory, and do not keep it from giving those that do."""
    filled = "SELECT count(*) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('t')"
    fill = "INSERT INTO {} SELECT repeat('x', 900) FROM generate_series(1, {})"
    balloon.run("CREATE TABLE t (filler text)", "CREATE TABLE gone (filler text)", fill.format("t", 16000), fill.format("gone", 14000))
    balloon.run("CHECKPOINT", "DROP TABLE gone")
    before, resident = balloon(filled), balloon.status("resident_bytes")
    assert before > 1950
    balloon.set(enabled="on", interval="20ms", idle_after="500ms", low_watermark="0.1", high_watermark="100")
    balloon.wait_until(lambda: balloon(filled) < before - 900)  # of 2,000; at the ceiling 1,024 buffers are left, and all may be of t
    balloon.wait_until(lambda: balloon.status("resident_bytes") < resident - 20 * MB)
    balloon.sound()


def test_of_equally_cold_buffers_those_go_that_lie_evenly_over_the_pool(balloon: Any) -> None:
    """Who looks for a victim passes over the balloon's buffers that lie side by side: of an empty pool 6 MB at most, where half goes."""
    pool = balloon.status("shared_buffers_bytes")
    balloon.run(f"SELECT pg_balloon_inflate({pool // 2})", "CREATE EXTENSION pg_prewarm", "CREATE TABLE t (filler text)")
    balloon.run(f"INSERT INTO t SELECT repeat('x', 900) FROM generate_series(1, {pool // 1000})", "SELECT pg_prewarm('t')")
    longest = """SELECT max(count) FROM (SELECT count(*) FROM
        (SELECT relfilenode, count(relfilenode) OVER (ORDER BY bufferid) AS run FROM pg_buffercache) AS buffers
        WHERE relfilenode IS NULL GROUP BY run) AS runs"""
    assert 0 < balloon(longest) * 8192 <= 3 * 2 * MB
    balloon.sound()


def test_nobody_is_started_to_read_back_into_a_full_pool(balloon: Any) -> None:
    """Sessions were faster than the prefetch worker, and the pool is full: what might be read back has no place, and nobody tries."""
    item, wide = balloon, "SELECT g AS id, repeat('x', 400) AS filler FROM generate_series(1, {}) g"
    item.run(f"CREATE TABLE a AS {wide.format(120_000)}", f"CREATE TABLE b AS {wide.format(200_000)}", "CHECKPOINT")
    item.run("ALTER SYSTEM SET log_min_messages = debug1", "CREATE EXTENSION pg_prewarm", "SELECT pg_prewarm('a')")
    item.set(enabled="on", target="50MB", interval="20ms")
    item.wait_until(lambda: item.status("ballooned_bytes") == 50 * MB)
    item.write(enabled="on", target="0", interval="20ms")
    with psycopg.connect(item.server.conninfo(), autocommit=True) as filling:
        item.server.reload()
        item.wait_until(lambda: filling.execute("SELECT pg_prewarm('b')") and item.status("ballooned_bytes") == 0)
        for _ in range(3):
            filling.execute("SELECT pg_prewarm('b')")

    def workers() -> int:
        return Path(item.server.log).read_text().count('starting background worker process "pg_balloon prefetch"')

    def nobody_for(ticks: int) -> bool:
        now = "SELECT ticks FROM pg_stat_balloon"
        started, before = workers(), item(now)
        item.wait_until(lambda: item(now) >= before + ticks)
        return workers() == started

    item.wait_until(lambda: nobody_for(200))  # the last one may be on its way


def test_reading_back_zeroes_no_damaged_page(balloon: Any) -> None:
    """Although zero_damaged_pages is on: that is not meant for what nobody watches, and autovacuum does not follow it either."""
    balloon.run("CREATE TABLE t (id int, filler text) WITH (autovacuum_enabled = off)")
    balloon.run("INSERT INTO t SELECT g, repeat('x', 400) FROM generate_series(1, 20000) g", "CHECKPOINT")
    balloon.write({"zero_damaged_pages": "on"}, enabled="on", target="56MB", interval="20ms", prefetch="off")
    balloon.server.reload()
    balloon.wait_until(lambda: balloon.status("ballooned_bytes") == 56 * MB)
    evicted = balloon("""SELECT min(block) FROM generate_series(0, pg_relation_size('t') / 8192 - 1) block WHERE block NOT IN
        (SELECT relblocknumber FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('t') AND relforknumber = 0)""")
    with open(Path(balloon.server.data_dir, balloon("SELECT pg_relation_filepath('t')")), "r+b") as file:
        file.seek(evicted * 8192 + 4096)
        file.write(b"damage")
    balloon.write({"zero_damaged_pages": "on"}, enabled="on", target="0", interval="20ms", prefetch="on")
    balloon.server.reload()
    balloon.wait_until(lambda: "invalid page in block" in Path(balloon.server.log).read_text())
    assert "zeroing" not in Path(balloon.server.log).read_text()


def test_pages_of_a_database_that_was_half_dropped_are_forgotten(calm: Any) -> None:
    """DROP DATABASE that is interrupted leaves one that cannot be connected to: no worker is to try, again and again."""
    calm.run("CREATE DATABASE other")
    calm.run("CREATE TABLE t AS SELECT g, repeat('o', 400) FROM generate_series(1, 5000) g", "CHECKPOINT", database="other")
    calm.set(enabled="on", target="55MB", interval="20ms", prefetch="on")
    calm.wait_until(lambda: calm.status("ballooned_bytes") >= 54 * MB)
    calm.run("UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'other'")
    calm.set(enabled="on", target="0", interval="20ms", prefetch="on")
    calm.wait_until(lambda: calm.status("ballooned_bytes") == 0)
    ticks = "SELECT ticks FROM pg_stat_balloon"
    later = calm(ticks) + 40
    calm.wait_until(lambda: calm(ticks) >= later)
    calm.run("DROP DATABASE other")
    assert "invalid database" not in Path(calm.server.log).read_text(errors="replace")


def test_a_locked_table_is_left_out_of_reading_back(calm: Any) -> None:
    """Whoever holds it may be about to drop it, or its database: the prefetch worker must not stand in the queue."""
    calm.run("CREATE DATABASE other")
    created = "CREATE TABLE t AS SELECT g, repeat('o', 400) FROM generate_series(1, 20000) g"
    calm.run(created, "SELECT count(*) FROM t", "CHECKPOINT", database="other")
    running = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_balloon prefetch'"
    calm.set(enabled="on", target="55MB", interval="20ms", prefetch="on")
    calm.wait_until(lambda: calm.status("ballooned_bytes") >= 54 * MB)
    with psycopg.connect(calm.server.conninfo("other")) as holder:
        holder.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        calm.set(enabled="on", target="0", interval="20ms", prefetch="on")
        calm.wait_until(lambda: calm.status("ballooned_bytes") == 0)
        calm.wait_until(lambda: calm("SELECT prefetch_skipped FROM pg_stat_balloon") >= 100)  # those of t
        calm.wait_until(lambda: calm(running) == 0)
        holder.execute("TRUNCATE t")
    calm.run("DROP DATABASE other")
    calm.sound()


def test_misses_are_counted(calm: Any) -> None:
    """Pages read one by one: a sample of 128 buffers sees none of them, or takes one for 400 in a second."""
    calm.run(
        "CREATE TABLE t AS SELECT g AS id, repeat('x', 400) AS filler FROM generate_series(1, 20000) g",
        "CHECKPOINT",
        f"SELECT pg_balloon_inflate({64 * MB})",
        f"SELECT pg_balloon_deflate({64 * MB})",
    )
    calm.set(enabled="on", target="0", interval="20ms", prefetch="off")
    pages = itertools.count()

    def seen() -> bool:
        calm("SELECT id FROM t WHERE ctid = %s::tid", f"({next(pages)},1)")
        return 0 < (calm.status("misses_per_s") or 0) < 300  # not known before the second look

    calm.wait_until(seen)


@pytest.mark.parametrize("per_backend", ["64kB", "-1"])
def test_sessions_with_many_pins_never_run_out_of_buffers(calm: Any, per_backend: str) -> None:
    """Fifty sessions with open scans on a pool that is as small as the balloon may make it, with a floor by hand and by itself."""
    calm.set(min_buffers_per_backend=per_backend)
    calm.run(
        "CREATE TABLE wide AS SELECT g AS id, repeat('x', 700) AS filler FROM generate_series(1, 20000) g", "CREATE INDEX ON wide (id)"
    )
    calm("SELECT pg_balloon_inflate(%s)", 64 * MB)
    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(psycopg.connect(calm.server.conninfo())) for _ in range(50)]
        for number, session in enumerate(sessions):
            for cursor in range(10):
                session.execute(f"DECLARE c{cursor} CURSOR FOR SELECT * FROM wide WHERE id > {(number * 10 + cursor) * 37} ORDER BY id")
                session.execute(f"FETCH 5 FROM c{cursor}")
            session.execute("SELECT pg_balloon_inflate(%s)", (64 * MB,))
        assert calm("SELECT count(*) FROM wide") == 20000
        assert calm.status("shared_buffers_bytes") - calm.status("ballooned_bytes") >= calm.status("floor_bytes")
        assert calm.status("floor_bytes") >= 8 * MB
    calm.sound()


@pytest.mark.parametrize("per_backend", ["1MB", "-1"])
def test_new_sessions_raise_the_floor(calm: Any, per_backend: str) -> None:
    """By what is set, or by what is worked out: at least 32 pages of 8 kB each."""
    calm.set(min_buffers="1MB", min_buffers_per_backend=per_backend)
    sizes = "SELECT floor_bytes, shared_buffers_bytes - ballooned_bytes FROM pg_balloon_status()"
    with contextlib.ExitStack() as stack:
        watcher = stack.enter_context(psycopg.connect(calm.server.conninfo(), autocommit=True))
        watcher.execute("SELECT pg_balloon_inflate(%s)", (64 * MB,))
        (before, _) = watcher.execute(sizes).fetchone() or (0, 0)
        for _ in range(10):
            stack.enter_context(psycopg.connect(calm.server.conninfo()))
        floor, remaining = watcher.execute(sizes).fetchone() or (0, 0)
        assert floor == before + 10 * MB if per_backend == "1MB" else floor >= before + 10 * 32 * 8192
        assert remaining >= floor


def test_the_floor_follows_the_configuration_and_not_the_session(balloon: Any) -> None:
    """A session with less read-ahead than others must not take what they may pin. The pool is large enough for shares of 200 buffers."""
    settings = {"shared_buffers": "256MB", "pg_balloon.min_buffers_per_backend": "-1"}
    balloon.server.stop()
    balloon.write(settings)
    balloon.server.start()
    balloon.server.wait_ready()
    seen = "SELECT floor_bytes, shared_buffers_bytes - ballooned_bytes FROM pg_balloon_status()"
    with psycopg.connect(balloon.server.conninfo(), autocommit=True) as one, psycopg.connect(balloon.server.conninfo()) as other:
        one.execute("SET effective_io_concurrency = 0; SET maintenance_io_concurrency = 0")
        (floor, _) = one.execute(seen).fetchone() or (0, 0)
        assert other.execute(seen).fetchone() == (floor, 256 * MB)
        one.execute("SELECT pg_balloon_inflate(%s)", (256 * MB,))
        (floor, outside) = other.execute(seen).fetchone() or (0, 0)
        assert outside >= floor
    if balloon("SELECT current_setting('server_version_num')::int") >= 170000:  # before, read-ahead takes no pins
        before = balloon.status("floor_bytes")
        balloon.write(settings | {"effective_io_concurrency": "0", "maintenance_io_concurrency": "0"})
        balloon.server.reload()
        balloon.wait_until(lambda: balloon.status("floor_bytes") < before)
    balloon.sound()


def test_a_merge_of_many_partitions_pins_more_than_the_floor_foresees(calm: Any) -> None:
    """One buffer per partition and session, ten sessions: the balloon gives way before none is left."""
    partitions = 250
    calm.run(
        "CREATE TABLE parts (k int, id int, p text) PARTITION BY LIST (k)",
        "ALTER TABLE parts ALTER p SET STORAGE PLAIN",
        f"""DO $$ BEGIN FOR k IN 1..{partitions} LOOP
            EXECUTE format('CREATE TABLE parts_%s PARTITION OF parts FOR VALUES IN (%s)', k, k);
        END LOOP; END $$""",
        f"INSERT INTO parts SELECT 1 + mod(g, {partitions}), g, repeat('x', 3000) FROM generate_series(1, {partitions * 20}) g",
        "CREATE INDEX ON parts (id)",
        "ANALYZE parts",
    )
    calm.set(enabled="on", target="1GB", interval="20ms")
    calm.wait_until(lambda: calm.status("ballooned_bytes") == 56 * MB)
    with contextlib.ExitStack() as stack:
        for number in range(10):  # two rows of a partition are in a page, so each session has pages of its own
            session = stack.enter_context(psycopg.connect(calm.server.conninfo()))
            session.execute("SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; SET enable_indexonlyscan = off")
            query = f"SELECT * FROM parts WHERE id >= {number * 2 * partitions} ORDER BY id"
            plan = session.execute(f"EXPLAIN {query}").fetchall()
            assert "Merge Append" in plan[0][0], plan[0]
            session.execute(f"DECLARE c CURSOR FOR {query}")
            assert session.execute("FETCH 3 FROM c").fetchall()
            pins = (number + 1) * partitions
            calm.wait_until(lambda pins=pins: (64 * MB - calm.status("ballooned_bytes")) // 8192 * 0.6 >= pins)
        assert calm.status("shared_buffers_bytes") - calm.status("ballooned_bytes") > 8 * MB
    calm.run("DROP TABLE parts")
    calm.sound()


def test_no_free_worker_slot_is_told(balloon: Any) -> None:
    """The balloon's own worker and the logical replication launcher take both: pages cannot be read back, and the log says why, once."""
    balloon.server.stop()
    balloon.write({"max_worker_processes": "2"})
    balloon.server.start()
    balloon.server.wait_ready()
    balloon.run("CREATE TABLE t AS SELECT g, repeat('x', 400) FROM generate_series(1, 60000) g", "CHECKPOINT", "SELECT count(*) FROM t")
    balloon.write({"max_worker_processes": "2"}, enabled="on", target="56MB", interval="20ms")
    balloon.server.reload()
    balloon.wait_until(lambda: balloon.status("ballooned_bytes") == 56 * MB)
    balloon.write({"max_worker_processes": "2"}, enabled="on", target="0", interval="20ms")
    balloon.server.reload()
    balloon.wait_until(lambda: "no background worker slot is free" in Path(balloon.server.log).read_text())
    later = balloon("SELECT ticks FROM pg_stat_balloon") + 20
    balloon.wait_until(lambda: balloon("SELECT ticks FROM pg_stat_balloon") >= later)
    assert Path(balloon.server.log).read_text().count("no background worker slot is free") == 1
    balloon.sound()


@pytest.mark.parametrize("kind", ["mmap", "sysv"])
def test_a_pool_of_many_chunks(balloon: Any, kind: str) -> None:
    """More than one step of each loop over chunks, in either kind of shared memory: moved, released, released again, returned."""
    large = {"shared_memory_type": kind, "shared_buffers": "1GB", "huge_pages": "off", "max_wal_size": "4GB"}
    balloon.server.stop()
    balloon.write(large)
    balloon.server.start()
    balloon.server.wait_ready()
    balloon.run("CREATE TABLE t (id int, p text)", "INSERT INTO t SELECT g, repeat('x', 900) FROM generate_series(1, 200000) g")
    assert balloon.status("resident_bytes") > 180 * MB
    balloon.write(large, enabled="on", target="900MB", interval="20ms", prefetch="off", max_balloon_percent="95")
    balloon.server.reload()
    balloon.wait_until(lambda: balloon.status("ballooned_bytes") == 900 * MB)
    assert balloon.status("resident_bytes") <= 130 * MB and balloon.status("balloon_resident_bytes") == 0
    assert balloon("SELECT sum(id) FROM t") == 20000100000
    try:
        _read_shared_memory(balloon.server.pid)
    except OSError as error:
        pytest.skip(f"a server's memory cannot be read here: {error}")
    assert balloon.status("balloon_resident_bytes") > 800 * MB
    balloon.server.reload()  # checks 512 MB at a time
    balloon.wait_until(lambda: balloon.status("balloon_resident_bytes") == 0)
    balloon.write(large, enabled="on", target="0", interval="20ms", prefetch="on", max_deflate_rate="4GB")
    balloon.server.reload()
    balloon.wait_until(lambda: balloon.status("ballooned_bytes") == 0)
    assert balloon("SELECT sum(id) FROM t") == 20000100000
    balloon.sound()


def test_the_queries_for_prometheus(calm: Any) -> None:
    """As a user for monitoring: each column is a metric of the file, and a number."""
    calm.set(enabled="on", target="8MB", interval="20ms")
    calm.wait_until(lambda: calm.status("ballooned_bytes") == 8 * MB)
    queries = yaml.safe_load(QUERIES.read_text())
    with psycopg.connect(calm.server.conninfo(), autocommit=True) as connection:
        connection.execute("SET ROLE pg_monitor")
        for query in queries.values():
            cursor = connection.execute(query["query"])
            assert [column.name for column in cursor.description or ()] == [name for metric in query["metrics"] for name in metric]
            assert all(value is None or float(value) >= 0 for value in cursor.fetchone() or ())


def test_a_buffer_of_each_chunk_stays_in_the_pool(calm: Any) -> None:
    """Else a process whose sweep shares the clock hand with others may meet buffers of the balloon only, and give up."""
    calm.set(min_buffers="1MB", min_buffers_per_backend="8kB", max_balloon_percent="99")
    calm("SELECT pg_balloon_inflate(%s)", 64 * MB)
    assert calm.status("ballooned_bytes") > 62 * MB
    least = """SELECT min(staying) FROM (
        SELECT count(*) FILTER (WHERE relfilenode IS NOT NULL OR pinning_backends <> 1) AS staying
        FROM pg_buffercache GROUP BY (bufferid - 1) / 256) chunk"""
    assert calm(least) >= 1
    calm("SELECT pg_balloon_deflate(%s)", 64 * MB)
    calm.sound()
