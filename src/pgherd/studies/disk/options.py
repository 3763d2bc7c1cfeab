"""The complete options of a disk run: volumes, tests, and how each test loads a volume."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from pgherd.model.base import Model
from pgherd.model.deployment import Deployment, Host, Volume
from pgherd.model.load import Load
from pgherd.studies.disk.access_patterns import DEFAULT, MIX, TESTS, AccessPattern
from pgherd.study.measurement_options import MeasuredOptions, MeasurementRequest
from pgherd.study.option import MEASUREMENT, option

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


class DiskRequest(MeasurementRequest):
    """Options of ``pgherd disk`` as given on the command line or in a scenario. None: pgherd chooses.

    Sizes and durations are texts with units. A volume is a text as pgherd.prepare.volume_syntax reads it.
    """

    volume: tuple[str, ...] = option(
        (),
        "Volume to measure (repeatable).",
        metavar="[NAME=]DIR|loop:SIZE[@DIR]|device:/dev/X",
        computed="where data would go",
        repeated=True,
    )
    tests: tuple[str, ...] | None = option(None, "Tests to run.", metavar="NAME,…", computed="all")
    rate_iops: str | None = option(None, "Mixed read/write test at these IOPS.", metavar="READS,WRITES")
    file_size: str | None = option(None, "Test file size per volume.", metavar="SIZE", computed="2GB, at most a quarter of the free space")
    iodepth: int | None = option(None, "Random I/Os in flight.", metavar="N", computed="32", ge=1, le=4096)
    sequential_iodepth: int | None = option(None, "Sequential I/Os in flight.", metavar="N", computed="8", ge=1, le=4096)
    numjobs: int | None = option(None, "fio jobs per volume.", metavar="N", computed="1", ge=1, le=256)
    ioengine: Literal["libaio", "io_uring", "psync"] | None = option(
        None, "fio I/O engine: libaio, io_uring or psync.", metavar="NAME", computed="libaio"
    )
    buffered: bool = option(False, "Use the page cache.")
    concurrent: bool = option(True, "Also test all volumes at once.")
    double_iodepth: bool = option(True, "Also test twice the depth.")
    allow_format: tuple[str, ...] = option((), "Allow formatting this empty device; asks for its name.", metavar="/dev/X", repeated=True)
    trace_io: bool = option(False, "Trace block requests with perf.", MEASUREMENT)
