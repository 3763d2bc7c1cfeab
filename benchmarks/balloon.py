"""What pg_balloon costs while it has nothing to do, how fast and how completely it gives memory back, and whom that stalls.

Idle: one server with the library, ``pg_balloon.enabled`` switched on and off every two seconds; pgbench, select-only and cached, which
goes on meanwhile (``slices.py``). CPU is that of the postmaster and all its children, counted once the worker is at peace. Inflating: a
pool full of clean pages, which other sessions have mapped too; the speed is the balloon's own clock, and what the operating system got
back is the shared memory of the server's control group (of the whole machine where there is none), before and after. Stalls: the same
while pgbench runs, whose every transaction is logged; the longest of those that overlap with the inflation, and of those in as long a
time without one, after it.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import re
import shutil
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import outcome
import paired
import psutil
import psycopg
import slices
from balloon_server import MB, finished, home, keep_the_rules, load, pgbench
from outcome import Figure

from pgherd.analysis.intervals import mean_interval
from pgherd.model.errors import TrialError
from pgherd.postgres.instance import Instance

IDLE, SPEED, RETURNED, STALL = 0.01, 2.0, 0.99, 20.0
SHARE = 0.75
"""Of the pool that is inflated."""
TURNS, TURN, SETTLED = 4, 1.2, 0.6
"""Of a round: how often the idle balloon is on, for how many seconds, which its worker takes from one whole look to the next, and how
long before them it has been switched: reading the settings and finding the signals are not what an idle balloon costs."""


def main() -> None:
    """Measure, print, write."""
    parser = outcome.parser(__doc__, 20, "windows in which stalls are looked for")
    parser.add_argument("--rounds", type=int, default=100, metavar="N", help="rounds with the idle balloon on and off  [default: 100]")
    parser.add_argument("--pool", type=int, default=1024, metavar="MB", help="shared_buffers  [default: 1024; --quick: 256]")
    parser.add_argument("--sessions", type=int, default=8, help="other sessions that have mapped the pool  [default: 8]")
    parser.add_argument("--clients", type=int, default=1, help="clients while it inflates, which wants a core itself  [default: 1]")
    parser.add_argument("--kind", choices=("system", "embedded"), default="system", help="which PostgreSQL  [default: system]")
    parser.add_argument("--more", action="store_true", help="only add idle rounds to the last result, which had the same settings")
    options = parser.parse_args()
    pairs = options.pairs or (2 if options.quick else 20)
    rounds = 3 if options.quick else options.rounds
    pool = 256 if options.quick else options.pool
    seed = outcome.seed_of(options)
    rng = random.Random(seed)
    before = outcome.cpu_seconds()
    with home(options.kind) as here:
        server = here.start("one", pool, options.sessions + options.clients, {})
        group = here.groups["one"]
        settings = {
            "postgres": server.installation.version, "turn seconds": TURN, "pool MB": pool, "sessions": options.sessions,
            "clients": options.clients, "memory by": "control group" if group else "machine",
        }  # fmt: skip
        raw: list[dict[str, Any]] = outcome.blocks_before("balloon", options, settings) if options.more else []
        fill(server, pool)
        if not raw:
            raw += moves(server, pool, options.sessions, options.clients, 3 if options.quick else 10, pairs, group, here.place / "logs")
        done = sum("pair" in row for row in raw)
        raw += [{"pair": done + number, **row} for number, row in enumerate(idle(server, rounds, rng, here.place), 1)]
    outcome.conclude(outcome.Outcome("balloon", options.quick, seed, settings, figures(raw), raw, outcome.noise_since(before)), options)


def moves(
    server: Instance, pool: int, sessions: int, clients: int, inflations: int, pairs: int, group: str | None, logs: Path
) -> list[dict[str, Any]]:
    """So many inflations of a pool that nobody uses, and then so many windows with one and without, in a row each."""
    raw: list[dict[str, Any]] = []
    for number in range(1, inflations + 1):
        raw.append({"inflation": number, **inflation(server, pool, sessions, group)})
        outcome.say(f"inflation {number}: {raw[-1]['GB/s']:.2f} GB/s, {raw[-1]['returned']:.2%} returned")
    length = sum(row["ballooned"] / row["GB/s"] / 1e9 for row in raw) / len(raw)
    for number in range(1, pairs + 1):
        raw.append({"window": number, **flat(windows(server, pool, sessions, clients, length, logs))})
        outcome.say(f"window {number}: longest {raw[-1]['inflating longest ms']:.1f} ms, without {raw[-1]['left longest ms']:.1f} ms")
    return raw


def flat(pair: dict[str, dict[str, float]]) -> dict[str, float]:
    """The results of all sides of a block in one row."""
    return {f"{side} {name}": value for side, run in pair.items() for name, value in run.items()}


def figures(raw: list[dict[str, Any]]) -> list[Figure]:
    """The figures of all measurements."""
    ours = [row for row in raw if "pair" in row]
    moved = [row for row in raw if "inflation" in row]
    ratio = paired.ratio([row["on cpu"] for row in ours], [row["off cpu"] for row in ours], confidence=0.90)
    met = outcome.met(ratio, least=1 - IDLE, most=1 + IDLE)
    speed, returned = mean_interval([row["GB/s"] for row in moved]), mean_interval([row["returned"] for row in moved])
    return [
        Figure.of("CPU per transaction, idle balloon ÷ switched off (90 %)", "", ratio, "90 % interval within 1 ± 0.01", met),
        Figure.of("inflating clean buffers", "GB/s", speed, f"≥ {SPEED:g}", outcome.met(speed, least=SPEED)),
        Figure.of("shared memory returned ÷ ballooned", "", returned, f"≥ {RETURNED:g}", outcome.met(returned, least=RETURNED)),
        Figure.of("CPU of inflating", "s/GB", mean_interval([row["cpu s/GB"] for row in moved])),
        Figure.of("deflating", "GB/s", mean_interval([row["back GB/s"] for row in moved])),
        *stalls([row for row in raw if "window" in row]),
    ]


def stalls(rows: list[dict[str, Any]]) -> list[Figure]:
    """The longest transactions while it inflates, and in as long a time without.

    One that is too long counts against the balloon only if none was that long without it: then it may have been the machine.
    """
    longest, without = (max(row[f"{side} longest ms"] for row in rows) for side in ("inflating", "left"))
    seen, others = (round(sum(row[f"{side} transactions"] for row in rows)) for side in ("inflating", "left"))
    speed = mean_interval([row["inflating GB/s"] for row in rows])
    met = True if longest <= STALL else None if without > STALL else False
    method = "greatest of all windows"
    return [
        Figure(
            "longest transaction while inflating", longest, "ms", n=len(rows), method=method, goal=f"≤ {STALL:g}", met=met,
            note=f"of {seen:,} transactions",
        ),
        Figure("longest transaction without", without, "ms", n=len(rows), method=method, note=f"of {others:,} transactions"),
        Figure.of("inflating while transactions run", "GB/s", speed, f"≥ {SPEED:g}", outcome.met(speed, least=SPEED)),
    ]  # fmt: skip


def fill(server: Instance, pool: int) -> None:
    """A table of nine tenths of the pool, and pgbench's."""
    server.sql(
        "CREATE TABLE filler AS SELECT g AS id, repeat('x', 900) AS filler FROM generate_series(1, %s::int) g",
        [int(pool * 0.9 * MB / 1024)],
    )
    finished(pgbench(server, ["-i", "-q", "-s", "1"]), 120)
    server.sql("VACUUM filler")


