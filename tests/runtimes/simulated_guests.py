"""Guests of which all is known, for the balloon law: what they have allocated, what they touch, what they cache, and how fast they follow.

A guest keeps in its memory, in this order: its kernel, the pages that it touches, file pages that it reads, pages that it allocated
but does not touch (until they are swapped out), and files that were read once. What it touches and has not got, it swaps in; while that
does not fit, it goes on swapping.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pgherd.runtimes import balloon_controller as law
from pgherd.runtimes.guest_memory_estimate import BalloonStats, GuestMemoryEstimate, estimate, rates, unseen

MB = 2**20
PAGING = 200 * MB
"""Bytes per second that a guest swaps in at most."""


@dataclass
class SimulatedGuest:
    """``allocated``, ``touched``, ``reads`` (file pages that it needs) are functions of time, bytes."""

    guest: law.GuestEntitlement
    touched: Callable[[float], float]
    allocated: Callable[[float], float]
    reads: Callable[[float], float] = lambda t: 0.0
    kernel: float = 60 * MB
    speed: float = 0.5
    stuck: bool = False
    actual: float = field(init=False)
    resident: float = 0.0
    cached: float = 0.0
    swap_in: float = 0.0
    swap_out: float = 0.0
    read: float = 0.0
    missing: float = 0.0
    allocated_before: float = 0.0

    def __post_init__(self) -> None:
        self.actual = float(self.guest.memory)

    def pass_time(self, t: float, target: float, seconds: float) -> None:
        step = self.speed * self.guest.memory * seconds
        if not self.stuck:
            self.actual += min(max(target - self.actual, -step), step)
        room = max(self.actual - self.kernel, 0.0)
        touched, allocated, reads = self.touched(t), self.allocated(t), self.reads(t)
        before = self.resident
        # New memory is taken without I/O; what was swapped out and is touched comes back.
        retained = min(self.resident, allocated)
        fresh = max(allocated - self.allocated_before, 0.0)
        self.allocated_before = allocated
        retained += fresh
        hot = min(touched, room)
        back = max(hot - retained, 0.0)
        back = min(back, PAGING * seconds)
        retained += back
        self.resident = min(retained, room)
        thrashing = min(max(touched - room, 0.0), PAGING * seconds)
        self.swap_in += back + thrashing
        self.swap_out += max(before + fresh + back - self.resident, 0.0) + thrashing
        wanted_cache = min(reads, room - min(touched, self.resident))
        cache_room = max(room - self.resident, 0.0)
        if wanted_cache > cache_room:  # files that are read push out what is not touched
            pushed = min(wanted_cache - cache_room, max(self.resident - touched, 0.0))
            self.resident -= pushed
            self.swap_out += pushed
            cache_room += pushed
        read = min(max(min(reads, cache_room) - self.cached, 0.0), PAGING * seconds) + min(max(reads - cache_room, 0.0), PAGING * seconds)
        self.read += read
        self.cached = min(max(self.cached, min(self.cached + read, reads)), cache_room)
        self.missing = max(touched - room, 0.0) + max(touched - self.resident, 0.0) + max(reads - cache_room, 0.0)

    def tell(self, t: float, noise: float, chance: random.Random) -> BalloonStats:
        available = max(self.actual - self.kernel - self.resident, 0.0)
        if noise:
            available = max(available + chance.uniform(-noise, noise) * self.actual, 0.0)
        free = max(available - self.cached, 0.0)
        return BalloonStats(
            at=t,
            free=int(free),
            available=int(available),
            total=self.guest.memory,
            caches=int(self.cached),
            swap_in=int(self.swap_in),
            swap_out=int(self.swap_out),
            major_faults=int(self.swap_in // 16384),
            minor_faults=0,
            reads=int(self.read),
        )


@dataclass
class Moment:
    """What was at one second: targets, what guests had, what they lacked (touched or read, and not there), bytes by name."""

    t: float
    targets: Mapping[str, int]
    actual: Mapping[str, float]
    missing: Mapping[str, float]
    estimates: Mapping[str, GuestMemoryEstimate]


class Host:
    """Guests under one budget, with the law as the manager applies it: once a second."""

    def __init__(
        self,
        guests: Sequence[SimulatedGuest],
        budget: int,
        *,
        tax: float = law.TAX,
        reserve: float = 0.0,
        noise: float = 0.0,
        lost: float = 0.0,
        seed: int = 1,
        free: Callable[[float], int] | None = None,
    ) -> None:
        self.guests, self.budget, self.tax, self.reserve = guests, budget, tax, reserve
        self.noise, self.lost, self.chance, self.free = noise, lost, random.Random(seed), free
        self.standing = law.ControllerState()
        self.estimates: dict[str, GuestMemoryEstimate] = {}
        self.told: dict[str, BalloonStats] = {}
        self.t = 0.0

    def run(self, seconds: float) -> list[Moment]:
        """So many seconds more, one moment each."""
        collected = []
        end = self.t + seconds
        while self.t < end:
            self.t += 1.0
            for item in self.guests:
                item.pass_time(self.t, self.standing.targets.get(item.guest.name, item.guest.memory), 1.0)
            for item in self.guests:
                self._see(item)
            observed = {
                element.guest.name: law.GuestObservation(int(element.actual), self.estimates[element.guest.name]) for element in self.guests
            }
            free = self.free(self.t) if self.free is not None else None
            guests = [item.guest for item in self.guests]
            self.standing = law.step(guests, observed, self.standing, self.budget, 1.0, tax=self.tax, reserve=self.reserve, free=free)
            collected.append(
                Moment(
                    self.t,
                    dict(self.standing.targets),
                    {item.guest.name: item.actual for item in self.guests},
                    {item.guest.name: item.missing for item in self.guests},
                    dict(self.estimates),
                )
            )
        return collected

    def _see(self, item: SimulatedGuest) -> None:
        name, before = item.guest.name, self.estimates.get(item.guest.name)
        if self.lost and self.chance.random() < self.lost:
            self.estimates[name] = unseen(before, int(item.actual), 1.0)
            return
        reported = item.tell(self.t, self.noise, self.chance)
        contended = any(other.contends for key, other in self.estimates.items() if key != name)
        moved = rates(self.told.get(name), reported)
        passed = 1.0 + (before.unseen if before is not None and before.unseen < 1e9 else 0.0)
        self.estimates[name] = estimate(
            before,
            item.guest.memory,
            int(item.actual),
            reported,
            moved,
            passed,
            target=self.standing.targets.get(name, item.guest.memory),
            contended=contended,
        )
        self.told[name] = reported
