"""Everything that walks over the pool at once, while buffers leave and come back at random and evicted pages are read back."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

MB = 1024 * 1024
PATIENCE = 60.0
PARALLEL = "SET max_parallel_workers_per_gather = 2; SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0"
SUM = "SELECT sum(abalance) FROM pgbench_accounts"


def _torture(balloon: Any, seconds: float, seed: int, as_account: Any) -> None:
    """TPC-B-like load and everything that walks over the pool, while buffers leave and come back at random."""
    server = balloon.server
    tool = server.installation.tool("pgbench")
    connection = ["-h", server.socket_dir, "-p", str(server.port), "-U", server.user, "postgres"]
    finished = as_account([tool, "-i", "-q", "-s", "2", *connection])
    assert finished.returncode == 0, finished.stderr
    with psycopg.connect(server.conninfo(), autocommit=True) as item:
        item.execute(PARALLEL)
        assert any("Gather" in row[0] for row in item.execute(f"EXPLAIN {SUM}")), "the sum is to be a parallel query"
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

    def steer(rng: random.Random, own: psycopg.Connection[Any]) -> None:
        """The worker follows a target, and reads evicted pages back whenever it falls."""
        for target in ("48MB", "0"):
            own.execute(f"ALTER SYSTEM SET pg_balloon.target = '{target}'")
            own.execute("SELECT pg_reload_conf()")
            time.sleep(rng.uniform(0.1, 0.6))

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
        for token in statement.split("; "):
            own.execute(token)

    def look(rng: random.Random, own: psycopg.Connection[Any]) -> None:
        own.execute(
            rng.choice(
                [
                    "CHECKPOINT", "VACUUM FULL pgbench_tellers", "VACUUM pgbench_accounts", "ANALYZE",
                    "SELECT count(*) FROM pg_buffercache",
                    f"{PARALLEL}; {SUM}",
                    "SELECT * FROM pg_balloon_status()", "SELECT pg_balloon_check()", "REINDEX TABLE pgbench_branches",
                ]
            )
        )  # fmt: skip

    def databases(rng: random.Random, own: psycopg.Connection[Any]) -> None:
        own.execute(f"CREATE DATABASE copied STRATEGY {rng.choice(['wal_log', 'file_copy'])}")
        own.execute("DROP DATABASE copied WITH (FORCE)")
        time.sleep(0.5)

    balloon.set(enabled="on", target="0", interval="20ms")
    threads = [thread(once.__name__, once) for once in (move, steer, change, look, databases)]
    for item in threads:
        item.start()
    load = as_account([tool, "-n", "-c", "4", "-T", str(int(seconds)), *connection], timeout=seconds + PATIENCE)
    for item in threads:
        item.join(PATIENCE)
    assert not [item.name for item in threads if item.is_alive()], "a thread hangs"
    assert not failures, failures
    assert not (stuck := [item.name for item in threads if item.is_alive()]), f"still at work a minute after the end: {stuck}"
    assert load.returncode == 0, load.stdout + load.stderr
    sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)"
    sums += " AND (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(bbalance) FROM pgbench_branches)"
    sums += " AND (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(tbalance) FROM pgbench_tellers)"
    assert balloon(sums), "the sums of TPC-B differ"
    assert balloon("SELECT inflated_clean > 0 AND deflated > 0 FROM pg_stat_balloon")
    balloon.wait_until(lambda: balloon("SELECT prefetched > 0 FROM pg_stat_balloon"))
    balloon.sound()
    server.stop()
    server.start()
    server.wait_ready()
    assert balloon(sums)
    balloon.sound()


def test_torture(balloon: Any, as_account: Any, seed: int) -> None:
    _torture(balloon, 8, seed, as_account)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_torture_for_twenty_minutes(balloon: Any, as_account: Any, seed: int) -> None:
    """On each of the installations: an hour on three of them."""
    _torture(balloon, 1200, seed, as_account)