@contextlib.contextmanager
def mapped(server: Instance, sessions: int) -> Iterator[psycopg.Connection[Any]]:
    """The pool full of clean pages that so many sessions have mapped; yields a further session."""
    with contextlib.ExitStack() as stack:
        for _ in range(sessions):
            one = stack.enter_context(psycopg.connect(server.conninfo(), autocommit=True))
            one.execute("SELECT pg_prewarm('filler')")
            one.execute("SET max_parallel_workers_per_gather = 0")
            one.execute("SELECT count(*) FROM filler")
        server.sql("CHECKPOINT")
        server.sql("SELECT pg_balloon_reset()")
        yield stack.enter_context(psycopg.connect(server.conninfo(), autocommit=True))


def inflate(mover: psycopg.Connection[Any], pool: int) -> float:
    """Inflate by clean buffers; the bytes that came."""
    (ballooned,) = mover.execute("SELECT pg_balloon_inflate(%s, false)", [int(pool * SHARE) * MB]).fetchone() or (0,)
    return float(ballooned)


def deflate(server: Instance, pool: int) -> float:
    """All back; the bytes that came. Raises TrialError if the balloon's rules do not hold."""
    ((back,),) = server.sql("SELECT pg_balloon_deflate(%s)", [pool * MB])
    keep_the_rules(server)
    return float(back)


