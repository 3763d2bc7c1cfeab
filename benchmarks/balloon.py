"""What pg_balloon costs while it has nothing to do, and how fast and how completely it gives memory back.

Idle: one server with the library, ``pg_balloon.enabled`` switched on and off by a reload between the runs of a pair;
pgbench, select-only and cached. CPU is user and system time of the postmaster and all its children, reaped ones
included. Inflating: a pool full of clean pages, which other sessions have mapped too; the speed is the balloon's own
clock, and what the operating system got back is the shared memory of the server's control group (of the whole
machine where there is none), before and after.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import outcome
import paired
import psutil
import psycopg
from outcome import Figure

from pgherd.analysis.intervals import mean_interval
from pgherd.host.account import server_account
from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command
from pgherd.postgres import installations
from pgherd.postgres.initdb import initdb
from pgherd.postgres.instance import Instance

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/extension"))
from built import build

MB = 1024 * 1024
IDLE, SPEED, RETURNED = 0.01, 2.0, 0.99


def main() -> None:
    """Measure, print, write."""
    parser = outcome.parser(__doc__, 20, "pairs")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each run of a pair  [default: 5]")
    parser.add_argument("--pool", type=int, default=1024, metavar="MB", help="shared_buffers  [default: 1024; --quick: 256]")
    parser.add_argument("--sessions", type=int, default=8, help="other sessions that have mapped the pool  [default: 8]")
    parser.add_argument("--kind", choices=("system", "embedded"), default="system", help="which PostgreSQL  [default: system]")
    options = parser.parse_args()
    pairs = options.pairs or (2 if options.quick else 20)
    seconds = 1.0 if options.quick else options.seconds
    pool = 256 if options.quick else options.pool
    seed = outcome.seed_of(options)
    before = outcome.cpu_seconds()
    raw: list[dict[str, Any]] = []
    with served(options.kind, pool) as (server, group):
        fill(server, pool)
        for number in range(3 if options.quick else 10):
            raw.append({"inflation": number + 1, **inflation(server, pool, options.sessions, group)})
            outcome.say(f"inflation {number + 1}: {raw[-1]['GB/s']:.2f} GB/s, {raw[-1]['returned']:.2%} returned")

        def said(number: int, pair: dict[str, dict[str, float]]) -> bool:
            raw.append({"pair": number, **{f"{side} {name}": value for side, run in pair.items() for name, value in run.items()}})
            outcome.say(f"pair {number}: CPU per transaction, on ÷ off, {raw[-1]['on cpu'] / raw[-1]['off cpu']:.4f}")
            return False

        sides = {side: lambda side=side: idle(server, side, seconds) for side in ("off", "on")}
        paired.run_blocks(pairs, random.Random(seed), sides, said)
        version = server.installation.version
    settings = {"postgres": version, "seconds": seconds, "pool MB": pool, "sessions": options.sessions}
    settings["memory by"] = "control group" if group else "machine"
    outcome.conclude(outcome.Outcome("balloon", options.quick, seed, settings, figures(raw), raw, outcome.noise_since(before)), options)


def figures(raw: list[dict[str, Any]]) -> list[Figure]:
    """The figures of all measurements."""
    ours = [row for row in raw if "pair" in row]
    moved = [row for row in raw if "inflation" in row]
    ratio = paired.ratio([row["on cpu"] for row in ours], [row["off cpu"] for row in ours], confidence=0.90)
    met = None
    if ratio.low is not None and ratio.high is not None:
        inside, outside = ratio.low >= 1 - IDLE and ratio.high <= 1 + IDLE, ratio.low > 1 + IDLE or ratio.high < 1 - IDLE
        met = True if inside else False if outside else None
    speed, returned = mean_interval([row["GB/s"] for row in moved]), mean_interval([row["returned"] for row in moved])
    return [
        Figure.of("CPU per transaction, idle balloon ÷ switched off (90 %)", "", ratio, "90 % interval within 1 ± 0.01", met),
        Figure.of("inflating clean buffers", "GB/s", speed, f"≥ {SPEED:g}", speed.value >= SPEED),
        Figure.of("shared memory returned ÷ ballooned", "", returned, f"≥ {RETURNED:g}", returned.value >= RETURNED),
        Figure.of("CPU of inflating", "s/GB", mean_interval([row["cpu s/GB"] for row in moved])),
        Figure.of("deflating", "GB/s", mean_interval([row["back GB/s"] for row in moved])),
    ]


@contextlib.contextmanager
def served(kind: str, pool: int) -> Iterator[tuple[Instance, str | None]]:
    """A server with the extension, and the control group of version 1 or 2 that counts its memory."""
    node, account = LocalNode(), server_account()
    found = [one for one in installations.find_all(node) if one.kind == kind]
    if not found:
        raise CapabilityError(f"there is no {kind} PostgreSQL here; name another --kind")
    place = Path(tempfile.mkdtemp(prefix="pgherd-balloon-", dir="/tmp"))
    place.chmod(0o755)
    group = None
    server = None
    try:
        built = build(found[0], place)
        data = place / "pg"
        data.mkdir()
        data.chmod(0o755)
        initdb(node, built.installation, str(data / "data"), account=account)
        server = Instance(node, built.installation, str(data / "data"), str(data / "s"), account=account, name="balloon")
        server.write_settings({
            "shared_preload_libraries": "pg_balloon", "shared_buffers": f"{pool}MB", "max_connections": "60", "fsync": "off",
            "autovacuum": "off", "max_wal_size": "8GB", "checkpoint_timeout": "1h",
        })  # fmt: skip
        group = memory_group(f"pgherd-balloon-{os.getpid()}")
        server.start(join=(f"{group}/cgroup.procs",) if group else ())
        server.wait_ready()
        server.sql("CREATE EXTENSION pg_balloon")
        server.sql("CREATE EXTENSION pg_prewarm")
        yield server, group
    finally:
        if server is not None:
            server.stop("immediate", 10)
        if group is not None:
            for _ in range(50):
                with contextlib.suppress(OSError):
                    os.rmdir(group)
                    break
                time.sleep(0.1)
        shutil.rmtree(place, ignore_errors=True)


def memory_group(name: str) -> str | None:
    """A new control group that counts memory, if this account may make one."""
    for mount, file in (("/sys/fs/cgroup/memory", "memory.stat"), ("/sys/fs/cgroup", "memory.stat")):
        path = f"{mount}/{name}"
        try:
            os.mkdir(path)
        except OSError:
            continue
        if os.path.exists(f"{path}/{file}"):
            return path
        os.rmdir(path)
    return None


def shared_memory(group: str | None) -> int:
    """Bytes of shared memory now, of the control group or of the machine."""
    if group is None:
        found = re.search(r"^Shmem:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
        assert found
        return int(found[1]) * 1024
    found = re.search(r"^shmem (\d+)", Path(f"{group}/memory.stat").read_text(), re.MULTILINE)
    assert found, f"{group}/memory.stat has no shmem"
    return int(found[1])


def fill(server: Instance, pool: int) -> None:
    """A table of nine tenths of the pool, and pgbench's."""
    server.sql(
        "CREATE TABLE filler AS SELECT g AS id, repeat('x', 900) AS filler FROM generate_series(1, %s::int) g",
        [int(pool * 0.9 * MB / 1024)],
    )
    tool = Command([server.installation.tool("pgbench"), "-i", "-q", "-s", "1", *connection(server)], user=server.account)
    done = server.node.run(tool, timeout=120)
    assert done.code == 0, done.err
    server.sql("VACUUM filler")


