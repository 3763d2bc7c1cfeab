"""Activity of the tenants of a class: by which factor each multiplies its rate in each phase of a trial. Pure.

A factor of 0 is an idle tenant. Factors depend on the tenant's number in its class, so that tenants of a class need not peak together.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, model_validator

from pgherd.model.base import Model

Kind = Literal["constant", "on-off", "zipf", "daily", "elastic", "idle"]
PHASES: Mapping[Kind, int] = {"constant": 1, "on-off": 8, "zipf": 1, "daily": 24, "elastic": 8, "idle": 1}
"""Phases of a trial that a kind of activity needs. A trial has as many as the class with most."""
HOURS = 24
ELASTICITY = 16
"""Largest ÷ smallest load of an elastic tenant, as in TPCx-V."""
_GOLDEN = (math.sqrt(5) - 1) / 2
"""Multiples of the golden ratio are spread evenly over a cycle, for any number of tenants."""
_PARAMETERS: Mapping[Kind, str] = {"on-off": "duty", "zipf": "exponent", "daily": "profile"}


class Activity(Model):
    """Kind of activity and its parameter.

    - ``constant``: always the class's rate.
    - ``on-off``: the class's load for a part ``duty`` of a cycle, and none in the rest. ``start`` of the cycles: ``spread`` evenly,
      ``aligned`` or ``random``.
    - ``zipf``: the tenant of rank k has a rate in proportion to k^-``exponent``. The mean is the class's rate.
    - ``daily``: 24 factors of the class's rate (``profile``), one phase for each hour.
    - ``elastic``: pairs of tenants, of which one loses what the other gains. Each varies 16-fold, and the sum is constant.
    - ``idle``: no load, and a first query after the other phases.
    """

    kind: Kind = "constant"
    duty: float | None = Field(None, gt=0, le=1)
    start: Literal["spread", "aligned", "random"] = "spread"
    exponent: float | None = Field(None, gt=0, le=5)
    profile: tuple[float, ...] | None = None

    @model_validator(mode="after")
    def _has_its_parameter(self) -> Self:
        for kind, name in _PARAMETERS.items():
            value = getattr(self, name)
            if kind == self.kind and value is None:
                raise ValueError(f"activity {kind} needs '{name}'")
            if kind != self.kind and value is not None:
                raise ValueError(f"'{name}' {value} is for activity {kind}, and the activity is {self.kind}")
        if self.profile is not None and len(self.profile) != HOURS:
            raise ValueError(f"'profile' has {len(self.profile)} values, and a day has {HOURS} hours")
        if self.profile is not None and (not all(0 <= value < math.inf for value in self.profile) or not any(self.profile)):
            raise ValueError(f"'profile' has factors of at least 0, of which one is more, but it is {list(self.profile)}")
        return self

    @property
    def needs_rate(self) -> bool:
        """Whether it multiplies a rate. Without one, a load can only be on or off."""
        return self.kind in ("zipf", "daily", "elastic")

    def factor(self, tenant: int, tenants: int, phase: int, phases: int, seed: int) -> float:
        """Return the factor of a tenant in a phase, both by number from 0, of all ``tenants`` of the class and ``phases`` of a trial."""
        if self.kind == "idle":
            return 0.0
        if self.kind == "on-off":
            # Whole steps of the cycle, so that no rounding decides whether a phase is on.
            on, first = max(1, round((self.duty or 1.0) * phases)), self._start(tenant, phases, seed)
            return 1.0 if (phase - first) % phases < on else 0.0
        if self.kind == "zipf":
            weights = [math.pow(rank, -(self.exponent or 0.0)) for rank in range(1, tenants + 1)]
            return weights[tenant] * tenants / math.fsum(weights)
        if self.kind == "daily" and self.profile is not None:
            return self.profile[phase * HOURS // phases]
        if self.kind == "elastic":
            pair, second = divmod(tenant, 2)
            if tenant == tenants - 1 and not second:
                return 1.0  # without a partner
            low = abs(2 * ((phase + pair) % phases) / phases - 1)  # 1 to 0 and back
            share = (1 + (ELASTICITY - 1) * low) / (ELASTICITY + 1)
            return 2 * (1 - share if second else share)
        return 1.0

    def _start(self, tenant: int, phases: int, seed: int) -> int:
        """Return the phase in which the cycle of a tenant starts."""
        if self.start == "aligned":
            return 0
        part = random.Random(f"activity {seed} {tenant}").random() if self.start == "random" else tenant * _GOLDEN % 1
        return int(part * phases)
