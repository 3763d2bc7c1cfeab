"""pg_balloon when something breaks: whoever is killed at whatever moment, calls that are ended, writes that fail."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

MB = 1024 * 1024
PATIENCE = 60.0


@pytest.mark.parametrize("victim", ["worker", "backend", "postmaster"])
def test_kill_9(balloon: Any, victim: str, chance: random.Random) -> None:
    """Whoever is killed at whatever moment: the server recovers, with no balloon and nothing lost."""
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
        time.sleep(chance.uniform(0.05, 0.3))
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
    else:
        balloon.back_in_use()
    assert balloon.status("ballooned_bytes") == 0
    assert balloon("SELECT sum(id) FROM kept") == 200010000
    balloon.wait_until(lambda: balloon.status("worker_pid"))
    assert balloon("SELECT pg_balloon_inflate(%s)", 40 * MB) == 40 * MB
    balloon.sound()


def test_kill_9_in_the_critical_section(injected: Any, started: Any, chance: random.Random) -> None:
    """Killed between a buffer's mark and its removal from the mapping table, or from the balloon to the free list."""
    with started(injected) as process:
        process.run("CREATE TABLE kept AS SELECT g AS id, repeat('x', 400) AS filler FROM generate_series(1, 20000) g")
        for call in ("inflate", "deflate"):
            with pytest.raises(psycopg.OperationalError), psycopg.connect(process.server.conninfo(), autocommit=True) as doomed:
                if call == "deflate":
                    doomed.execute("SELECT pg_balloon_inflate(%s)", (50 * MB,))
                doomed.execute(f"SET pg_balloon.die_after = {chance.randrange(1, 5000)}")
                doomed.execute(f"SELECT pg_balloon_{call}(%s)", (50 * MB,))
            process.back_in_use()
            assert process.status("ballooned_bytes") == 0
            assert process("SELECT sum(id) FROM kept") == 200010000
            assert process("SELECT pg_balloon_inflate(%s)", 40 * MB) == 40 * MB
            process.sound()


def test_a_write_that_fails_is_an_error_and_leaves_a_sound_balloon(injected: Any, started: Any) -> None:
    """A disk that does not take dirty pages: the call fails, the worker goes on, nothing is lost, and later all works again."""
    flag = injected.root / "no-writes"
    with started(injected) as process:
        process.run("CREATE TABLE kept AS SELECT g AS id, repeat('x', 400) AS filler FROM generate_series(1, 100000) g")
        with psycopg.connect(process.server.conninfo(), autocommit=True) as before:
            # A new session would have to write a page itself to read its catalogs, once all that is left is dirty.
            before.execute("SELECT pg_balloon_check(), pg_balloon_inflate(1, true)")
            process.write(enabled="on", target="60MB", interval="20ms")
            flag.touch()
            try:
                with pytest.raises(psycopg.Error, match="could not write block"):
                    before.execute("SELECT pg_balloon_inflate(%s, true)", (64 * MB,))
                assert before.execute("SELECT pg_balloon_check()").fetchone() == (0,)
                os.kill(process.server.pid, signal.SIGHUP)
                process.wait_until(lambda: Path(process.server.log).read_text().count("could not write block") >= 3)
                assert before.execute("SELECT pg_balloon_check()").fetchone() == (0,)
            finally:
                flag.unlink()
        process.wait_until(lambda: process.status("ballooned_bytes") >= 50 * MB)
        assert process.status("worker_pid") is not None
        process.set(enabled="on", target="0", interval="20ms")
        process.wait_until(lambda: process.status("ballooned_bytes") == 0)
        assert process("SELECT sum(id) FROM kept") == 5000050000
        process.sound()


def test_a_page_that_cannot_be_written_does_not_keep_others_from_it(injected: Any, started: Any) -> None:
    flag = injected.root / "no-writes"
    with started(injected) as process:
        process.write({"bgwriter_lru_maxpages": "0"})  # nobody else makes pages clean
        process.server.reload()
        process.run(
            "CREATE TABLE damaged (id int)",
            "CREATE TABLE dirty (id int, p text)",
            "CHECKPOINT",
            "INSERT INTO damaged VALUES (1)",
            "INSERT INTO dirty SELECT g, repeat('x', 400) FROM generate_series(1, 60000) g",
        )
        with psycopg.connect(process.server.conninfo(), autocommit=True) as mover:
            mover.execute("SELECT pg_balloon_check()")
            flag.write_text("/" + process("SELECT pg_relation_filepath('damaged')"))
            try:
                with pytest.raises(psycopg.Error, match="could not write block"):
                    for _ in range(5):
                        mover.execute("SELECT pg_balloon_inflate(%s, true)", (64 * MB,))
                mover.execute("SELECT pg_balloon_inflate(%s, true)", (64 * MB,))
            finally:
                flag.unlink()
        assert process("SELECT count(*) FROM dirty") == 60000 and process("SELECT id FROM damaged") == 1
        process.sound()


