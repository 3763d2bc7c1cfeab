"""Demonstration of pg_balloon: two servers in two containers are busy alternately, and exchange memory through their balloons.

It measures nothing, but has a live display. ``pgherd consolidation`` and the benchmark compare.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pgherd.host.facts import gather
from pgherd.host.paths import cache_dir
from pgherd.model.deployment import Container, Database, Server
from pgherd.model.errors import TrialError, UsageError
from pgherd.model.run import Swap
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Command, Node, Process
from pgherd.postgres import installations
from pgherd.postgres.installations import Installation
from pgherd.postgres.pg_balloon import create_functions, ensure_balloon, with_balloon
from pgherd.prepare.hosts import choose_swap
from pgherd.runner.deploy.deployer import Deployer
from pgherd.runner.progress import RunObserver
from pgherd.runner.session import RunSession
from pgherd.study.shared_options import SwapRequest

MB = 2**20
SIDES = ("a", "b")
POOL, DATA = 0.75, 0.60
"""Fractions of a container's memory: shared_buffers and data."""
_BYTES_PER_SCALE = 15 * MB
_DATABASE = "bench"
_SAMPLE_INTERVAL_S = 0.5
_IDLE_RATE = 20
MIN_MEMORY, MIN_PHASE_S, MAX_OVERCOMMIT = 256 * MB, 4.0, 55.0

_STATUS_QUERY = """SELECT shared_buffers_bytes, ballooned_bytes, resident_bytes, working_set_bytes, available_bytes, limit_bytes, state,
coalesce(decision || ': ' || decision_reason, '') FROM pg_balloon_status()"""


