"""Two servers in two containers that take turns in being busy, and trade memory through their balloons while somebody looks.

It shows the mechanism at work on this host; it compares nothing (``pgherd consolidation`` and the benchmark do).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pgherd.host.facts import gather
from pgherd.host.paths import cache_dir
from pgherd.host.undo import Kill, ReleaseSharedMemory
from pgherd.model.deployment import Container
from pgherd.model.errors import TrialError, UsageError
from pgherd.model.run import Swap
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Command, Node, Process
from pgherd.postgres import clones, golden, installations
from pgherd.postgres.balloon_build import create_functions, ensure_balloon, with_balloon
from pgherd.postgres.installations import Installation
from pgherd.postgres.instance import Instance, start_all, stop_all
from pgherd.prepare import swap as prepare_swap
from pgherd.runner.session import Session
from pgherd.runner.watcher import Watcher
from pgherd.runtimes.runtime import Room
from pgherd.study.swap_options import SwapRequest
from pgherd.workloads.pgbench import PgbenchFilling

MB = 2**20
SIDES = ("a", "b")
POOL, DATA = 0.75, 0.60
"""Shares of a container's memory: its server's shared buffers, and its data."""
_BYTES_PER_SCALE = 15 * MB
_DATABASE = "bench"
_PERIOD = 0.5
_IDLE_RATE = 20
LEAST_MEMORY, LEAST_PHASE, MOST_OVERCOMMITTED = 256 * MB, 4.0, 55.0

_ASKED = """SELECT shared_buffers_bytes, ballooned_bytes, resident_bytes, working_set_bytes, available_bytes, limit_bytes, state,
coalesce(decision || ': ' || decision_reason, '') FROM pg_balloon_status()"""


@dataclass(frozen=True)
class DemoOptions:
    """What is shown. ``memory`` is a container's (bytes), ``overcommitted`` the percentage of both containers' memory that the
    host's limit leaves out, ``phase`` the seconds for which one server is busy, ``clients`` of the busy one."""

    memory: int = 512 * MB
    overcommitted: float = 30.0
    phase: float = 10.0
    phases: int = 4
    clients: int = 4

    def __post_init__(self) -> None:
        """Raises UsageError for what cannot be shown."""
        if self.memory < LEAST_MEMORY:
            raise UsageError(
                f"--memory {format_bytes(self.memory)} is too little; give each container at least {format_bytes(LEAST_MEMORY)}"
            )
        if not 0 <= self.overcommitted <= MOST_OVERCOMMITTED:
            raise UsageError(f"--overcommitted {self.overcommitted:g} is not a percentage from 0 to {MOST_OVERCOMMITTED:g}")
        if self.phase < LEAST_PHASE:
            raise UsageError(f"--phase {self.phase:g} s is too short to see anything; give at least {LEAST_PHASE:g} s")
        if self.phases < 1 or self.clients < 1:
            raise UsageError(f"--phases {self.phases} and --clients {self.clients} must both be at least 1")

    @property
    def host(self) -> int:
        """Bytes that both containers share."""
        return int(2 * self.memory * (1 - self.overcommitted / 100))

    @property
    def pool(self) -> int:
        """shared_buffers in bytes."""
        return int(self.memory * POOL) // MB * MB

    @property
    def scale(self) -> int:
        """pgbench's scale."""
        return max(1, int(self.memory * DATA) // _BYTES_PER_SCALE)


@dataclass(frozen=True)
class ServerSample:
    """One server at one moment: bytes, transactions per second, and what its balloon says of itself."""

    tps: float
    pool: int
    ballooned: int
    resident: int
    working_set: int | None
    available: int | None
    limit: int | None
    state: str
    decision: str


@dataclass(frozen=True)
class DemoSample:
    """Both servers at ``at`` seconds since the first phase began."""

    at: float
    phase: int
    busy: str
    sides: dict[str, ServerSample]


@dataclass
class DemoLog:
    """All that was seen, and whether it was shown to its end."""

    demo: DemoOptions
    postgres: str
    moments: list[DemoSample] = field(default_factory=list)
    finished: bool = False

    def phases(self) -> list[dict[str, Any]]:
        """For each phase: who was busy, its transactions per second in the first two seconds and in the phase's second half, and
        the two balloons (bytes) at the phase's end. None where too little was seen."""
        found = []
        for number in sorted({moment.phase for moment in self.moments}):
            seen = [moment for moment in self.moments if moment.phase == number]
            begun, busy = (number - 1) * self.demo.phase, seen[0].busy
            early = [one.sides[busy].tps for one in seen if 1.0 < one.at - begun <= 2.5]
            late = [one.sides[busy].tps for one in seen if one.at - begun > self.demo.phase / 2]
            ballooned = {side: seen[-1].sides[side].ballooned for side in SIDES}
            found.append({"phase": number, "busy": busy, "early_tps": _mean(early), "late_tps": _mean(late), "ballooned": ballooned})
        return found

    def document(self) -> dict[str, Any]:
        """Plain data for --json."""
        return {
            "demo": asdict(self.demo) | {"pool": self.demo.pool, "host_memory": self.demo.host, "scale": self.demo.scale},
            "postgres": self.postgres,
            "finished": self.finished,
            "phases": self.phases(),
            "moments": [asdict(moment) for moment in self.moments],
        }


def play(
    session: Session, installation: Installation, demo: DemoOptions, watcher: Watcher, show: Callable[[DemoSample], None], told: DemoLog
) -> None:
    """Bring both servers up, let them take turns, and take everything away again; ``told`` gets what was seen also when it is
    interrupted. The session's runtime holds the host's limit.

    Raises:
        CapabilityError: the library cannot be built, or this host has no control groups.
        TrialError: a server or a load failed.
    """
    stage = _DemoDeployment(session, installation, demo, watcher)
    try:
        stage.up()
        begun = time.monotonic()
        for number in range(1, demo.phases + 1):
            busy, idle = (SIDES, SIDES[::-1])[(number - 1) % 2]
            watcher.note(f"phase {number} of {demo.phases}: {busy} is busy, {idle} nearly idle")
            for sides in stage.phase(number, busy, idle, begun + number * demo.phase):
                moment = DemoSample(round(time.monotonic() - begun, 2), number, busy, sides)
                told.moments.append(moment)
                show(moment)
        told.finished = True
    finally:
        stage.down()


def demo_swap(node: Node, demo: DemoOptions) -> tuple[Swap | None, list[str]]:
    """The demo's own swap, and sentences on it: shared memory that neither fits nor can be swapped out has the kernel end a server
    before any balloon can act. None where nothing is overcommitted."""
    if not demo.overcommitted:
        return None, []
    size, facts = 2 * demo.memory, gather(node)
    return prepare_swap.complete(node, SwapRequest(), size=size, overcommitted=True, cache=cache_dir(), facts=facts, budget=demo.host)


class _DemoDeployment:
    """The two servers and their loads."""

    def __init__(self, session: Session, installation: Installation, demo: DemoOptions, watcher: Watcher) -> None:
        self._session, self._demo, self._watcher = session, demo, watcher
        self._node = session.node
        self._usable = installations.reachable_copy(session.node, installation, session.account, str(session.cache))
        self._rooms: dict[str, Room] = {}
        self._servers: dict[str, Instance] = {}
        self._loads: dict[str, Process] = {}
        self._entries: list[int] = []

    def up(self) -> None:
        """Build, load, copy, start."""
        session, demo, node = self._session, self._demo, self._node
        library = ensure_balloon(node, self._usable, str(session.cache), account=session.account, say=self._watcher.setup)
        sockets = session.sockets / "golden"
        node.make_dir(str(sockets), mode=0o700, user=session.account)
        copy = golden.ensure(
            node,
            self._usable,
            [PgbenchFilling(_DATABASE, demo.scale)],
            account=session.account,
            cache_dir=str(session.cache),
            socket_dir=str(sockets),
            say=self._watcher.setup,
        )
        runtime = session.runtime("cgroup")
        for side in SIDES:
            self._rooms[side] = runtime.create(Container(name=side, runtime="cgroup", memory=demo.memory))
            home = session.work / side
            node.make_dir(str(home), mode=0o711)
            self._servers[side] = Instance(
                node, self._usable, str(home / "data"), str(session.sockets / side), account=session.account, name=side
            )
        self._watcher.setup(f"copying 2 databases of {format_bytes(sum(copy.databases.values()))}")
        homes = [server.data_dir for server in self._servers.values()]
        clones.clone_all(node, [(copy, home) for home in homes], session.account)
        clones.drop_cache(node, homes)
        settings = with_balloon(
            {"shared_buffers": f"{demo.pool // MB}MB", "max_connections": str(demo.clients + 10), "huge_pages": "off"},
            library,
            {"enabled": "on"},
        )
        for server in self._servers.values():
            server.write_settings(settings)
            self._entries.append(session.journal.note(ReleaseSharedMemory(data_directory=server.data_dir)))
        self._watcher.setup("starting 2 servers")
        start_all([(server, self._rooms[side].join, self._rooms[side].cpus) for side, server in self._servers.items()])
        for server in self._servers.values():
            self._kill_if_left(server.pid)
            create_functions(node, self._usable, library, server.conninfo())
        for side in SIDES[::-1]:  # the first to be busy last
            self._watcher.setup(f"reading the database of server {side}")
            clones.prewarm(self._servers[side], _DATABASE)

    def phase(self, number: int, busy: str, idle: str, until: float) -> Iterator[dict[str, ServerSample]]:
        """Load both until then (monotonic), and tell how they do twice a second."""
        left = until - time.monotonic()
        self._load(busy, number, left, ["-c", str(self._demo.clients)])
        self._load(idle, number, left, ["-c", "1", "-R", str(_IDLE_RATE)])
        while (left := until - time.monotonic()) > 0.05:
            time.sleep(min(_PERIOD, left))
            for side in SIDES:
                if not self._servers[side].running:
                    raise TrialError(f"server {side} {self._servers[side].ending()}; its log ends with:\n{self._servers[side].log_tail(4)}")
            yield {side: self._now(side, number) for side in SIDES}
        for side, load in self._loads.items():
            if load.wait(60) != 0:
                raise TrialError(f"the load of server {side} failed: {self._said(side, number)[-300:].strip()}")
        self._loads.clear()

    def down(self) -> None:
        """Stop loads and servers; the session removes the rest."""
        for load in self._loads.values():
            load.signal(15)
        stop_all(list(self._servers.values()), "immediate", 10.0)
        for number in self._entries:
            self._session.journal.undo(number)

    def _kill_if_left(self, pid: int) -> None:
        from pgherd.host import processes

        start = processes.start_time(self._node, pid)
        if start is not None:
            self._entries.append(self._session.journal.note(Kill(pid=pid, start=start)))

    def _load(self, side: str, number: int, seconds: float, words: list[str]) -> None:
        server = self._servers[side]
        argv = [self._usable.tool("pgbench"), "-n", "-S", "-M", "prepared", "-P", "1", "-T", str(max(1, round(seconds))), *words]
        argv += ["-h", server.socket_dir, "-p", str(server.port), "-U", server.user, _DATABASE]
        room, said = self._rooms[side], str(self._out(side, number))
        self._loads[side] = self._node.spawn(
            Command(argv, join=room.join, cpus=room.cpus, user=self._session.account, stdout=said, stderr=said)
        )

    def _out(self, side: str, number: int) -> Path:
        return self._session.work / side / f"pgbench-{number}"

    def _said(self, side: str, number: int) -> str:
        try:
            return self._node.read(str(self._out(side, number))).decode(errors="replace")
        except OSError:
            return ""

    def _now(self, side: str, number: int) -> ServerSample:
        rates = re.findall(r"s, ([\d.]+) tps", self._said(side, number))
        ((pool, ballooned, resident, working, available, limit, state, decision),) = self._servers[side].sql(_ASKED)
        return ServerSample(float(rates[-1]) if rates else 0.0, pool, ballooned, resident, working, available, limit, state or "", decision)


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