def connection(server: Instance) -> list[str]:
    """pgbench's words for where the server is."""
    return ["-h", server.socket_dir, "-p", str(server.port), "-U", server.user, "postgres"]


def inflation(server: Instance, pool: int, sessions: int, group: str | None) -> dict[str, float]:
    """Fill the pool with clean pages that some sessions have mapped, inflate, and look what came of it."""
    with contextlib.ExitStack() as stack:
        for _ in range(sessions):
            one = stack.enter_context(psycopg.connect(server.conninfo(), autocommit=True))
            one.execute("SELECT pg_prewarm('filler')")
            one.execute("SET max_parallel_workers_per_gather = 0")
            one.execute("SELECT count(*) FROM filler")
        server.sql("CHECKPOINT")
        server.sql("SELECT pg_balloon_reset()")
        before = shared_memory(group)
        mover = psycopg.connect(server.conninfo(), autocommit=True)
        stack.enter_context(mover)
        cpu = psutil.Process(mover.info.backend_pid).cpu_times()
        (ballooned,) = mover.execute("SELECT pg_balloon_inflate(%s, false)", [int(pool * 0.75) * MB]).fetchone() or (0,)
        used = psutil.Process(mover.info.backend_pid).cpu_times()
        after = shared_memory(group)
        ((clean, inflate_ms),) = server.sql("SELECT taken_clean, inflate_ms FROM pg_stat_balloon")
        ((back,),) = server.sql("SELECT pg_balloon_deflate(%s)", [pool * MB])
        ((deflate_ms, broken),) = server.sql("SELECT deflate_ms, pg_balloon_check() FROM pg_stat_balloon")
    if broken:
        raise CapabilityError(f"pg_balloon_check() found {broken} buffers that break a rule")
    held = float(clean) * 8192  # unused buffers held nothing that could come back
    return {
        "ballooned": float(ballooned), "held": held, "returned": (before - after) / held, "GB/s": ballooned / inflate_ms / 1e6,
        "back GB/s": back / deflate_ms / 1e6, "cpu s/GB": (used.user + used.system - cpu.user - cpu.system) / ballooned * 1e9,
    }  # fmt: skip


def cpu_of_tree(pid: int) -> float:
    """User and system seconds of a process, of its children that live, and of those that it has reaped."""
    total = 0.0
    for one in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):  # zombies too: what they used is counted once they are reaped
            times = one.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def idle(server: Instance, side: str, seconds: float) -> dict[str, float]:
    """One run of pgbench with the balloon switched on or off: server's CPU seconds per transaction, and transactions per second."""
    settings = Path(server.data_dir, "postgresql.conf")
    lines = [line for line in settings.read_text().splitlines() if not line.startswith("pg_balloon.enabled")]
    settings.write_text("\n".join([*lines, f"pg_balloon.enabled = {side}", ""]))
    server.reload()
    time.sleep(0.3)
    before = cpu_of_tree(server.pid)
    argv = [server.installation.tool("pgbench"), "-n", "-S", "-M", "prepared", "-c", "2", "-T", f"{max(1, round(seconds))}"]
    done = server.node.run(Command([*argv, *connection(server)], user=server.account), timeout=seconds + 60)
    assert done.code == 0, done.err
    found = re.search(r"number of transactions actually processed: (\d+)", done.out)
    tps = re.search(r"^tps = ([\d.]+)", done.out, re.MULTILINE)
    assert found and tps, done.out
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and any("pgbench" in words for words in children(server.pid)):
        time.sleep(0.02)
    return {"cpu": (cpu_of_tree(server.pid) - before) / int(found[1]), "tps": float(tps[1])}


def children(pid: int) -> Iterator[str]:
    """The command lines of the processes below one, as far as they live."""
    for one in psutil.Process(pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            yield " ".join(one.cmdline())


if __name__ == "__main__":
    outcome.run(main)
