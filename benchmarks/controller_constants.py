"""The constants of pg_balloon's controller, each halved and doubled in the simulation of servers that share a memory.

The controller is compiled with each change and runs the same scenarios with the same seeds as the one in the repository. A constant
has an effect if a change of it moves a figure of a scenario by more than its tolerance. Sizes, rates and times follow from the seed.
"""

from __future__ import annotations

import ctypes
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import outcome
from outcome import Figure

from pgherd.analysis.intervals import mean_interval
from pgherd.model.errors import CapabilityError

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/helpers"))
from controller_interface import MB, Controller, step_of
from controller_simulation import LOOKS, RESERVES, Machine, Server, any_servers, servers

SOURCES = Path(__file__).parents[1] / "extension/pg_balloon/src"
CONSTANTS = "controller_constants.h"
_CONSTANT = re.compile(r"^#define (\w+) (\S.*)$", re.MULTILINE)
FACTORS = {"halved": 0.5, "doubled": 2.0}
SHIPPED = "as shipped"
SEEDS = 12
COSTS = (2e-6, 1e-5, 2e-4, 1e-3, 1e-2)
"""Seconds for a miss: the operating system's page cache, fast and slow solid-state disks, a network disk, a hard disk."""
BUSY = 5_000.0
"""Accesses per second from which on a server counts as busy."""
TOLERANCES = {
    "throughput": (0.005, 0.0),
    "settling": (0.03, 0.0),
    "in swap": (0.0, 0.05),
    "moved": (0.05, 0.02),
    "moved at rest": (0.0, 0.1),
}
"""Figure → smallest change that matters, if its 95 % interval does not hold 0: a share of the shipped controller's, plus a difference."""


def main() -> None:
    """Simulate, print and write."""
    parser = outcome.parser(__doc__, SEEDS, "seeds of each change")
    parser.add_argument("--constant", action="append", metavar="NAME", help="change this constant only (repeatable)  [default: all]")
    options = parser.parse_args()
    seeds = options.pairs or (3 if options.quick else SEEDS)
    names = options.constant or list(constants())[: 2 if options.quick else None]
    made = outcome.Outcome("controller_constants", options.quick, outcome.seed_of(options))
    before, shipped = outcome.cpu_seconds(), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory(prefix="pgherd-benchmark-") as directory:
        for number, (name, change) in enumerate([(SHIPPED, ""), *((name, change) for name in names for change in FACTORS)]):
            controller = compiled(Path(directory) / str(number), name, change)
            for scenario in SCENARIOS:
                measured = [scenario(controller, random.Random(f"{made.seed + seed}")).figures() for seed in range(seeds)]
                row = {"scenario": scenario.__name__, **by_figure(measured)}
                if row not in shipped:
                    made.raw.append({"constant": name, "change": change, **row})
                shipped += [] if change else [row]
            outcome.say(f"{name} {change}".rstrip())
    found = {name: {change: effects(made.raw, name, change) for change in FACTORS} for name in names}
    made.settings = {
        "seeds": seeds,
        "scenarios": {scenario.__name__: scenario.__doc__ for scenario in SCENARIOS},
        "tolerances": TOLERANCES,
        "rows equal to those of the controller as shipped": "left out",
        "effects": {name: cells for name, cells in found.items() if any(cells.values())},
        "without effect": [name for name, cells in found.items() if not any(cells.values())],
    }
    made.figures = figures(made.raw)
    made.noise = outcome.noise_since(before)
    outcome.conclude(made, options)


def constants() -> dict[str, str]:
    """Return the value of each constant, as in the source."""
    return dict(_CONSTANT.findall((SOURCES / CONSTANTS).read_text()))


def changed(text: str, name: str, change: str) -> str:
    """Return the source of the constants with a changed one. Raises KeyError for an unknown name."""
    value = constants()[name]
    return text.replace(f"#define {name} {value}\n", f"#define {name} (({value}) * {FACTORS[change]})\n")


