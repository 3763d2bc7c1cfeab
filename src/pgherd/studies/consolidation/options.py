"""Complete options of a consolidation run."""

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
"""Numbers of containers, servers and databases of each scheme. M is the number of databases."""
APART = (3, 4)
"""Schemes with a separate container for every database."""
BALLOON = 4
ORDERS = "orders"


class ConsolidationOptions(DatabaseOptions):
    """Complete options of a consolidation run: databases with different busy periods on one host.

    ``container_memory`` (bytes) and ``vcpus`` are the limits of a container with one database. If ``container_memory`` is None, the
    runtime cannot limit it, and shared buffers are a part of ``share``. ``seconds`` and ``ramp`` apply to each period, and ``plan`` is
    the number of clients of each database in each period. ``unavailable`` maps unavailable schemes to the reason. ``balloon`` holds
    additional settings for the servers of scheme 4. ``working_sets`` is the container memory in bytes that a busy and a quiet database
    need.
    """

    databases: int = Field(2, ge=2)
    schemes: tuple[int, ...] = (1, 2, 3, 4)
    unavailable: dict[int, str] = Field(default_factory=dict)
    buffers: tuple[int, ...] = (25, 75)
    rates: tuple[float, ...] = (0.0,)
    share: int = Field(
        gt=0, description="memory of each database in bytes: the limit of its container, or the assumed size without a limit"
    )
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
        """Return the configured memory of all containers in bytes. It is the same in every scheme."""
        return self.share * self.databases

    @property
    def runnable(self) -> tuple[int, ...]:
        """Return the schemes that are available on this host."""
        return tuple(scheme for scheme in self.schemes if scheme not in self.unavailable)

    @property
    def enters_orders(self) -> bool:
        """Return True if new orders are counted. Scripts of the user do not report them."""
        return self.workload == ORDERS and any(script.name == NEW_ORDER for script in self.scripts)

    @property
    def unit(self) -> str:
        """Return the unit of throughput: new orders per minute for the workload orders, otherwise tps."""
        return "new orders/min" if self.enters_orders else "tps"

    def available(self, rate: float) -> int:
        """Return the memory in bytes for all containers at an overcommitment rate. At rate 0 it is the host's share."""
        return overcommitment.available(self.configured, rate) if rate > 0 else self.memory

    def needed(self) -> int | None:
        """Return the maximum sum of the databases' working sets in a period, in bytes. None: the working sets are not known.

        A database with more clients than a quiet one is busy. If there are no quiet databases, all are busy.
        """
        if not self.working_sets:
            return None
        busy, quiet = self.working_sets[0], self.working_sets[-1]
        most = self.low if self.low < self.high else 0
        return max(sum(busy if clients > most else quiet for clients in period) for period in zip(*self.plan, strict=True))

    def honest(self) -> float | None:
        """Return the safe overcommitment rate: the largest one at which the working sets fit. None: they are not known."""
        needed = self.needed()
        return None if needed is None else overcommitment.honest_rate(self.configured, [needed])


Paper = Literal["E4", "E5", "E6"]


def _rate(value: object) -> object:
    """Convert a text such as ``30%`` or ``0.3`` to 0.3. Other values stay unchanged."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise ValueError("a rate is written as 0.3 or 30%") from None


Rate = Annotated[float, BeforeValidator(_rate)]
"""A share, written as ``0.3`` or ``30%``."""


class ConsolidationRequest(SwapRequest, DatabaseRequest):
    """Options of ``pgherd consolidation`` as given on the command line or in a scenario.

    ``memory`` and ``vcpus`` are the limits of a container with one database (schemes 3 and 4). A container with all databases
    (schemes 1 and 2) has the same vCPUs, and the memory of all databases, as in E4.
    """

    LEFT_OUT: ClassVar[dict[str, str]] = {
        "duration": "a trial consists of periods; set their length with period_length",
        **dict.fromkeys(
            ("huge_pages", "vm_huge_pages"), "control groups do not count huge pages, so that memory cannot be divided with them"
        ),
        **dict.fromkeys(
            ("dsn", "allow_writes", "rate", "init_script"),
            "consolidation starts the servers, and loads them without a rate limit; leave it out",
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
    overcommit_by: Staging = option("limit", "Method to withhold memory: limit or locked.", metavar="HOW")
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
            raise ValueError("give at most two sizes: the working set of a busy database, then that of a quiet one")
        return given
