"""Complete options of a scaling run, and the choice of the numbers of clients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Self

from pydantic import Field, field_validator, model_validator

from pgherd.model.base import Model
from pgherd.model.load import ClientPlace
from pgherd.model.units import Duration, Size
from pgherd.study.database_options import DatabaseOptions, DatabaseRequest
from pgherd.study.objectives import ObjectiveOptions, ObjectiveRequest
from pgherd.study.option import null_means_default, option, redefined

CLIENTS_PER_CORE = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
"""Measured numbers of clients per core, in addition to 1, 2, 4 … clients. E3 measured from 1 to more than 48 clients on 32 cores."""
MAX_CLIENTS_FACTOR = 2
"""Maximum number of clients of a server, as a multiple of the planned maximum. The peak may be at more clients than planned."""

CONTAINER = "db01"
"""Name of the only container. It is the same in every variant, so that each variant's server replaces the previous one."""


class ScalingVariant(Model):
    """A variant of the server, with complete options."""

    name: str
    options: DatabaseOptions


class ScalingOptions(ObjectiveOptions, DatabaseOptions):
    """Complete options of a scaling run.

    ``clients`` are the planned numbers of clients. The servers are configured for ``max_clients``. If ``refine`` is True, more
    numbers up to ``max_clients`` may be added where the curve is least certain. ``repeats`` is the number of series. With
    ``variants`` each variant has separate options, and the options of this class are those of the first variant.
    """

    clients: tuple[int, ...] = Field(min_length=1)
    max_clients: int = Field(ge=1)
    refine: bool = True
    variants: tuple[ScalingVariant, ...] = ()

    @field_validator("clients")
    @classmethod
    def _ascending(cls, clients: tuple[int, ...]) -> tuple[int, ...]:
        if min(clients) < 1:
            raise ValueError(f"{min(clients)} clients cannot be measured; the minimum is 1")
        return tuple(sorted(set(clients)))

    @model_validator(mode="after")
    def _consistent(self) -> ScalingOptions:
        if self.max_clients < self.clients[-1]:
            raise ValueError(
                f"the servers are configured for {self.max_clients} clients, but {self.clients[-1]} are planned; raise max_clients"
            )
        names = [variant.name for variant in self.variants]
        if len(set(names)) < len(names) or len(names) == 1:
            raise ValueError(f"a run needs two or more variants with different names, not {', '.join(names)}")
        return self

    def variant_options(self) -> Mapping[str, Model]:
        """Return a map from each variant's name to the options of its server."""
        return {variant.name: variant.options for variant in self.variants}

    def with_variant_options(self, options: Mapping[str, Model]) -> Self:
        """Return a copy with these options of the variants."""
        variants = tuple(variant.model_copy(update={"options": options[variant.name]}) for variant in self.variants)
        return self.model_copy(update={"variants": variants})

    def servers(self) -> Mapping[str, DatabaseOptions]:
        """Return the options by variant. Without variants, the options of the run have an empty name."""
        return {variant.name: variant.options for variant in self.variants} or {"": self}


def scripts_of(options: DatabaseOptions) -> str:
    """Return the names of the scripts as text, such as ``select-only`` or the names of files."""
    return ", ".join(script.source.removeprefix("builtin:").rpartition("/")[2] for script in options.scripts)


def plural(clients: float) -> str:
    """Return the number with its noun: ``1 client``, ``8 clients``."""
    return f"{clients:g} client{'' if clients == 1 else 's'}"


def choose_clients(cores: float, limit: int | None = None) -> tuple[int, ...]:
    """Choose the numbers of clients: 1, 2, 4 … up to a quarter of the cores, then CLIENTS_PER_CORE of the cores.

    Args:
        cores: the cores of the server.
        limit: the maximum that memory allows. It replaces all larger numbers.
    """
    numbers = {1, *(max(1, math.floor(share * cores + 0.5)) for share in CLIENTS_PER_CORE)}
    doubled = 2
    while doubled < cores / 4:
        numbers.add(doubled)
        doubled *= 2
    if limit is not None and max(numbers) > limit:
        numbers = {n for n in numbers if n < limit} | {max(1, limit)}
    return tuple(sorted(numbers))


class ScalingRequest(ObjectiveRequest, DatabaseRequest):
    """Options of ``pgherd scaling`` as given on the command line or in a scenario."""

    LEFT_OUT: ClassVar[dict[str, str]] = {"rate": "scaling measures the maximum throughput of each number of clients; leave the rate out"}

    clients: tuple[int, ...] | None = option(
        None, "Numbers of clients.", metavar="N,N,…", computed="1 to 4 per core, more where needed", web=True
    )
    variant: tuple[str, ...] = option(
        (), "Variant to compare (repeatable); the first is the baseline.", metavar="NAME:KEY=VALUE,…", repeated=True
    )
    vcpus: float | None = redefined(DatabaseRequest, "vcpus", None, computed="all cores, no quota")
    memory: Size | None = redefined(DatabaseRequest, "memory", None, computed="no limit")
    # pgbench runs outside the container, so that the cost of a transaction excludes pgbench. Linux 6.18 was also observed to
    # run no other process for tens of seconds while server and pgbench kept all CPUs busy in one cgroup without a quota.
    client_placement: ClientPlace = redefined(DatabaseRequest, "client_placement", "outside")
    duration: Duration = redefined(DatabaseRequest, "duration", Duration("9s"))
    warmup: Duration = redefined(DatabaseRequest, "warmup", Duration("1s"))

    _null_means_default = null_means_default("duration", "warmup")