def test_a_worker_that_was_stopped_does_not_take_a_busy_pool_for_idle(balloon: Any) -> None:
    """Each page is read ten times a second. A sample that is 20 s old shows less than one access in that time of most pages."""
    balloon.run("CREATE TABLE busy AS SELECT g AS id, repeat('x', 400) AS filler FROM generate_series(1, 30000) g")
    balloon.set(enabled="on", target="8MB", idle_after="1s")
    over = threading.Event()

    def read() -> None:
        with psycopg.connect(balloon.server.conninfo(), autocommit=True) as reader:
            while not over.is_set():
                reader.execute("SELECT sum(length(filler)) FROM busy")

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        balloon.wait_until(lambda: (balloon.status("working_set_bytes") or 0) > 10 * MB)
        time.sleep(2)
        worker, before = balloon.status("worker_pid"), balloon.status("working_set_bytes")
        os.kill(worker, signal.SIGSTOP)
        time.sleep(20)
        os.kill(worker, signal.SIGCONT)
        until, least = time.monotonic() + 1, before
        while time.monotonic() < until:
            least = min(least, balloon.status("working_set_bytes"))
    finally:
        over.set()
        thread.join(PATIENCE)
    assert least > 0.6 * before


def test_an_operating_system_that_takes_no_memory_back(injected: Any, started: Any) -> None:
    """What was in the balloon comes back at once and the reason is told; switched off and on, it tries again."""
    flag = injected.root / "no-returning"
    refused = "the operating system did not take memory back"
    with started(injected) as process:
        process.run("CREATE TABLE kept AS SELECT g AS id, repeat('x', 400) AS filler FROM generate_series(1, 20000) g")
        process.set(enabled="on", target="20MB", interval="20ms")
        process.wait_until(lambda: process.status("ballooned_bytes") == 20 * MB)
        flag.touch()
        try:
            process.set(enabled="on", target="40MB", interval="20ms")
            process.wait_until(lambda: process.status("ballooned_bytes") == 0)
            process.wait_until(lambda: process.status("decision_reason") == refused)
            assert process.status("usable") is False and process.status("unusable_reason") == refused and process.status("enabled") is True
            with pytest.raises(psycopg.Error, match="could not release memory of the buffer pool"):
                process("SELECT pg_balloon_inflate(%s)", 8 * MB)
            assert process("SELECT pg_balloon_check()") == 0 and process.status("ballooned_bytes") == 0
            assert process("SELECT inflated_unused + inflated_clean - deflated FROM pg_stat_balloon") == 0
            assert process("SELECT sum(id) FROM kept") == 200010000
        finally:
            flag.unlink()
        process.set(enabled="off", interval="20ms")
        process.wait_until(lambda: process.status("usable"))
        process.set(enabled="on", target="40MB", interval="20ms")
        process.wait_until(lambda: process.status("ballooned_bytes") == 40 * MB)
        assert process("SELECT pg_balloon_check()") == 0


def test_memory_that_is_refused_while_it_is_switched_off(injected: Any, started: Any) -> None:
    """The call fails, what was in the balloon before stays, and switched on it works."""
    flag = injected.root / "no-returning"
    with started(injected) as process:
        assert process("SELECT pg_balloon_inflate(%s)", 40 * MB) == 40 * MB
        flag.touch()
        try:
            with pytest.raises(psycopg.Error, match="could not release memory of the buffer pool"):
                process("SELECT pg_balloon_inflate(%s)", 8 * MB)
        finally:
            flag.unlink()
        assert 38 * MB <= process.status("ballooned_bytes") <= 40 * MB
        assert process.status("usable") is True and process("SELECT pg_balloon_check()") == 0
        process.set(enabled="on", target="20MB", interval="20ms")
        process.wait_until(lambda: process.status("ballooned_bytes") == 20 * MB)


def test_a_session_comes_while_memory_is_on_its_way(injected: Any, started: Any) -> None:
    """Whoever inflates holds the balloon's lock meanwhile. A session that is far from the floor need not wait for it."""
    flag = injected.root / "stuck-returning"
    with started(injected) as process, psycopg.connect(process.server.conninfo(), autocommit=True) as mover:
        (moving,) = mover.execute("SELECT pg_backend_pid()").fetchone() or (0,)
        with psycopg.connect(process.server.conninfo(), autocommit=True) as watcher:
            returning = "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = %s"
            flag.touch()
            thread = threading.Thread(target=mover.execute, args=("SELECT pg_balloon_inflate(%s)", (8 * MB,)), daemon=True)
            try:
                thread.start()
                process.wait_until(lambda: watcher.execute(returning, (moving,)).fetchone() == (True,))
                with psycopg.connect(process.server.conninfo(), autocommit=True, connect_timeout=30) as newcomer:
                    assert newcomer.execute(returning, (moving,)).fetchone() == (True,), "it came while memory was on its way"
            finally:
                flag.unlink()
            thread.join(PATIENCE)
            assert not thread.is_alive()
        assert process.status("ballooned_bytes") == 8 * MB and process("SELECT pg_balloon_check()") == 0


