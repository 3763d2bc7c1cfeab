"""Record of a run (``run.json``), with its cluster and its swap."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field, model_validator

from pgherd.model.analysis import Analysis, Thresholds
from pgherd.model.base import Model
from pgherd.model.deployment import Host, RuntimeName, VmMemoryPolicy
from pgherd.model.host_facts import HostFacts
from pgherd.model.load import LatencyObjective

OnLostHost = Literal["continue", "stop"]


class Cluster(Model):
    """Cluster of a run: address of the agents, hosts with their budgets, and the placement rule.

    ``hosts`` have no containers, because a trial's deployment places them. ``on_lost_host`` 'continue': the run continues on
    the remaining hosts, with tainted trials. 'stop': it ends and can be resumed. ``client`` is the host that runs the drivers
    of all databases and no containers. None: each driver runs on its database's host. ``in_turn``: each trial runs on one host,
    so that the loss of another host does not affect it.
    """

    address: str = Field(min_length=1, description="name, or address of the scheduler")
    tls: str | None = Field(None, description="directory of certificates, if the cluster was started elsewhere")
    hosts: tuple[Host, ...] = Field(min_length=1)
    placement: str = "spread"
    on_lost_host: OnLostHost = "continue"
    client: str | None = None
    in_turn: bool = False

    @property
    def carriers(self) -> tuple[Host, ...]:
        """Hosts for containers: all but the client host."""
        return tuple(host for host in self.hosts if host.name != self.client)

    def host(self, name: str) -> Host:
        """Return the host of this name. Raises KeyError."""
        return {host.name: host for host in self.hosts}[name]


SwapKind = Literal["zram", "file", "none"]


class Swap(Model):
    """Swap for one run, in addition to the host's swap, which stays unchanged.

    ``zram``: a compressed block device in memory, comparable to a hypervisor that compresses guest memory. ``size`` counts
    bytes before compression. ``memory`` (bytes) limits the compressed pages, None: no limit. This memory belongs to the host
    and is charged to no cgroup. ``algorithm`` None is the kernel's default. ``file``: a file of ``size`` bytes in the directory
    ``path``. None: pgherd's cache directory. ``none``: no swap is created, and containers of the run may not use the host's
    swap.
    """

    kind: SwapKind
    size: int = Field(0, ge=0, description="bytes, 0 only for kind none")
    path: str | None = Field(None, description="directory of the file, only for kind file")
    algorithm: str | None = Field(None, pattern=r"^[a-z0-9-]{1,32}$", description="compression algorithm, only for kind zram")
    memory: int | None = Field(None, gt=0, description="maximum bytes of memory for zram")

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Swap:
        if (self.kind == "none") != (self.size == 0):
            raise ValueError(f"invalid size for swap of kind {self.kind}: {self.size} bytes")
        if self.path is not None and self.kind != "file":
            raise ValueError(f"swap of kind {self.kind} has no directory")
        if self.kind != "zram" and (self.algorithm is not None or self.memory is not None):
            raise ValueError(f"swap of kind {self.kind} has no compression")
        return self


SCHEMA = "pgherd/run/2"


class LoggedProposal(Model):
    """One call of ``propose``: its time, the number of results before it, and its trial keys or the reason to stop."""

    at: float
    after: int
    trials: list[str] = Field(default_factory=list)
    stop: str | None = None


class RunEnvironment(Model):
    """Host-side settings of a run, stored so that it can be resumed unchanged.

    ``runtime`` is opened first, other runtimes on demand. ``cores`` and ``memory`` (bytes) are the reserved budget, which all
    share. ``platform`` lists components to account for separately, as ``process=NAME`` or ``cgroup=PATH``.
    """

    runtime: RuntimeName
    run_as: str | None = None
    cores: float
    memory: int
    track: tuple[str, ...] = ()
    trace_io: bool = Field(False, description="block requests are traced during trials")
    swap: Swap | None = Field(None, description="swap created for the run, the only one for its containers (None: the host's swap)")
    vm_memory_policy: VmMemoryPolicy | None = Field(None, description="memory policy of guests (None: each keeps its memory)")
    cluster: Cluster | None = Field(None, description="cluster of the run. Its cores and memory are totals")
    listen: str | None = Field(None, description="address of this host for drivers on another host (None: no such drivers)")


class RunRecord(Model):
    """Scenario, host facts, versions, proposals and conclusions of one run. Trials are in separate files.

    ``options`` are the complete options of the study. ``timing`` is in seconds: ``setup`` (templates, clones, first starts),
    ``measured`` (measured periods), ``wall`` (from the first trial's start to the last trial's end). ``choices`` are sentences
    on defaults that pgherd chose (runtime, settings, scale), with reasons. ``schema_`` is that of the file that was read: a former
    one means that ``analysis`` has texts only (see pgherd.store.version_1).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_: str = Field(SCHEMA, alias="schema")
    run: str
    study: str
    options: dict[str, Any]
    environment: RunEnvironment | None = None
    thresholds: Thresholds = Thresholds()
    command: list[str] = Field(default_factory=list)
    state: Literal["running", "finished", "interrupted", "failed"] = "running"
    started: float
    ended: float | None = None
    pgherd: str
    hosts: dict[str, HostFacts] = Field(default_factory=dict)
    postgres: dict[str, str] = Field(default_factory=dict, description="bin directory → build (on a cluster: version)")
    tools: dict[str, str] = Field(default_factory=dict, description="tool → version")
    inputs: dict[str, str] = Field(default_factory=dict, description="user's file below the run's inputs → hash of its contents")
    defaults_chosen: list[str] = Field(default_factory=list)
    resumed_on_changed_host: list[str] = Field(
        default_factory=list, description="sentences: changes of the host, of pgherd or of an external server during the run"
    )
    settings: dict[str, str] = Field(
        default_factory=dict, description="settings that differ from the default (with variants: those common to all)"
    )
    variant_settings: dict[str, dict[str, str]] = Field(
        default_factory=dict, description="variant → settings that differ from the default, as reported by its server"
    )
    proposals: list[LoggedProposal] = Field(default_factory=list)
    timing: dict[str, float] = Field(default_factory=dict)
    error: str | None = None
    analysis: Analysis | None = None

    @property
    def objectives(self) -> tuple[LatencyObjective, ...]:
        """The latency objectives of its search, if it is one."""
        return tuple(map(LatencyObjective.model_validate, self.options.get("objectives") or ()))
