"""Classes of tenants from a table of databases: clusters of size, rate and peak hour, and the loss by them. Pure.

The limits of sizes and rates that can be loaded apply before databases are clustered, so that no class is due to a difference beyond them.
"""

from __future__ import annotations

import cmath
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from pgherd.analysis.clusters import clusters
from pgherd.model.analysis import Finding
from pgherd.model.base import Model
from pgherd.model.units import format_bytes
from pgherd.studies.density.tenant_activity import HOURS
from pgherd.studies.density.tenant_mix import CLASS_NAME

FACTOR = 4
"""Largest factor of size or rate between a database and the centre of its class."""
FACTOR_HOURS = 4
"""Hours between two peaks and their common centre that count as FACTOR."""
JOIN_FACTOR = FACTOR**2
"""Largest factor between two classes of which the rarer one joins the other, if it is less than one tenant of the mix."""
MOST_CLASSES = 8
NIGHT = 0.1
"""Load at the hour opposite to the peak, relative to the load at the peak. Between them it is a cosine."""
MB = 2**20


@dataclass(frozen=True)
class TableDatabase:
    """Database of the table: size in bytes, transactions per second in its peak hour, and that hour (0 to below 24)."""

    name: str
    size: float
    tps: float
    peak_hour: float


@dataclass(frozen=True)
class Loadable:
    """Sizes and rates that can be loaded. A database of a scale has ``base + per_scale × scale`` bytes.

    A database is idle if its rate is less than the lowest one by more than FACTOR.
    """

    base: int
    per_scale: int
    largest_scale: int
    least_rate: float

    def size(self, scale: int) -> int:
        """Return the size of a database in bytes."""
        return self.base + self.per_scale * scale

    def scale(self, size: float) -> int:
        """Return the scale of the nearest size that can be loaded."""
        return min(self.largest_scale, max(1, round((size - self.base) / self.per_scale)))

    def idle(self, database: TableDatabase) -> bool:
        """Return whether a database has too low a rate for a load."""
        return database.tps < self.least_rate / FACTOR

    def nearest(self, database: TableDatabase) -> TableDatabase:
        """Return a database within the limits. An idle one keeps its rate."""
        size = min(max(database.size, self.size(1)), self.size(self.largest_scale))
        rate = database.tps if self.idle(database) else max(database.tps, self.least_rate)
        return TableDatabase(database.name, size, rate, database.peak_hour)

    def changes(self, databases: Sequence[TableDatabase]) -> list[str]:
        """Return a sentence for each limit that changes databases."""
        smallest, largest = self.size(1), self.size(self.largest_scale)
        low = [one for one in databases if one.tps < self.least_rate]
        idle, rate = sum(map(self.idle, low)), self.least_rate
        limits = [
            (sum(one.size > largest for one in databases), f"more than {format_bytes(largest)} have that size, the largest that is loaded"),
            (sum(one.size < smallest for one in databases), f"less than {format_bytes(smallest)} have that size, the smallest one"),
            (len(low) - idle, f"{rate / FACTOR:g} to {rate:g} tps have {rate:g} tps, the lowest rate of a block"),
            (idle, f"less than {rate / FACTOR:g} tps are idle"),
        ]
        return [f"Databases of {reason}: {count} of {len(databases)}." for count, reason in limits if count]


class TenantSpread(Model):
    """Mean of the databases of a class, with the 10th and 90th percentile."""

    mean: float
    low: float
    high: float


class TableClass(Model):
    """Class of databases of the table, and its tenants.

    ``rate`` is None if they are idle. ``profile`` is the sum of the databases' daily curves, relative to that of their peaks. ``size_kept``
    and ``tps_kept`` are those of its tenants ÷ those of its databases, and None if these have no load. ``left_out`` is the reason, if the
    class is not in the mix.
    """

    name: str = Field(pattern=CLASS_NAME)
    databases: int = Field(ge=1)
    scale: int
    rate: float | None
    profile: tuple[float, ...] = ()
    size: TenantSpread
    tps: TenantSpread
    peak_hour: TenantSpread
    size_kept: float
    tps_kept: float | None
    left_out: str = ""

    @property
    def load(self) -> str:
        """Load of a tenant as text."""
        return "idle" if self.rate is None else f"{self.rate:g} tps"

    def __str__(self) -> str:
        sizes = f"{format_bytes(self.size.low)} to {format_bytes(self.size.high)}"
        peaks = f"{_clock(self.peak_hour.low)} to {_clock(self.peak_hour.high)}"
        spread = f"{sizes}, {self.tps.low:.3g} to {self.tps.high:.3g} tps, peak at {peaks}"
        databases = f"{self.databases} database{'' if self.databases == 1 else 's'}"
        result = f"left out, because {self.left_out}" if self.left_out else f"scale {self.scale}, {self.load}"
        return f"Class {self.name}, {databases} of {spread}: {result}."