def test_where_nobody_tells_what_pages_the_pool_lies_in(injected: Any, started: Any) -> None:
    """They may be huge, and then a backend could end with SIGBUS: no balloon, unless huge_pages is off."""
    flag = injected.root / "no-smaps"
    with started(injected) as process:
        flag.touch()
        try:
            for allowed, usable in (("try", False), ("off", True)):
                process.server.stop()
                process.write({"huge_pages": allowed})
                process.server.start()
                process.server.wait_ready()
                assert process.status("usable") is usable
                if usable:
                    assert process("SELECT pg_balloon_inflate(%s)", 8 * MB) == 8 * MB and process.status("resident_bytes") <= 56 * MB
                else:
                    assert "does not show whether shared_buffers uses huge pages" in process.status("unusable_reason")
        finally:
            flag.unlink()


def test_a_session_whose_pages_others_read_counts_once(workshop: Any, started: Any) -> None:
    """I/O workers of PostgreSQL 18 read for it. Counted as well, one session that scans a table would look like several that wait."""
    built = workshop(18, "-DPG_BALLOON_INJECTION")
    slow = built.root / "slow-reads"
    ended = threading.Event()
    with started(built) as process:
        process.run("CREATE TABLE wide AS SELECT g, repeat('x', 700) FROM generate_series(1, 60000) g", "CHECKPOINT")
        if process("SHOW io_method") != "worker":
            pytest.skip("this PostgreSQL 18 has its sessions read themselves")
        slow.write_text(process("SELECT pg_relation_filepath('wide')"))

        def scan() -> None:
            with psycopg.connect(process.server.conninfo(), autocommit=True) as connection:
                connection.execute("SET max_parallel_workers_per_gather = 0")
                while not ended.is_set():
                    connection.execute("SELECT count(*) FROM wide")

        def said(pattern: str) -> list[str]:
            return re.findall(pattern, Path(process.server.log).read_text())

        thread = threading.Thread(target=scan, daemon=True)
        thread.start()
        waited: list[str] = []
        try:
            deadline = time.monotonic() + PATIENCE
            for target in itertools.cycle(("20MB", "0")):  # no session of ours looks meanwhile: it might wait too
                known = len(said("pg_balloon (?:in|de)flated by"))
                process.write(enabled="on", target=target, interval="20ms", prefetch="off")
                os.kill(process.server.pid, signal.SIGHUP)
                process.wait_until(lambda known=known: len(said("pg_balloon (?:in|de)flated by")) > known)
                waited = said(r", waiting (\d+), ")
                if len(waited) >= 12 and "1" in waited:
                    break
                assert time.monotonic() < deadline, waited
        finally:
            slow.unlink()
            ended.set()
            thread.join(PATIENCE)
        assert set(waited) <= {"0", "1"}


def test_reading_back_from_slow_storage_keeps_nobody_waiting(injected: Any, started: Any) -> None:
    """A table's lock is let go after a moment, and the database after two seconds, however long all the pages would take."""
    slow = injected.root / "slow-reads"
    held = """SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
        WHERE backend_type = 'pg_balloon prefetch' AND mode = 'AccessShareLock' AND relation = %s"""
    with started(injected) as process:
        process.run("CREATE DATABASE other")
        number = process("SELECT oid::int FROM pg_database WHERE datname = 'other'")
        with psycopg.connect(process.server.conninfo("other"), autocommit=True) as changer:
            for name in ("first", "second"):
                changer.execute(f"CREATE TABLE {name} AS SELECT g, repeat('o', 400) FROM generate_series(1, 36000) g")
            ((first,), (second,)) = changer.execute("SELECT oid::int FROM pg_class WHERE relname IN ('first', 'second') ORDER BY relname")
            changer.execute("CHECKPOINT")
            changer.execute("SET lock_timeout = '4s'")
            process.set(enabled="on", target="58MB", interval="20ms")
            process.wait_until(lambda: process.status("ballooned_bytes") >= 55 * MB)
            slow.write_text(f"/base/{number}/")
            try:
                process.set(enabled="on", target="0", interval="20ms")
                process.wait_until(lambda: process(held, first))
                changer.execute("TRUNCATE first")  # thousands of pages are to be read yet: ten seconds
                process.wait_until(lambda: process(held, second))
                changer.close()
                process.run("DROP DATABASE other")  # gives up after five seconds
            finally:
                slow.unlink()
        process.sound()


