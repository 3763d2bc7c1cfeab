"""The law by which memory is divided among the guests of a host: from what they need to the targets of their balloons. Pure.

**Dividing** is that of the ESX server (Waldspurger, "Memory Resource Management in VMware ESX Server", OSDI 2002, sections 5.1, 5.2
and 6.1). Guest i was configured with memory M, has a guaranteed minimum m, S shares, and a working set w (balloon_estimate.py), of
which it is never given more than M. With P of memory the fraction f = min(1, w/P) is active, and with an idle-memory tax τ an idle
page costs k = 1/(1 − τ) times as much as an active one. Its adjusted shares-per-page ratio is

    ρ = S / (P · (f + k · (1 − f)))

ESX takes pages from the guest with the lowest ratio and gives them to one with a higher one (min-funding revocation). Where that comes
to rest, all guests between their bounds have the same ratio. This rest is computed directly: P · (f + k · (1 − f)) is what the
guest's memory costs, min(P, w) + k · max(P − w, 0), so that at a price of 1/λ per share

    P(λ) = clamp(min(λS, w + (λS − w) / k), m, M)          and λ is such that the sum of all P(λ) is the memory B for guests.

It is continuous and rises with λ: the solution is unique, and small changes of w make small changes of P. With τ = 0 memory is divided
by shares alone; with τ = 0.75 a guest keeps a quarter of what shares would give it beyond its working set. While the sum of all M is
at most B nothing is taken from anybody. B is the host's budget less a reserve and what each guest's hypervisor needs for itself.

**Moving** there, with A the memory that a guest has at present and T its last target:

- *Dead band*: a target moves only when it would by more than ``DEAD_BAND`` of M and 4 MB, unless the guest wants memory, or
  others need what this would free.
- *Rate*: a balloon grows by at most ``TAKEN`` · M per second (half of that while the host has plenty, a quarter while the guest swaps
  out: its database's balloon gets time to yield), and shrinks by at most ``GIVEN`` · M per second. A guest whose balloon lags two steps
  behind its target is asked for no more.
- *First taken, then given*: a guest grows only by what is free for sure, B − Σ max(A, T). So the sum of targets never exceeds B
  once all balloons have come down to it, and no guest is given what another has not returned yet.
- *Host states* as in section 6.3 of the paper, by the host's free share of its budget: ``high`` above 6 %, ``soft`` below 4 %, ``hard``
  below 2 %; the way back up takes a full threshold more (hysteresis). In ``hard`` balloons grow without a rate, nobody is given
  anything, and what is missing is withheld from B until the host has plenty again.
- *Floor*: never below m. The sum of minima above B is refused before any guest is up (``check``). A guest without swap of its own is
  never asked for more than it calls available, less ``SPARED`` · M, nor for more than half of that at once, nor for anything before it has
  told it: it would have to end processes. What is missing then, the host has to compress or swap.

A guest that does not answer keeps its target; its memory counts as taken until it has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pgherd.model.errors import UsageError
from pgherd.model.guest_memory import GuestMemoryPolicy
from pgherd.model.units import format_bytes
from pgherd.runtimes.balloon_estimate import PAGE, STALE, Estimate

TAX = 0.75
DEAD_BAND = 0.02
TAKEN = 0.1
GIVEN = 0.25
SPARED = 0.05
"""Between pg_balloon's own reserves (2 and 6 %): an idle database in the guest gives buffers up for it, a needy one keeps them."""
SETTLED = 120.0
"""Seconds after which demands that have become constant, and fit, have constant targets; by simulation (tests)."""
_LEAST_BAND = 4 * 2**20
_SWAPPING = 2**20
_LEAST_MINIMUM = 96 * 2**20
_BACK = 0.02
"""Of what is withheld, given back per second while the host has plenty."""

State = Literal["high", "soft", "hard"]
_SOFT, _HARD, _HIGH = 0.04, 0.02, 0.06


@dataclass(frozen=True)
class Guest:
    """What a guest was promised. ``memory`` is what it was configured with, ``minimum`` what it always keeps, ``overhead`` what its
    hypervisor needs beside it; bytes. ``swaps``: it has swap of its own; one that is seen to swap is known to have."""

    name: str
    memory: int
    minimum: int
    shares: float = 1.0
    overhead: int = 0
    swaps: bool = False


@dataclass(frozen=True)
class Seen:
    """A guest at one instant: the memory that it has, bytes, and what is believed of its need."""

    actual: int
    estimate: Estimate


@dataclass(frozen=True)
class Standing:
    """What the law remembers from step to step: targets (bytes) by guest, the host's state, and what is withheld from B (bytes)."""

    targets: Mapping[str, int] = field(default_factory=dict)
    state: State = "high"
    withheld: float = 0.0


