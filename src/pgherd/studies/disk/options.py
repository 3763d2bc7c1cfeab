"""Complete options of a disk run: access patterns of the tests, volumes, the load of each test on a volume, and the trials in their order.

The patterns are random I/O in PostgreSQL's page size, sequential I/O, one I/O at a time, and a mix of reads and writes. E12 published
figures for them.

Each repeat is a block with every test on every volume, shuffled. A device that slows down as its caches fill, or another user of the
same hardware, then affects all tests alike. The trials at twice the depth come last. Several hosts do the same in every trial, at the
same time.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, field_validator, model_validator

from pgherd.model.analysis import Proposal
from pgherd.model.base import Model
from pgherd.model.deployment import Deployment, Host, Volume
from pgherd.model.load import Load, Phase
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.model.units import Size
from pgherd.study import trial_schedule
from pgherd.study.option import MEASUREMENT, option
from pgherd.study.shared_options import MeasuredOptions, MeasurementRequest
from pgherd.study.trial_schedule import Point, SchedulePlan

_PAGE_BYTES = 8192
"""PostgreSQL's page size."""
_SEQUENTIAL_BYTES = 2**20
"""Size of one sequential I/O."""

MIX = "mix"


@dataclass(frozen=True)
class AccessPattern:
    """Access pattern of a test: fio's ``rw`` and the bytes of one I/O.

    ``quantity`` is the result of the test: I/Os per second ('iops'), bytes per second ('bandwidth') or the latency of a single I/O
    ('latency'). ``deep``: many I/Os are in flight at the same time.
    """

    name: str
    label: str
    rw: str
    bytes: int
    quantity: Literal["iops", "bandwidth", "latency"]
    writes: bool
    deep: bool = True
    random: bool = True


TESTS: Mapping[str, AccessPattern] = {
    test.name: test
    for test in (
        AccessPattern("random-read", "8 kB random read", "randread", _PAGE_BYTES, "iops", writes=False),
        AccessPattern("random-write", "8 kB random write", "randwrite", _PAGE_BYTES, "iops", writes=True),
        AccessPattern("sequential-read", "1 MB sequential read", "read", _SEQUENTIAL_BYTES, "bandwidth", writes=False, random=False),
        AccessPattern("sequential-write", "1 MB sequential write", "write", _SEQUENTIAL_BYTES, "bandwidth", writes=True, random=False),
        AccessPattern("qd1-read", "one 8 kB read at a time", "randread", _PAGE_BYTES, "latency", writes=False, deep=False),
        AccessPattern("qd1-write", "one 8 kB write at a time", "randwrite", _PAGE_BYTES, "latency", writes=True, deep=False),
        AccessPattern(MIX, "8 kB random reads and writes at fixed rates", "randrw", _PAGE_BYTES, "iops", writes=True),
    )
}
"""Test name → access pattern. The mix runs only if rates are given."""

DEFAULT = tuple(name for name in TESTS if name != MIX)

SOURCE = "Gary Little, n0derunner.com: a cluster of 4 nodes with shared storage, not one disk"

PUBLISHED: Mapping[str, str] = {
    "random-read": "1,160,551 IOPS, partly from a cache",
    "random-write": "618,775 IOPS",
    "sequential-read": "26.35 GB/s (6.5 per host)",
    "sequential-write": "10.64 GB/s, limited by the network",
    "qd1-read": "0.16 ms",
    "qd1-write": "0.2 ms",
}
"""Test name → fio result that E12 published, with its notes (SOURCE)."""


def published_fields(test: str) -> dict[str, str]:
    """Return the fields of a finding that refer to E12, empty for a test that E12 does not have."""
    return {"experiment": "E12", "published": f"{PUBLISHED[test]} ({SOURCE})"} if test in PUBLISHED else {}


ALL = "all"
"""Name of the load on all volumes at once."""
MAX_JOBS = 16
"""Maximum number of jobs without direct I/O. Asynchronous engines then wait for every I/O, so that each job keeps one in flight."""
RATE_ERROR = 0.005
"""Largest error of a rate that is divided over jobs. fio limits each job to a whole number of I/Os per second."""


class DiskVolume(Model):
    """A volume under test.

    ``size`` is the size of its file in bytes. ``direct`` is True if the file system supports direct I/O. ``devices`` are the kernel's
    names of the volume's block device and of the devices below it. It is empty if no device is visible.
    """

    volume: Volume
    size: int = Field(gt=0)
    direct: bool = True
    filesystem: str = ""
    devices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.volume.name

    @property
    def loopback(self) -> bool:
        """Return True for a loop device, whose results include the cost of another file system."""
        return self.volume.kind == "loop"


