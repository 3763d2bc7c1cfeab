"""Complete options of a consolidation run."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from pgherd.analysis import overcommitment
from pgherd.model.deployment import OvercommitBy
from pgherd.model.load import NEW_ORDER, ClientPlace
from pgherd.model.run import Swap
from pgherd.model.trial import State
from pgherd.model.units import Duration, Size
from pgherd.studies.consolidation.load_patterns import Plan
from pgherd.study.database_options import EXISTING_SERVERS, BuiltinWorkload, DatabaseOptions, DatabaseRequest
from pgherd.study.option import option, redefined, without_nulls
from pgherd.study.shared_options import SwapRequest

Layout = Literal["shared-server", "shared-container", "dedicated", "dedicated-balloon", "shared-database"]
"""Containers and servers of the databases. Schemes 1 to 4 of E4: one server with all databases; one container with a server per database; a
container and a server per database; the same with pg_balloon in every server. The last one has one database with a schema for each."""
SHARED_SERVER: Layout = "shared-server"
SHARED_CONTAINER: Layout = "shared-container"
PLAIN: Layout = "dedicated"
BALLOON: Layout = "dedicated-balloon"
SHARED_DATABASE: Layout = "shared-database"
E4_LAYOUTS: tuple[Layout, ...] = (SHARED_SERVER, SHARED_CONTAINER, PLAIN, BALLOON)
"""The default layouts."""
LAYOUTS: tuple[Layout, ...] = (*E4_LAYOUTS, SHARED_DATABASE)
ONE_SERVER = (SHARED_SERVER, SHARED_DATABASE)
"""Layouts with one server, which has a share of the memory of all databases."""
DEDICATED = (PLAIN, BALLOON)
"""Layouts with a separate container for every database."""
ORDERS = "orders"


class ConsolidationOptions(DatabaseOptions):
    """Complete options of a consolidation run: databases with different busy periods on one host.

    ``container_memory`` (bytes), ``vcpus``, ``iops`` and ``io_bandwidth`` are the limits of a container with one database. If
    ``container_memory`` is None, the runtime cannot limit it, and shared buffers are a part of ``share``. ``seconds`` and ``ramp`` apply to
    each period, and ``plan`` is the number of clients of each database in each period. ``unavailable`` maps unavailable layouts to the
    reason. ``balloon`` holds additional settings for the servers of dedicated-balloon. ``working_set_size`` is the container memory in
    bytes that a busy and a quiet database need. ``repeats`` is the number of blocks: each holds a trial of every combination.
    """

    databases: int = Field(2, ge=2)
    schemes: tuple[Layout, ...] = E4_LAYOUTS
    unavailable: dict[Layout, str] = Field(default_factory=dict)
    shared_buffers_percent: tuple[int, ...] = (25, 75)
    overcommit: tuple[float, ...] = (0.0,)
    share: int = Field(
        gt=0, description="memory of each database in bytes: the limit of its container, or the assumed size without a limit"
    )
    busy_clients: int = Field(30, ge=1)
    quiet_clients: int = Field(2, ge=1)
    pattern: str = "alternating"
    plan: Plan = ((30, 2, 30, 2), (2, 30, 2, 30))
    repeats: int = Field(1, ge=1)
    swap: Swap | None = None
    overcommit_by: OvercommitBy = "cgroup-limit"
    balloon: dict[str, str] = Field(default_factory=dict)
    working_set_size: tuple[int, ...] = ()

    @property
    def configured(self) -> int:
        """Return the configured memory of all containers in bytes. It is the same in every layout."""
        return self.share * self.databases

    @property
    def runnable(self) -> tuple[Layout, ...]:
        """Return the layouts that are available on this host."""
        return tuple(layout for layout in self.schemes if layout not in self.unavailable)

    @property
    def shared_of_e4(self) -> Layout | None:
        """Return the first available layout of E4's schemes 1 and 2, with which E5 and E6 compare separate containers."""
        return next((layout for layout in self.runnable if layout in (SHARED_SERVER, SHARED_CONTAINER)), None)

    @property
    def enters_orders(self) -> bool:
        """Return True if new orders are counted. Scripts of the user do not report them."""
        return self.workload == ORDERS and any(script.name == NEW_ORDER for script in self.scripts)

    @property
    def unit(self) -> str:
        """Return the unit of throughput: new orders per minute for the workload orders, otherwise tps."""
        return "new orders/min" if self.enters_orders else "tps"

    def available_memory(self, overcommit: float) -> int:
        """Return the memory in bytes for all containers at an overcommitment level. At level 0 it is the host's share."""
        return overcommitment.available_memory(self.configured, overcommit) if overcommit > 0 else self.host_memory

    def needed(self) -> int | None:
        """Return the maximum sum of the databases' working sets in a period, in bytes. None: the working sets are not known.

        A database with more clients than a quiet one is busy. If there are no quiet databases, all are busy.
        """
        if not self.working_set_size:
            return None
        busy, quiet = self.working_set_size[0], self.working_set_size[-1]
        quiet_limit = self.quiet_clients if self.quiet_clients < self.busy_clients else 0
        return max(sum(busy if clients > quiet_limit else quiet for clients in period) for period in zip(*self.plan, strict=True))

    def max_safe_overcommit(self) -> float | None:
        """Return the safe overcommitment: the highest level at which the working sets fit. None: they are not known."""
        needed = self.needed()
        return None if needed is None else overcommitment.max_safe_overcommit(self.configured, [needed])