@dataclass(frozen=True)
class DemoOptions:
    """Options of the demonstration.

    ``memory`` is that of one container in bytes. ``overcommitted`` is the percentage by which both containers exceed the host's limit.
    ``phase`` is the time in seconds for which one server is busy. ``clients`` is the number of the busy server's clients.
    """

    memory: int = 512 * MB
    overcommitted: float = 30.0
    phase: float = 10.0
    phases: int = 4
    clients: int = 4

    def __post_init__(self) -> None:
        """Raise UsageError for invalid options."""
        if self.memory < MIN_MEMORY:
            raise UsageError(f"--memory {format_bytes(self.memory)} is too small; each container needs at least {format_bytes(MIN_MEMORY)}")
        if not 0 <= self.overcommitted <= MAX_OVERCOMMIT:
            raise UsageError(f"--overcommit {self.overcommitted:g} is not a percentage from 0 to {MAX_OVERCOMMIT:g}")
        if self.phase < MIN_PHASE_S:
            raise UsageError(f"--phase-length {self.phase:g} s is too short; the minimum is {MIN_PHASE_S:g} s")
        if self.phases < 1 or self.clients < 1:
            raise UsageError(f"--phases {self.phases} and --clients {self.clients} must both be at least 1")

    @property
    def host(self) -> int:
        """Memory that both containers share, in bytes."""
        return int(2 * self.memory * (1 - self.overcommitted / 100))

    @property
    def pool(self) -> int:
        """shared_buffers of each server in bytes."""
        return int(self.memory * POOL) // MB * MB

    @property
    def scale(self) -> int:
        """Scale factor of pgbench."""
        return max(1, int(self.memory * DATA) // _BYTES_PER_SCALE)


@dataclass(frozen=True)
class ServerSample:
    """One server at one instant: memory in bytes, transactions per second, and the state of its balloon."""

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
    """Both servers at ``at`` seconds since the start of the first phase."""

    at: float
    phase: int
    busy: str
    sides: dict[str, ServerSample]


@dataclass
class DemoLog:
    """All samples of a demonstration. ``finished`` is False if it was interrupted."""

    demo: DemoOptions
    postgres: str
    moments: list[DemoSample] = field(default_factory=list)
    finished: bool = False

    def phases(self) -> list[dict[str, Any]]:
        """Summarise each phase: the busy server, its throughput at the start and in the second half, and both balloons at the end.

        Throughput is in transactions per second, and None without samples. Balloons are in bytes.
        """
        phases = []
        for number in sorted({sample.phase for sample in self.moments}):
            samples = [sample for sample in self.moments if sample.phase == number]
            start, busy = (number - 1) * self.demo.phase, samples[0].busy
            early = [sample.sides[busy].tps for sample in samples if 1.0 < sample.at - start <= 2.5]
            late = [sample.sides[busy].tps for sample in samples if sample.at - start > self.demo.phase / 2]
            ballooned = {side: samples[-1].sides[side].ballooned for side in SIDES}
            phases.append({"phase": number, "busy": busy, "early_tps": _mean(early), "late_tps": _mean(late), "ballooned": ballooned})
        return phases

    def document(self) -> dict[str, Any]:
        """Return plain data for --json."""
        return {
            "demo": asdict(self.demo) | {"pool": self.demo.pool, "host_memory": self.demo.host, "scale": self.demo.scale},
            "postgres": self.postgres,
            "finished": self.finished,
            "phases": self.phases(),
            "moments": [asdict(sample) for sample in self.moments],
        }


def plan(demo: DemoOptions, postgres: str, host_changes: list[str]) -> dict[str, Any]:
    """Return the plan of a demonstration as plain data for --dry-run. Sizes are in bytes, times in seconds."""
    return {
        "demo": asdict(demo) | {"pool": demo.pool, "host_memory": demo.host, "scale": demo.scale},
        "postgres": postgres,
        "seconds": demo.phases * demo.phase,
        "disk_bytes": (len(SIDES) + 1) * demo.scale * _BYTES_PER_SCALE,
        "memory_bytes": demo.host,
        "host_changes": host_changes,
    }


def run_demo(
    session: RunSession,
    installation: Installation,
    demo: DemoOptions,
    watcher: RunObserver,
    show: Callable[[DemoSample], None],
    log: DemoLog,
) -> None:
    """Start both servers, load them alternately, and remove everything. ``log`` receives the samples, also of an interrupted demonstration.

    The runtime of the session enforces the host's limit.

    Raises:
        CapabilityError: the library cannot be built, or this host has no cgroups.
        TrialError: a server or a load failed.
    """
    deployment = _DemoDeployment(session, installation, demo, watcher)
    try:
        deployment.start()
        start = time.monotonic()
        for number in range(1, demo.phases + 1):
            busy, idle = (SIDES, SIDES[::-1])[(number - 1) % 2]
            watcher.note(f"phase {number} of {demo.phases}: {busy} is busy, {idle} is nearly idle")
            for sides in deployment.run_phase(number, busy, idle, start + number * demo.phase):
                sample = DemoSample(round(time.monotonic() - start, 2), number, busy, sides)
                log.moments.append(sample)
                show(sample)
        log.finished = True
    finally:
        deployment.stop()


def demo_swap(node: Node, demo: DemoOptions) -> tuple[Swap | None, list[str]]:
    """Return the swap of the demonstration and sentences about it, or None without overcommitment.

    Without swap the OOM killer would end a server before a balloon can react, because its shared memory could not be swapped out.
    """
    if not demo.overcommitted:
        return None, []
    size, facts = 2 * demo.memory, gather(node)
    return choose_swap(node, SwapRequest(), size=size, overcommitted=True, cache=cache_dir(), facts=facts, budget=demo.host)


class _DemoDeployment:
    """Both servers and their loads."""

    def __init__(self, session: RunSession, installation: Installation, demo: DemoOptions, watcher: RunObserver) -> None:
        self._session, self._demo, self._watcher = session, demo, watcher
        self._usable = installations.reachable_copy(session.node, installation, session.account, str(session.cache))
        self._deployer = Deployer(session, {installation.bin: self._usable}, watcher)
        self._installation = installation
        self._loads: dict[str, Process] = {}

    def start(self) -> None:
        """Build the library, load and copy the database, and start both servers. The server that is busy first starts last."""
        session, demo = self._session, self._demo
        library = ensure_balloon(session.node, self._usable, str(session.cache), account=session.account, say=self._watcher.setup)
        settings = with_balloon(
            {"shared_buffers": f"{demo.pool // MB}MB", "max_connections": str(demo.clients + 10), "huge_pages": "off"},
            library,
            {"enabled": "on"},
        )
        server = Server(
            bin=self._installation.bin,
            version=self._installation.version,
            settings=settings,
            databases=(Database(name=_DATABASE, scale=demo.scale),),
        )
        first, second = (Container(name=side, runtime="cgroup", memory=demo.memory, servers=(server,)) for side in SIDES)
        self._deployer.deploy(second)
        self._deployer.deploy(first, second)
        for side in SIDES:
            create_functions(session.node, self._usable, library, self._deployer.server(side).conninfo())

    def run_phase(self, number: int, busy: str, idle: str, until: float) -> Iterator[dict[str, ServerSample]]:
        """Load both servers until ``until`` (monotonic). Yield their state twice a second."""
        remaining = until - time.monotonic()
        self._load(busy, number, remaining, ["-c", str(self._demo.clients)])
        self._load(idle, number, remaining, ["-c", "1", "-R", str(_IDLE_RATE)])
        while (remaining := until - time.monotonic()) > 0.05:
            time.sleep(min(_SAMPLE_INTERVAL_S, remaining))
            self._deployer.check()
            yield {side: self._sample(side, number) for side in SIDES}
        for side, load in self._loads.items():
            if load.wait(60) != 0:
                raise TrialError(f"the load of server {side} failed: {self._output(side, number)[-300:].strip()}")
        self._loads.clear()

    def stop(self) -> None:
        """Stop loads and servers. The session removes everything else."""
        for load in self._loads.values():
            load.signal(15)
        self._deployer.close()

    def _load(self, side: str, number: int, seconds: float, options: list[str]) -> None:
        target = self._deployer.endpoint(f"local/{side}/pg/{_DATABASE}")
        argv = [self._usable.tool("pgbench"), "-n", "-S", "-M", "prepared", "-P", "1", "-T", str(max(1, round(seconds))), *options]
        argv += ["-h", target.host, "-p", str(target.port), "-U", target.user, target.database]
        output = str(self._output_path(side, number))
        self._loads[side] = self._session.node.spawn(
            Command(argv, join=target.handle.join, cpus=target.handle.cpus, user=self._session.account, stdout=output, stderr=output)
        )

    def _output_path(self, side: str, number: int) -> Path:
        return self._deployer.scratch / f"{side}-{number}"

    def _output(self, side: str, number: int) -> str:
        try:
            return self._session.node.read_untrusted(str(self._output_path(side, number))).decode(errors="replace")
        except OSError:
            return ""

    def _sample(self, side: str, number: int) -> ServerSample:
        rates = re.findall(r"s, ([\d.]+) tps", self._output(side, number))
        ((pool, ballooned, resident, working, available, limit, state, decision),) = self._deployer.server(side).sql(_STATUS_QUERY)
        return ServerSample(float(rates[-1]) if rates else 0.0, pool, ballooned, resident, working, available, limit, state or "", decision)


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


BAR_WIDTH = 40
"""Width of a bar in characters."""
_LINE_INTERVAL_S = 2.0
"""Interval in seconds of lines, if the output is no terminal."""


class DemoView(RunObserver):
    """Live display on a terminal. Other outputs get a line every two seconds."""

    def __init__(self, console: Console, demo: DemoOptions) -> None:
        self._console, self._demo = console, demo
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._last = -_LINE_INTERVAL_S

    def __enter__(self) -> DemoView:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def setup(self, what: str) -> None:
        if self._live is not None:
            self._live.update(Text(f"{what} …", style="dim"), refresh=True)
        else:
            self._console.print(f"{what} …", markup=False)

    def note(self, text: str) -> None:
        if self._live is None or text.startswith("warning"):
            self._console.print(text, markup=False)

    def show(self, sample: DemoSample) -> None:
        if self._live is not None:
            self._live.update(picture(self._demo, sample), refresh=True)
        elif sample.at - self._last >= _LINE_INTERVAL_S:
            self._last = sample.at
            self._console.print(sample_line(sample), markup=False, soft_wrap=True)


def bar(server: ServerSample, width: int = BAR_WIDTH) -> Text:
    """Draw shared_buffers as a bar: in memory, unused, and in the balloon."""
    balloon = round(width * server.ballooned / server.pool)
    resident = min(width - balloon, round(width * server.resident / server.pool))
    text = Text("█" * resident, style="green")
    text.append("░" * (width - balloon - resident), style="dim")
    text.append("·" * balloon, style="magenta")
    return text


def picture(demo: DemoOptions, sample: DemoSample) -> Group:
    """Draw both servers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("server", "", "shared_buffers"):
        table.add_column(name, no_wrap=True)
    for name in ("in memory", "balloon", "tps"):
        table.add_column(name, justify="right", no_wrap=True, min_width=9)
    table.add_column("state", overflow="ellipsis", no_wrap=True)
    for side in SIDES:
        server = sample.sides[side]
        busy = Text("busy", style="bold yellow") if side == sample.busy else Text("idle", style="dim")
        sizes = (format_bytes(server.resident), format_bytes(server.ballooned), f"{server.tps:,.0f}")
        table.add_row(side, busy, bar(server), *sizes, Text(server.state))
    limited = next((server for server in sample.sides.values() if server.available is not None and server.limit is not None), None)
    memory = f"{format_bytes(limited.available or 0)} available of {format_bytes(limited.limit or 0)}, " if limited is not None else ""
    head = f"phase {sample.phase} of {demo.phases}, {sample.at:.0f} s; {memory}overcommitted by {demo.overcommitted:g} %"
    legend = Text("█ in memory  ░ unused  · in the balloon      Ctrl-C ends the demonstration", style="dim")
    return Group(Text(head), table, legend)


def sample_line(sample: DemoSample) -> str:
    """Return the state of both servers as one line."""
    servers = [
        f"{side} {'busy' if side == sample.busy else 'idle'}: {server.tps:,.0f} tps, {format_bytes(server.resident)} in memory, "
        f"balloon {format_bytes(server.ballooned)}"
        for side, server in sample.sides.items()
    ]
    return f"{sample.at:5.1f} s  " + "; ".join(servers)
