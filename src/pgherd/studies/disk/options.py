"""The complete options of a disk run: volumes, tests, and how each test loads a volume."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from pgherd.model.base import Model
from pgherd.model.deployment import Deployment, Host, Volume
from pgherd.model.load import Load
from pgherd.studies.disk.access_patterns import DEFAULT, MIX, TESTS, AccessPattern
from pgherd.study.cluster_options import SpreadRequest
from pgherd.study.measurement_options import MeasuredOptions

ALL = "all"
"""In the place of a volume's name: all volumes at once."""
MOST_JOBS = 16
"""Without direct I/O an asynchronous engine waits for every I/O; so many jobs at most then keep one in flight each."""


class DiskVolume(Model):
    """A volume under test. ``size`` (bytes) is that of the file on it, ``free`` what its file system had free before. ``direct``:
    the file system takes direct I/O. ``devices`` are the block devices that it lies on, itself first, by the kernel's name; empty
    where none is seen."""

    volume: Volume
    size: int = Field(gt=0)
    direct: bool = True
    filesystem: str = ""
    devices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The volume's name."""
        return self.volume.name

    @property
    def distorts(self) -> bool:
        """Whether its figures are those of a file on another file system as much as of a device."""
        return self.volume.kind == "loop"


class DiskOptions(MeasuredOptions):
    """Everything that a disk run depends on. On several hosts ``volumes`` are those of all, each naming its host.

    ``depth`` and ``sequential_depth`` are the I/Os in flight of each volume; ``rate`` the mix's reads and writes per second of
    each volume. ``check_depth``: each test with many I/Os in flight is measured once more at twice its depth, which tells whether
    the depth was the limit. ``together``: all volumes at once too. ``memory`` (bytes) is the host's.
    """

    volumes: tuple[DiskVolume, ...] = Field(min_length=1)
    tests: tuple[str, ...] = DEFAULT
    depth: int = Field(32, ge=1)
    sequential_depth: int = Field(8, ge=1)
    jobs: int = Field(1, ge=1)
    engine: str = "libaio"
    rate: tuple[float, float] | None = None
    together: bool = True
    check_depth: bool = True
    fio_version: str = ""
    memory: int = Field(gt=0)

    @field_validator("tests")
    @classmethod
    def _known(cls, tests: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in tests if name not in TESTS]
        if unknown or not tests:
            raise ValueError(f"there is no test '{unknown[0] if unknown else ''}'; there are {', '.join(TESTS)}")
        return tuple(name for name in TESTS if name in tests)

    @model_validator(mode="after")
    def _consistent(self) -> DiskOptions:
        names = [one.volume.target for one in self.volumes]
        if len(set(names)) < len(names) or ALL in [one.name for one in self.volumes]:
            raise ValueError(f"volumes have names of their own, and none is '{ALL}'; these are {', '.join(names)}")
        if MIX in self.tests and self.rate is None:
            raise ValueError("the mix is of two rates, reads and writes per second; there are none")
        return self

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that do the same at the same time, each with volumes of these names; none where it is this host alone."""
        return tuple(dict.fromkeys(one.volume.host for one in self.volumes if one.volume.host is not None))

    def names(self) -> tuple[str, ...]:
        """The volumes' names; of several hosts each has one of every name."""
        return tuple(dict.fromkeys(one.name for one in self.volumes))

    def places(self) -> tuple[str, ...]:
        """The volumes' names, and ALL where all are measured at once too."""
        names = self.names()
        return (*names, ALL) if self.together and len(names) > 1 else names

    def at(self, place: str) -> tuple[DiskVolume, ...]:
        """The volumes that a place's load goes to, on all hosts."""
        return self.volumes if place == ALL else tuple(one for one in self.volumes if one.name == place)

    def deployment(self) -> Deployment:
        """No server: the hosts and their volumes."""
        hosts = tuple(Host(name=name, cores=self.cores) for name in self.hosts or ("local",))
        return Deployment(hosts=hosts, volumes=tuple(one.volume for one in self.volumes))

    def depth_of(self, test: AccessPattern) -> int:
        """I/Os that a test keeps in flight on a volume."""
        if not test.deep:
            return 1
        return self.depth if test.random else self.sequential_depth

    def load(self, test: AccessPattern, one: DiskVolume, depth: int | None = None) -> Load:
        """fio's load of one volume, with ``depth`` I/Os in flight if that is to be another than the test's own."""
        depth = depth or self.depth_of(test)
        clients, jobs, engine = depth, self.jobs if test.deep else 1, self.engine
        if not test.deep:
            engine = "psync"  # as PostgreSQL reads and writes a block: pread and pwrite
        elif not one.direct:
            clients, jobs, engine = 1, min(depth, MOST_JOBS), "psync"
        elif jobs > 1:
            jobs = min(jobs, depth)
            clients = max(1, depth // jobs)
        options = {
            "rw": test.rw,
            "bs": str(test.bytes),
            "size": str(one.size),
            "direct": str(int(one.direct)),
            "engine": engine,
            "ramp": f"{self.ramp:g}",
            "seed": str(self.seed),
        }
        rate = None
        if test.name == MIX and self.rate is not None:
            reads, writes = self.rate
            clients, jobs, rate = depth, 1, reads + writes
            options |= {"read_rate": f"{reads:g}", "write_rate": f"{writes:g}"}
        return Load(driver="fio", clients=clients, threads=jobs, rate=rate, options=options)


class DiskRequest(SpreadRequest):
    """Options of ``pgherd disk`` as given on the command line or in a scenario. None: pgherd chooses, and says what.

    Sizes and durations are texts with units. A volume is a text as pgherd.prepare.volume_syntax reads it.
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