Preset = Literal["E4", "E5", "E6"]


def _share(value: object) -> object:
    """Convert a text such as ``30%`` or ``0.3`` to 0.3. Other values stay unchanged."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise ValueError("a level is written as 0.3 or 30%") from None


Level = Annotated[float, BeforeValidator(_share)]
"""A share, written as ``0.3`` or ``30%``."""


class ConsolidationRequest(SwapRequest, DatabaseRequest):
    """Options of ``pgherd consolidation`` as given on the command line or in a scenario.

    ``memory``, ``iops``, ``io_bandwidth`` and ``vcpus`` are the limits of a container with one database (dedicated layouts). A container
    with all databases (shared layouts) has the same vCPUs, as in E4, and the other limits of all databases together.
    """

    LEFT_OUT: ClassVar[dict[str, str]] = {
        "duration": "a trial consists of periods; set their length with period_length",
        "min_repeats": "consolidation adds no repeats; give repeats",
        **dict.fromkeys(
            ("huge_pages", "vm_huge_pages"), "control groups do not count huge pages, so that memory cannot be divided with them"
        ),
        **dict.fromkeys(
            (*EXISTING_SERVERS, "rate", "init_script"),
            "consolidation starts the servers, and loads them without a rate limit; leave it out",
        ),
    }

    databases: int | None = option(None, "Databases sharing the host.", metavar="N", computed="2", web=True, filled="2", ge=2, le=64)
    schemes: tuple[Layout, ...] | None = option(
        None,
        "shared-{server,container,database}, dedicated, dedicated-balloon.",
        metavar="NAME,…",
        computed="all but shared-database",
        web=True,
        filled="shared-container,dedicated",
    )
    overcommit: tuple[Level, ...] | None = option(None, "Levels of 1 − available/configured memory.", metavar="X,…", computed="0")
    shared_buffers_percent: tuple[int, ...] | None = option(
        None, "shared_buffers, % of each server's memory.", metavar="PERCENT,…", computed="25,75"
    )
    pattern: str = option("alternating", "alternating, diurnal, steady, burst, or client counts.", metavar="NAME|N,N/N,N")
    busy_clients: int | None = option(None, "Clients of a busy database.", metavar="N", computed="30", web=True, ge=1)
    quiet_clients: int | None = option(None, "Clients of a quiet database.", metavar="N", computed="2", web=True, ge=1)
    periods: int | None = option(None, "Periods per trial.", metavar="N", computed="4", web=True, ge=1, le=96)
    period_length: Duration | None = option(None, "Measured length of each period.", metavar="TIME", computed="8s", web=True, filled="5s")
    overcommit_by: OvercommitBy = option("cgroup-limit", "Method to withhold memory: cgroup-limit or mlock.", metavar="HOW")
    working_set_size: tuple[Size, ...] = option((), "Memory a busy (and quiet) database needs.", metavar="BUSY[,QUIET]")
    preset: Preset | None = option(None, "Use a published set-up: E4, E5 or E6.", metavar="NAME")
    workload: BuiltinWorkload = redefined(DatabaseRequest, "workload", "orders")
    scale: int | None = redefined(DatabaseRequest, "scale", None, computed="warehouses in 3/4 of its memory", filled="1")
    vcpus: float | None = redefined(DatabaseRequest, "vcpus", None, computed="an equal share of 3/4 of the cores")
    memory: Size | None = redefined(DatabaseRequest, "memory", None, computed="1GB")
    repeats: int | None = redefined(
        DatabaseRequest, "repeats", None, help="Repeats of every combination; 3 or more give intervals.", computed="1"
    )
    warmup: Duration = redefined(DatabaseRequest, "warmup", Duration("3s"))
    time_budget: Duration | None = redefined(DatabaseRequest, "time_budget", None, computed="none")
    client_placement: ClientPlace = redefined(DatabaseRequest, "client_placement", "outside")
    start_state: State = redefined(DatabaseRequest, "start_state", "fresh")

    @model_validator(mode="before")
    @classmethod
    def _null_is_default(cls, values: Any) -> Any:
        return without_nulls(values)

    @field_validator("working_set_size")
    @classmethod
    def _one_or_two(cls, sizes: tuple[Size, ...]) -> tuple[Size, ...]:
        if len(sizes) > 2:
            raise ValueError("give at most two sizes: the working set of a busy database, then that of a quiet one")
        return sizes
