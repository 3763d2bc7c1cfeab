"""The hosts that a run is spread over."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field, model_validator

from pgherd.model.base import Model
from pgherd.model.deployment import GuestMemory, Host, RuntimeName
from pgherd.model.facts import HostFacts
from pgherd.model.finding import Analysis, Thresholds

OnLostHost = Literal["continue", "stop"]


class Cluster(Model):
    """Where the agents are found, their hosts with the budget of each, and how containers are placed on them.

    ``hosts`` have no containers: a trial's deployment says which lies where. ``on_lost_host`` says whether the run goes on with the
    hosts that are left, in trials that are tainted by it, or ends and can be resumed. ``client`` is the one of the hosts on which the
    drivers of all databases run, and nothing else; None: each runs on its database's own host. ``in_turn``: every trial runs on one of
    the hosts, so that it is none the worse for the loss of another.
    """

    address: str = Field(min_length=1, description="its name, or its scheduler's address")
    tls: str | None = Field(None, description="directory of the certificates, where the address is not of a cluster that was started here")
    hosts: tuple[Host, ...] = Field(min_length=1)
    placement: str = "spread"
    on_lost_host: OnLostHost = "continue"
    client: str | None = None
    in_turn: bool = False

    @property
    def carriers(self) -> tuple[Host, ...]:
        """The hosts on which containers are placed: all but that of the clients."""
        return tuple(one for one in self.hosts if one.name != self.client)

    def host(self, name: str) -> Host:
        """The host of this name; raises KeyError."""
        return {one.name: one for one in self.hosts}[name]


SwapKind = Literal["zram", "file", "none"]


class Swap(Model):
    """Swap for one run, beside what the host has, which is never touched.

    ``zram``: a compressed block device in memory, as a hypervisor compresses its guests' memory. ``size`` counts bytes before
    compression; ``memory`` (bytes) is the most memory that the compressed pages may take, None: as much as they need. This memory is
    the host's, and charged to no control group. ``algorithm`` None is the kernel's own choice.
    ``file``: a file of ``size`` bytes in the directory ``path``; None: pgherd's cache.
    ``none``: nothing is made, and no container of the run may use the host's.
    """

    kind: SwapKind
    size: int = Field(0, ge=0, description="bytes; 0 with kind none only")
    path: str | None = Field(None, description="directory of the file; kind file only")
    algorithm: str | None = Field(None, pattern=r"^[a-z0-9-]{1,32}$", description="of compression; kind zram only")
    memory: int | None = Field(None, gt=0, description="most bytes of memory that zram may take for itself")

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Swap:
        if (self.kind == "none") != (self.size == 0):
            raise ValueError(f"swap of kind {self.kind} has a size of {self.size} bytes")
        if self.path is not None and self.kind != "file":
            raise ValueError(f"swap of kind {self.kind} lies in no directory")
        if self.kind != "zram" and (self.algorithm is not None or self.memory is not None):
            raise ValueError(f"swap of kind {self.kind} compresses nothing")
        return self


SCHEMA = "pgherd/run/1"


class LoggedProposal(Model):
    """One call of ``propose``: when, after how many results, what it wanted (trial keys) or why it stopped."""

    at: float
    after: int
    trials: list[str] = Field(default_factory=list)
    stop: str | None = None


class Surroundings(Model):
    """What a run needs of its host beside the deployment: kept so that it can be resumed as it was begun.

    ``runtime`` is the one that is opened first, those of other containers when they are needed. ``cores`` and ``memory``
    (bytes) are the budget reserved, which all of them share; ``platform`` are the parts to account for by name,
    ``process=NAME`` or ``cgroup=PATH``.
    """

    runtime: RuntimeName
    run_as: str | None = None
    cores: float
    memory: int
    platform: tuple[str, ...] = ()
    trace: bool = Field(False, description="block requests are traced while a trial runs")
    swap: Swap | None = Field(None, description="made for the run, and the only swap that its containers may use; None: as the host has it")
    guest_memory: GuestMemory | None = Field(None, description="how guests share the memory; None: each keeps what it was given")
    cluster: Cluster | None = Field(None, description="the hosts over which it is spread; cores and memory are those of all together")
    listen: str | None = Field(None, description="this host's address at which drivers of another host reach its servers; None: none do")


class RunRecord(Model):
    """Scenario, host facts, versions, proposals and the conclusion of one run; trials lie in files of their own.

    ``options`` are the study's complete options. ``timing`` holds seconds: ``setup`` (golden copies, clones, first
    starts), ``measured`` (measured periods), ``wall`` (first trial's begin to last trial's end). ``choices`` are
    sentences on what pgherd chose by itself (runtime, settings, scale) and why.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_: str = Field(SCHEMA, alias="schema")
    run: str
    study: str
    options: dict[str, Any]
    surroundings: Surroundings | None = None
    thresholds: Thresholds = Thresholds()
    command: list[str] = Field(default_factory=list)
    state: Literal["running", "finished", "interrupted", "failed"] = "running"
    started: float
    ended: float | None = None
    pgherd: str
    hosts: dict[str, HostFacts] = Field(default_factory=dict)
    postgres: dict[str, str] = Field(default_factory=dict, description="bin directory → version")
    tools: dict[str, str] = Field(default_factory=dict, description="tool → version")
    inputs: dict[str, str] = Field(default_factory=dict, description="file of the user's, below the run's inputs → hash of its contents")
    choices: list[str] = Field(default_factory=list)
    resumed: list[str] = Field(default_factory=list, description="sentences: how the host differed when the run was resumed on it")
    settings: dict[str, str] = Field(
        default_factory=dict, description="every setting that differs from the default; of variants, what all of them have in common"
    )
    variant_settings: dict[str, dict[str, str]] = Field(
        default_factory=dict, description="variant → every setting that differs from the default, as its server says"
    )
    proposals: list[LoggedProposal] = Field(default_factory=list)
    timing: dict[str, float] = Field(default_factory=dict)
    error: str | None = None
    analysis: Analysis | None = None
