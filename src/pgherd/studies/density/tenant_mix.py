"""Classes of tenants, and the order in which tenants of a mix are drawn. Pure."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from pydantic import Field

from pgherd.model.load import Load
from pgherd.studies.density.tenant_activity import PHASES, Activity
from pgherd.study.database_options import DatabaseOptions
from pgherd.study.objectives import ObjectiveOptions, rate_sampling

CLASS_NAME = r"^[a-z0-9][a-z0-9_-]{0,29}$"
"""Valid names of classes. Tenants are named after their class."""


class TenantClass(ObjectiveOptions, DatabaseOptions):
    """Class of tenants: its part of the mix, and the complete options of each of its databases.

    ``weight`` is its share or its count, relative to the weights of the other classes. ``clients`` belong to one tenant.
    """

    name: str = Field(pattern=CLASS_NAME)
    weight: float = Field(gt=0)
    clients: int = Field(ge=1)
    activity: Activity = Activity()

    @property
    def idle(self) -> bool:
        """Whether its tenants have no load but a first query after the other phases."""
        return self.activity.kind == "idle"

    def first_query(self, delay: float) -> Load:
        """Return the load of an idle tenant: one transaction, ``delay`` seconds after the start of the drivers."""
        load = self.load(1)
        options = {**load.options, "transactions": "1", "delay": f"{delay:g}"}
        return load.model_copy(update={"rate": None, "sampling": 1.0, "options": options})

    def tenant_load(self, factor: float = 1.0) -> Load:
        """Return the load of one tenant, with its rate times a factor."""
        load = self.load(self.clients)
        rate = None if self.rate is None else factor * self.rate
        if not self.objectives:
            return load.model_copy(update={"rate": rate})
        logged_by_name = any(script.name is not None for script in load.scripts)
        sampling = load.sampling if rate is None or logged_by_name else rate_sampling(rate)
        return load.model_copy(update={"rate": rate, "objectives": self.objectives, "sampling": sampling})


def shares(weights: Sequence[float]) -> tuple[Fraction, ...]:
    """Return the exact share of each weight in their sum, by the decimal numbers that the user gave."""
    exact = [Fraction(str(weight)) for weight in weights]
    return tuple(weight / sum(exact) for weight in exact)


def draw(parts: Sequence[Fraction], tenants: int, seed: int) -> tuple[int, ...]:
    """Return the class of each tenant, as an index. The first N are the mix of N tenants, whatever ``tenants`` is.

    At each N, the number of tenants of a class differs from N × its share by less than 1. Of the classes that may have another tenant, the
    one that must have it first is drawn, and ``seed`` decides between equals. These are the windows of proportionate fair scheduling
    (Baruah et al., Algorithmica 15, 1996), in which the earliest deadline is always in time on one processor.
    """
    chance = random.Random(f"tenants {seed}")
    counts = [0] * len(parts)
    drawn = []
    for size in range(1, tenants + 1):
        latest = {i: math.ceil((counts[i] + 1) / part) for i, part in enumerate(parts) if part * size > counts[i]}
        chosen = chance.choice([i for i, deadline in latest.items() if deadline == min(latest.values())])
        counts[chosen] += 1
        drawn.append(chosen)
    return tuple(drawn)


def tenant_names(classes: Sequence[TenantClass], tenants: int, seed: int) -> tuple[tuple[str, TenantClass], ...]:
    """Return the containers of the mix, such as ``small-01``, with their classes."""
    counts: Counter[int] = Counter()
    named = []
    for index in draw(shares([one.weight for one in classes]), tenants, seed):
        counts[index] += 1
        named.append((f"{classes[index].name}-{counts[index]:02d}", classes[index]))
    return tuple(named)


def phases_of(classes: Sequence[TenantClass]) -> int:
    """Return the number of phases of a trial: that of the activity which needs most."""
    return max(PHASES[one.activity.kind] for one in classes)


def class_of(target: str) -> str:
    """Return the name of the class of a tenant's database by its address."""
    return target.split("/")[1].rpartition("-")[0]