def compiled(directory: Path, name: str, change: str) -> Controller:
    """Return the controller with one constant changed. Raises CapabilityError without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise CapabilityError("there is no C compiler; install gcc")
    directory.mkdir()
    for file in ("controller.c", "controller.h"):
        shutil.copy(SOURCES / file, directory)
    text = (SOURCES / CONSTANTS).read_text()
    (directory / CONSTANTS).write_text(changed(text, name, change) if change else text)
    library = directory / "controller.so"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, directory / "controller.c", "-lm"], check=True)
    return step_of(ctypes.CDLL(str(library)))


# ---- scenarios


class Watch:
    """A machine that runs, with the throughput of its busy servers and its memory in swap at each tick."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.seconds = 0.0
        self.shares: list[float] = []
        self.swapped: list[float] = []
        self.settling: list[float] = []
        self.at_rest: list[float] = []

    def run(self, seconds: float, reached: Callable[[], bool] | None = None, change: Callable[[], None] = lambda: None) -> None:
        """Run, with a change at each tick, and note when a condition held for the first time."""
        machine, first = self.machine, seconds

        def look(number: int) -> None:
            nonlocal first
            change()
            busy = [server for server in machine.servers if server.rate >= BUSY]
            if busy:
                self.shares.append(fmean(server.throughput(machine.cost) / server.rate for server in busy))
            self.swapped.append(machine.swapped / machine.limit)
            if reached is not None and first == seconds and reached():
                first = (number + 1) * machine.dt

        machine.run(seconds, look)
        self.seconds += seconds
        if reached is not None:
            self.settling.append(first)

    @property
    def moved(self) -> float:
        """Buffers moved, as a share of all pools."""
        return sum(server.moved for server in self.machine.servers) / sum(server.pool for server in self.machine.servers)

    def rest(self, seconds: float) -> None:
        """Run with unchanged load, and note what moves."""
        before = self.moved
        self.run(seconds)
        self.at_rest.append((self.moved - before) / seconds)

    def figures(self) -> dict[str, float]:
        """Return means: shares of the throughput without misses, seconds, and percentages of the limit and of the pools per second."""
        parts = {"throughput": self.shares, "settling": self.settling, "in swap": self.swapped, "moved at rest": self.at_rest}
        means = {name: fmean(values) for name, values in parts.items() if values} | {"moved": self.moved / self.seconds}
        return {name: round(mean * (1 if name in ("throughput", "settling") else 100), 4) for name, mean in means.items()}

    def recovered(self, *wanted: Server) -> Callable[[], bool]:
        """Return the condition that these servers have 90 % of the throughput without misses."""
        return lambda: all(server.throughput(self.machine.cost) >= 0.9 * server.rate for server in wanted)


def turns(controller: Controller, rng: random.Random) -> Watch:
    """Two servers whose pools do not fit together are busy in turn."""
    pool = rng.randrange(256, 1024) * MB
    pair = servers(2, pool, int(pool * rng.uniform(0.6, 0.9)))
    limit = int(pool * rng.uniform(1.15, 1.4))
    watch = Watch(Machine(controller, limit, pair, cost=rng.choice(COSTS), dt=LOOKS / 4, known_cost=rng.random() < 0.5))
    for phase in range(4):
        busy, idle = pair[phase % 2], pair[1 - phase % 2]
        busy.rate, idle.rate = 50_000, 20
        watch.run(6, watch.recovered(busy))
    watch.rest(3)
    return watch


def limits(controller: Controller, rng: random.Random) -> Watch:
    """A limit of several servers, of which at least one is busy, falls and is restored."""
    several = servers(rng.randrange(1, 5), 512 * MB, int(512 * MB * rng.uniform(0.5, 1.0)))
    whole = 600 * MB * len(several)
    watch = Watch(Machine(controller, whole, several, cost=rng.choice(COSTS), dt=LOOKS / 5))
    for server in several:
        server.rate = rng.choice([5, 500, 50_000])
    several[0].rate = 50_000
    watch.run(3)
    machine = watch.machine
    machine.limit = int(whole * rng.uniform(0.3, 0.8))
    watch.run(8, lambda: machine.available >= RESERVES[0] * machine.limit)
    machine.limit = whole
    watch.run(8, watch.recovered(*(server for server in several if server.rate >= BUSY)))
    watch.rest(3)
    return watch


def pressure(controller: Controller, rng: random.Random) -> Watch:
    """Another program takes memory until most of a seldom used pool is gone, and later returns it to a busy server."""
    (server,) = servers(1, 1024 * MB, int(1024 * MB * rng.uniform(0.3, 0.95)))
    server.rate = rng.choice([5, 50, 500])
    watch = Watch(Machine(controller, 1200 * MB, [server], cost=rng.choice(COSTS), dt=LOOKS / 2))
    machine, speed = watch.machine, rng.uniform(20, 400) * MB

    def grow() -> None:
        machine.other = min(900 * MB, machine.other + speed * machine.dt)

    watch.run(15, change=grow)
    watch.rest(3)
    machine.other, server.rate = 0, 50_000
    watch.run(8, watch.recovered(server))
    return watch


