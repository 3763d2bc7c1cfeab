"""Completion of a disk request: fio, volumes, file sizes, rates and durations. Nothing is written to the volumes yet."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Mapping

from pgherd.host import file_systems, paths, storage
from pgherd.host.facts import gather
from pgherd.host.file_systems import require_empty
from pgherd.host.server_user import server_account
from pgherd.host.storage import device as device_of
from pgherd.host.storage import devices_below, devices_of
from pgherd.model.deployment import Volume
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.model.run import RunEnvironment
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Command, Node
from pgherd.prepare import hosts
from pgherd.prepare.fio import fio_version
from pgherd.prepare.merge import versions_text
from pgherd.prepare.prepared_study import PreparedStudy, thresholds
from pgherd.prepare.volumes import parse_volume
from pgherd.runner.deploy.volumes import VOLUME_RESERVE, check_directory
from pgherd.runner.execute import device_io
from pgherd.studies.disk.options import DEFAULT, MAX_JOBS, MIX, TESTS, DiskOptions, DiskRequest, DiskVolume
from pgherd.studies.disk.study import STUDY
from pgherd.study.study import StudyCapability

DEFAULT_SIZE = 2 * 2**30
"""Default size in bytes of the file on each volume, at most a quarter of the free space."""
MIN_FILE_SIZE = 16 * 2**20
LOOP_SHARE = 0.85
"""Maximum size of the file as a share of a volume that pgherd formats. The structures of the file system need the rest."""
MEMORY = 256 * 2**20
"""Memory of fio for each volume, in bytes."""


def capability(node: Node, facts: HostFacts) -> StudyCapability:
    """Check which volumes can be measured. This requires no PostgreSQL."""
    if shutil.which("fio") is None:
        return StudyCapability(STUDY.name, "unavailable", STUDY.capability, "install the package fio")
    if not facts.root:
        directories = STUDY.capability.replace(", loop devices and empty devices", "")
        return StudyCapability(STUDY.name, "limited", directories, "run pgherd as root for loop devices and empty devices")
    try:
        file_systems.require_loop(node, "a loop volume")
    except CapabilityError as error:
        return StudyCapability(STUDY.name, "limited", STUDY.capability.replace(", loop devices and", " and"), str(error))
    return StudyCapability(STUDY.name, "available", STUDY.capability)


def prepare(node: Node, request: DiskRequest, dry: bool) -> PreparedStudy:
    """Complete a disk request for this host; see ``prepare.prepared_study.prepare`` for what it raises."""
    limits = thresholds(request.threshold)
    rate = _rate(request)
    tests = _tests(request, rate)
    facts = gather(node)
    account = server_account(request.run_as)
    version = fio_version(node)
    engines = frozenset(node.run(Command(["fio", "--enghelp"])).out.split())
    traced = device_io.require_traceable(node, request.trace_io)
    volumes = _volumes(request, dry, node)
    disks = [_inspect(node, request, volume, account) for volume in volumes]
    cores = hosts.cores_of(request.host_cores, facts)
    engine = request.ioengine or next((name for name in ("libaio", "io_uring") if name in engines), "psync")
    if engine not in engines:
        raise CapabilityError(f"fio has no engine '{engine}'; use one of {', '.join(sorted(engines & {'libaio', 'io_uring', 'psync'}))}")
    options = DiskOptions(
        volumes=tuple(disks),
        tests=tests,
        iodepth=request.iodepth or DiskOptions.model_fields["iodepth"].default,
        sequential_iodepth=request.sequential_iodepth or DiskOptions.model_fields["sequential_iodepth"].default,
        numjobs=request.numjobs or 1,
        ioengine=engine,
        rate_iops=rate,
        concurrent=request.concurrent,
        double_iodepth=request.double_iodepth,
        fio_version=version,
        host_cores=cores,
        memory=facts.memory,
        repeats=request.planned_repeats(DiskOptions.model_fields["repeats"].default),
        fixed_repeats=request.repeats is not None,
        duration=6.0 if request.duration is None else request.duration,
        warmup=request.warmup or 0.0,
        time_budget=request.time_budget,
        seed=request.seed if request.seed is not None else random.randrange(2**31),
        thresholds=limits,
    )
    if request.numjobs is not None and all(map(options.synchronous, disks)):
        raise UsageError(
            f"--numjobs {request.numjobs}: each job has one I/O in flight here, because direct I/O or an asynchronous engine is missing; "
            "set the number of jobs with --iodepth and --sequential-iodepth"
        )
    formatted = tuple(str(volume.path) for volume in volumes if volume.kind == "device")
    changes = [_change(disk) for disk in disks]
    return PreparedStudy(
        study="disk",
        options=options,
        environment=RunEnvironment(
            runtime="process", run_as=account, cores=cores, memory=min(facts.memory, MEMORY * len(disks)), trace_io=request.trace_io
        ),
        thresholds=limits,
        facts=facts,
        installation=None,
        defaults_chosen=(*_choices(request, options, engines), *traced),
        settings=(),
        host_changes=tuple(changes),
        confirm=tuple(change for disk, change in zip(disks, changes, strict=True) if disk.volume.kind == "loop"),
        typed=formatted,
        tools={"fio": version},
        disk=sum(disk.volume.size or disk.size for disk in disks if disk.volume.kind != "device"),
        memory=MEMORY * len(disks),
    )


def over_hosts(options: Mapping[str, DiskOptions]) -> DiskOptions:
    """Merge the options that several hosts completed. ``options`` maps each host to its options.

    The file of a volume has the same size on every host: that of the host with the least free space.

    Raises:
        UsageError: the hosts would use different fio engines.
    """
    first = next(iter(options.values()))
    engines = {host: host_options.ioengine for host, host_options in options.items()}
    if len(set(engines.values())) > 1:
        raise UsageError(f"the default fio engine differs ({versions_text(engines)}); choose one with --ioengine")
    volumes = []
    for host, host_options in options.items():
        for number, volume in enumerate(host_options.volumes):
            host_volume = volume.volume.model_copy(update={"host": host})
            volumes.append(
                volume.model_copy(update={"volume": host_volume, "size": min(other.volumes[number].size for other in options.values())})
            )
    changes = {
        "volumes": tuple(volumes),
        "fio_version": versions_text({host: host_options.fio_version for host, host_options in options.items()}),
        "host_cores": min(host_options.host_cores for host_options in options.values()),
        "memory": max(host_options.memory for host_options in options.values()),
    }
    return first.model_copy(update=changes)


def _rate(request: DiskRequest) -> tuple[float, float] | None:
    if request.rate_iops is None:
        return None
    match = re.fullmatch(r"\s*(\d{1,9})\s*,\s*(\d{1,9})\s*", request.rate_iops)
    if match is None:
        raise UsageError(f"--rate-iops {request.rate_iops}: give two whole numbers, reads and writes per second, such as --rate-iops 70,30")
    reads, writes = float(match[1]), float(match[2])
    if min(reads, writes) < 1:
        raise UsageError(
            f"--rate-iops {request.rate_iops}: the minimum of each rate is 1 per second; for reads or writes alone use --tests"
        )
    return reads, writes


def _tests(request: DiskRequest, rate: tuple[float, float] | None) -> tuple[str, ...]:
    if request.tests is None:
        return (*DEFAULT, MIX) if rate else DEFAULT
    unknown = [name for name in request.tests if name not in TESTS]
    if unknown or not request.tests:
        raise UsageError(f"--tests: there is no test '{unknown[0] if unknown else ''}'; use one or more of {', '.join(TESTS)}")
    if MIX in request.tests and rate is None:
        raise UsageError("--tests mix needs two rates, reads and writes per second; give them, such as --rate-iops 70,30")
    if rate is not None and MIX not in request.tests:
        raise UsageError(f"--rate-iops {request.rate_iops} applies to the test mix, and --tests does not include it; add mix to --tests")
    return request.tests


def _volumes(request: DiskRequest, dry: bool, node: Node) -> list[Volume]:
    """Return the requested volumes. The default is the directory that holds the data of servers."""
    if not request.volume:
        cache = paths.cache_dir()
        if not dry:
            node.make_dir(str(cache), mode=0o755)
        return [Volume(name="disk0", path=str(cache))]
    volumes = [parse_volume(text, f"disk{number}") for number, text in enumerate(request.volume)]
    names = [volume.name for volume in volumes]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"--volume: the name '{twice[0]}' is used twice; write NAME=… with a different name for each volume")
    if "all" in names:
        raise UsageError("--volume all=…: 'all' is the name for all volumes at once; choose another name")
    allowed = {os.path.normpath(path) for path in request.allow_format}
    devices = {volume.path for volume in volumes if volume.kind == "device"}
    for path in sorted(str(path) for path in devices - allowed):
        raise UsageError(f"--volume device:{path}: formatting destroys the data on the device; to allow it, give --allow-format {path}")
    for path in sorted(allowed - devices):
        raise UsageError(f"--allow-format {path}: no --volume names device:{path}")
    return volumes


def _inspect(node: Node, request: DiskRequest, volume: Volume, account: str | None) -> DiskVolume:
    """Check a volume, and return its properties with the size of its file.

    Raises:
        UsageError: the volume does not exist, or is read-only, in use or too small.
        CapabilityError: this host cannot provide the volume.
    """
    option = "--volume"
    requested = request.file_size
    if requested is not None and requested < MIN_FILE_SIZE:
        raise UsageError(f"--file-size {request.file_size}: the minimum is {format_bytes(MIN_FILE_SIZE)}; give a larger size")
    if volume.kind == "device":
        assert volume.path is not None
        file_systems.require_tools(node, file_systems.DEVICE_TOOLS, f"device volume '{volume.name}'")
        room = int(require_empty(node, volume.path) * LOOP_SHARE)
        whole = device_of(node, storage.device_number(node, volume.path))  # the whole device, because only whole devices are sampled
        names = () if whole is None else (whole.name, *(below.name for below in devices_below(node, whole)))
        return DiskVolume(volume=volume, size=_size(requested, room, volume), direct=not request.buffered, filesystem="ext4", devices=names)
    if volume.kind == "loop":
        assert volume.size is not None
        file_systems.require_loop(node, f"loop volume '{volume.name}'")
        home = volume.path or str(paths.cache_dir())
        check_directory(node, _existing(home) if volume.path is None else home, None, volume.size, option)
        size = _size(requested, int(volume.size * LOOP_SHARE), volume)
        # The loop device does not exist yet. The device below it sees the same I/O.
        below = devices_of(node, [_existing(home)])
        under = tuple(part.name for device in below.values() for part in (device, *devices_below(node, device)))
        return DiskVolume(volume=volume, size=size, direct=not request.buffered, filesystem="ext4", devices=under)
    assert volume.path is not None
    at = _existing(volume.path) if not request.volume else volume.path
    free = check_directory(node, at, account, requested or MIN_FILE_SIZE, option)
    size = _size(requested, free - VOLUME_RESERVE, volume)
    real = os.path.realpath(at)
    mount = storage.mount_of(node, real)
    device = devices_of(node, [real]).get(real)
    return DiskVolume(
        volume=volume,
        size=size,
        direct=not request.buffered and storage.direct_io_works(at),
        filesystem=mount.kind if mount else "",
        devices=() if device is None else (device.name, *(below.name for below in devices_below(node, device))),
    )


def _size(requested: int | None, room: int, volume: Volume) -> int:
    """Return the size of the file in bytes, a multiple of the largest I/O size."""
    if requested is not None and requested > room:
        raise UsageError(
            f"--file-size: volume '{volume.name}' has room for {format_bytes(max(room, 0))}, less than {format_bytes(requested)}; lower it"
        )
    size = requested or min(DEFAULT_SIZE, room if volume.kind != "directory" else max(room // 4, MIN_FILE_SIZE))
    if size < MIN_FILE_SIZE:
        raise UsageError(
            f"volume '{volume.name}' has room for {format_bytes(max(room, 0))}, but the file needs at least "
            f"{format_bytes(MIN_FILE_SIZE)}; use a larger volume"
        )
    return size // 2**20 * 2**20


def _existing(directory: str) -> str:
    """Return the directory, or its nearest existing ancestor."""
    while not os.path.isdir(directory) and directory != "/":
        directory = os.path.dirname(directory)
    return directory


def _change(disk: DiskVolume) -> str:
    file = f"a file of {format_bytes(disk.size)}"
    if disk.volume.kind == "loop":
        assert disk.volume.size is not None
        return f"a loop device on a file of {format_bytes(disk.volume.size)} with a separate file system, mounted for '{disk.name}'"
    if disk.volume.kind == "device":
        return f"{disk.volume.path} formatted and mounted for '{disk.name}', and wiped afterwards"
    return f"{file} in a private directory below {disk.volume.path}"


def _choices(request: DiskRequest, options: DiskOptions, engines: frozenset[str]) -> list[str]:
    """Return sentences that describe the choices, and warnings about the volumes."""
    choices = [f"fio {options.fio_version}, engine {options.ioengine}; one I/O at a time with psync (pread and pwrite), as in PostgreSQL."]
    if not request.volume:
        choices.append(
            f"Volume disk0: {options.volumes[0].volume.path}, which would hold the data of servers; choose others with --volume."
        )
    sizes = {disk.size for disk in options.volumes}
    choices.append(
        f"A file of {', '.join(format_bytes(size) for size in sorted(sizes))} on each volume, written completely before the first trial."
    )
    for disk in options.volumes:
        if not disk.direct:
            reason = (
                "as requested"
                if request.buffered
                else f"because its file system ({disk.filesystem or 'unknown'}) does not support direct I/O"
            )
            choices.append(f"{disk.name}: through the page cache, {reason}.")
        if options.synchronous(disk) and max(options.iodepth, options.sequential_iodepth) > MAX_JOBS:
            choices.append(f"{disk.name}: {MAX_JOBS} I/Os in flight at most, from as many synchronous jobs.")
        if disk.loopback:
            choices.append(f"Warning: {disk.name} is a loop device. Its results include the cost of a file inside a file.")
    volume_by_device: dict[str, str] = {}
    for disk in options.volumes:
        if disk.devices and disk.devices[0] in volume_by_device:
            choices.append(f"Warning: {disk.name} and {volume_by_device[disk.devices[0]]} are on the same device ({disk.devices[0]}).")
        elif disk.devices:
            volume_by_device[disk.devices[0]] = disk.name
    return choices
