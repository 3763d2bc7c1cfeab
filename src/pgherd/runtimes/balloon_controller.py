"""Balloon controller: divides memory among the guests of a host, and sets the targets of their balloons. Pure.

**Division** follows the ESX server (Waldspurger, "Memory Resource Management in VMware ESX Server", OSDI 2002, sections 5.1, 5.2
and 6.1). Guest i has configured memory M, a guaranteed minimum m, S shares, and a working set w (balloon_estimate.py), which counts up to
M. With P of memory the fraction f = min(1, w/P) is active. With an idle memory tax τ an idle page costs k = 1/(1 − τ) times as much as
an active one. The adjusted shares-per-page ratio is

    ρ = S / (P · (f + k · (1 − f)))

ESX takes pages from the guest with the lowest ratio and gives them to one with a higher ratio (min-funding revocation). At equilibrium
all guests between their bounds have the same ratio. The controller computes the equilibrium directly. P · (f + k · (1 − f)) is the cost
of the guest's memory, min(P, w) + k · max(P − w, 0). At a price of 1/λ per share

    P(λ) = clamp(min(λS, w + (λS − w) / k), m, M)          and λ is such that the sum of all P(λ) is the memory B for guests.

P(λ) is continuous and increases with λ, so the solution is unique, and small changes of w make small changes of P. With τ = 0 memory is
divided by shares. With τ = 0.75 a guest keeps a quarter of its share beyond its working set. While the sum of all M is at most B, each
guest keeps all its memory. B is the host's budget minus a reserve and the overhead of each guest's hypervisor.

**Movement**, with A the present memory of a guest and T its last target:

- *Dead band*: a target moves by more than ``DEAD_BAND`` of M and 4 MB or not at all, unless the guest wants memory, or other guests need
  the memory that the move would free.
- *Rate*: a balloon inflates by at most ``TAKEN`` · M per second (half of that while the host has plenty, a quarter while the guest swaps
  out, because its database's balloon then has time to inflate). It deflates by at most ``GIVEN`` · M per second. While a balloon lags two
  steps behind its target, the target does not go lower.
- *Take before give*: a guest grows only into memory that is certainly free, B − Σ max(A, T). The sum of targets therefore never exceeds B
  after all balloons have reached it, and no guest gets memory that another guest has not returned.
- *Host states* as in section 6.3 of the paper, by the free share of the host's budget: ``high`` above 6 %, ``soft`` below 4 %, ``hard``
  below 2 %. The way back needs one threshold more (hysteresis). In ``hard`` balloons inflate without a rate limit, no guest grows,
  and the missing memory is withheld from B until the state is ``high`` again.
- *Minimum*: no target is below m. ``check`` refuses a sum of minima above B before the first guest starts. The target of a guest without
  swap takes at most its available memory minus ``SPARED`` · M, at most half of that at once, and nothing before the guest has reported
  it. Otherwise the guest would have to kill processes. The host must compress or swap the rest.

A guest that does not answer keeps its target. Its memory counts as taken until the guest has ended.

**Policies** differ in one effect each, so that E5 and E6 can separate the effects. All have the balloon device, so that the guests'
statistics are available with every policy.

| policy | the manager moves targets | free page reporting |
|---|---|---|
| ``static`` | no | no |
| ``virtio-balloon`` | yes | no |
| ``free-page-reporting`` | no | yes: the guest's kernel returns long free pages, in blocks of 2 MB on x86 |

``deflate-on-oom`` is on in all policies: a guest takes pages out of its balloon before it kills a process. Its MemTotal then stays as
configured, and the pages in the balloon are missing from its MemAvailable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pgherd.model.deployment import GuestMemoryPolicy
from pgherd.model.errors import UsageError
from pgherd.model.units import format_bytes
from pgherd.runtimes.guest_memory_estimate import PAGE, STALE, GuestMemoryEstimate

TAX = 0.75
DEAD_BAND = 0.02
TAKEN = 0.1
GIVEN = 0.25
SPARED = 0.05
"""Between pg_balloon's watermarks (2 and 6 %): an idle database in the guest releases buffers, a busy one keeps them."""
SETTLED = 120.0
"""Seconds after which constant demands that fit have constant targets, by simulation (tests)."""
_MIN_BAND_BYTES = 4 * 2**20
_SWAPPING_RATE = 2**20
_SMALLEST_MINIMUM = 96 * 2**20
_RELEASE_RATE = 0.02
"""Fraction of the withheld memory that is released per second while the host has plenty."""

State = Literal["high", "soft", "hard"]
_SOFT, _HARD, _HIGH = 0.04, 0.02, 0.06


@dataclass(frozen=True)
class GuestEntitlement:
    """Guarantees of a guest, in bytes: configured ``memory``, ``minimum``, and the ``overhead`` of its hypervisor.

    ``swaps``: the guest has swap space. A guest that was observed to swap counts as having it.
    """

    name: str
    memory: int
    minimum: int
    shares: float = 1.0
    overhead: int = 0
    swaps: bool = False


