"""The complete options of a scaling run, and the numbers of clients that it measures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Self

from pydantic import Field, field_validator, model_validator

from pgherd.model.base import Model
from pgherd.model.load import ClientPlace
from pgherd.study.database_options import DatabaseOptions, DatabaseRequest
from pgherd.study.option import option, redefined

SHARES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
"""Clients per core at which a curve is measured, beside one, two, four … clients; E3 went from 1 beyond 48 on 32 cores."""
BEYOND = 2
"""A server is set up for so many times the clients that are planned: a peak may lie past them."""

CONTAINER = "db01"
"""The only container; in every variant the same, so that the next variant's server takes the place of the one before."""


class Variant(Model):
    """One of several servers that are held against each other; ``options`` are complete."""

    name: str
    options: DatabaseOptions


class ScalingOptions(DatabaseOptions):
    """Everything that a scaling run depends on.

    ``clients`` are the planned numbers of clients; ``most`` is how many the servers are set up for, and further numbers up to
    it may be added where the curve is least certain, unless ``refine`` is False. ``repeats`` are series. With ``variants`` the
    server and its load are theirs, and what this says of them itself is the first one's.
    """

    clients: tuple[int, ...] = Field(min_length=1)
    most: int = Field(ge=1)
    refine: bool = True
    variants: tuple[Variant, ...] = ()

    @field_validator("clients")
    @classmethod
    def _ascending(cls, clients: tuple[int, ...]) -> tuple[int, ...]:
        if min(clients) < 1:
            raise ValueError(f"a point of {min(clients)} clients cannot be measured; they begin at 1")
        return tuple(sorted(set(clients)))

    @model_validator(mode="after")
    def _consistent(self) -> ScalingOptions:
        if self.most < self.clients[-1]:
            raise ValueError(f"the servers are set up for {self.most} clients, but {self.clients[-1]} are to be measured")
        names = [variant.name for variant in self.variants]
        if len(set(names)) < len(names) or len(names) == 1:
            raise ValueError(f"variants are two or more with names of their own, not {', '.join(names)}")
        return self

    def variant_options(self) -> Mapping[str, Model]:
        """Name → options of each variant's server."""
        return {variant.name: variant.options for variant in self.variants}

    def with_variant_options(self, options: Mapping[str, Model]) -> Self:
        """A copy with these options of the variants."""
        variants = tuple(variant.model_copy(update={"options": options[variant.name]}) for variant in self.variants)
        return self.model_copy(update={"variants": variants})

    def servers(self) -> Mapping[str, DatabaseOptions]:
        """Options by variant; of a run without variants its own, under an empty name."""
        return {variant.name: variant.options for variant in self.variants} or {"": self}


def scripts_of(options: DatabaseOptions) -> str:
    """The load in words: ``select-only``, or the files' names."""
    return ", ".join(script.source.removeprefix("builtin:").rpartition("/")[2] for script in options.scripts)


def plural(clients: float) -> str:
    """``1 client``, ``8 clients``."""
    return f"{clients:g} client{'' if clients == 1 else 's'}"


def choose_clients(cores: float, limit: int | None = None) -> tuple[int, ...]:
    """Numbers of clients for so many cores: 1, 2, 4 … up to a quarter of the cores, then SHARES of them.

    Args:
        cores: those that the server has.
        limit: the largest number that memory allows; numbers beyond it fall away and it becomes one itself.
    """
    wanted = {1, *(max(1, math.floor(share * cores + 0.5)) for share in SHARES)}
    doubled = 2
    while doubled < cores / 4:
        wanted.add(doubled)
        doubled *= 2
    if limit is not None and max(wanted) > limit:
        wanted = {n for n in wanted if n < limit} | {max(1, limit)}
    return tuple(sorted(wanted))


class ScalingRequest(DatabaseRequest):
    """Options of ``pgherd scaling`` as given on the command line or in a scenario."""

    LEFT_OUT: ClassVar[dict[str, str]] = {
        "rate": "scaling measures how much a number of clients gets, each as fast as it can; leave the rate out"
    }

    clients: tuple[int, ...] | None = option(
        None, "Numbers of clients.", metavar="N,N,…", computed="1 to 4 per core, more where needed", web=True
    )
    variant: tuple[str, ...] = option(
        (), "Variant to compare (repeatable); the first is the baseline.", metavar="NAME:KEY=VALUE,…", repeated=True
    )
    vcpus: float | None = redefined(DatabaseRequest, "vcpus", None, computed="all cores, no quota")
    memory: str | None = redefined(DatabaseRequest, "memory", None, computed="no limit")
    repeats: int | None = redefined(DatabaseRequest, "repeats", 3, help="Series: measurements of each number of clients.")
    # The container is the server's: the cost of a transaction is seen without pgbench's part. (Linux 6.18 was also observed to
    # run no other process for tens of seconds while both, in one cgroup without a quota, kept all CPUs busy.)
    client_placement: ClientPlace = redefined(DatabaseRequest, "client_placement", "outside")