def inflation(server: Instance, pool: int, sessions: int, group: str | None) -> dict[str, float]:
    """Fill the pool with clean pages that some sessions have mapped, inflate, and look what came of it."""
    with mapped(server, sessions) as mover:
        before = shared_memory(group)
        cpu = psutil.Process(mover.info.backend_pid).cpu_times()
        ballooned = inflate(mover, pool)
        used = psutil.Process(mover.info.backend_pid).cpu_times()
        after = shared_memory(group)
        ((clean, inflate_ms),) = server.sql("SELECT inflated_clean, inflate_ms FROM pg_stat_balloon")
        back = deflate(server, pool)
        ((deflate_ms,),) = server.sql("SELECT deflate_ms FROM pg_stat_balloon")
    held = float(clean) * 8192  # unused buffers held nothing that could come back
    return {
        "ballooned": ballooned, "held": held, "returned": (before - after) / held, "GB/s": ballooned / inflate_ms / 1e6,
        "back GB/s": back / deflate_ms / 1e6, "cpu s/GB": (used.user + used.system - cpu.user - cpu.system) / ballooned * 1e9,
    }  # fmt: skip


def shared_memory(group: str | None) -> int:
    """Bytes of shared memory now, of the control group or of the machine."""
    if group is None:
        found = re.search(r"^Shmem:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
        assert found
        return int(found[1]) * 1024
    found = re.search(r"^shmem (\d+)", Path(f"{group}/memory.stat").read_text(), re.MULTILINE)
    assert found, f"{group}/memory.stat has no shmem"
    return int(found[1])


def windows(server: Instance, pool: int, sessions: int, clients: int, expected: float, logs: Path) -> dict[str, dict[str, float]]:
    """A window with an inflation, of which ``expected`` seconds are expected, and then one that looks for as long as it took."""
    inflating = window(server, pool, sessions, clients, expected, True, logs)
    return {"inflating": inflating, "left": window(server, pool, sessions, clients, inflating["seconds"], False, logs)}


def window(server: Instance, pool: int, sessions: int, clients: int, length: float, inflating: bool, logs: Path) -> dict[str, float]:
    """pgbench on a full pool, and within its run an inflation, of about ``length`` seconds, or just as long a time without one.

    ``longest ms`` is that of the transactions that overlap with it, whose number is ``transactions``; ``seconds`` is its length.

    Raises:
        TrialError: it outlasted pgbench, which then saw only a part of it, or nothing overlapped with it.
    """
    runs = math.ceil(2 * length) + 2
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir()
    logs.chmod(0o777)
    with mapped(server, sessions) as mover:
        words = ["-n", "-S", "-M", "prepared", "-c", str(clients), "-T", str(runs), "-l", "--log-prefix", str(logs / "log")]
        started = time.time()
        load = pgbench(server, words)
        time.sleep(0.7)  # it has connected
        began = time.time()
        if inflating:
            ballooned = inflate(mover, pool)
        else:
            time.sleep(length)
        ended = time.time()
        finished(load, runs + 120)
        if inflating:
            deflate(server, pool)
    if ended > started + runs:
        raise TrialError(
            f"a window of {ended - began:.1f} s, where about {length:.1f} s were expected, outlasted pgbench, which ran for {runs} s; "
            "give a smaller --pool, or wait until the machine is quiet"
        )
    found = overlapping([line for file in logs.iterdir() for line in file.read_text().splitlines()], began, ended)
    if not found:
        raise TrialError(f"none of pgbench's transactions overlapped with a window of {ended - began:.3f} s; give a larger --pool")
    result = {"longest ms": max(found) * 1000, "transactions": float(len(found)), "seconds": ended - began}
    return result | ({"GB/s": ballooned / (ended - began) / 1e9} if inflating else {})


def overlapping(lines: list[str], began: float, ended: float) -> list[float]:
    """Durations in seconds of the transactions in pgbench's log that were under way between two moments (seconds since 1970)."""
    found = []
    for line in lines:
        _, _, micros, _, epoch, rest, *_ = line.split()
        end, took = int(epoch) + int(rest) / 1e6, int(micros) / 1e6
        if end >= began and end - took <= ended:
            found.append(took)
    return found


def idle(server: Instance, rounds: int, rng: random.Random, place: Path) -> list[dict[str, float]]:
    """One pgbench, with the balloon switched on and off by turns: what ``slices`` measures of each round.

    Only the worker is told to read the settings again, as nobody else asks for this one: a reload would cost all sessions more than
    what is measured.
    """
    settings = Path(server.data_dir, "postgresql.conf")
    kept = [line for line in settings.read_text().splitlines() if not line.startswith("pg_balloon.enabled")]
    ((worker,),) = server.sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_balloon'")

    def switch(side: str) -> None:
        settings.write_text("\n".join([*kept, f"pg_balloon.enabled = {side}", ""]))
        os.kill(worker, signal.SIGHUP)
        time.sleep(SETTLED)

    one = partial(load, server, ["-S", "-c", "2"], slices.longest(rounds, TURNS, TURN + SETTLED), place / "idle")
    return slices.measured({"off": one, "on": one}, rounds, turns=TURNS, seconds=TURN, rng=rng, switch=switch)


if __name__ == "__main__":
    outcome.run(main)
