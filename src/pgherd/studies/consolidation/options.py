"""The complete options of a consolidation study."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator

from pgherd.analysis import overcommitment
from pgherd.model.deployment import Staging
from pgherd.model.load import NEW_ORDER, ClientPlace
from pgherd.model.run import Swap
from pgherd.model.trial import State
from pgherd.studies.consolidation.load_patterns import Plan
from pgherd.study.database_options import BuiltinWorkload, DatabaseOptions, DatabaseRequest
from pgherd.study.option import option, redefined
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


def _rate(value: object) -> object:
    """``30%`` as 0.3; other values unchanged."""
    if isinstance(value, str) and value.strip().endswith("%"):
        return float(value.strip()[:-1]) / 100
    return value


Rate = Annotated[float, BeforeValidator(_rate)]
"""A share, written as ``0.3`` or ``30%``."""


class ConsolidationRequest(SwapRequest, DatabaseRequest):
    """Options of ``pgherd consolidation`` as given on the command line or in a scenario.

    ``memory`` and ``vcpus`` are those of a container of one database (schemes 3 and 4); a container of all databases
    (schemes 1 and 2) has the same vCPUs, and the memory of all of them, as in E4.
    """

    LEFT_OUT: ClassVar[dict[str, str]] = {
        "duration": "a trial consists of periods; give the length of one with period_length",
        **dict.fromkeys(("huge_pages", "vm_huge_pages"), "no control group counts huge pages, so memory cannot be shared out with them"),
        **dict.fromkeys(
            ("dsn", "allow_writes", "rate", "init_script"),
            "consolidation makes its own servers, and loads them as hard as it can; leave it out",
        ),
    }

    databases: int | None = option(None, "Databases sharing the host.", metavar="N", computed="2", web=True, filled="2", ge=2, le=64)
    schemes: tuple[int, ...] | None = option(
        None, "1: 1/1/M, 2: 1/M/M, 3: M/M/M, 4: as 3 with pg_balloon.", metavar="N,…", computed="all", web=True, filled="2,3"
    )
    overcommit: tuple[Rate, ...] | None = option(
        None, "Overcommitment levels, 1 − available/configured memory.", metavar="X,…", computed="0"
    )
    shared_buffers_percent: tuple[int, ...] | None = option(
        None, "shared_buffers, % of each server's memory.", metavar="PERCENT,…", computed="25,75"
    )
    pattern: str = option("alternating", "alternating, diurnal, steady, burst, or client counts.", metavar="NAME|N,N/N,N")
    busy_clients: int | None = option(None, "Clients of a busy database.", metavar="N", computed="30", web=True, ge=1)
    quiet_clients: int | None = option(None, "Clients of a quiet database.", metavar="N", computed="2", web=True, ge=1)
    periods: int | None = option(None, "Periods per trial.", metavar="N", computed="4", web=True, ge=1, le=96)
    period_length: str | None = option(None, "Measured length of each period.", metavar="TIME", computed="8s", web=True, filled="5s")
    overcommit_by: Staging = option("limit", "How memory is withheld: limit or locked.", metavar="HOW")
    working_set_size: tuple[str, ...] = option((), "Memory a busy (and quiet) database needs.", metavar="BUSY[,QUIET]")
    preset: Paper | None = option(None, "Use a published set-up: E4, E5 or E6.", metavar="NAME")
    workload: BuiltinWorkload = redefined(DatabaseRequest, "workload", "orders")
    scale: int | None = redefined(DatabaseRequest, "scale", None, computed="warehouses in 3/4 of its memory", filled="1")
    vcpus: float | None = redefined(DatabaseRequest, "vcpus", None, computed="an equal share of 3/4 of the cores")
    memory: str | None = redefined(DatabaseRequest, "memory", None, computed="1GB")
    repeats: int | None = redefined(
        DatabaseRequest, "repeats", None, help="Repeats of every combination; 3 or more give intervals.", computed="1"
    )
    warmup: str | None = redefined(DatabaseRequest, "warmup", "3s")
    time_budget: str | None = redefined(DatabaseRequest, "time_budget", None, computed="none")
    client_placement: ClientPlace = redefined(DatabaseRequest, "client_placement", "outside")
    start_state: State = redefined(DatabaseRequest, "start_state", "fresh")

    @field_validator("working_set_size")
    @classmethod
    def _one_or_two(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        if len(given) > 2:
            raise ValueError("give the working set of a busy database, and then that of a quiet one")
        return given