class TenantTable(Model):
    """Table of databases as classes. ``document`` are the classes as a file for --tenants. ``notes`` are sentences on rules and limits."""

    source: str
    classes: tuple[TableClass, ...]
    document: str
    notes: tuple[str, ...] = ()

    @property
    def kept(self) -> tuple[TableClass, ...]:
        """Classes in the mix."""
        return tuple(one for one in self.classes if not one.left_out)

    def summary(self) -> str:
        """Return a sentence on the share of the table that the classes have."""
        sizes = [one.databases * one.size.mean for one in self.classes]
        rates = [one.databases * one.tps.mean for one in self.classes]
        size = math.fsum(total * one.size_kept for one, total in zip(self.classes, sizes, strict=True) if not one.left_out)
        rate = math.fsum(total * (one.tps_kept or 0.0) for one, total in zip(self.classes, rates, strict=True) if not one.left_out)
        databases, left = sum(one.databases for one in self.classes), sum(one.databases for one in self.classes if one.left_out)
        shares = f"{100 * size / math.fsum(sizes):.0f} % of the size"
        if any(rates):
            shares += f" and {100 * rate / math.fsum(rates):.0f} % of the tps"
        count = f"{len(self.kept)} class{'' if len(self.kept) == 1 else 'es'}"
        rest = f"; {left} {'is' if left == 1 else 'are'} left out" if left else ""
        return f"{databases} databases of {self.source} are {count} of tenants, with {shares}{rest}."

    def rows(self) -> list[dict[str, Finding | str | int | float | None]]:
        """Return the rows of a table of the analysis: each class, with the spread of its databases."""
        return [
            {
                "class": one.name,
                "databases": one.databases,
                "size": _finding(one.size, "MB", one.databases, 1 / MB),
                "tps": _finding(one.tps, "tps", one.databases),
                "peak_hour": _finding(one.peak_hour, "h", one.databases),
                "scale": one.scale,
                "rate": one.rate,
                "size_kept": 0.0 if one.left_out else one.size_kept,
                "tps_kept": 0.0 if one.left_out else one.tps_kept,
                "left_out": one.left_out,
            }
            for one in self.classes
        ]


def _finding(spread: TenantSpread, unit: str, databases: int, factor: float = 1.0) -> Finding:
    method = "mean of the databases, with their 10th and 90th percentile"
    low, high = factor * spread.low, factor * spread.high
    return Finding(value=factor * spread.mean, unit=unit, low=low, high=high, n=databases, method=method)


def classes_of(
    databases: Sequence[TableDatabase], loadable: Loadable, most: Callable[[Sequence[TableClass]], int]
) -> tuple[TableClass, ...]:
    """Return the classes of the databases: those with a load by their smallest size, then idle ones, then those that are left out.

    Each has a tenant in the largest mix, whose number of tenants ``most`` returns. The rarest class that has none joins the nearest one, or
    is left out if it is too far from all.
    """
    nearest = [loadable.nearest(one) for one in databases]
    points = [_point(one, loadable) for one in nearest]
    groups = _groups(points)
    left_out: list[tuple[list[int], str]] = []

    def made(numbers: Sequence[int], letter: int, reason: str = "") -> TableClass:
        return _class([databases[i] for i in numbers], [nearest[i] for i in numbers], loadable, chr(ord("a") + letter), reason)

    while True:
        classes = [made(numbers, letter) for letter, numbers in enumerate(groups)]
        tenants, rarest = most(classes), min(groups, key=len)
        if len(groups) == 1 or len(rarest) * tenants >= sum(map(len, groups)):
            break
        others = [group for group in groups if group is not rarest]
        centre = _centre(points, rarest)
        distance, joined = min(((_distance(centre, _centre(points, group)), group) for group in others), key=lambda pair: pair[0])
        if distance > math.log(JOIN_FACTOR):
            left_out.append((rarest, f"it is less than one of {tenants} tenants, the largest mix"))
            groups = others
        else:
            groups = [sorted(group + rarest) if group is joined else group for group in others]
    return *classes, *(made(numbers, len(groups) + i, reason) for i, (numbers, reason) in enumerate(left_out))


def beyond_factor(databases: Sequence[TableDatabase], loadable: Loadable) -> int:
    """Return the number of databases that are not within FACTOR of their class, before a rare class joins another one."""
    points = [_point(loadable.nearest(one), loadable) for one in databases]
    limit = math.log(FACTOR) * (1 + 1e-9)
    return sum(_distance(points[i], _centre(points, numbers)) > limit for numbers in _groups(points) for i in numbers)


def _groups(points: Sequence[tuple[float, ...]]) -> list[list[int]]:
    """Return the clusters of points by their numbers: first those of databases with a load, then those of idle ones."""
    groups: list[list[int]] = []
    kinds = [[i for i, point in enumerate(points) if (len(point) == 1) == idle] for idle in (False, True)]
    for kind, numbers in enumerate(kinds):
        if numbers:
            most = MOST_CLASSES - len(groups) - (kind == 0 and bool(kinds[1]))
            labels = clusters([points[i] for i in numbers], math.log(FACTOR), most)
            groups += [[i for i, label in zip(numbers, labels, strict=True) if label == one] for one in range(max(labels) + 1)]
    return groups


