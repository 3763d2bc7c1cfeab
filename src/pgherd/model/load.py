"""Loads and phases: what drives which target, for how long."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from pgherd.model.base import Model

Protocol = Literal["simple", "extended", "prepared"]
ClientPlace = Literal["inside", "outside"]


NEW_ORDER = "new-order"
"""The name of the script whose transactions in the window make NOTPM (new orders per minute)."""


class Script(Model):
    """One transaction script and its weight in the mix: a builtin of pgbench (``builtin:select-only``), a workload's own
    (``orders:payment``), or a file. Transactions of scripts with a ``name`` are counted under it, each for itself."""

    source: str
    weight: int = Field(1, ge=1)
    name: str | None = None


class Load(Model):
    """A driver with clients or a rate on one target.

    ``driver`` names a module of pgherd.drivers, or 'idle'. ``rate`` (transactions per second) makes an open loop, in
    which latency counts from the scheduled start. ``place`` says whether the driver runs inside the target's
    container (and so inside its CPU quota, as in E1) or outside. ``host`` is the host on which the driver of a database runs, if that is
    not the database's own. ``sampling`` is the share of transactions logged.
    Scripts are pgbench's; a load of another driver has none, and says what it does by its ``options``. Where its target
    is no database, its driver runs outside of any container.
    """

    driver: str = "pgbench"
    clients: int = Field(1, ge=1)
    threads: int = Field(1, ge=1)
    rate: float | None = Field(None, gt=0)
    scripts: tuple[Script, ...] = (Script(source="builtin:select-only"),)
    protocol: Protocol = "prepared"
    place: ClientPlace = "inside"
    host: str | None = None
    sampling: float = Field(0.05, gt=0, le=1)
    kept_from_writing: bool = Field(False, description="the server's settings refuse what the scripts would write")
    options: dict[str, str] = Field(default_factory=dict, description="driver-specific, as its module documents")

    @model_validator(mode="before")
    @classmethod
    def _scripts_are_pgbench_s(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("driver", "pgbench") != "pgbench":
            return {"scripts": (), "place": "outside", **data}
        return data

    @property
    def read_only(self) -> bool:
        """Whether it is known to write nothing to a database."""
        return self.kept_from_writing or all(script.source == "builtin:select-only" for script in self.scripts)


class Turns(Model):
    """How a phase's loads take turns: all are connected, and all but those of one name are stopped (SIGSTOP) at any time.

    ``of`` maps a name to the container on whose databases its loads are. In each round every name has one turn of so many ``seconds``;
    ``seed`` shuffles the rounds. Only the last ``counted`` seconds of each turn count for rates: a control group that was idle has
    some CPU quota to spare at first.
    """

    of: dict[str, str] = Field(min_length=2)
    seconds: float = Field(gt=0)
    counted: float = Field(gt=0)
    seed: str = ""

    @model_validator(mode="after")
    def _counted_is_a_part(self) -> Turns:
        if self.counted > self.seconds:
            raise ValueError(f"{self.counted:g} s of each turn are to count, but turns last {self.seconds:g} s")
        return self

    @property
    def lead(self) -> float:
        """Seconds that never count at a turn's begin, also where it began late and so is short."""
        return (self.seconds - self.counted) / 2

    def targets(self, name: str, loads: Iterable[str]) -> tuple[str, ...]:
        """Those of the loads' targets that have their turn under a name."""
        return tuple(target for target in loads if target.split("/")[1] == self.of[name])


class Phase(Model):
    """A ramp-up (seconds, not counted) and a measured period (seconds) in which every target has one load.

    ``loads`` maps a target (``host/container/server/database`` for a database) to its load; a target that is not
    mentioned is idle. All loads of a phase switch at one instant. ``until`` 'clock': its drivers are ended when the measured period
    is over; 'drivers': it is over when all its drivers have ended by themselves, and ``seconds`` is the longest that they may take.
    ``turns``: in the measured period, which is the turns of all of them, the loads take turns; each at its own pace, by pgbench.
    """

    name: str = "steady"
    ramp: float = Field(1.0, ge=0)
    seconds: float = Field(10.0, gt=0)
    loads: dict[str, Load] = Field(default_factory=dict)
    until: Literal["clock", "drivers"] = "clock"
    turns: Turns | None = None

    def planned(self) -> float:
        """Its ramp-up and measured period, in seconds; the ramp-up alone where the period ends with the drivers."""
        return self.ramp + (self.seconds if self.until == "clock" else 0.0)

    @field_validator("loads")
    @classmethod
    def _idle_is_absence(cls, loads: dict[str, Load]) -> dict[str, Load]:
        return {target: load for target, load in loads.items() if load.driver != "idle"}

    @model_validator(mode="after")
    def _turns_of_what_can_be_stopped(self) -> Phase:
        if self.turns is None:
            return self
        without = sorted(target for target in self.loads if target.count("/") != 3 or target.split("/")[1] not in self.turns.of.values())
        if without:
            raise ValueError(
                f"phase '{self.name}' loads {', '.join(without)}, which have no turn; {', '.join(self.turns.of.values())} have"
            )
        if self.until != "clock" or any(load.driver != "pgbench" or load.rate is not None for load in self.loads.values()):
            raise ValueError(
                f"the loads of phase '{self.name}' cannot take turns: only a pgbench at its own pace can be stopped for a while"
            )
        return self
