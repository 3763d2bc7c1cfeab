"""Classes of hosts: their capacities, and the CPU up to which they keep a latency objective, as measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Self

import numpy as np
from pydantic import Field, field_validator, model_validator

from pgherd.analysis.demand import RESOURCES
from pgherd.model.analysis import Finding
from pgherd.model.base import NAME, Model
from pgherd.model.load import LatencyClass

_TOLERANCE = 1e-5


class ResourceCapacity(Model):
    """Measured capacity with its 95 % interval."""

    value: float = Field(gt=0)
    low: float | None = Field(None, gt=0)
    high: float | None = Field(None, gt=0)
    n: int = Field(0, ge=0)
    source: str = ""


class LatencyLimit(Model):
    """CPU of a host in cores up to which it keeps a latency objective.

    ``value`` is by the measured curve, ``low`` by its upper bounds and ``high`` by its lower bounds. None: the curve ends before.
    """

    objective: str
    low: float = Field(ge=0)
    value: float | None = Field(None, ge=0)
    high: float | None = Field(None, ge=0)
    source: str = ""

    def classify(self, cores: float) -> LatencyClass:
        """Return the class of a host whose databases use these cores."""
        if cores <= self.low * (1 + _TOLERANCE):
            return "within"
        return "beyond" if self.high is not None and cores > self.high * (1 + _TOLERANCE) else "near"


class HostClass(Model):
    """Hosts that can be bought or exist. ``names`` are the names of its first hosts. Without ``count`` there is no limit.

    ``balloon`` is whether the servers have pg_balloon. ``notes`` are limits of the capacities, as sentences without a full stop.
    """

    name: str = Field(pattern=NAME)
    capacity: dict[str, ResourceCapacity] = Field(min_length=1)
    price: float | None = Field(None, gt=0)
    count: int | None = Field(None, ge=1)
    labels: dict[str, str] = Field(default_factory=dict)
    names: tuple[Annotated[str, Field(pattern=NAME)], ...] = ()
    latency: LatencyLimit | None = None
    balloon: bool = False
    notes: tuple[str, ...] = ()

    @field_validator("capacity", mode="before")
    @classmethod
    def _plain(cls, value: object) -> object:
        """Accept a number for a capacity without an interval."""
        if not isinstance(value, dict):
            return value
        unknown = [str(name) for name in value if name not in RESOURCES]
        if unknown:
            raise ValueError(f"{unknown[0]} is no resource; there are {', '.join(RESOURCES)}")
        return {name: {"value": one} if isinstance(one, int | float) else one for name, one in value.items()}

    @model_validator(mode="after")
    def _minima_fit_into_the_memory(self) -> Self:
        """Use the memory as the capacity of the minima. Its overcommitment does not enlarge this one."""
        if "memory_mb" in self.capacity:
            self.capacity.setdefault("memory_min_mb", self.capacity["memory_mb"])
        return self

    def host_name(self, number: int) -> str:
        """Return the name of a host by its number from 0."""
        return self.names[number] if number < len(self.names) else f"{self.name}-{number + 1}"


def latency_limit(curve: Sequence[tuple[float, Finding]], limit_ms: float, objective: str, source: str = "") -> LatencyLimit:
    """Return the CPU up to which a measured curve keeps an objective.

    Noise makes a curve non-monotonic, so the closest rising one is used. It is linear between two points. The interval is that of the
    points, and a point without one counts with its value.

    Args:
        curve: cores and latency in ms, by ascending cores. All latencies have a value.
        limit_ms: of the objective.
        objective: as text.
        source: of the curve, for messages.
    """
    cores = [at for at, _ in curve]
    values = [latency.value or 0.0 for _, latency in curve]
    lows = [value if latency.low is None else latency.low for value, (_, latency) in zip(values, curve, strict=True)]
    highs = [value if latency.high is None else latency.high for value, (_, latency) in zip(values, curve, strict=True)]
    certain = crossing(cores, highs, limit_ms)
    return LatencyLimit(
        objective=objective,
        low=cores[-1] if certain is None else certain,
        value=crossing(cores, values, limit_ms),
        high=crossing(cores, lows, limit_ms),
        source=source,
    )


def crossing(loads: Sequence[float], latencies: Sequence[float], limit: float) -> float | None:
    """Return the load at which a rising latency crosses the limit. 0: it is above it from the start. None: it never crosses it."""
    from scipy.optimize import isotonic_regression

    rising = isotonic_regression(latencies, increasing=True).x
    if rising[-1] <= limit:
        return None
    if rising[0] > limit:
        return 0.0
    i = int(np.max(np.nonzero(rising <= limit)))
    return float(loads[i] + (limit - rising[i]) / (rising[i + 1] - rising[i]) * (loads[i + 1] - loads[i]))


def miss_probability(host: HostClass, needs: Mapping[str, float]) -> Finding:
    """Return the probability that any capacity of a host, or its latency limit, is below its highest demand.

    A measured capacity is taken as normal on each side of its value, by that side's end of the 95 % interval. A missing upper end is as
    far from the value as the lower one. A capacity without an interval counts only if the demand is above it. Capacities of different
    sources are taken as independent. Of one source, the largest probability counts. Where a limit has no upper bound, the value is a
    lower bound of the probability.

    Args:
        host: class of the host.
        needs: resource → highest demand, as a share of the capacity.
    """
    missed: dict[str, float] = {}
    measured, certain, open_end = [], "", ""
    for resource, need in needs.items():
        capacity, limit = host.capacity[resource], host.latency if resource == "cpu_cores" else None
        bounds: list[tuple[str, float | None, float | None, float | None]] = [(resource, capacity.low, capacity.value, capacity.high)]
        bounds += [] if limit is None else [(limit.objective, limit.low, limit.value, limit.high)]
        for name, low, value, high in bounds:
            if value is None or (name != resource and high is None):
                open_end = name
            elif low is not None and low < (end := 2 * value - low if high is None else high):
                source = capacity.source or resource
                missed[source] = max(missed.get(source, 0.0), _below(need * capacity.value, low, value, end))
                measured.append(name)
            elif need * capacity.value > value * (1 + _TOLERANCE):
                certain = name
    if certain:
        return Finding(value=1.0, unit="fraction", n=1, method=f"the demand is above the capacity of {certain}")
    unbounded = f"the measured curve of {open_end} has no upper bound" if open_end else ""
    if not measured:
        return Finding(value=None, unit="fraction", n=0, note=unbounded or "no capacity has an interval")
    method, note = f"normal capacity of {', '.join(measured)}", unbounded and f"at least, since {unbounded}"
    return Finding(value=1 - math.prod(1 - share for share in missed.values()), unit="fraction", n=len(measured), method=method, note=note)


def _below(need: float, low: float, value: float, high: float) -> float:
    """Return the probability that a variable with this median and 95 % interval is below a demand.

    On each side of the median it is the half of a normal distribution, because the ends may be at different distances from the value.
    """
    from scipy.stats import norm

    half = value - low if need < value else high - value
    if half <= 0:
        return 0.5 if abs(need - value) <= value * _TOLERANCE else float(need > value)
    return float(norm.cdf((need - value) / half * norm.ppf(0.975)))
