"""The complete options of a consolidation study."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from pgherd.analysis import overcommitment
from pgherd.model.deployment import Staging
from pgherd.model.load import NEW_ORDER, ClientPlace
from pgherd.model.run import Swap
from pgherd.model.trial import State
from pgherd.studies.consolidation.load_patterns import Plan
from pgherd.study.database_options import BuiltinWorkload, DatabaseOptions, DatabaseRequest
from pgherd.study.swap_options import SwapRequest

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


Paper = Literal["E4", "E5", "E6"]


class ConsolidationRequest(SwapRequest, DatabaseRequest):
    """Options of ``pgherd consolidation`` as given on the command line or in a scenario.

    ``memory`` and ``vcpus`` are those of a container of one database (schemes 3 and 4); a container of all databases
    (schemes 1 and 2) has the same vCPUs, and the memory of all of them, as in E4.
    """

    databases: int | None = Field(None, ge=2, le=64, description="databases that share the host")
    schemes: tuple[int, ...] | None = Field(None, description="1: 1/1/M, 2: 1/M/M, 3: M/M/M, 4: as 3 with a database balloon each")
    buffers: tuple[int, ...] | None = Field(None, description="shared buffers, per cent of a server's share of memory")
    rates: tuple[float, ...] | None = Field(None, description="rates of overcommitment, 1 − available ÷ configured memory")
    warehouses: int | None = Field(None, ge=1, description="orders: warehouses of each database")
    high: int | None = Field(None, ge=1, description="clients of a busy database")
    low: int | None = Field(None, ge=1, description="clients of a quiet database")
    pattern: str = Field("alternating", description="a pattern by name, or the clients as 30,2,30,2/2,30,2,30")
    periods: int | None = Field(None, ge=1, le=96, description="periods of a trial")
    period: str | None = Field(None, description="measured length of each period")
    blocks: int | None = Field(None, ge=1, description="how often every combination is measured, in mixed order")
    staging: Staging = Field(
        "limit", description="how memory is withheld: by the host group's limit, or by an idle container of locked memory"
    )
    working_set: tuple[str, ...] = Field((), description="working set of a busy database, and of a quiet one, as container memory")
    paper: Paper | None = Field(None, description="the published set-up: E4 (undercommitted), E5 (overcommitted), E6 (memory at 30 %)")
    workload: BuiltinWorkload = Field("orders", description="what loads each database")
    client_place: ClientPlace = Field("outside", description="whether pgbench runs inside the databases' containers")
    state: State = Field("fresh", description="state of the servers at the start of each trial")

    @field_validator("repeats")
    @classmethod
    def _blocks_are_repeats(cls, repeats: int | None) -> int | None:
        if repeats is not None:
            raise ValueError("consolidation counts blocks, not repeats; give blocks")
        return repeats

    @field_validator("seconds")
    @classmethod
    def _periods_have_seconds(cls, seconds: str | None) -> str | None:
        if seconds is not None:
            raise ValueError("a trial consists of periods; give the length of one with period")
        return seconds

    @field_validator("huge_pages", "guest_pages")
    @classmethod
    def _no_huge_pages(cls, huge_pages: str | None) -> str | None:
        if huge_pages not in (None, "off"):
            raise ValueError("no control group counts huge pages, so memory cannot be shared out with them")
        return huge_pages

    @field_validator("server", "rate", "init")
    @classmethod
    def _own_servers(cls, given: object) -> object:
        if given is not None:
            raise ValueError("consolidation makes its own servers, and loads them as hard as it can; leave it out")
        return given

    @field_validator("working_set")
    @classmethod
    def _one_or_two(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        if len(given) > 2:
            raise ValueError("give the working set of a busy database, and then that of a quiet one")
        return given
