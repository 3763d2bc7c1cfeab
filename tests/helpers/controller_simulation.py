"""A plain simulation of servers with pg_balloon's controller that share one memory.

Pages are touched at random in a working set. Each server has a pool, all share one memory, and once that is full the pages touched least
are swapped. It is no model of a machine's speed. It shows whether the controller settles.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from controller_interface import BLOCK, DEFLATE, HOLD, INFLATE, MB, PAGE, Controller, Decision, Input, State, limits_for

RESERVES = (0.02, 0.06)
"""The defaults; where one view is asked about, there is more between them."""
LOOKS = 0.1
"""Seconds between two looks of a server that moved nothing at the last; one that did looks again at the next tick."""
SAFE = 4
"""Times as long where nothing is in its balloon and so much is available that FASTEST would not use it up meanwhile."""
FASTEST = 2 * 8 * 1024 * MB
"""Bytes per second that two CPUs may use up."""


@dataclass
class Server:
    """A pool of pages: those of the working set (hot), others (cold), unused ones, and the balloon."""

    pool: int
    floor: int
    working_set: int
    rate: float = 0.0  # touches per second that its clients would make without misses
    hot: float = 0.0
    cold: float = 0.0
    ballooned: int = 0
    misses: float = 0.0
    waiting: float = 0.0
    refaults: float = 0.0
    touched: float = 0.0  # share of used pages touched within five seconds
    waited: float = 0.0  # seconds since it looked
    pause: float = LOOKS  # seconds until it looks again
    swapped: float = 0.0
    moved: int = 0
    moving: bool = False
    limit_fall: int = 0  # since it looked
    state: State = field(default_factory=State)

    @property
    def used(self) -> float:
        return self.hot + self.cold

    @property
    def unused(self) -> float:
        return self.pool - self.ballooned - self.used

    def fill(self) -> None:
        self.hot = min(self.working_set, self.pool)
        self.cold = self.pool - self.hot

    @property
    def missing(self) -> float:
        return 1 - self.hot / self.working_set

    @property
    def away(self) -> float:
        return min(1.0, self.swapped / self.used) if self.used else 0.0

    def throughput(self, cost: float, clients: int = 4) -> float:
        """Touches per second, when each one that misses, or finds its page in swap, makes one of the clients wait."""
        return self.rate / (1 + self.rate * (self.missing + self.away) * cost / clients)

    def work(self, dt: float, cost: float) -> None:
        """Clients touch pages of the working set at random."""
        rate, missing, away = self.throughput(cost), self.missing, self.away
        self.misses, self.refaults = rate * missing, rate * away
        self.waiting = self.misses * cost
        new = min(self.misses * dt, self.working_set - self.hot)
        unused = min(new, max(0.0, self.unused))
        replaced = min(new - unused, self.cold)
        self.hot += unused + replaced
        self.cold -= replaced
        within = 1 - math.exp(-rate * 5 / self.working_set)
        self.touched = self.hot * within / self.used if self.used else 0.0

    def obey(self, decision: Decision) -> None:
        if decision.action == DEFLATE:
            self.ballooned -= decision.buffers
        elif decision.action == INFLATE:
            room = min(self.pool * 9 // 10, self.pool - self.floor) - self.ballooned
            along = min(max(0.0, self.unused), room)  # they hold no memory, go first and do not count
            remaining = min(float(decision.buffers), self.used, room - along)
            cold = min(remaining, self.cold)
            self.cold -= cold
            self.hot = max(0.0, self.hot - (remaining - cold))
            self.ballooned += int(remaining + along)
        self.moving = decision.action in (INFLATE, DEFLATE)
        if self.moving:
            self.moved += decision.buffers


@dataclass
class Machine:
    """One memory for several servers, and for something else (``other``, in bytes)."""

    controller: Controller
    limit: int
    servers: list[Server]
    other: float = 0.0
    cost: float = 2e-4
    known_cost: bool = True  # to the servers
    dt: float = 0.1
    swapped: float = 0.0
    most_swapped: float = 0.0
    available: float = 0.0
    limit_before: int = 0

    def run(self, seconds: float, each: Callable[[int], None] = lambda _: None) -> None:
        for number in range(round(seconds / self.dt)):
            self.tick()
            each(number)

    def tick(self) -> None:
        for server in self.servers:
            server.work(self.dt, self.cost)
        total = sum(server.used for server in self.servers) * BLOCK + self.other
        over = max(0.0, total - self.limit)
        growth, self.swapped = max(0.0, over - self.swapped), over
        self.most_swapped = max(self.most_swapped, over)
        remaining = over / BLOCK
        for server in sorted(self.servers, key=lambda item: item.rate * item.touched):  # what is touched least goes first
            server.swapped = min(remaining, server.used)
            remaining -= server.swapped
        available = self.available = self.limit - total
        refaults = sum(server.refaults for server in self.servers)
        fell, self.limit_before = max(0, self.limit_before - self.limit), self.limit
        for server in self.servers:
            server.limit_fall += fell
        for server in self.servers:
            server.waited += self.dt
            if server.waited < server.pause * 0.999 and not server.moving:
                continue
            since, server.waited = server.waited, 0.0
            observed = Input(
                dt=since, pool=server.pool, ballooned=server.ballooned, unused=int(max(0, server.unused)), floor=server.floor,
                ceiling=server.pool * 9 // 10, block=BLOCK, page=PAGE, hot=server.touched, misses=server.misses, filled=server.misses,
                miss_cost=self.cost if self.known_cost else -1,
                limit=self.limit, limit_fall=server.limit_fall, available=int(available), reachable=int(available),
                reachable_high=int(available), unclaimed=int(available), refaults=refaults,
                waiting=server.waiting, own_refaults=server.refaults, swapping=growth / self.dt, stall=-1,
            )  # fmt: skip
            decision = self.controller(limits_for(self.limit, *RESERVES), observed, server.state)
            server.limit_fall = 0
            server.obey(decision)
            peace = decision.action == HOLD and not server.ballooned
            safe = (available - 2 * RESERVES[1] * self.limit) / FASTEST if peace else 0.0
            server.pause = max(LOOKS, min(SAFE * LOOKS, safe))
            assert server.pool - server.ballooned >= min(server.floor, server.pool)
            assert 0 <= server.ballooned <= server.pool * 9 // 10


def servers(count: int, pool: int, working_set: int) -> list[Server]:
    created = [Server(pool // BLOCK, pool // BLOCK // 16, working_set // BLOCK) for _ in range(count)]
    for item in created:
        item.fill()
    return created


def any_servers(controller: Controller, rng: random.Random, count: int, short: float) -> Machine:
    """Servers of any size, working set and rate, whose memory is a share of their pools."""
    several = []
    for _ in range(count):
        pool = rng.randrange(64, 2048) * MB // BLOCK
        server = Server(pool, pool // 16, max(1, int(pool * rng.uniform(0.05, 1.5))), rate=rng.choice([0, 5, 500, 5_000, 50_000]))
        server.fill()
        several.append(server)
    everything = sum(item.pool for item in several)
    return Machine(controller, int(short * everything) * BLOCK, several, cost=rng.choice([1e-5, 1e-4, 1e-3]))
