"""The trial: one deployment in a stated starting state, driven through its phases once."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from pgherd.model.base import Model
from pgherd.model.deployment import Deployment
from pgherd.model.load import Phase

State = Literal["fresh", "restarted", "warm"]
Intent = Literal["cached", "io-bound", "cpu-bound", "not-client-bound", "rate-met", "exit-code", "values-found"]

Counters = Literal["tlb"]
"""Groups of processor events: 'tlb' are misses of the data TLB and the page walks that they cost."""

Look = Literal["buffers"]
"""What is read once of each server after a trial's last phase: 'buffers' are how many of its shared buffers are in use."""


class Trial(Model):
    """The unit that is measured, repeated, stored and resumed.

    ``point`` is the study's own coordinates (such as ``{"databases": 4}``), by which analysis groups repeats;
    ``repeat`` counts from 0 within a point; ``reason`` says why the study proposed it (planned, rerun of a tainted
    trial, adaptive point). ``intents`` are the checks that the study declares. (point, repeat) is unique in a run.
    """

    point: dict[str, int | float | str]
    repeat: int = Field(0, ge=0)
    reason: str = "planned"
    deployment: Deployment
    state: State = "warm"
    phases: tuple[Phase, ...]
    intents: tuple[Intent, ...] = ()
    probe: str | None = Field(None, description="a measurement without load, the name of the study that makes it")
    asked: dict[str, str] = Field(default_factory=dict, description="what the probe is asked, as its module documents")
    counters: tuple[Counters, ...] = Field((), description="processor counters to read of each server, where there are any")
    looks: tuple[Look, ...] = Field((), description="what to read once of each server at the end")
    goes_on: bool = Field(False, description="goes on from the trial before it: what is up and well stays as it is, without a checkpoint")
    may_die: bool = Field(False, description="the study asks whether the servers live so: that they do not is no failure of the run")

    @model_validator(mode="after")
    def _loads_have_targets(self) -> Trial:
        known = {*self.deployment.addresses()}
        known |= {volume.target for volume in self.deployment.volumes} | {host.name for host in self.deployment.hosts}
        known |= {link.target for link in self.deployment.links}
        for phase in self.phases:
            unknown = sorted(set(phase.loads) - known)
            if unknown:
                raise ValueError(f"phase '{phase.name}' loads {', '.join(unknown)}, which the deployment does not have")
        return self

    def seconds(self) -> float:
        """Planned time under load: all ramps and measured periods, in seconds. How long a phase lasts that ends with its drivers is not
        planned."""
        return sum(phase.planned() for phase in self.phases)

    @property
    def open_ended(self) -> bool:
        """Whether a phase of it ends when its drivers do."""
        return any(phase.until == "drivers" for phase in self.phases)

    def written(self) -> set[str]:
        """Targets on which some load may write."""
        return {target for phase in self.phases for target, load in phase.loads.items() if not load.read_only}

    def key(self) -> str:
        """``databases=4#2``: names the trial within its run."""
        return ",".join(f"{name}={value}" for name, value in sorted(self.point.items())) + f"#{self.repeat}"
