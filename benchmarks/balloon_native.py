"""What three quarters of a pool in the balloon cost: CPU per transaction, against a native pool of what is left.

Servers with the same data: one whose pool is kept at a quarter by ``pg_balloon.target``, with the library at work, and one with
a quarter of the shared_buffers and without the library; and, to tell what a balloon costs from what a large pool costs, one
without the library whose whole pool is as large as the first one's, for rows that fit into a quarter of it. pgbench
reads single rows by their keys, on each in turn: from rows that fit into what is left, and, but for the third server, from one and a
half times as much, where a third of the reads goes past the pool to the page cache, and finds its victim among buffers three quarters of
which are in the balloon. Each server's pgbench goes on by turns while the others' are stopped (``slices.py``); CPU is that of the
postmaster and all its children. Sessions have mapped the pool before they are measured.

Where the kernel happens to put a pool makes a difference of its own, which no number of rounds takes away: of three equal native servers
one used 1.7 % less CPU per transaction than another, and of three ballooned ones 5 %. So all are started anew again and again, and
an interval is that of the starts. Whichever is filled and loaded first seems to use more CPU than those after it, so an order of them is
followed by its reverse.

After the last start each works alone for some windows with a third of the reads past the pool: whoever looks for a victim passes over
what is in the balloon, and a transaction that had to pass over much of it would be a long one.

    balloon_native.py                                 pools of 1 GB with 8 sessions, and of 8 GB with 64
    balloon_native.py --sizes 4096:32 --pairs 20
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import outcome
import paired
import psutil
import slices
from balloon_server import MB, Home, finished, home, keep_the_rules, load, pgbench
from outcome import Figure

from pgherd.model.errors import CapabilityError, TrialError, UsageError
from pgherd.postgres.instance import Instance

GOAL = 1.03
SIDES = ("ballooned", "native")
LARGE = "native of the same size"
ALL = (*SIDES, LARGE)
ROUNDS = 5
"""After each start, of each mix."""
MAPPING = 600
"""Seconds in which all sessions must have looked at the whole pool."""
TURNS, TURN = 10, 0.1
"""Of a round: how often each server has its turn, and for how many seconds."""
LEFT = 4
"""The pool divided by what is left of it."""
MIXES = {"in the pool": 0.5, "a third past it": 1.5}
"""The rows that are read, as a share of what is left of the pool. Those of the second would all be in the larger pool."""
WINDOWS, WINDOW, QUICK_WINDOW = 3, 30, 3
"""How many times each works alone, and for how many seconds."""
PER_MB, PER_PAGE = 1000, 8
"""Rows in a megabyte of table, nearly, and exactly in a page."""
FAULTED = 64 * 1024
"""The kernel maps so many bytes of a file at a fault, as far as they are in memory (fault_around_bytes, which is this by default)."""
READ = "\\set id random(1, :rows)\nSELECT filler FROM data WHERE id = :id;\n"
MAPPED = f"SELECT count(filler) FROM generate_series(1, :rows, {PER_PAGE * FAULTED // 8192}) AS at JOIN data ON id = at"
SCRIPTS = {"read.sql": READ, "map.sql": f"\\if :mapped = 0\n{MAPPED};\n\\set mapped 1\n\\endif\n{READ}"}
"""The second one begins, in each session, with a look at all places of the pool: a session's first thousands of transactions are mostly
faults, which cost more the more page tables it takes to map the pool, and which are over in a session that lives."""


def main() -> None:
    """Measure, print, write."""
    parser = outcome.parser(__doc__, 20, "starts of both servers, of each size")
    sizes_help = "pools and their sessions  [default: 1024:8,8192:64; --quick: 256:4]"
    parser.add_argument("--sizes", default="1024:8,8192:64", metavar="MB:N,…", help=sizes_help)
    parser.add_argument("--kind", choices=("system", "embedded"), default="system", help="which PostgreSQL  [default: system]")
    options = parser.parse_args()
    sizes = sizes_of("256:4" if options.quick else options.sizes)
    starts = options.pairs or (2 if options.quick else 20)
    seed, before = outcome.seed_of(options), outcome.cpu_seconds()
    need_memory(sizes)
    raw: list[dict[str, Any]] = []
    for number, (pool, sessions) in enumerate(sizes, 1):
        with home(options.kind) as here:
            version = here.installation.version
            measure(here, pool, sessions, starts, QUICK_WINDOW if options.quick else WINDOW, random.Random(seed), raw)
        done = [list(size) for size in sizes[:number]]
        settings = {"postgres": version, "turn seconds": TURN, "rounds of a start": ROUNDS, "sizes": done}
        result = outcome.Outcome("balloon_native", options.quick, seed, settings, figures(raw), raw, outcome.noise_since(before))
        outcome.store(result, options)  # what ends the next one does not lose this
    outcome.conclude(result, options)


def sizes_of(words: str) -> list[tuple[int, int]]:
    """Pools in MB and their sessions; raises UsageError for words that are none."""
    try:
        found = [(int(pool), int(sessions)) for pool, sessions in (word.split(":") for word in words.split(","))]
    except ValueError:
        raise UsageError(f"--sizes {words} is no list of POOL:SESSIONS, such as 1024:8,8192:64") from None
    if not all(pool >= 256 and 1 <= sessions <= 1000 for pool, sessions in found):
        raise UsageError(f"--sizes {words}: pools must have at least 256 MB, and from 1 to 1000 sessions")
    return found


def need_memory(sizes: Sequence[tuple[int, int]]) -> None:
    """Raises CapabilityError where there is not memory for each of the sizes, one at a time."""
    available = psutil.virtual_memory().available // MB
    for pool, _ in sizes:
        left = pool // LEFT
        # The data of each in the page cache, and all of it once more in the larger pool, which takes it in as it is filled.
        needed = 2 * left + (1 + len(ALL)) * round(left * max(MIXES.values()))
        if needed > available:
            raise CapabilityError(
                f"a pool of {pool} MB needs {needed} MB of memory for three servers and their data, but {available} MB are available; "
                "leave it out of --sizes"
            )


def measure(here: Home, pool: int, sessions: int, starts: int, window: int, rng: random.Random, raw: list[dict[str, Any]]) -> None:
    """All starts of one size, and then the windows of so many seconds."""
    left = pool // LEFT
    own = {"enabled": "on", "target": f"{pool - left}MB", "log_level": "debug1"}
    servers = {
        "ballooned": here.start("ballooned", pool, sessions, own),
        "native": here.start("native", left, sessions),
        LARGE: here.start("large", pool, sessions),
    }
    for name, text in SCRIPTS.items():
        (here.place / name).write_text(text)
        (here.place / name).chmod(0o644)
    for server in servers.values():
        fill(server, left)
    for start, order in enumerate(paired.orders(starts, ALL, rng), 1):
        for side in order:
            here.start_again(servers[side])
        wait_for(servers["ballooned"], pool - left)
        about = {"pool MB": pool, "sessions": sessions, "start": start, "order": list(order)}
        raw += [about | row for row in measure_start(here, {side: servers[side] for side in order}, left, sessions, rng)]
        wait_for(servers["ballooned"], pool - left)
        keep_the_rules(servers["ballooned"])
    for number in range(1, WINDOWS + 1):
        row: dict[str, Any] = {"pool MB": pool, "sessions": sessions, "window": number}
        for side in rng.sample(SIDES, len(SIDES)):
            row |= {f"{side} {what}": value for what, value in alone(here, servers[side], left, sessions, window).items()}
        raw.append(row)
        longest = ", ".join(f"{side} {row[f'{side} longest ms']:.1f} ms" for side in SIDES)
        outcome.say(f"{pool} MB, {sessions} sessions, a third past it, alone: longest transaction {longest}")


def measure_start(here: Home, servers: Mapping[str, Instance], left: int, sessions: int, rng: random.Random) -> list[dict[str, Any]]:
    """All rounds of both mixes on servers that have just been started; they are filled and loaded in the order in which they are given."""
    rows: list[dict[str, Any]] = []
    for mix, share in MIXES.items():
        words = [*reading(here, "map.sql", left, sessions, share), "-D", "mapped=0"]
        last = int(left * share * PER_MB) // PER_PAGE - 1
        sides = [side for side in servers if side in SIDES or share < 1]
        for side in sides:
            servers[side].sql("SELECT pg_prewarm('data_pkey'), pg_prewarm('data', 'buffer', 'main', 0, %s)", [last])
        longest = slices.longest(ROUNDS, TURNS, TURN)
        logs = {side: here.place / f"{servers[side].name} log" for side in sides}
        starts = {side: partial(mapped, servers[side], sessions, words, longest, logs[side]) for side in sides}
        found = slices.measured(starts, ROUNDS, turns=TURNS, seconds=TURN, rng=rng)
        rows += [{"mix": mix, "round": number, **row} for number, row in enumerate(found, 1)]
        said = ", ".join(f"ballooned ÷ {other} {of_start(found, 'cpu', other):.4f}" for other in sides if other != "ballooned")
        outcome.say(f"{left * LEFT} MB, {sessions} sessions, {mix}: CPU per transaction, {said}")
    return rows


def mapped(server: Instance, sessions: int, words: list[str], longest: float, logs: Path) -> slices.Load:
    """pgbench that goes on, each of its sessions having mapped the pool; raises TrialError if that takes more than ten minutes."""
    made = load(server, words, longest + MAPPING, logs)
    over = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench' AND query LIKE 'SELECT filler %'"
    deadline = time.monotonic() + MAPPING
    while server.sql(over) != [(sessions,)]:
        made.require_running()
        if time.monotonic() > deadline:
            raise TrialError(f"{sessions} sessions have not looked at the whole pool after {MAPPING} s; leave that one out of --sizes")
        time.sleep(0.1)
    return made


def reading(here: Home, script: str, left: int, sessions: int, share: float) -> list[str]:
    """What to tell pgbench, for rows that are that share of what is left of the pool."""
    threads = min(sessions, os.cpu_count() or 1)
    return ["-f", str(here.place / script), "-D", f"rows={int(left * share * PER_MB)}", "-c", str(sessions), "-j", str(threads)]


def alone(here: Home, server: Instance, left: int, sessions: int, seconds: int) -> dict[str, float]:
    """The longest transaction (ms), and how many there were, while nobody takes turns with this server."""
    logs = here.place / f"{server.name} alone"
    logs.mkdir()
    logs.chmod(0o777)
    words = reading(here, "read.sql", left, sessions, max(MIXES.values()))
    logged = ["-n", "-M", "prepared", "-T", str(seconds), "-l", f"--log-prefix={logs}/log"]
    finished(pgbench(server, [*logged, *words]), 10 * seconds + 60)
    number, longest = 0, 0
    for file in logs.iterdir():
        with file.open() as lines:
            for line in lines:
                number, longest = number + 1, max(longest, int(line.split()[2]))
    shutil.rmtree(logs)
    return {"longest ms": longest / 1000, "transactions": number}


def of_start(rows: Sequence[Mapping[str, Any]], what: str, other: str) -> float:
    """Ballooned ÷ the other, over the rounds of one start."""
    return paired.ratio(*([row[f"{side} {what}"] for row in rows] for side in ("ballooned", other))).value


def wait_for(server: Instance, size: int) -> None:
    """Until the balloon holds ``size`` MB; raises TrialError if it does not."""
    deadline = time.monotonic() + 60
    while True:
        ((ballooned,),) = server.sql("SELECT ballooned_bytes FROM pg_balloon_status()")
        if ballooned == size * MB:
            return
        if time.monotonic() > deadline:
            raise TrialError(f"the balloon was to hold {size} MB, but after a minute it holds {ballooned / MB:.0f} MB")
        time.sleep(0.1)


def fill(server: Instance, left: int) -> None:
    """A table of all rows that any mix reads, and its index."""
    rows = int(left * max(MIXES.values()) * PER_MB)
    server.sql("CREATE TABLE data (id int, filler text)")
    server.sql("INSERT INTO data SELECT g, repeat('x', 960) FROM generate_series(1, %s::int) g", [rows])
    server.sql("ALTER TABLE data ADD PRIMARY KEY (id)")
    server.sql("VACUUM (ANALYZE, FREEZE) data")
    server.sql("CHECKPOINT")


def figures(raw: list[dict[str, Any]]) -> list[Figure]:
    """Of each size and mix, over its starts: CPU per transaction, and transactions per second, ballooned ÷ native."""
    made = []
    turns = [row for row in raw if "round" in row]
    for cell in dict.fromkeys((row["pool MB"], row["sessions"], row["mix"]) for row in turns):
        rows = [row for row in turns if (row["pool MB"], row["sessions"], row["mix"]) == cell]
        about = f"{cell[0]} MB, {cell[1]} sessions, {cell[2]}"
        started = [[row for row in rows if row["start"] == start] for start in dict.fromkeys(row["start"] for row in rows)]

        def over_starts(what: str, other: str, started: Sequence[Sequence[Mapping[str, Any]]] = started) -> Any:
            return paired.ratio([of_start(one, what, other) for one in started], [1.0] * len(started))

        cpu, tps = (over_starts(what, "native") for what in ("cpu", "tps"))
        made.append(Figure.of(f"{about}: CPU per transaction, ballooned ÷ native", "", cpu, f"≤ {GOAL}", outcome.met(cpu, most=GOAL)))
        made.append(Figure.of(f"{about}: throughput, ballooned ÷ native", "", tps))
        if f"{LARGE} cpu" in rows[0]:
            made.append(Figure.of(f"{about}: CPU per transaction, ballooned ÷ {LARGE}", "", over_starts("cpu", LARGE)))
    return made + stalls([row for row in raw if "window" in row])


def stalls(windows: list[dict[str, Any]]) -> list[Figure]:
    """Of each size and side, the longest transaction of all windows."""
    made = []
    for size in dict.fromkeys((row["pool MB"], row["sessions"]) for row in windows):
        rows = [row for row in windows if (row["pool MB"], row["sessions"]) == size]
        for side in SIDES:
            name = f"{size[0]} MB, {size[1]} sessions, a third past it: longest transaction, {side}"
            note = f"of {sum(row[f'{side} transactions'] for row in rows):,} transactions"
            longest = max(row[f"{side} longest ms"] for row in rows)
            made.append(Figure(name, longest, "ms", n=len(rows), method="greatest of all windows", note=note))
    return made


if __name__ == "__main__":
    outcome.run(main)