def minimum_of(memory: int, asked: int | None) -> int:
    """The guaranteed memory of a guest: what was asked for, else a quarter of its memory and at least what a small Linux needs."""
    return asked if asked is not None else min(memory, max(memory // 4, _LEAST_MINIMUM))


def for_guests(guests: Sequence[Guest], budget: int, reserve: float) -> int:
    """B: what guests can have together of the host's ``budget`` (bytes), less the ``reserve`` (a share) and their hypervisors' own."""
    return max(int(budget * (1 - reserve)) - sum(guest.overhead for guest in guests), 0)


def check(guests: Sequence[Guest], budget: int | None, reserve: float) -> None:
    """Whether these guests can be together within the ``budget`` (bytes; None: there is none). To be called before any of them is up.

    Raises:
        UsageError: a minimum is above its guest's memory, shares are not above zero, a name stands twice, or the minima are together
            more than guests can have.
    """
    names = [guest.name for guest in guests]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"guests must differ in their names, but {', '.join(twice)} stands more than once")
    for guest in guests:
        if not 0 <= guest.minimum <= guest.memory:
            raise UsageError(
                f"guest {guest.name} is guaranteed {format_bytes(guest.minimum)} of memory but has {format_bytes(guest.memory)}; "
                "make its minimum smaller or its memory larger"
            )
        if guest.shares <= 0:
            raise UsageError(f"guest {guest.name} has {guest.shares:g} shares of memory; shares are above zero")
    if budget is None:
        return
    together, minima = for_guests(guests, budget, reserve), sum(guest.minimum for guest in guests)
    if minima > together:
        own = format_bytes(sum(guest.overhead for guest in guests))
        raise UsageError(
            f"{len(guests)} guests are guaranteed {format_bytes(minima)} together, but of the host's {format_bytes(budget)} guests can "
            f"have {format_bytes(together)} ({reserve:.0%} is kept free, {own} are their hypervisors' own); give guests smaller minima, "
            "the host more memory, or run fewer guests"
        )


def divide(guests: Sequence[Guest], working_sets: Mapping[str, float], together: int, tax: float) -> dict[str, int]:
    """What each guest is to have of the bytes that all can have ``together``, by name; whole pages, at most ``together`` in sum.

    Where the minima alone are more than that (the budget was lowered), each gets its minimum.
    """
    if sum(guest.memory for guest in guests) <= together:
        return {guest.name: guest.memory for guest in guests}
    keep = 1 - tax

    def given(guest: Guest, price: float) -> float:
        due, active = price * guest.shares, min(working_sets[guest.name], guest.memory)
        return min(max(min(due, active + (due - active) * keep), guest.minimum), guest.memory)

    def total(price: float) -> float:
        return sum(given(guest, price) for guest in guests)

    # The sum is linear between the prices at which a guest leaves its minimum, uses all its working set, or has all its memory.
    knees = {0.0}
    for guest in guests:
        active = min(working_sets[guest.name], guest.memory)
        for level in (guest.minimum, active, guest.memory):
            knees.add((level if level <= active else active + (level - active) / keep) / guest.shares)
    prices = sorted(knees)
    low, high = 0, len(prices) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if total(prices[middle]) <= together else (low, middle)
    below, above = total(prices[low]), total(prices[high])
    part = min(max((together - below) / (above - below), 0.0), 1.0) if above > below else 0.0
    price = prices[low] + part * (prices[high] - prices[low])
    # Rounding down must not break a guarantee, nor leave a guest that gets all its memory a page short of it.
    return {g.name: max(int(given(g, price)) // PAGE * PAGE, g.minimum) if given(g, price) < g.memory else g.memory for g in guests}


def step(
    guests: Sequence[Guest],
    seen: Mapping[str, Seen],
    before: Standing,
    budget: int | None,
    seconds: float,
    *,
    tax: float = TAX,
    reserve: float = 0.02,
    free: int | None = None,
) -> Standing:
    """The next targets, ``seconds`` after the last ones.

    ``seen`` has all guests that may still hold memory. ``budget`` is the host's memory for them and their hypervisors, ``free`` what it
    could give at once, bytes; None: there is no budget, or nobody knows.
    """
    if budget is None:
        return Standing({guest.name: guest.memory for guest in guests})
    state = _state(before.state, free, budget)
    withheld = _withheld(before.withheld, state, free, budget, seconds)
    floor = sum(guest.minimum for guest in guests)
    together = max(for_guests(guests, budget, reserve) - int(withheld), floor)
    wanted = divide(guests, {guest.name: seen[guest.name].estimate.working_set for guest in guests}, together, tax)
    targets = {guest.name: before.targets.get(guest.name, guest.memory) for guest in guests}
    exceeded = sum(targets.values()) > together
    small: dict[str, int] = {}
    for guest in guests:
        name, old = guest.name, targets[guest.name]
        if wanted[name] < old:
            new = _taken(guest, seen[name], old, wanted[name], state, seconds)
            if old - wanted[name] > _band(guest) or exceeded or state == "hard":
                targets[name] = new
            else:
                small[name] = new
    if state == "hard":
        return Standing(targets, state, withheld)
    asked = {}
    for guest in guests:
        name, old = guest.name, targets[guest.name]
        more = min(wanted[name] - old, int(GIVEN * guest.memory * seconds))
        if more > 0 and (wanted[name] - old > _band(guest) or seen[name].estimate.wants):
            asked[name] = more
    room = together - sum(max(seen[guest.name].actual, targets[guest.name]) for guest in guests)
    if sum(asked.values()) > room:
        targets |= small
    part = min(1.0, max(room, 0) / total) if (total := sum(asked.values())) else 0.0
    for name, more in asked.items():
        targets[name] += int(more * part) // PAGE * PAGE
    return Standing(targets, state, withheld)


def _band(guest: Guest) -> float:
    return max(DEAD_BAND * guest.memory, _LEAST_BAND)


def _taken(guest: Guest, seen: Seen, old: int, wanted: int, state: State, seconds: float) -> int:
    """The next lower target of a guest."""
    estimate, rate = seen.estimate, TAKEN * guest.memory * (0.5 if state == "high" else 1.0)
    least = max(wanted, guest.minimum)
    most = float(guest.memory)
    if not (guest.swaps or estimate.swaps):
        if estimate.unseen >= STALE:
            return old
        floor = int(estimate.actual - estimate.available + SPARED * guest.memory)
        least, most = max(least, min(old, floor)), (min(old, seen.actual) - floor) / 2
    elif state == "hard":
        return least
    if state != "hard":
        most = min(most, rate * seconds / (4 if estimate.swap_out > _SWAPPING else 1))
    moved = max(int(most) // PAGE * PAGE, PAGE)
    if seen.actual - old > 2 * moved:
        return old
    return max(min(old, seen.actual) - moved, least)


def _state(before: State, free: int | None, budget: int) -> State:
    """The host's state by its free share; without it known, as if it were a little short."""
    if free is None:
        return "soft"
    share = free / budget if budget > 0 else 0.0
    if share < _HARD or (before == "hard" and share < _SOFT):
        return "hard"
    if share < _SOFT or (before != "high" and share < _HIGH):
        return "soft"
    return "high"


def _withheld(before: float, state: State, free: int | None, budget: int, seconds: float) -> float:
    """What is kept from guests because the host is short all the same, bytes: it grows while that lasts, and shrinks slowly."""
    if state == "hard" and free is not None:
        return min(before + (_SOFT * budget - free) * min(seconds / 5.0, 1.0), 0.5 * budget)
    return before * max(1 - _BACK * seconds, 0.0) if state == "high" else before


def forget(before: Standing, name: str) -> Standing:
    """Without a guest that has ended."""
    return replace(before, targets={other: target for other, target in before.targets.items() if other != name})


@dataclass(frozen=True)
class Switched:
    """What a policy means: whether the manager moves targets, and whether the guest reports its free pages."""

    moves: bool
    reports: bool


SWITCHED: Mapping[GuestMemoryPolicy, Switched] = {
    "static": Switched(moves=False, reports=False),
    "guest-balloon": Switched(moves=True, reports=False),
    "free-page-reporting": Switched(moves=False, reports=True),
}


def moves(policy: GuestMemoryPolicy) -> bool:
    """Whether the manager sets balloon targets under this policy."""
    return SWITCHED[policy].moves


def reports(policy: GuestMemoryPolicy) -> bool:
    """Whether the guest's balloon device has free page reporting under this policy (``free-page-reporting=on``)."""
    return SWITCHED[policy].reports


def refuse_what_cannot_be_given_back(policy: GuestMemoryPolicy, *, huge_pages: bool, locked: bool) -> None:
    """A policy that gives memory back needs guest memory that can be: the balloon counts in 4 kB, and QEMU does not discard parts of a
    huge page; locked memory is never discarded.

    Raises:
        UsageError: the guest's memory is backed by huge pages, or locked, and the policy is not ``static``.
    """
    if policy == "static" or not (huge_pages or locked):
        return
    what = "backed by huge pages" if huge_pages else "locked"
    raise UsageError(f"guest memory that is {what} cannot be given back, so that policy '{policy}' would do nothing; use 'static'")
