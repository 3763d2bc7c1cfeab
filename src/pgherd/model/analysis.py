"""Results of a study: findings, checks with their thresholds, proposals and the graded analysis."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from pgherd.model.base import Model

Grade = Literal["A", "B", "C"]
CheckResult = Literal["pass", "fail", "unknown"]
OPEN_END = "upper bound not reached"
"""Part of the note of a finding whose interval ends beyond the measured range: ``high`` is then no bound."""
_FROM_BEST: tuple[CheckResult, ...] = ("pass", "unknown", "fail")


class Finding(Model):
    """Named quantity with unit, interval, number of repeats and method.

    ``value`` is None if the data do not support a number, and ``note`` has the reason. ``low`` and ``high`` bound the value at
    ``confidence``. Both are None without an interval, and ``note`` has the reason. ``low`` without ``value`` is a lower bound of
    a number that lies beyond the measured range. ``experiment`` and ``published`` refer to the published figure to compare with
    (E1 … E18).
    """

    value: float | None
    unit: str
    low: float | None = None
    high: float | None = None
    confidence: float | None = Field(None, gt=0, lt=1)
    n: int = Field(1, ge=0)
    method: str = ""
    note: str = ""
    experiment: str | None = None
    published: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether the interval ends beyond the measured range."""
        return OPEN_END in self.note


class Check(Model):
    """Result of a check of a trial. A check without an observation is 'unknown' and never passes.

    ``kind`` 'intent': a validity check that the study declares and that must pass. 'noise': a check of every trial.
    ``observed`` and ``wanted`` are phrases with units, such as '3.1 % steal' and 'at most 2 %'. ``severity`` 'taint': a failure
    makes the trial unreliable. 'warn': a failure is a warning only. ``failed_in`` names the failed phases of a trial with
    several. It is empty if the check covers the whole trial.
    """

    name: str
    kind: Literal["validity", "noise"]
    result: CheckResult
    observed: str
    expected: str
    reason: str = ""
    severity: Literal["taint", "warn"] = "taint"
    failed_phases: tuple[str, ...] = ()

    @property
    def gravity(self) -> tuple[int, bool]:
        """Sort key among results of one check (of phases, hosts or continued trials). The greatest applies.

        A failure outranks an unknown result, and that a pass. Among equal results a tainting check outranks a warning.
        """
        return _FROM_BEST.index(self.result), self.severity == "taint"

    @property
    def taints(self) -> bool:
        """Whether the check makes its trial unreliable."""
        return self.result == "fail" and self.severity == "taint"


class Proposal(Model):
    """Next trials of a study, or the reason to stop. Each proposal is logged in the run."""

    trials: tuple[Any, ...] = Field((), description="pgherd.model.trial.Trial, in order of execution")
    stop: str | None = None
    max_trials: int | None = Field(None, description="maximum number of trials in total")


class Analysis(Model):
    """Conclusions of a study. Cells of a table row are plain values or Findings.

    ``answer`` is one sentence, and ``details`` are further ones that explain it. ``grade_reason`` says why the grade is not better, if
    that is about the answer and not about single trials. ``figures`` holds the data of plots that the tables lack, by figure name (plain
    lists and numbers).
    """

    answer: str
    details: list[str] = Field(default_factory=list)
    grade: Grade
    grade_reason: str = ""
    findings: dict[str, Finding] = Field(default_factory=dict)
    tables: dict[str, list[dict[str, Finding | str | int | float | None]]] = Field(default_factory=dict)
    warnings: list[str] = Field(default_factory=list)
    next_steps: list[str] = Field(default_factory=list)
    figures: dict[str, Any] = Field(default_factory=dict)


class Thresholds(Model):
    """Limits of the checks. Each can be changed (``--threshold NAME=VALUE``). docs/reference/checks.md repeats this table."""

    min_overlap: float = Field(default=0.95, gt=0, le=1, description="minimum share of the planned period in which all drivers ran (share)")
    max_overrun: float = Field(default=0.1, gt=0, description="maximum overrun of a measured period (share)")
    min_cpu_used: float = Field(default=0.95, gt=0, le=1, description="minimum share of its CPU limit that a loaded container used (share)")
    host_full: float = Field(
        default=0.97, gt=0, le=1, description="used share of the host's cores from which the host counts as full (share)"
    )
    min_hit_ratio: float = Field(default=0.99, gt=0, le=1, description="minimum buffer hit ratio of a cached database (share)")
    max_device_reads: float = Field(default=0.01, ge=0, description="maximum device reads per transaction of a cached database (reads/tx)")
    max_client_cpu: float = Field(
        default=0.90,
        gt=0,
        le=1,
        description="used share of the CPU available to a driver's threads from which the driver is the bottleneck (share)",
    )
    min_rate_achieved: float = Field(default=0.98, gt=0, le=1, description="minimum share of the requested rate that was achieved (share)")
    min_device_reads: float = Field(default=0.05, ge=0, description="minimum device reads per transaction of an I/O-bound load (reads/tx)")
    min_huge_page_share: float = Field(
        default=0.9,
        gt=0,
        le=1,
        description="minimum share of a server's used shared memory on pages of the requested size (share)",
    )
    max_unaccounted_memory: float = Field(
        default=0.02,
        gt=0,
        le=1,
        description="maximum share of the host's memory budget that no container accounts for, in any second (share)",
    )
    max_switch_skew: float = Field(
        default=0.1, gt=0, description="maximum time between the first and the last target's switch to a phase's load (s)"
    )
    max_steal: float = Field(default=0.02, ge=0, description="maximum CPU time withheld by the hypervisor (share of the host's cores)")
    max_paired_steal: float = Field(
        default=0.05, ge=0, description="maximum steal where variants run in time slices and lose the same (share of the host's cores)"
    )
    max_background_cpu: float = Field(default=0.05, ge=0, description="maximum CPU used outside the experiment (share of the host's cores)")
    max_clock_uncertainty: float = Field(
        default=0.01, gt=0, description="maximum uncertainty of a host's clock offset, in a run on several hosts (s)"
    )
    max_start_skew: float = Field(
        default=0.1, gt=0, description="maximum time between the first and the last host's start of a phase, in a run on several hosts (s)"
    )
    max_clock_step: float = Field(default=0.05, ge=0, description="maximum step of the wall clock against the monotonic clock (s)")
    max_checkpoints: float = Field(
        default=0, ge=0, description="maximum number of checkpoints of read-only loads within the window (count)"
    )
    max_autovacuum_workers: float = Field(
        default=0, ge=0, description="maximum number of active autovacuum workers in the window (mean count)"
    )
    max_failed_transactions: float = Field(default=0, ge=0, description="maximum number of failed transactions (count)")