def bursts(controller: Controller, rng: random.Random) -> Watch:
    """Servers, some of them with empty pools at first, become busy and idle at random times."""
    several = servers(rng.randrange(2, 6), rng.randrange(128, 512) * MB, rng.randrange(64, 400) * MB)
    for server in several:
        if rng.random() < 0.5:
            server.hot = server.cold = 0
    pools = sum(server.pool for server in several) * 8192
    watch = Watch(Machine(controller, int(pools * rng.uniform(0.4, 0.9)), several, cost=rng.choice(COSTS), dt=LOOKS / 2))
    for _ in range(30):
        for server in several:
            if rng.random() < 0.3:
                server.rate = rng.choice([0, 50, 5_000, 50_000])
        watch.run(rng.uniform(0.2, 2.0))
    return watch


def alternating(controller: Controller, rng: random.Random) -> Watch:
    """A server is busy and idle in turn, for about a second each, while others want its memory."""
    several = servers(3, 512 * MB, 450 * MB)
    limit = int(3 * 512 * MB * rng.uniform(0.5, 0.8))
    watch = Watch(Machine(controller, limit, several, cost=rng.choice(COSTS), dt=LOOKS / 2))
    busy, idle = rng.uniform(0.3, 2), rng.uniform(0.6, 3)
    several[1].rate, several[2].rate = 50_000, rng.choice([5, 500, 5_000])
    for _ in range(int(30 / (busy + idle))):
        several[0].rate = 50_000
        watch.run(busy)
        several[0].rate = 5
        watch.run(idle)
    return watch


def many(controller: Controller, rng: random.Random) -> Watch:
    """Up to eight servers of any size and rate, up to 80 % overcommitted, with unchanged load."""
    watch = Watch(any_servers(controller, rng, rng.randrange(1, 9), rng.uniform(0.2, 1.2)))
    watch.run(50)
    watch.rest(10)
    return watch


SCENARIOS = (turns, limits, pressure, bursts, alternating, many)


# ---- figures


def by_figure(measured: Sequence[Mapping[str, float]]) -> dict[str, list[float | None]]:
    """Return the values of each figure by seed. None: the scenario has none with that seed, such as without a busy server."""
    return {name: [row.get(name) for row in measured] for name in TOLERANCES if any(name in row for row in measured)}


def effects(raw: Sequence[Mapping[str, Any]], name: str, change: str) -> list[str]:
    """Return the figures of scenarios that a change moves by more than their tolerance, with the change."""
    found = []
    shipped = {row["scenario"]: row for row in raw if row["constant"] == SHIPPED}
    for row in raw:
        if (row["constant"], row["change"]) != (name, change):
            continue
        reference = shipped[row["scenario"]]
        for figure, (share, least) in TOLERANCES.items():
            pairs = [(a, b) for a, b in zip(row.get(figure, ()), reference.get(figure, ()), strict=True) if a is not None and b is not None]
            if not pairs:
                continue
            base = fmean(b for _, b in pairs)
            difference = mean_interval([a - b for a, b in pairs], signed=True)
            excludes_zero = difference.low is None or difference.high is None or difference.low > 0 or difference.high < 0
            if excludes_zero and abs(difference.value) > share * base + least:
                unit = f"{100 * difference.value / base:+.1f} %" if share and base else f"{difference.value:+.2f} points"
                found.append(f"{row['scenario']}: {figure} {unit}")
    return found


def figures(raw: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Return the controller's figures as shipped."""
    units = {"throughput": "of that without misses", "settling": "s", "in swap": "% of the limit"}
    made = []
    for row in raw:
        for figure in TOLERANCES:
            values = [value for value in row.get(figure, ()) if value is not None]
            if row["constant"] == SHIPPED and values:
                unit = units.get(figure, "% of the pools per s")
                made.append(Figure(f"{row['scenario']}: {figure}", fmean(values), unit, n=len(values), method="mean of the seeds"))
    return made


if __name__ == "__main__":
    outcome.run(main)
