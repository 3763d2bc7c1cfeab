"""The record of a run: all that ``run.json`` holds."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from pgherd.model.base import Model
from pgherd.model.cluster import Cluster
from pgherd.model.deployment import RuntimeName
from pgherd.model.facts import HostFacts
from pgherd.model.finding import Analysis
from pgherd.model.guest_memory import GuestMemory
from pgherd.model.swap import Swap
from pgherd.model.thresholds import Thresholds

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
