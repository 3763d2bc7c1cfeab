"""pg_balloon when something breaks: whoever is killed at whatever moment, calls that are ended, writes that fail."""

from __future__ import annotations

import contextlib
import os
import random
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
    balloon.back_in_use()
    assert balloon.status("ballooned_bytes") == 0
    assert balloon("SELECT sum(id) FROM kept") == 200010000
    balloon.wait_until(lambda: balloon.status("worker_pid"))
    assert balloon("SELECT pg_balloon_inflate(%s)", 40 * MB) == 40 * MB
    balloon.sound()


@pytest.fixture(scope="module")
def injected(workshop: Any) -> Any:
    """The extension with its points of injection, in a private copy whose server also has writes fail while a file says so."""
    return workshop("system", "-DPG_BALLOON_INJECTION")


def test_kill_9_in_the_critical_section(injected: Any, started: Any, chance: random.Random) -> None:
    """Killed between a buffer's mark and its removal from the mapping table, or from the balloon to the free list."""
    with started(injected) as one:
        one.run("CREATE TABLE kept AS SELECT g AS id, repeat('x', 400) AS filler FROM generate_series(1, 20000) g")
        for call in ("inflate", "deflate"):
            with pytest.raises(psycopg.OperationalError), psycopg.connect(one.server.conninfo(), autocommit=True) as doomed:
                if call == "deflate":
                    doomed.execute("SELECT pg_balloon_inflate(%s)", (50 * MB,))
                doomed.execute(f"SET pg_balloon.die_after = {chance.randrange(1, 5000)}")
                doomed.execute(f"SELECT pg_balloon_{call}(%s)", (50 * MB,))
            one.back_in_use()
            assert one.status("ballooned_bytes") == 0
            assert one("SELECT sum(id) FROM kept") == 200010000
            assert one("SELECT pg_balloon_inflate(%s)", 40 * MB) == 40 * MB
            one.sound()


def test_a_write_that_fails_is_an_error_and_leaves_a_sound_balloon(injected: Any, started: Any) -> None:
    """A disk that does not take dirty pages: the call fails, the worker goes on, nothing is lost, and later all works again."""
    flag = injected.root / "no-writes"
    with started(injected) as one:
        one.run("CREATE TABLE kept AS SELECT g AS id, repeat('x', 400) AS filler FROM generate_series(1, 100000) g")
        with psycopg.connect(one.server.conninfo(), autocommit=True) as before:
            # A new session would have to write a page itself to read its catalogs, once all that is left is dirty.
            before.execute("SELECT pg_balloon_check(), pg_balloon_inflate(1, true)")
            one.write(enabled="on", target="60MB", interval="20ms")
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
