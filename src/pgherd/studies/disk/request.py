"""What a user may say of a disk study; everything has a default."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pgherd.studies.spread import SpreadRequest


class DiskRequest(SpreadRequest):
    """Options of ``pgherd disk`` as given on the command line or in a scenario. None: pgherd chooses, and says what.

    Sizes and durations are texts with units. A volume is a text as pgherd.runner.prepare.volume_text reads it.
    """

    volume: tuple[str, ...] = Field((), description="what is measured: [NAME=]DIR, [NAME=]loop:SIZE[@DIR] or [NAME=]device:/dev/X")
    allow_format: tuple[str, ...] = Field((), description="block devices that may be formatted: their paths")
    tests: tuple[str, ...] | None = Field(None, description="which tests; all but the mix by default, and the mix where rates are given")
    size: str | None = Field(None, description="size of the file on each volume")
    depth: int | None = Field(None, ge=1, le=4096, description="random I/Os in flight on each volume")
    sequential_depth: int | None = Field(None, ge=1, le=4096, description="sequential I/Os in flight on each volume")
    jobs: int | None = Field(None, ge=1, le=256, description="fio jobs that share a volume's I/Os")
    engine: Literal["libaio", "io_uring", "psync"] | None = Field(None, description="fio's I/O engine")
    rate: str | None = Field(None, description="the mix: reads and writes per second of each volume, as two rates such as 70,30")
    rwmixread: int | None = Field(None, ge=0, le=100, description="refused: a mix is stated as two rates")
    buffered: bool = Field(False, description="through the page cache, even where direct I/O is possible")
    together: bool = Field(True, description="all volumes at once too")
    check_depth: bool = Field(True, description="measure at twice the depth too, to tell whether the depth is the limit")
    trace: bool = Field(False, description="trace the block requests of the volumes' devices one by one (perf)")
    repeats: int | None = Field(None, ge=1, description="trials per test and volume")
    seconds: str | None = Field(None, description="measured period of each trial")
    ramp: str | None = Field(None, description="ramp-up before it, not counted")
    budget: str | None = Field(None, description="time for all trials; reruns of tainted trials fit into it too")
    seed: int | None = Field(None, ge=0, description="seed of the order of trials")
    cores: float | None = Field(None, gt=0, description="cores of this host that the run reserves")
    run_as: str | None = Field(None, description="the account that fio runs as (root only)")
    threshold: tuple[str, ...] = Field((), description="change a verdict's threshold, NAME=VALUE")
