"""Two databases with opposite rhythms in two control groups below one limit: what balloon_grid.py runs once per pool and block.

Everything that is changed on the host (groups, swap, limits of a device) is made here and taken back when the pair is closed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from bisect import bisect
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from pgherd.host.paths import cache_dir
from pgherd.host.server_user import server_account
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.node.local import LocalNode
from pgherd.node.process import environment, wrap
from pgherd.node.protocol import Command
from pgherd.postgres import installations, pg_balloon
from pgherd.postgres.instance import Instance, initdb

MB = 1024 * 1024
SIDES = ("a", "b")
SELECT = "\\set id random(1, :rows)\nSELECT filler FROM data WHERE id = :id;\n"
UPDATE = "\\set id random(1, :rows)\nUPDATE data SET n = n + 1 WHERE id = :id;\n"
MAKE = {
    "compressible": "SELECT g, 0, convert_to(repeat(md5(g::text), 26), 'UTF8') FROM generate_series(1, {rows}) g",
    "random": "SELECT g, 0, (SELECT decode(string_agg(md5(random()::text || g || n), ''), 'hex') FROM generate_series(1, 52) n) "
    "FROM generate_series(1, {rows}) g",
}
"""The content of a row by kind: 832 bytes that repeat every 32, or that no algorithm makes smaller. Eight such rows go into a page filled
to nine tenths, and a ninth fits: so an update finds room where the row lies, and the data do not grow from phase to phase."""


IDLE_KEEPS, RESERVE, PROCESSES = 0.15, 0.06, 48 * MB
"""What an oracle leaves: to an idle pool, as a share of its container; free, as a share of the limit; to the processes of each server."""


@dataclass(frozen=True)
class Cell:
    """One cell of the grid. ``rate`` is how far the containers' memory exceeds what there is, in % of it: 1 - available ÷ theirs."""

    rate: int
    storage: str = "fast"
    mix: str = "updates"
    content: str = "compressible"
    phase: float = 20.0

    def __str__(self) -> str:
        return f"{self.rate} %, {self.storage}, {self.mix}, {self.content}, {self.phase:g} s"


@dataclass
class Run:
    """What one run gave. ``tps`` holds one entry per counted phase, ``p99`` is in ms, over all of them.

    ``half_after`` holds, for each phase, how many seconds after the switch throughput had come to half of that of the phase's second
    half. ``killed`` counts the phases in which the kernel, short of memory, killed something of a server: what was done before it counts
    over the whole phase. ``zram`` is the most memory (bytes) that compressed swap took.
    """

    tps: list[float] = field(default_factory=list)
    half_after: list[float] = field(default_factory=list)
    p99: float = 0.0
    idle_ms: float = 0.0
    broken: int = 0
    killed: int = 0
    zram: int = 0

    @property
    def throughput(self) -> float:
        """Transactions per second of the busy databases over all counted phases."""
        return sum(self.tps) / len(self.tps)


def half_after(times: Sequence[float], seconds: float, window: float = 0.5, step: float = 0.1) -> float:
    """After how many of a phase's seconds its transactions, which ended so long after its begin, first came at half of the rate of its
    second half: the end of the first window (seconds) with so many; the whole phase if none had. So the least is the window's width.
    """
    ordered = sorted(times)
    steady = (bisect(ordered, seconds) - bisect(ordered, seconds / 2)) / (seconds / 2)
    end = window
    while end < seconds and steady > 0:
        if bisect(ordered, end) - bisect(ordered, end - window) >= steady * window / 2:
            return end
        end += step
    return seconds