class DiskOptions(MeasuredOptions):
    """Complete options of a disk run. With several hosts ``volumes`` are those of all hosts, and each volume names its host.

    ``iodepth`` and ``sequential_iodepth`` are the I/Os in flight on each volume. ``rate_iops`` is the reads and writes per second of the
    mix on each volume. With ``double_iodepth`` each test with several I/Os in flight is repeated at twice its depth, to show if the depth
    is the limit. With ``concurrent`` all volumes are also measured at once. ``memory`` is the memory of the host in bytes.
    """

    volumes: tuple[DiskVolume, ...] = Field(min_length=1)
    tests: tuple[str, ...] = DEFAULT
    iodepth: int = Field(32, ge=1)
    sequential_iodepth: int = Field(8, ge=1)
    numjobs: int = Field(1, ge=1)
    ioengine: str = "libaio"
    rate_iops: tuple[float, float] | None = None
    concurrent: bool = True
    double_iodepth: bool = True
    fio_version: str = ""
    memory: int = Field(gt=0)

    @field_validator("tests")
    @classmethod
    def _known(cls, tests: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in tests if name not in TESTS]
        if unknown or not tests:
            raise ValueError(f"there is no test '{unknown[0] if unknown else ''}'; use one or more of {', '.join(TESTS)}")
        return tuple(name for name in TESTS if name in tests)

    @model_validator(mode="after")
    def _consistent(self) -> DiskOptions:
        names = [disk.volume.target for disk in self.volumes]
        if len(set(names)) < len(names) or ALL in [disk.name for disk in self.volumes]:
            raise ValueError(f"the names of volumes must be different, and none may be '{ALL}'; they are {', '.join(names)}")
        if MIX in self.tests and self.rate_iops is None:
            raise ValueError("the test mix needs two rates, reads and writes per second; give them with rate_iops")
        return self

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the names of the hosts that run the same load at the same time. It is empty if only this host is measured."""
        return tuple(dict.fromkeys(disk.volume.host for disk in self.volumes if disk.volume.host is not None))

    def volume_names(self) -> tuple[str, ...]:
        """Return the names of the volumes. Every host has a volume of each name."""
        return tuple(dict.fromkeys(disk.name for disk in self.volumes))

    def targets(self) -> tuple[str, ...]:
        """Return the names of the volumes, and ALL if they are also measured at once."""
        names = self.volume_names()
        return (*names, ALL) if self.concurrent and len(names) > 1 else names

    def volumes_of(self, target: str) -> tuple[DiskVolume, ...]:
        """Return the volumes on all hosts that the load of ``target`` uses. ``target`` is a volume's name or ALL."""
        return self.volumes if target == ALL else tuple(disk for disk in self.volumes if disk.name == target)

    def deployment(self) -> Deployment:
        """Return the deployment: the hosts and their volumes, without a server."""
        hosts = tuple(Host(name=name, cores=self.host_cores) for name in self.hosts or ("local",))
        return Deployment(hosts=hosts, volumes=tuple(disk.volume for disk in self.volumes))

    def depth_of(self, test: AccessPattern) -> int:
        """Return the number of I/Os that a test keeps in flight on a volume."""
        if not test.deep:
            return 1
        return self.iodepth if test.random else self.sequential_iodepth

    def load(self, test: AccessPattern, disk: DiskVolume, depth: int | None = None) -> Load:
        """Return the fio load of one volume. ``depth`` overrides the number of I/Os in flight."""
        depth = depth or self.depth_of(test)
        clients, jobs, engine = depth, self.numjobs if test.deep else 1, self.ioengine
        if not test.deep:
            engine = "psync"  # PostgreSQL reads and writes a block with pread and pwrite too
        elif self.synchronous(disk):
            clients, jobs, engine = 1, min(depth, MAX_JOBS), "psync"
        elif jobs > 1:
            jobs = min(jobs, depth)
            clients = max(1, depth // jobs)
        options = {
            "rw": test.rw,
            "bs": str(test.bytes),
            "size": str(disk.size),
            "direct": str(int(disk.direct)),
            "engine": engine,
            "ramp": f"{self.warmup:g}",
            "seed": str(self.seed),
        }
        rate = None
        if test.name == MIX and self.rate_iops is not None:
            reads, writes = self.rate_iops
            jobs = jobs_for_rates((reads, writes), jobs) if engine == "psync" else 1
            clients = 1 if engine == "psync" else depth
            reads, writes, rate = reads / jobs, writes / jobs, reads + writes  # fio limits each job
            options |= {"read_rate": f"{max(1, reads):.0f}", "write_rate": f"{max(1, writes):.0f}"}  # 0 is no limit
        return Load(driver="fio", clients=clients, threads=jobs, rate=rate, options=options)

    def in_flight(self, test: AccessPattern, disk: DiskVolume, depth: int | None = None) -> int:
        """Return the number of I/Os that the load of one volume has in flight. The number of synchronous jobs is limited."""
        load = self.load(test, disk, depth)
        return load.clients * load.threads

    def synchronous(self, disk: DiskVolume) -> bool:
        """Return True if each job has one I/O in flight on this volume, so that jobs are the depth."""
        return not disk.direct or self.ioengine == "psync"


def jobs_for_rates(rates: Sequence[float], most: int) -> int:
    """Return the largest number of jobs, at most ``most``, over which whole rates per job keep each sum within ``RATE_ERROR``."""

    def fits(jobs: int) -> bool:
        return all(abs(round(rate / jobs) * jobs - rate) <= RATE_ERROR * rate for rate in rates)

    return next(filter(fits, range(most, 0, -1)), 1)


class DiskRequest(MeasurementRequest):
    """Options of ``pgherd disk`` as given on the command line or in a scenario. None: pgherd chooses.

    Sizes and durations are texts with units. pgherd.prepare.volumes defines the syntax of a volume.
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
    file_size: Size | None = option(None, "Test file size per volume.", metavar="SIZE", computed="2GB, at most a quarter of the free space")
    iodepth: int | None = option(None, "Random I/Os in flight.", metavar="N", computed="32", ge=1, le=4096)
    sequential_iodepth: int | None = option(None, "Sequential I/Os in flight.", metavar="N", computed="8", ge=1, le=4096)
    numjobs: int | None = option(None, "fio jobs per volume.", metavar="N", computed="1", ge=1, le=256)
    ioengine: Literal["libaio", "io_uring", "psync"] | None = option(
        None, "fio I/O engine: libaio, io_uring or psync.", metavar="NAME", computed="libaio, or what fio has"
    )
    buffered: bool = option(False, "Use the page cache.")
    concurrent: bool = option(True, "Also test all volumes at once.")
    double_iodepth: bool = option(True, "Also test twice the depth.")
    allow_format: tuple[str, ...] = option((), "Allow formatting this empty device; asks for its name.", metavar="/dev/X", repeated=True)
    trace_io: bool = option(False, "Trace block requests with perf.", MEASUREMENT)


def propose(options: DiskOptions, results: Sequence[TrialResult]) -> Proposal:
    """Return the next trials, or the reason to stop. Equal options and results give equal proposals."""
    return trial_schedule.propose(options, design(options), results)


def design(options: DiskOptions) -> SchedulePlan:
    """Return the planned trials of a run and the rules for more."""

    def build(point: Point, repeat: int, reason: str) -> Trial:
        return _trial(options, point, repeat, reason)

    points: list[Point] = [{"test": test, "volume": volume} for volume in options.targets() for test in options.tests]
    double_depth = _double_depth_points(options)
    blocks = []
    for repeat in range(options.repeats):
        rng = random.Random(f"order {options.seed} {repeat}")
        blocks.append([build(point, repeat, "planned") for point in rng.sample(points, len(points))])
    if double_depth:
        blocks.append([build(point, 0, "planned: is the depth the limit?") for point in double_depth])
    return SchedulePlan(blocks, [*points, *double_depth], build, lambda point: 1 if "depth" in point else options.repeats)


def _double_depth_points(options: DiskOptions) -> list[Point]:
    if not options.double_iodepth:
        return []

    def deeper(name: str, volume: str) -> bool:
        test, disks = TESTS[name], options.volumes_of(volume)  # the number of jobs is limited
        return any(options.load(test, disk) != options.load(test, disk, 2 * options.depth_of(test)) for disk in disks)

    return [
        {"test": name, "volume": volume, "depth": 2 * options.depth_of(TESTS[name])}
        for volume in options.volume_names()
        for name in options.tests
        if TESTS[name].deep and name != MIX and deeper(name, volume)
    ]


def _trial(options: DiskOptions, point: Point, repeat: int, reason: str) -> Trial:
    test, volume = TESTS[str(point["test"])], str(point["volume"])
    depth = int(point["depth"]) if "depth" in point else None
    loads = {disk.volume.target: options.load(test, disk, depth) for disk in options.volumes_of(volume)}
    phase = Phase(name="steady", warmup=options.warmup, seconds=options.duration, loads=loads)
    return Trial(point=dict(point), repeat=repeat, reason=reason, deployment=options.deployment(), phases=(phase,))