@pytest.mark.parametrize("settings", [{"target": "56MB"}, {"max_writeback_rate": "1GB", "idle_after": "100ms"}], ids=["giving", "ahead"])
def test_slow_writes_do_not_keep_the_worker_from_looking(injected: Any, started: Any, settings: dict[str, str]) -> None:
    """Where it is told to give what is dirty, and where an idle server writes ahead: half a minute's writes in either."""
    slow = injected.root / "slow-writes"
    with started(injected) as process:
        process.run("CREATE TABLE dirty (id int, p text)", "INSERT INTO dirty SELECT g, repeat('x', 400) FROM generate_series(1, 100000) g")
        observed = "SELECT ticks, buffers_written FROM pg_stat_balloon"
        transaction = "SELECT xact_start > %s FROM pg_stat_activity WHERE backend_type = 'pg_balloon' AND xact_start IS NOT NULL"
        with psycopg.connect(process.server.conninfo(), autocommit=True) as watcher:
            [now] = watcher.execute("SELECT now()").fetchone() or [None]
            watcher.execute(observed)
            slow.write_text("/base/")
            try:
                process.write(enabled="on", interval="20ms", **settings)
                os.kill(process.server.pid, signal.SIGHUP)
                process.wait_until(lambda: watcher.execute(observed).fetchone()[1] > 100)
                before, _ = watcher.execute(observed).fetchone() or (0, 0)
                process.wait_until(lambda: watcher.execute(observed).fetchone()[0] >= before + 2)
                _, written = watcher.execute(observed).fetchone() or (0, 0)
                assert written < 3000, "it is not through yet: that takes half a minute"
                process.wait_until(lambda: watcher.execute(transaction, [now]).fetchone() == (True,))  # and not as old as the worker
            finally:
                slow.unlink()
        process.sound()


def test_a_limit_on_transactions_does_not_end_the_worker(workshop: Any, started: Any) -> None:
    """transaction_timeout came with PostgreSQL 17; to write the dirty pages of a chunk takes longer than this one."""
    built = workshop(18, "-DPG_BALLOON_INJECTION")
    slow = built.root / "slow-writes"
    with started(built) as process:
        process.run("CREATE TABLE dirty (id int, p text)", "INSERT INTO dirty SELECT g, repeat('x', 400) FROM generate_series(1, 100000) g")
        with psycopg.connect(process.server.conninfo(), autocommit=True) as watcher:
            watcher.execute("SET transaction_timeout = 0")
            slow.write_text("/base/")
            try:
                process.write({"transaction_timeout": "400ms"}, enabled="on", target="56MB", interval="20ms")
                os.kill(process.server.pid, signal.SIGHUP)
                process.wait_until(lambda: watcher.execute("SELECT buffers_written FROM pg_stat_balloon").fetchone()[0] > 300)
            finally:
                slow.unlink()
        assert "transaction timeout" not in Path(process.server.log).read_text()


def test_dirty_pages_are_given_although_there_is_no_time_to_look_for_clean_ones(injected: Any, started: Any) -> None:
    """As on a pool so large, or a machine so busy, that to look at all of it takes longer than the worker may."""
    fast = injected.root / "fast-clock"
    with started(injected) as process:
        process.run("CREATE TABLE dirty (id int, p text)", "INSERT INTO dirty SELECT g, repeat('x', 400) FROM generate_series(1, 100000) g")
        fast.touch()
        try:
            process.write({"bgwriter_lru_maxpages": "0"}, enabled="on", target="56MB", interval="20ms")  # nobody else makes pages clean
            process.server.reload()
            process.wait_until(lambda: process.status("ballooned_bytes") == 56 * MB)
        finally:
            fast.unlink()
        assert process("SELECT pg_balloon_check()") == 0


def test_switched_off_while_the_worker_is_away(injected: Any, started: Any) -> None:
    """The one that comes after it gives back what the first one left in the balloon."""
    with started(injected) as process:
        process.set(enabled="on", target="40MB", interval="20ms")
        process.wait_until(lambda: process.status("ballooned_bytes") == 40 * MB)
        process("SELECT pg_terminate_backend(%s)", process.status("worker_pid"))
        process.wait_until(lambda: process.status("worker_pid") is None)
        process.set(enabled="off", interval="20ms")
        assert process.status("ballooned_bytes") == 40 * MB
        process.wait_until(lambda: process.status("ballooned_bytes") == 0)  # it is started again after five seconds
        process.sound()


def test_cancelled_and_terminated_calls_leave_a_sound_balloon(balloon: Any, seed: int) -> None:
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
