"""Complete options of a run with a changing memory limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from pgherd.model.run import Swap, SwapKind
from pgherd.model.units import Duration, Size
from pgherd.study.database_options import EXISTING_SERVERS, DatabaseOptions, DatabaseRequest
from pgherd.study.option import LIMITS, WORKLOAD, option, redefined, without_nulls
from pgherd.study.shared_options import SwapRequest

Pool = Literal["small", "middle", "large", "quarter", "balloon"]
POOLS: Mapping[Pool, str] = {
    "small": "a native pool for the smallest limit",
    "middle": "a native pool for the limit in the middle",
    "large": "a native pool for the largest limit",
    "quarter": "a native pool of 25 % of the largest limit",
    "balloon": "the large pool with pg_balloon",
}
"""Pools of shared buffers that are compared."""
BALLOON: Pool = "balloon"
SERVER = "server"
"""Name of the container."""


class BalloonLimitsOptions(DatabaseOptions):
    """Complete options: one server under a steady load, whose container's memory limit changes at the start of each phase.

    ``container_memory`` is the largest limit. ``limits`` are the limits of the phases in percent of it. The first one holds before any
    change. ``duration`` is the length of a phase. ``pool_sizes`` are the shared buffers of each pool in bytes. ``balloon`` has the settings
    that enable pg_balloon.
    """

    pools: tuple[Pool, ...]
    pool_sizes: dict[Pool, int]
    limits: tuple[int, ...]
    balloon: dict[str, str] = Field(default_factory=dict)
    swap: Swap | None = None
    clients: int = Field(ge=1)
    repeats: int = Field(3, ge=1)

    def limit(self, number: int) -> int:
        """Return the memory limit (bytes) of a phase."""
        assert self.container_memory is not None
        return self.container_memory * self.limits[number] // 100

    @property
    def unchanged(self) -> int:
        """Return the first phase that starts new connections but leaves the limit as it was, or 0, the phase before all changes."""
        changes = range(1, len(self.limits))
        return next((number for number in changes if self.limits[number] == self.limits[number - 1]), 0)

    def change(self, number: int) -> str:
        """Return the name of a phase's change, such as ``2: 100 % to 50 %``."""
        return f"{number}: {self.limits[number - 1]} % to {self.limits[number]} %"


class BalloonLimitsRequest(SwapRequest, DatabaseRequest):
    """Options of ``pgherd balloon limits`` as given on the command line or in a scenario."""

    LEFT_OUT: ClassVar[dict[str, str]] = {
        "min_repeats": "balloon limits adds no repeats; give repeats",
        "check_consistency": "balloon limits measures throughput; leave it out",
        "rate": "balloon limits compares the throughput of pools, which a rate would limit; leave it out",
        **dict.fromkeys(("workload", "script", "init_script", "read_only"), "the load is pgbench's select-only; give updates"),
        **dict.fromkeys(EXISTING_SERVERS, "balloon limits changes the limits of its servers; leave it out"),
        **dict.fromkeys(("huge_pages", "vm_huge_pages"), "pg_balloon has no balloon in huge pages; leave it out"),
        **dict.fromkeys(
            ("vm_memory_policy", "vm_memory_min", "vm_memory_shares", "vm_idle_tax", "vm_pin_vcpus", "vm_ksm"),
            "balloon limits sets the memory of a guest by its balloon; leave it out",
        ),
    }

    pools: tuple[Pool, ...] | None = option(None, f"{', '.join(POOLS)}.", metavar="NAME,…", computed="small,large,balloon")
    limits: tuple[int, ...] = option(
        (100, 100, 50, 100, 25, 100),
        "Memory limit of each phase, percent of --memory; the first is 100.",
        LIMITS,
        metavar="PERCENT,…",
    )
    updates: int = option(0, "Percentage of transactions that update a row.", WORKLOAD, metavar="N", ge=0, le=100)
    swap: SwapKind | None = redefined(SwapRequest, "swap", None, computed="zram")
    swap_size: Size | None = redefined(SwapRequest, "swap_size", None, computed="--memory")
    clients: int = option(4, "Clients.", metavar="N", ge=1)
    scale: int | None = redefined(DatabaseRequest, "scale", None, computed="half of --memory")
    memory: Size | None = redefined(DatabaseRequest, "memory", None, computed="1GB, at most half of free memory")
    duration: Duration | None = redefined(DatabaseRequest, "duration", Duration("15s"), help="Length of each phase.")
    warmup: Duration | None = redefined(DatabaseRequest, "warmup", Duration("5s"))
    time_budget: Duration | None = redefined(DatabaseRequest, "time_budget", None, computed="none")
    repeats: int | None = redefined(DatabaseRequest, "repeats", None, help="Trials of each pool; 3 or more give intervals.", computed="3")

    @model_validator(mode="before")
    @classmethod
    def _null_is_default(cls, values: Any) -> Any:
        return without_nulls(values)

    @field_validator("pools")
    @classmethod
    def _each_once(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if names is not None and (not names or len(set(names)) < len(names)):
            raise ValueError("give at least one name, and each name once")
        return names

    @field_validator("limits")
    @classmethod
    def _from_whole_to_whole(cls, limits: tuple[int, ...]) -> tuple[int, ...]:
        if len(limits) < 2 or limits[0] != 100 or not all(5 <= limit <= 100 for limit in limits):
            raise ValueError("give two percentages or more from 5 to 100, the first one 100")
        return limits
