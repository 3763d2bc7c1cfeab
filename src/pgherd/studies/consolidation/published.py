"""What E4, E5 and E6 published (reference: VMware, "VMware vFabric Postgres 9.2: Performance and Best Practices", vSphere 5.1).

DBT-2 with 30 warehouses each, 30 and 2 clients, 4 periods of 10 minutes, 3 vCPUs and 8 or 4 GB per virtual machine, 8 cores.
"""

from __future__ import annotations

from dataclasses import dataclass

SOURCE = "E4, VMware, vFabric Postgres 9.2: Performance and Best Practices"
SOURCE_E5 = "E5, VMware, vFabric Postgres 9.2: Performance and Best Practices; virtual machines"
SOURCE_E6 = "E6, VMware, vFabric Postgres 9.2: Performance and Best Practices"


@dataclass(frozen=True)
class Baseline:
    """One scheme undercommitted: new orders per minute, CPU used (%, 100 is one core), new orders per minute and fully used core."""

    notpm: float
    cpu: float
    per_core: float


BASELINES = {
    (25, 1): Baseline(45303.41, 297.66, 15219.85),
    (25, 2): Baseline(40790.49, 282.43, 14442.69),
    (25, 3): Baseline(52647.45, 370.95, 14192.60),
    (25, 4): Baseline(52398.71, 372.95, 14049.79),
    (75, 1): Baseline(44595.37, 296.20, 15055.83),
    (75, 2): Baseline(44257.74, 293.73, 15067.49),
    (75, 3): Baseline(58993.92, 383.04, 15401.50),
    (75, 4): Baseline(59295.53, 389.49, 15223.89),
}
"""(shared buffers in per cent, scheme) → what was measured."""

VARIATION = {(25, 3): 3.8, (75, 3): 1.1, (25, 4): 5.2, (75, 4): 1.0}
"""(shared buffers in per cent, scheme) → coefficient of variation across periods, %."""

READINGS_E5 = (
    (25, "separate containers hold up better beyond 20 %; at 55 % they are at 3 × the others (+200 %); the database balloon adds nothing"),
    (75, "at 55 % separate containers are at +60 % with the guest's balloon alone, and at +140 % with the database balloon too"),
)
"""(shared buffers in per cent, what was read off the curves)."""

RATE_E5 = 0.55
"""The rate of overcommitment at which E5's curves were read."""
_HELD_BETTER = {(25, 3): "about 3", (25, 4): "about 3", (75, 3): "about 1.6", (75, 4): "about 2.4"}
_BALLOON = {25: "about 1", 75: "about 1.5"}

RATE_E6 = 0.3
"""The rate of overcommitment at which E6 looked at the memory."""

READINGS_E6 = (
    (25, "at 30 % separate containers balloon about 8 % more memory, and compress and swap less than half as much"),
    (75, "at 30 % the database balloon cuts another 20 % of what is compressed and swapped"),
)
"""(shared buffers in per cent, what was read off the memory over time)."""


def held_better(percent: int, scheme: int, rate: float) -> str | None:
    """What a scheme of separate containers kept of its baseline over what the shared ones kept; None where it was not said."""
    said = _HELD_BETTER.get((percent, scheme)) if rate == RATE_E5 else None
    return None if said is None else f"{said} ({SOURCE_E5})"


def balloon_ratio(percent: int, rate: float) -> str | None:
    """Throughput with the database balloon over that without; None where it was not said."""
    said = _BALLOON.get(percent) if rate == RATE_E5 else None
    return None if said is None else f"{said} ({SOURCE_E5})"


def swapped(percent: int, rate: float) -> str | None:
    """What separate containers swapped over what a shared one did; None where it was not said."""
    return f"below 0.5 ({SOURCE_E6})" if (percent, rate) == (25, RATE_E6) else None


def swapped_by_balloon(percent: int, rate: float) -> str | None:
    """What was swapped with the database balloon over what was without it; None where it was not said."""
    return f"about 0.8 ({SOURCE_E6})" if (percent, rate) == (75, RATE_E6) else None


def ratio(percent: int, scheme: int, base: int) -> str | None:
    """Published throughput of a scheme over another's; None where one was not measured."""
    one, other = BASELINES.get((percent, scheme)), BASELINES.get((percent, base))
    return None if one is None or other is None else f"{one.notpm / other.notpm:.3f} ({SOURCE})"


def corrected_ratio(scheme: int, base: int) -> str | None:
    """The same with E4's correction, in its words; None where it was not said."""
    said = {1: "about 1", 2: "slightly above 1"}.get(base) if scheme in (3, 4) else None
    return None if said is None else f"{said} ({SOURCE})"


def gain(scheme: int) -> float | None:
    """Published throughput with 75 % buffers over that with 25 %; None where it was not measured."""
    low, high = BASELINES.get((25, scheme)), BASELINES.get((75, scheme))
    return None if low is None or high is None else high.notpm / low.notpm
