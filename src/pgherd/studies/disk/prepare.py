"""Completion of a disk request: fio, volumes, file sizes, rates and durations. Nothing is written to the volumes yet."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Mapping

from pgherd.host import direct_io, file_systems, mounts, paths
from pgherd.host.account import server_account
from pgherd.host.block_devices import chain, devices_of
from pgherd.host.block_devices import device as device_of
from pgherd.host.facts import gather
from pgherd.host.file_systems import require_empty
from pgherd.model.deployment import Volume
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.run import Surroundings
from pgherd.model.units import format_bytes, parse_bytes, parse_seconds
from pgherd.node.protocol import CANNOT_RUN, Command, Node
from pgherd.prepare import hosts
from pgherd.prepare.merge import versions_text
from pgherd.prepare.prepared_study import PreparedStudy, thresholds
from pgherd.prepare.volumes import parse_volume
from pgherd.runner.deploy.volumes import VOLUME_RESERVE, check_directory
from pgherd.runner.play import io_view
from pgherd.studies.disk.access_patterns import DEFAULT, MIX, TESTS
from pgherd.studies.disk.options import DiskOptions, DiskRequest, DiskVolume

DEFAULT_SIZE = 2 * 2**30
"""Default size in bytes of the file on each volume, at most a quarter of the free space."""
LEAST_SIZE = 16 * 2**20
LOOP_SHARE = 0.85
"""Maximum size of the file as a share of a volume that pgherd formats. The structures of the file system need the rest."""
MEMORY = 256 * 2**20
"""Memory of fio for each volume, in bytes."""


def prepare(node: Node, asked: DiskRequest, dry: bool) -> PreparedStudy:
    """Complete a disk request for this host; see ``prepare.registry.prepare`` for what it raises."""
    limits = thresholds(asked.threshold)
    rate = _rate(asked)
    tests = _tests(asked, rate)
    facts = gather(node)
    account = server_account(asked.run_as)
    version, engines = _fio(node)
    traced = io_view.require_traceable(node, asked.trace_io)
    volumes = _volumes(asked, dry, node)
    found = [_look(node, asked, one, account) for one in volumes]
    cores = hosts.cores_of(asked.host_cores, facts)
    engine = asked.ioengine or ("libaio" if "libaio" in engines else "psync")
    if engine not in engines:
        raise CapabilityError(f"fio has no engine '{engine}'; use one of {', '.join(sorted(engines & {'libaio', 'io_uring', 'psync'}))}")
    options = DiskOptions(
        volumes=tuple(found),
        tests=tests,
        depth=asked.iodepth or DiskOptions.model_fields["depth"].default,
        sequential_depth=asked.sequential_iodepth or DiskOptions.model_fields["sequential_depth"].default,
        jobs=asked.numjobs or 1,
        engine=engine,
        rate=rate,
        together=asked.concurrent,
        check_depth=asked.double_iodepth,
        fio_version=version,
        cores=cores,
        memory=facts.memory,
        repeats=asked.repeats or DiskOptions.model_fields["repeats"].default,
        seconds=parse_seconds(asked.duration or "6s"),
        ramp=parse_seconds(asked.warmup or "0s"),
        budget_seconds=parse_seconds(asked.time_budget) if asked.time_budget else None,
        seed=asked.seed if asked.seed is not None else random.randrange(2**31),
        thresholds=limits,
    )
    formatted = tuple(str(one.path) for one in volumes if one.kind == "device")
    changes = [_change(one) for one in found]
    return PreparedStudy(
        study="disk",
        options=options,
        surroundings=Surroundings(
            runtime="process", run_as=account, cores=cores, memory=min(facts.memory, MEMORY * len(found)), trace=asked.trace_io
        ),
        thresholds=limits,
        facts=facts,
        installation=None,
        choices=(*_choices(asked, options, engines), *traced),
        settings=(),
        host_changes=tuple(changes),
        confirm=tuple(change for one, change in zip(found, changes, strict=True) if one.volume.kind == "loop"),
        typed=formatted,
        tools={"fio": version},
        disk=sum(one.volume.size or one.size for one in found if one.volume.kind != "device"),
        memory=MEMORY * len(found),
    )


def over_hosts(options: Mapping[str, DiskOptions]) -> DiskOptions:
    """Merge the options that several hosts completed. ``options`` maps each host to its options.

    The file of a volume has the same size on every host: that of the host with the least free space.

    Raises:
        UsageError: the hosts would use different fio engines.
    """
    first = next(iter(options.values()))
    engines = {host: one.engine for host, one in options.items()}
    if len(set(engines.values())) > 1:
        raise UsageError(f"the default fio engine differs ({versions_text(engines)}); choose one with --ioengine")
    volumes = []
    for host, one in options.items():
        for number, volume in enumerate(one.volumes):
            host_volume = volume.volume.model_copy(update={"host": host})
            volumes.append(
                volume.model_copy(update={"volume": host_volume, "size": min(each.volumes[number].size for each in options.values())})
            )
    changes = {
        "volumes": tuple(volumes),
        "fio_version": versions_text({host: one.fio_version for host, one in options.items()}),
        "cores": min(one.cores for one in options.values()),
        "memory": max(one.memory for one in options.values()),
    }
    return first.model_copy(update=changes)


def _rate(asked: DiskRequest) -> tuple[float, float] | None:
    if asked.rate_iops is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*,\s*(\d+(?:\.\d+)?)\s*", asked.rate_iops)
    if match is None:
        raise UsageError(f"--rate-iops {asked.rate_iops}: give two rates, reads and writes per second, such as --rate-iops 70,30")
    reads, writes = float(match[1]), float(match[2])
    if min(reads, writes) < 1:
        raise UsageError(f"--rate-iops {asked.rate_iops}: the minimum of each rate is 1 per second; for reads or writes alone use --tests")
    return reads, writes


def _tests(asked: DiskRequest, rate: tuple[float, float] | None) -> tuple[str, ...]:
    if asked.tests is None:
        return (*DEFAULT, MIX) if rate else DEFAULT
    unknown = [name for name in asked.tests if name not in TESTS]
    if unknown or not asked.tests:
        raise UsageError(f"--tests: there is no test '{unknown[0] if unknown else ''}'; use one or more of {', '.join(TESTS)}")
    if MIX in asked.tests and rate is None:
        raise UsageError("--tests mix needs two rates, reads and writes per second; give them, such as --rate-iops 70,30")
    if rate is not None and MIX not in asked.tests:
        raise UsageError(f"--rate-iops {asked.rate_iops} applies to the test mix, and --tests does not include it; add mix to --tests")
    return asked.tests


def _fio(node: Node) -> tuple[str, frozenset[str]]:
    """Return the version of fio and its engines.

    Raises:
        CapabilityError: fio is not installed, or too old.
    """
    missing = CapabilityError(
        "fio is not installed, and this study needs it; install the package fio (apt-get install fio, dnf install fio)"
    )
    try:
        version = node.run(Command(["fio", "--version"]))
        engines = node.run(Command(["fio", "--enghelp"]))
    except OSError:
        raise missing from None
    if version.code in CANNOT_RUN:
        raise missing
    match = re.match(r"fio-((\d+)\.(\d+)\S*)", version.out.strip())
    if match is None or int(match[2]) < 3:
        raise CapabilityError(
            f"the version of fio is {version.out.strip() or 'unknown'}, but 3.0 or later is required; install a newer package fio"
        )
    return match[1], frozenset(engines.out.split())


def _volumes(asked: DiskRequest, dry: bool, node: Node) -> list[Volume]:
    """Return the requested volumes. The default is the directory that holds the data of servers."""
    if not asked.volume:
        cache = paths.cache_dir()
        if not dry:
            node.make_dir(str(cache), mode=0o755)
        return [Volume(name="disk0", path=str(cache))]
    volumes = [parse_volume(text, f"disk{number}") for number, text in enumerate(asked.volume)]
    names = [volume.name for volume in volumes]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"--volume: the name '{twice[0]}' is used twice; write NAME=… with a different name for each volume")
    if "all" in names:
        raise UsageError("--volume all=…: 'all' is the name for all volumes at once; choose another name")
    allowed = {os.path.normpath(path) for path in asked.allow_format}
    devices = {volume.path for volume in volumes if volume.kind == "device"}
    for path in sorted(str(path) for path in devices - allowed):
        raise UsageError(f"--volume device:{path}: formatting destroys the data on the device; to allow it, give --allow-format {path}")
    for path in sorted(allowed - devices):
        raise UsageError(f"--allow-format {path}: no --volume names device:{path}")
    return volumes


def _look(node: Node, asked: DiskRequest, volume: Volume, account: str | None) -> DiskVolume:
    """Check a volume, and return its properties with the size of its file.

    Raises:
        UsageError: the volume does not exist, or is read-only, in use or too small.
        CapabilityError: this host cannot provide the volume.
    """
    option = "--volume"
    wanted = parse_bytes(asked.file_size) if asked.file_size else None
    if wanted is not None and wanted < LEAST_SIZE:
        raise UsageError(f"--file-size {asked.file_size}: the minimum is {format_bytes(LEAST_SIZE)}; give a larger size")
    if volume.kind == "device":
        assert volume.path is not None
        file_systems.require_tools(node, file_systems.DEVICE_TOOLS, f"device volume '{volume.name}'")
        room = int(require_empty(node, volume.path) * LOOP_SHARE)
        whole = device_of(node, mounts.number_of(node, volume.path))  # the whole device, because only whole devices are sampled
        names = () if whole is None else (whole.name, *(one.name for one in chain(node, whole)))
        return DiskVolume(volume=volume, size=_size(wanted, room, volume), direct=not asked.buffered, filesystem="ext4", devices=names)
    if volume.kind == "loop":
        assert volume.size is not None
        file_systems.require_tools(node, file_systems.LOOP_TOOLS, f"loop volume '{volume.name}'")
        home = volume.path or str(paths.cache_dir())
        check_directory(node, _existing(home) if volume.path is None else home, None, volume.size, option)
        size = _size(wanted, int(volume.size * LOOP_SHARE), volume)
        # The loop device does not exist yet. The device below it sees the same I/O.
        below = devices_of(node, [_existing(home)])
        under = tuple(one.name for at in below.values() for one in (at, *chain(node, at)))
        return DiskVolume(volume=volume, size=size, direct=not asked.buffered, filesystem="ext4", devices=under)
    assert volume.path is not None
    at = _existing(volume.path) if not asked.volume else volume.path
    free = check_directory(node, at, account, wanted or LEAST_SIZE, option)
    size = _size(wanted, free - VOLUME_RESERVE, volume)
    real = os.path.realpath(at)
    mount = mounts.mount_of(node, real)
    device = devices_of(node, [real]).get(real)
    return DiskVolume(
        volume=volume,
        size=size,
        direct=not asked.buffered and direct_io.possible(at),
        filesystem=mount.kind if mount else "",
        devices=() if device is None else (device.name, *(one.name for one in chain(node, device))),
    )


def _size(wanted: int | None, room: int, volume: Volume) -> int:
    """Return the size of the file in bytes, a multiple of the largest I/O size."""
    if wanted is not None and wanted > room:
        raise UsageError(
            f"--file-size: volume '{volume.name}' has room for {format_bytes(max(room, 0))}, less than {format_bytes(wanted)}; lower it"
        )
    size = wanted or min(DEFAULT_SIZE, room if volume.kind != "directory" else max(room // 4, LEAST_SIZE))
    if size < LEAST_SIZE:
        raise UsageError(
            f"volume '{volume.name}' has room for {format_bytes(max(room, 0))}, but the file needs at least "
            f"{format_bytes(LEAST_SIZE)}; use a larger volume"
        )
    return size // 2**20 * 2**20


def _existing(directory: str) -> str:
    """Return the directory, or its nearest existing ancestor."""
    while not os.path.isdir(directory) and directory != "/":
        directory = os.path.dirname(directory)
    return directory


def _change(one: DiskVolume) -> str:
    file = f"a file of {format_bytes(one.size)}"
    if one.volume.kind == "loop":
        assert one.volume.size is not None
        return f"a loop device on a file of {format_bytes(one.volume.size)} with a separate file system, mounted for '{one.name}'"
    if one.volume.kind == "device":
        return f"{one.volume.path} formatted and mounted for '{one.name}', and wiped afterwards"
    return f"{file} in a private directory below {one.volume.path}"


def _choices(asked: DiskRequest, options: DiskOptions, engines: frozenset[str]) -> list[str]:
    """Return sentences that describe the choices, and warnings about the volumes."""
    found = [f"fio {options.fio_version}, engine {options.engine}; one I/O at a time with psync (pread and pwrite), as in PostgreSQL."]
    if not asked.volume:
        found.append(f"Volume disk0: {options.volumes[0].volume.path}, which would hold the data of servers; choose others with --volume.")
    sizes = {one.size for one in options.volumes}
    found.append(
        f"A file of {', '.join(format_bytes(size) for size in sorted(sizes))} on each volume, written completely before the first trial."
    )
    for one in options.volumes:
        if not one.direct:
            reason = (
                "as requested" if asked.buffered else f"because its file system ({one.filesystem or 'unknown'}) does not support direct I/O"
            )
            found.append(f"{one.name}: through the page cache, {reason}.")
        if one.distorts:
            found.append(f"Warning: {one.name} is a loop device. Its results include the cost of a file inside a file.")
    seen: dict[str, str] = {}
    for one in options.volumes:
        if one.devices and one.devices[0] in seen:
            found.append(f"Warning: {one.name} and {seen[one.devices[0]]} are on the same device ({one.devices[0]}).")
        elif one.devices:
            seen[one.devices[0]] = one.name
    return found
