"""The thresholds of all verdicts: one table. docs/reference/checks.md repeats it, and a test keeps the two alike."""

from __future__ import annotations

from pydantic import Field

from pgherd.model.base import Model


class Thresholds(Model):
    """Limits against which verdicts hold what was observed. All can be changed (``--threshold NAME=VALUE``)."""

    overlap: float = Field(default=0.95, gt=0, le=1, description="least share of the planned period in which all drivers ran (share)")
    late_end: float = Field(default=0.1, gt=0, description="most by which a measured period may outlast its plan (share)")
    cpu_bound: float = Field(default=0.95, gt=0, le=1, description="least share of its given CPU that a loaded container used (share)")
    host_full: float = Field(default=0.97, gt=0, le=1, description="the host counts as full from this share of its cores on (share)")
    hit_ratio: float = Field(default=0.99, gt=0, le=1, description="least buffer hit ratio of a cached database (share)")
    device_reads: float = Field(default=0.01, ge=0, description="most device reads per transaction of a cached database (reads/tx)")
    client_cpu: float = Field(
        default=0.90, gt=0, le=1, description="a driver is the limit from this share of the CPU its threads can get (share)"
    )
    rate_met: float = Field(default=0.98, gt=0, le=1, description="least share of the wanted rate that was reached (share)")
    io_bound: float = Field(default=0.05, ge=0, description="least device reads per transaction of an I/O-bound load (reads/tx)")
    huge_share: float = Field(
        default=0.9,
        gt=0,
        le=1,
        description="least share of a server's shared memory in use that lies on the pages that were asked for (share)",
    )
    memory_accounted: float = Field(
        default=0.02, gt=0, le=1, description="most of the host's memory budget that no container accounts for, in any second (share)"
    )
    switch_skew: float = Field(
        default=0.1, gt=0, description="most time between the first and the last target to begin its new load at a phase's start (s)"
    )
    steal: float = Field(default=0.02, ge=0, description="most CPU time the hypervisor withheld (share of the host's cores)")
    foreign_cpu: float = Field(default=0.05, ge=0, description="most CPU used outside the experiment (share of the host's cores)")
    clock_offset: float = Field(
        default=0.01, gt=0, description="most by which the offset of a host's clock may be uncertain, in a run on several hosts (s)"
    )
    start_skew: float = Field(
        default=0.1, gt=0, description="most time between the first and the last host to begin a phase, in a run on several hosts (s)"
    )
    clock_jump: float = Field(default=0.05, ge=0, description="most the wall clock may move against the monotonic clock (s)")
    checkpoints: float = Field(default=0, ge=0, description="most checkpoints of read-only loads within the window (count)")
    vacuums: float = Field(default=0, ge=0, description="most autovacuum workers at work in the window (mean count)")
    errors: float = Field(default=0, ge=0, description="most failed transactions (count)")