@dataclass(frozen=True)
class GuestObservation:
    """Observation of a guest: its present memory (bytes), and the estimate of its need."""

    actual: int
    estimate: GuestMemoryEstimate


@dataclass(frozen=True)
class ControllerState:
    """Controller state between steps: targets (bytes) by guest, the host's state, and the memory withheld from B (bytes)."""

    targets: Mapping[str, int] = field(default_factory=dict)
    state: State = "high"
    withheld: float = 0.0


def minimum_of(memory: int, asked: int | None) -> int:
    """Return the guaranteed memory of a guest: the requested one, or a quarter of its memory but at least the need of a small Linux."""
    return asked if asked is not None else min(memory, max(memory // 4, _SMALLEST_MINIMUM))


def for_guests(guests: Sequence[GuestEntitlement], budget: int, reserve: float) -> int:
    """Return B: the host's ``budget`` (bytes) minus the ``reserve`` (a fraction) and the overhead of the hypervisors."""
    return max(int(budget * (1 - reserve)) - sum(guest.overhead for guest in guests), 0)


def check(guests: Sequence[GuestEntitlement], budget: int | None, reserve: float) -> None:
    """Require that these guests fit into the ``budget`` (bytes; None: no budget). Call it before the first guest starts.

    Raises:
        UsageError: a minimum exceeds its guest's memory, shares are not above zero, a name occurs twice, or the sum of the minima
            exceeds the memory for guests.
    """
    names = [guest.name for guest in guests]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"names of guests must differ: {', '.join(repeated)} is used more than once")
    for guest in guests:
        if not 0 <= guest.minimum <= guest.memory:
            raise UsageError(
                f"guest {guest.name} is guaranteed {format_bytes(guest.minimum)} of memory but has {format_bytes(guest.memory)}; "
                "make its minimum smaller or its memory larger"
            )
        if guest.shares <= 0:
            raise UsageError(f"guest {guest.name} has {guest.shares:g} shares of memory; shares must be above zero")
    if budget is None:
        return
    available, minima = for_guests(guests, budget, reserve), sum(guest.minimum for guest in guests)
    if minima > available:
        overhead = format_bytes(sum(guest.overhead for guest in guests))
        raise UsageError(
            f"{len(guests)} guests are guaranteed {format_bytes(minima)} in total, but of the host's {format_bytes(budget)} guests can "
            f"have {format_bytes(available)} ({reserve:.0%} is kept free, their hypervisors need {overhead}); give guests smaller minima, "
            "the host more memory, or run fewer guests"
        )


def divide(guests: Sequence[GuestEntitlement], working_sets: Mapping[str, float], together: int, tax: float) -> dict[str, int]:
    """Return the share of each guest in the ``together`` bytes for all guests, by name. Shares are full pages, and their sum fits.

    Where the minima exceed ``together``, because the budget was lowered, each guest gets its minimum.
    """
    if sum(guest.memory for guest in guests) <= together:
        return {guest.name: guest.memory for guest in guests}
    kept_idle = 1 - tax

    def share_at(guest: GuestEntitlement, price: float) -> float:
        due, active = price * guest.shares, min(working_sets[guest.name], guest.memory)
        return min(max(min(due, active + (due - active) * kept_idle), guest.minimum), guest.memory)

    def total(price: float) -> float:
        return sum(share_at(guest, price) for guest in guests)

    # The sum is linear between the prices at which a guest leaves its minimum, has its working set, or has all its memory.
    knees = {0.0}
    for guest in guests:
        active = min(working_sets[guest.name], guest.memory)
        for level in (guest.minimum, active, guest.memory):
            knees.add((level if level <= active else active + (level - active) / kept_idle) / guest.shares)
    prices = sorted(knees)
    low, high = 0, len(prices) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if total(prices[middle]) <= together else (low, middle)
    below, above = total(prices[low]), total(prices[high])
    part = min(max((together - below) / (above - below), 0.0), 1.0) if above > below else 0.0
    price = prices[low] + part * (prices[high] - prices[low])
    # Rounding down must keep the minimum, and must not take a page from a guest that gets all its memory.
    return {g.name: max(int(share_at(g, price)) // PAGE * PAGE, g.minimum) if share_at(g, price) < g.memory else g.memory for g in guests}


def step(
    guests: Sequence[GuestEntitlement],
    seen: Mapping[str, GuestObservation],
    before: ControllerState,
    budget: int | None,
    seconds: float,
    *,
    tax: float = TAX,
    reserve: float = 0.02,
    free: int | None = None,
) -> ControllerState:
    """Return the next targets, ``seconds`` after the last ones.

    ``seen`` has all guests that may still hold memory. ``budget`` is the memory for guests and hypervisors, ``free`` the part that could be
    allocated at once, both in bytes. None: there is no budget, or the free part is unknown.
    """
    if budget is None:
        return ControllerState({guest.name: guest.memory for guest in guests})
    state = _state(before.state, free, budget)
    withheld = _withheld(before.withheld, state, free, budget, seconds)
    floor = sum(guest.minimum for guest in guests)
    together = max(for_guests(guests, budget, reserve) - int(withheld), floor)
    shares = divide(guests, {guest.name: seen[guest.name].estimate.working_set for guest in guests}, together, tax)
    targets = {guest.name: before.targets.get(guest.name, guest.memory) for guest in guests}
    exceeded = sum(targets.values()) > together
    small: dict[str, int] = {}
    for guest in guests:
        name, old = guest.name, targets[guest.name]
        if shares[name] < old:
            new = _lowered_target(guest, seen[name], old, shares[name], state, seconds)
            if old - shares[name] > _band(guest) or exceeded or state == "hard":
                targets[name] = new
            else:
                small[name] = new
    if state == "hard":
        return ControllerState(targets, state, withheld)
    requests = {}
    for guest in guests:
        name, old = guest.name, targets[guest.name]
        growth = min(shares[name] - old, int(GIVEN * guest.memory * seconds))
        if growth > 0 and (shares[name] - old > _band(guest) or seen[name].estimate.wants):
            requests[name] = growth
    room = together - sum(max(seen[guest.name].actual, targets[guest.name]) for guest in guests)
    if sum(requests.values()) > room:
        targets |= small
    part = min(1.0, max(room, 0) / total) if (total := sum(requests.values())) else 0.0
    for name, growth in requests.items():
        targets[name] += int(growth * part) // PAGE * PAGE
    return ControllerState(targets, state, withheld)


def _band(guest: GuestEntitlement) -> float:
    return max(DEAD_BAND * guest.memory, _MIN_BAND_BYTES)


def _lowered_target(guest: GuestEntitlement, observation: GuestObservation, old: int, share: int, state: State, seconds: float) -> int:
    """Return the next lower target of a guest."""
    estimate, rate = observation.estimate, TAKEN * guest.memory * (0.5 if state == "high" else 1.0)
    lowest = max(share, guest.minimum)
    maximum = float(guest.memory)
    if not (guest.swaps or estimate.swaps):
        if estimate.unseen >= STALE:
            return old
        floor = int(estimate.actual - estimate.available + SPARED * guest.memory)
        lowest, maximum = max(lowest, min(old, floor)), (min(old, observation.actual) - floor) / 2
    elif state == "hard":
        return lowest
    if state != "hard":
        maximum = min(maximum, rate * seconds / (4 if estimate.swap_out > _SWAPPING_RATE else 1))
    moved = max(int(maximum) // PAGE * PAGE, PAGE)
    if observation.actual - old > 2 * moved:
        return old
    return max(min(old, observation.actual) - moved, lowest)


def _state(before: State, free: int | None, budget: int) -> State:
    """Return the host's state by its free share. Without a known share it is ``soft``."""
    if free is None:
        return "soft"
    share = free / budget if budget > 0 else 0.0
    if share < _HARD or (before == "hard" and share < _SOFT):
        return "hard"
    if share < _SOFT or (before != "high" and share < _HIGH):
        return "soft"
    return "high"


def _withheld(before: float, state: State, free: int | None, budget: int, seconds: float) -> float:
    """Return the bytes withheld from guests. They grow while the host is short of memory, and shrink slowly afterwards."""
    if state == "hard" and free is not None:
        return min(before + (_SOFT * budget - free) * min(seconds / 5.0, 1.0), 0.5 * budget)
    return before * max(1 - _RELEASE_RATE * seconds, 0.0) if state == "high" else before


def forget(before: ControllerState, name: str) -> ControllerState:
    return replace(before, targets={other: target for other, target in before.targets.items() if other != name})


@dataclass(frozen=True)
class PolicyEffects:
    """Effects of a policy: the manager moves targets; the guest reports its free pages."""

    moves: bool
    reports: bool


SWITCHED: Mapping[GuestMemoryPolicy, PolicyEffects] = {
    "static": PolicyEffects(moves=False, reports=False),
    "virtio-balloon": PolicyEffects(moves=True, reports=False),
    "free-page-reporting": PolicyEffects(moves=False, reports=True),
}


def moves(policy: GuestMemoryPolicy) -> bool:
    """Return whether the manager sets balloon targets under this policy."""
    return SWITCHED[policy].moves


def reports(policy: GuestMemoryPolicy) -> bool:
    """Return whether the guest's balloon device has free page reporting (``free-page-reporting=on``) under this policy."""
    return SWITCHED[policy].reports


def refuse_what_cannot_be_given_back(policy: GuestMemoryPolicy, *, huge_pages: bool, locked: bool) -> None:
    """Require guest memory that can be returned. Balloons count in 4 kB pages, QEMU does not discard a part of a huge page, and locked
    memory is never discarded.

    Raises:
        UsageError: the guest's memory is on huge pages or locked, and the policy is not ``static``.
    """
    if policy == "static" or not (huge_pages or locked):
        return
    what = "backed by huge pages" if huge_pages else "locked"
    raise UsageError(f"guest memory that is {what} cannot be given back, so policy '{policy}' has no effect; use 'static'")
