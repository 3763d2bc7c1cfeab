"""The complete options of a consolidation study."""

from __future__ import annotations

from pydantic import Field

from pgherd.analysis import overcommitment
from pgherd.model.deployment import Staging
from pgherd.model.load import NEW_ORDER
from pgherd.model.run import Swap
from pgherd.studies.databases import DatabaseOptions
from pgherd.studies.patterns import Plan

SCHEMES = {1: "1/1/M", 2: "1/M/M", 3: "M/M/M", 4: "M/M/M + balloon"}
"""Containers / servers / databases of each scheme; M: as many as there are databases."""
APART = (3, 4)
"""Schemes in which every database has a container of its own."""
BALLOON = 4
ORDERS = "orders"


class ConsolidationOptions(DatabaseOptions):
    """Databases whose busy hours differ, on one host.

    ``container_memory`` (bytes) and ``vcpus`` are those of a container of one database; None: the runtime cannot limit it, and
    ``share`` alone says what shared buffers are a part of. ``seconds`` and ``ramp`` are those of each period, ``plan`` the
    clients of each database in each. ``unavailable`` maps schemes that cannot be had to the reason. ``balloon`` are the
    settings that scheme 4's servers have beyond ``settings``. ``working_sets`` (bytes, container memory) are those of a busy and
    of a quiet database.
    """

    databases: int = Field(2, ge=2)
    schemes: tuple[int, ...] = (1, 2, 3, 4)
    unavailable: dict[int, str] = Field(default_factory=dict)
    buffers: tuple[int, ...] = (25, 75)
    rates: tuple[float, ...] = (0.0,)
    share: int = Field(gt=0, description="bytes of memory of each database: a container's, or what it would be")
    high: int = Field(30, ge=1)
    low: int = Field(2, ge=1)
    pattern: str = "alternating"
    plan: Plan = ((30, 2, 30, 2), (2, 30, 2, 30))
    blocks: int = Field(1, ge=1)
    swap: Swap | None = None
    staging: Staging = "limit"
    balloon: dict[str, str] = Field(default_factory=dict)
    working_sets: tuple[int, ...] = ()

    @property
    def configured(self) -> int:
        """Memory (bytes) of all containers: the same in every scheme."""
        return self.share * self.databases

    @property
    def runnable(self) -> tuple[int, ...]:
        """Schemes that can be had here."""
        return tuple(scheme for scheme in self.schemes if scheme not in self.unavailable)

    @property
    def enters_orders(self) -> bool:
        """Whether new orders are counted: not where scripts of the user's own load the tables of the workload orders."""
        return self.workload == ORDERS and any(script.name == NEW_ORDER for script in self.scripts)

    @property
    def unit(self) -> str:
        """Of throughput: new orders per minute where orders are entered."""
        return "new orders/min" if self.enters_orders else "tps"

    def available(self, rate: float) -> int:
        """Memory (bytes) that the host gives the containers at a rate; undercommitted at 0: the whole budget."""
        return overcommitment.available(self.configured, rate) if rate > 0 else self.memory

    def needed(self) -> int | None:
        """The most memory (bytes) that the databases' working sets come to in any period; None where they are not known. Busy is who
        has more clients than a quiet database, and everybody where there are no quiet ones."""
        if not self.working_sets:
            return None
        busy, quiet = self.working_sets[0], self.working_sets[-1]
        most = self.low if self.low < self.high else 0
        return max(sum(busy if clients > most else quiet for clients in period) for period in zip(*self.plan, strict=True))

    def honest(self) -> float | None:
        """The largest rate at which the working sets fit; None where they are not known."""
        needed = self.needed()
        return None if needed is None else overcommitment.honest_rate(self.configured, [needed])
