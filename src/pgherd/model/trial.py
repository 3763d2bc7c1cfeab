"""Trial: one deployment in a defined start state, driven through its phases once."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from pgherd.model.base import Model
from pgherd.model.deployment import Deployment
from pgherd.model.load import Phase

State = Literal["fresh", "restarted", "warm"]
ValidityCheck = Literal["cached", "io-bound", "cpu-bound", "not-client-bound", "rate-achieved", "exit-code", "values-extracted"]

Counters = Literal["tlb"]
"""Groups of processor events. 'tlb': misses of the data TLB and the resulting page walks."""

FinalReading = Literal["buffers"]
"""Readings of each server after a trial's last phase. 'buffers': number of shared buffers in use."""


class Trial(Model):
    """Unit of measurement, repetition, storage and resumption.

    ``point`` holds the coordinates of the study (such as ``{"databases": 4}``), by which analysis groups repeats. ``repeat``
    counts from 0 within a point. ``reason`` is why the study proposed the trial (planned, rerun of a tainted trial, adaptive
    point). ``intents`` are the validity checks that the study declares. (point, repeat) is unique in a run.
    """

    point: dict[str, int | float | str]
    repeat: int = Field(0, ge=0)
    reason: str = "planned"
    deployment: Deployment
    state: State = "warm"
    phases: tuple[Phase, ...]
    validity_checks: tuple[ValidityCheck, ...] = ()
    probe: str | None = Field(None, description="a measurement without load, such as 'sizes'")
    probe_options: dict[str, str] = Field(default_factory=dict, description="options of the probe (see its module)")
    counters: tuple[Counters, ...] = Field((), description="processor counters to read for each server, if available")
    final_readings: tuple[FinalReading, ...] = Field((), description="readings of each server at the end")
    continues_previous: bool = Field(False, description="continues the previous trial: healthy servers keep running, without a checkpoint")
    failure_expected: bool = Field(False, description="out of memory is an expected result, not a failure of the run")
    quiet: tuple[str, ...] = Field((), description="containers whose servers run no statement of samplers, which would wake them up")
    wait_events: bool = Field(False, description="sample what the sessions of all servers wait for, without a latency objective too")

    @model_validator(mode="after")
    def _loads_have_targets(self) -> Trial:
        targets = {*self.deployment.addresses()}
        targets |= {volume.target for volume in self.deployment.volumes} | {host.name for host in self.deployment.hosts}
        targets |= {link.target for link in self.deployment.links}
        for phase in self.phases:
            unknown = sorted(set(phase.loads) - targets)
            if unknown:
                raise ValueError(f"phase '{phase.name}' loads unknown targets: {', '.join(unknown)}")
        return self

    def seconds(self) -> float:
        """Return the planned seconds of warm-ups and measured periods. Phases that end with their drivers have no planned period."""
        return sum(phase.planned() for phase in self.phases)

    @property
    def open_ended(self) -> bool:
        """Whether any phase ends when its drivers do."""
        return any(phase.until == "drivers" for phase in self.phases)

    def written(self) -> set[str]:
        """Return the targets that a load may write to."""
        return {target for phase in self.phases for target, load in phase.loads.items() if not load.read_only}

    def key(self) -> str:
        """Return the trial's name within its run, such as ``databases=4#2``."""
        return ",".join(f"{name}={value}" for name, value in sorted(self.point.items())) + f"#{self.repeat}"