def _distance(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the distance of two points. No factor is between a load and none."""
    return math.dist(one, other) if len(one) == len(other) else math.inf


def _centre(points: Sequence[tuple[float, ...]], numbers: Sequence[int]) -> tuple[float, ...]:
    return tuple(statistics.fmean(points[i][axis] for i in numbers) for axis in range(len(points[numbers[0]])))


def _point(database: TableDatabase, loadable: Loadable) -> tuple[float, ...]:
    """Return a database as a point: logarithms of size and rate, and the peak hour on a circle. An idle one only has a size."""
    if loadable.idle(database):
        return (math.log(database.size),)
    angle, radius = 2 * math.pi * database.peak_hour / HOURS, math.log(FACTOR) / math.sin(2 * math.pi * FACTOR_HOURS / HOURS)
    return math.log(database.size), math.log(database.tps), radius * math.cos(angle), radius * math.sin(angle)


def _class(
    databases: Sequence[TableDatabase], nearest: Sequence[TableDatabase], loadable: Loadable, letter: str, reason: str
) -> TableClass:
    """Return a class of databases, left out for a reason or ''.

    Its tenants have the mean size, the mean rate and the summed curve of the ``nearest`` databases that can be loaded. They are idle if
    these are.
    """
    scale = loadable.scale(statistics.fmean(one.size for one in nearest))
    rate = None if loadable.idle(nearest[0]) else float(f"{statistics.fmean(one.tps for one in nearest):.3g}")
    hour = _mean_hour(nearest)
    sizes, rates = [one.size for one in databases], [one.tps for one in databases]
    away = [(one.peak_hour - hour + HOURS / 2) % HOURS - HOURS / 2 for one in databases]
    low, high = _ends(away)
    return TableClass(
        name=_name(letter, loadable.size(scale), rate, hour),
        databases=len(databases),
        scale=scale,
        rate=rate,
        profile=() if rate is None else _profile(nearest),
        size=_spread(sizes),
        tps=_spread(rates),
        peak_hour=TenantSpread(mean=hour, low=_hour(hour + low), high=_hour(hour + high)),
        size_kept=len(databases) * loadable.size(scale) / math.fsum(sizes),
        tps_kept=len(databases) * (rate or 0.0) / math.fsum(rates) if any(rates) else None,
        left_out=reason,
    )


def _mean_hour(databases: Sequence[TableDatabase]) -> float:
    """Return the hour in which the summed curve of the databases has its peak. Without a load, all count the same."""
    loaded = any(one.tps for one in databases)
    total = sum((one.tps if loaded else 1.0) * cmath.exp(2j * math.pi * one.peak_hour / HOURS) for one in databases)
    return _hour(cmath.phase(total) * HOURS / (2 * math.pi))


def _hour(hours: float) -> float:
    """Return an hour of the day, from 0 to below 24 in spite of rounding."""
    return round(hours, 6) % HOURS


def _clock(hour: float) -> str:
    """Return a time such as ``13:30``."""
    minutes = round(60 * hour) % (60 * HOURS)
    return f"{minutes // 60}:{minutes % 60:02d}"


def _profile(databases: Sequence[TableDatabase]) -> tuple[float, ...]:
    total = math.fsum(one.tps for one in databases)
    by_hour = [math.fsum(one.tps * daily_load(hour - one.peak_hour) for one in databases) for hour in range(HOURS)]
    return tuple(round(load / total, 3) for load in by_hour)


def daily_load(hours: float) -> float:
    """Return the load this number of ``hours`` after the peak, relative to it."""
    return NIGHT + (1 - NIGHT) * (1 + math.cos(2 * math.pi * hours / HOURS)) / 2


def _spread(values: Sequence[float]) -> TenantSpread:
    low, high = _ends(values)
    return TenantSpread(mean=statistics.fmean(values), low=low, high=high)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """Return the 10th and the 90th percentile."""
    tenths = statistics.quantiles(values, n=10, method="inclusive") if len(values) > 1 else [values[0]]
    return tenths[0], tenths[-1]


def _name(letter: str, size: int, rate: float | None, hour: float) -> str:
    """Return a name such as ``b-470mb-12tps-14h`` or ``c-23mb-idle``."""
    text = f"{size / MB:.0f}mb" if size < 1024 * MB else f"{size / 1024 / MB:.0f}gb"
    return f"{letter}-{text}-idle" if rate is None else f"{letter}-{text}-{rate:.0f}tps-{round(hour) % HOURS}h"


def document(classes: Sequence[TableClass], common: Mapping[str, object], options: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    """Return the classes as the document that --tenants reads. ``common`` are options of all, and ``options`` those by class."""
    return {
        "classes": [
            {
                "name": one.name,
                "count": one.databases,
                **common,
                **options[one.name],
                "scale": one.scale,
                **({} if one.rate is None else {"rate": one.rate}),
                "activity": "idle" if one.rate is None else {"kind": "daily", "profile": list(one.profile)},
            }
            for one in classes
        ]
    }