class Pair:
    """Two servers with the same data, in groups of ``container`` bytes below one limit. Needs root and control groups of version 1 or 2."""

    def __init__(self, place: Path, kind: str, container: int, data: int, content: str, clients: int) -> None:
        """Makes the groups and the data; nothing runs yet."""
        self.node, self.account = LocalNode(), server_account()
        self.place, self.container, self.clients = place, container, clients
        found = [one for one in installations.find_all(self.node) if one.kind == kind]
        if not found:
            raise CapabilityError(f"there is no {kind} PostgreSQL here; name another --kind")
        self.installation = installations.reachable_copy(self.node, found[0], self.account, str(cache_dir()))
        self.library = pg_balloon.ensure_balloon(self.node, self.installation, str(cache_dir()), account=self.account)
        self.rows = data // 1024
        self.groups = Groups(f"pgherd-grid-{os.getpid()}", place)
        self.servers: dict[str, Instance] = {}
        self.zram: int | None = None
        for name, script in (("select.sql", SELECT), ("update.sql", UPDATE)):
            (place / name).write_text(script)
            (place / name).chmod(0o644)
        try:
            self._load(content)
        except BaseException:
            self.close()
            raise

    def _load(self, content: str) -> None:
        for side in SIDES:
            data = self.place / side
            sockets = self.place / f"s{side}"
            self.servers[side] = Instance(
                self.node, self.installation, str(data), str(sockets), account=self.account, name=side, log=f"{data}.log"
            )
        one = self.servers["a"]
        initdb(self.node, self.installation, one.data_dir, account=self.account)
        one.write_settings({"fsync": "off", "autovacuum": "off", "max_wal_size": "8GB", "shared_buffers": "256MB"})
        one.start()
        try:
            one.wait_ready()
            one.sql("CREATE EXTENSION pg_prewarm")
            one.sql("CREATE TABLE data (id int, n int, filler bytea) WITH (fillfactor = 90)")
            one.sql("ALTER TABLE data ALTER filler SET STORAGE PLAIN")
            one.sql(f"INSERT INTO data {MAKE[content].format(rows=self.rows)}")
            one.sql("ALTER TABLE data ADD PRIMARY KEY (id)")
            one.sql("VACUUM (ANALYZE, FREEZE) data")
        finally:
            one.stop()
        subprocess.run(["cp", "-a", "--reflink=auto", one.data_dir, self.servers["b"].data_dir], check=True)

    def settings(self, pool: int, balloon: bool, own: dict[str, str]) -> dict[str, str]:
        """Settings of both servers: a pool of ``pool`` bytes, with or without the balloon."""
        plain = {
            "shared_buffers": f"{pool // MB}MB", "max_connections": "40", "fsync": "off", "autovacuum": "off", "max_wal_size": "8GB",
            "checkpoint_timeout": "1h", "synchronous_commit": "off", "max_wal_senders": "0", "huge_pages": "off",
        }  # fmt: skip
        return pg_balloon.with_balloon(plain, self.library, {"enabled": "on", **own}) if balloon else plain

    def run(self, cell: Cell, pool: int, balloon: bool, phases: int, own: dict[str, str] | None = None, *, oracle: bool = False) -> Run:
        """Both servers restarted with this pool and read into it, the limit lowered, then one busy and one idle in turn; the
        first phase, of half the length, is not counted. ``oracle``: each switch sets the balloons' targets, and no controller decides.
        """
        self.groups.limit(None, self.container)
        for server in self.servers.values():
            server.write_settings(self.settings(pool, balloon, own or {}))
        self._drop_caches()
        try:
            for side, server in self.servers.items():
                server.start(join=self.groups.join(side))
            for server in self.servers.values():
                server.wait_ready()
                if balloon:
                    pg_balloon.create_functions(self.node, self.installation, self.library, server.conninfo())
            for server in reversed(self.servers.values()):
                server.sql("SELECT pg_prewarm('data'), pg_prewarm('data_pkey')")
                server.disconnect()
            both = int(2 * self.container * (1 - cell.rate / 100))
            self.groups.limit(both, self.container)
            self.groups.throttle(2000 if cell.storage == "limited" else 0)
            time.sleep(1)
            run = Run()
            latencies: list[int] = []
            with self.groups.charged(self.zram, both, self.container) as most:
                for number in range(phases + 1):
                    busy, idle = (SIDES, SIDES[::-1])[number % 2]
                    if oracle:
                        self._steer(busy, idle, pool, both, own or {})
                    self._phase(
                        run if number else Run(), latencies if number else [], busy, idle, cell, cell.phase if number else cell.phase / 2
                    )
            run.zram = max(most, default=0)
            latencies.sort()
            run.p99 = latencies[int(len(latencies) * 0.99)] / 1000 if latencies else 0.0
            if balloon:
                run.broken = sum(int(server.sql("SELECT pg_balloon_check()")[0][0]) for server in self.servers.values())
            return run
        finally:
            self.groups.throttle(0)
            self.groups.limit(None, self.container)
            for server in self.servers.values():
                server.stop("fast", 60)

    def _steer(self, busy: str, idle: str, pool: int, both: int, own: dict[str, str]) -> None:
        """Set the targets of both balloons: the idle pool keeps ``IDLE_KEEPS`` of a container, the busy one all that the limit leaves."""
        kept = int(IDLE_KEEPS * self.container)
        free = int(both * (1 - RESERVE)) - 2 * PROCESSES - kept
        for side, live in ((idle, min(pool, kept)), (busy, min(pool, free))):
            server = self.servers[side]
            server.write_settings(self.settings(pool, True, {**own, "target": f"{max(0, pool - live) // MB}MB"}))
            server.sql("SELECT pg_reload_conf()")

    def _phase(self, run: Run, latencies: list[int], busy: str, idle: str, cell: Cell, seconds: float) -> None:
        out = self.place / "out"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        out.chmod(0o777)
        mix = ["-f", f"{self.place}/select.sql@9", "-f", f"{self.place}/update.sql@1"] if cell.mix == "updates" else []
        mix = mix or ["-f", f"{self.place}/select.sql"]
        logged = ["-l", "--sampling-rate=0.2", f"--log-prefix={out}/log"]
        began, began_at = time.monotonic(), time.time()
        first = self._pgbench(busy, seconds, ["-c", str(self.clients), "-j", "1", *mix, *logged])
        second = self._pgbench(idle, seconds, ["-c", "1", "-R", "20", "-f", f"{self.place}/select.sql"])
        said, complaints = first.communicate(timeout=seconds + 120)
        quiet, _ = second.communicate(timeout=seconds + 120)
        tps = re.search(r"^tps = ([\d.]+)", said, re.MULTILINE)  # not said where there was no transaction at all
        done = re.search(r"^number of transactions actually processed: (\d+)", said, re.MULTILINE)
        if first.returncode != 0 or second.returncode != 0:
            self._survived(busy, idle, complaints)
            run.killed += 1
            run.tps.append(int(done[1]) / seconds if done else 0.0)
            time.sleep(max(0.0, began + seconds - time.monotonic()))
        elif done is None:
            raise TrialError(f"pgbench said nothing of what it did: {said} {complaints[-500:]}")
        else:
            run.tps.append(float(tps[1]) if tps else 0.0)
        lag = re.search(r"latency average = ([\d.]+)", quiet)
        run.idle_ms = max(run.idle_ms, float(lag[1]) if lag else 0.0)
        logged_lines = [line.split() for file in out.iterdir() for line in file.read_text().splitlines()]
        latencies += [int(line[2]) for line in logged_lines]
        run.half_after.append(half_after([int(line[4]) + int(line[5]) / 1e6 - began_at for line in logged_lines], seconds))

    def _survived(self, busy: str, idle: str, complaints: str) -> None:
        """A pgbench has failed: if the kernel has killed something of a server, wait until that server is there again."""
        if not any("was terminated by signal 9" in self.servers[side].log_tail(100) for side in (busy, idle)):
            raise TrialError(f"pgbench failed: {complaints[-500:]}; the server's log ends with:\n{self.servers[busy].log_tail(5)}")
        for side in (busy, idle):
            self.servers[side].disconnect()
            self.servers[side].wait_ready()

    def _pgbench(self, side: str, seconds: float, words: list[str]) -> subprocess.Popen[str]:
        server = self.servers[side]
        argv = [server.installation.tool("pgbench"), "-n", "-M", "prepared", "-D", f"rows={self.rows}", "-T", str(max(1, round(seconds)))]
        argv += [*words, "-h", server.socket_dir, "-p", str(server.port), "-U", server.user, "postgres"]
        command = Command(argv, user=self.account)
        return subprocess.Popen(wrap(command), env=environment({}), cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def _drop_caches(self) -> None:
        for side in SIDES:
            for directory, _, names in os.walk(self.servers[side].data_dir):
                for name in names:
                    with contextlib.suppress(OSError):
                        file = os.open(f"{directory}/{name}", os.O_RDONLY)
                        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                        os.close(file)

    def close(self) -> None:
        """Stop what runs and remove the groups."""
        for server in self.servers.values():
            server.stop("immediate", 10)
        self.groups.close()


class Groups:
    """One group with a limit for both, and one for each, of version 2 or 1, with reads per second limited on the data's device."""

    def __init__(self, name: str, place: Path) -> None:
        """Makes them, without limits."""
        device = os.stat(place).st_dev
        self.device = f"{os.major(device)}:{os.minor(device)}"
        self.unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
        self.limit_file = "memory.max" if self.unified else "memory.limit_in_bytes"
        roots = [Path("/sys/fs/cgroup")] if self.unified else [Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup/blkio")]
        roots += [Path("/sys/fs/cgroup/unified")] if Path("/sys/fs/cgroup/unified/cgroup.procs").exists() else []
        self.tops = [root / name for root in roots]
        try:
            for top in self.tops:
                top.mkdir()
                if self.unified:
                    (top / "cgroup.subtree_control").write_text("+memory +io")
                for side in SIDES:
                    (top / side).mkdir()
        except OSError as error:
            self.close()
            raise CapabilityError(f"control groups cannot be made: {error}; run as root where memory and I/O can be limited") from error

    def join(self, side: str) -> tuple[str, ...]:
        """What a process writes itself into."""
        return tuple(f"{top}/{side}/cgroup.procs" for top in self.tops)

    def limit(self, both: int | None, each: int) -> None:
        """Bytes for both together (None: no limit) and for each."""
        none = "max" if self.unified else "-1"
        for side in SIDES:
            (self.tops[0] / side / self.limit_file).write_text(str(each))
        for attempt in range(50):
            try:
                (self.tops[0] / self.limit_file).write_text(none if both is None else str(both))
                return
            except OSError:  # version 1: not everything above it could be reclaimed at once
                if attempt == 49:
                    raise
                time.sleep(0.1)

    @contextlib.contextmanager
    def charged(self, zram: int | None, both: int, each: int) -> Iterator[list[int]]:
        """Take the memory of a zram device off the limits, of each as its share of the swapped pages: the kernel charges it to no group,
        so that swap would be memory as a gift. Yields the bytes taken, one value for each fifth of a second.
        """
        taken: list[int] = []
        if zram is None:
            yield taken
            return
        over = threading.Event()

        def charge() -> None:
            while not over.wait(0.2):
                taken.append(int(Path(f"/sys/block/zram{zram}/mm_stat").read_text().split()[2]))
                swapped = {side: self._swapped(side) for side in SIDES}
                own = {side: taken[-1] * pages // max(1, sum(swapped.values())) for side, pages in swapped.items()}
                for group, limit in (*((side, each - own[side]) for side in SIDES), (".", both - taken[-1])):
                    with contextlib.suppress(OSError):  # version 1 refuses what cannot be reclaimed at once
                        (self.tops[0] / group / self.limit_file).write_text(str(max(0, limit)))

        with ThreadPoolExecutor(1, "charge-zram") as pool:
            charging = pool.submit(charge)
            try:
                yield taken
            finally:
                over.set()
            charging.result()  # raises what the thread raised: a pair without its charge is none

    def _swapped(self, side: str) -> int:
        """Bytes of a group's memory that are in swap."""
        if self.unified:
            return int((self.tops[0] / side / "memory.swap.current").read_text())
        found = re.search(r"^swap (\d+)$", (self.tops[0] / side / "memory.stat").read_text(), re.MULTILINE)
        return int(found[1]) if found else 0

    def throttle(self, reads: int) -> None:
        """Reads per second that each may make of the data's device; 0: any number."""
        for side in SIDES:
            if self.unified:
                (self.tops[0] / side / "io.max").write_text(f"{self.device} riops={reads or 'max'}")
            else:
                (self.tops[1] / side / "blkio.throttle.read_iops_device").write_text(f"{self.device} {reads}")

    def close(self) -> None:
        """Remove them; what runs in them must have ended."""
        for top in self.tops:
            for path in (*(top / side for side in SIDES), top):
                for _ in range(50):
                    if not path.exists():
                        break
                    with contextlib.suppress(OSError):
                        path.rmdir()
                    time.sleep(0.05)


@contextlib.contextmanager
def swap(storage: str, size: int, place: Path) -> Iterator[int | None]:
    """Swap of ``size`` bytes: compressed in memory on 'fast' storage, else a file where the data lie. Used before any other.

    Yields the number of the zram device, or None.
    """
    number = None
    if storage == "fast":
        control = Path("/sys/class/zram-control")
        if not control.exists():
            raise CapabilityError("this kernel has no zram; leave 'fast' out of --storage")
        number = int((control / "hot_add").read_text())
        target = f"/dev/zram{number}"
        Path(f"/sys/block/zram{number}/disksize").write_text(str(size))
    else:
        target = str(place / "swap")
        _must(["fallocate", "-l", str(size), target])
        os.chmod(target, 0o600)
    try:
        _must(["mkswap", target])
        _must(["swapon", "-p", "100", target])
        yield number
    finally:
        _switch_off(target)
        if storage == "fast":
            Path(f"/sys/block/zram{number}/reset").write_text("1")
            (control / "hot_remove").write_text(str(number))
        else:
            os.unlink(target)


def _switch_off(target: str) -> None:
    """End the use of a swap area; the kernel may be interrupted, or short of memory for a moment, while it reads the pages back."""
    for _ in range(20):
        done = subprocess.run(["swapoff", target], capture_output=True, text=True)
        if done.returncode == 0 or f"{target} " not in Path("/proc/swaps").read_text():
            return
        time.sleep(0.5)
    raise CapabilityError(f"swap area {target} cannot be switched off: {done.stderr.strip()}; run 'swapoff {target}' when memory allows")


@contextlib.contextmanager
def place_for(parent: Path | None) -> Iterator[Path]:
    """A directory that the servers' account can enter, removed at the end."""
    path = Path(tempfile.mkdtemp(prefix="pgherd-grid-", dir=parent or "/var/tmp"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def status(server: Instance) -> dict[str, Any]:
    """pg_balloon_status() as a dictionary."""
    with psycopg.connect(server.conninfo(), autocommit=True) as connection:
        cursor = connection.execute("SELECT * FROM pg_balloon_status()")
        assert cursor.description
        return dict(zip([column.name for column in cursor.description], cursor.fetchone() or (), strict=True))


def _must(argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode != 0:
        raise CapabilityError(f"{' '.join(argv)} failed: {done.stderr.strip()}")
