"""Volumes of a request: location of the servers' data, WAL, temporary files, tables and indexes, and their disk space.

A volume option is ``[NAME=]DIR``, ``[NAME=]loop:SIZE[@DIR]`` or ``[NAME=]device:/dev/NAME``. This module only checks the volumes before a
run starts. It creates nothing.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pgherd.host import file_systems, paths
from pgherd.host.file_systems import require_empty
from pgherd.model.deployment import Role, Volume
from pgherd.model.errors import UsageError
from pgherd.model.units import format_bytes, parse_bytes
from pgherd.node.protocol import Node
from pgherd.postgres.settings import max_wal_bytes
from pgherd.prepare.prepared_study import VolumeContents, Workspace
from pgherd.runner.deploy.volumes import TEMP_BYTES, WRITTEN_BYTES, check_directory, device_of, same_device, wal_bytes

_NAME = re.compile(r"([a-z0-9][a-z0-9_-]{0,39})=(.+)", re.DOTALL)

LEAST_LOOP = 64 * 2**20
"""Bytes of the smallest loop volume. In a smaller one, file system metadata takes most of the space."""


def parse_volume(text: str, name: str, option: str = "--volume") -> Volume:
    """Parse a volume. ``name`` is the default name. Paths become absolute. An existing directory is no NAME=DIR.

    Raises:
        UsageError: the text is no volume. The message names the ``option``.
    """
    named = _NAME.fullmatch(text)
    if named is not None and not os.path.isdir(text):
        name, text = named[1], named[2]
    if text.startswith("loop:"):
        size, _, directory = text.removeprefix("loop:").partition("@")
        try:
            size_bytes = parse_bytes(size)
        except UsageError:
            raise UsageError(f"{option} {text}: '{size}' is no size; write loop:SIZE or loop:SIZE@DIRECTORY, such as loop:2GB") from None
        if size_bytes < LEAST_LOOP:
            raise UsageError(f"{option} {text}: a loop volume must have at least 64 MB, but {size} is less; raise it")
        return Volume(name=name, kind="loop", path=os.path.abspath(directory) if directory else None, size=size_bytes)
    if text.startswith("device:"):
        path = text.removeprefix("device:")
        if not path.startswith("/dev/"):
            raise UsageError(f"{option} {text}: '{path}' is no block device; write device:/dev/NAME")
        return Volume(name=name, kind="device", path=os.path.normpath(path))
    if not text:
        raise UsageError(f"{option} '{name}=' names no directory; write NAME=DIRECTORY")
    return Volume(name=name, kind="directory", path=os.path.abspath(text))


EMPTY_CLUSTER = 64 * 2**20
"""Bytes of a data directory without databases: catalogs and the first WAL segments."""
DISK_RESERVE = 512 * 2**20

_LABELS = {"data": "servers' data", "wal": "servers' WAL", "temp": "servers' temporary files", "tablespace": "tables and indexes"}
_SPARE = 1.2
"""Size of a separate file system as a multiple of the bytes that it stores."""


@dataclass(frozen=True)
class RequestedVolumes:
    """Volumes that the user requests: by role, and for tablespaces. The host is not read."""

    roles: Mapping[Role, Volume] = field(default_factory=dict)
    tablespaces: tuple[Volume, ...] = ()


@dataclass(frozen=True)
class ServerVolumes:
    """Checked volumes of a run.

    ``roles`` and ``tablespaces`` refer to ``volumes`` by name. ``holds`` lists the contents of the volumes. The other fields are for the
    user: ``choices`` are messages, ``changes`` are host changes, ``confirm`` are the changes that the user must confirm, and ``typed``
    are the devices whose names the user must type.
    """

    volumes: tuple[Volume, ...] = ()
    holds: tuple[VolumeContents, ...] = ()
    roles: dict[Role, str] | None = None
    tablespaces: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    confirm: tuple[str, ...] = ()
    typed: tuple[str, ...] = ()


@dataclass(frozen=True)
class DiskSpace:
    """Disk space of a run in the cache (bytes), its checked volumes, and the part of the bytes that existing templates have already."""

    bytes: int = 0
    volumes: ServerVolumes = ServerVolumes()
    loaded: int = 0


def choose_volumes(
    texts: Mapping[Role, str | None], tablespaces: tuple[str, ...] = (), allow_format: tuple[str, ...] = ()
) -> RequestedVolumes:
    """Return the volumes of the options: ``texts`` by role, and ``tablespaces``. Equal texts are one volume. The host is not read.

    Raises:
        UsageError: a text is no volume, two volumes have the same name, or --allow-format does not match the devices.
    """
    by_text: dict[str, Volume] = {}

    def volume(text: str, name: str, option: str) -> Volume:
        if text not in by_text:
            parsed = parse_volume(text, name, option)
            if any(parsed.name == other.name for other in by_text.values()):
                raise UsageError(f"{option} {text}: two volumes are called '{parsed.name}'; give each a name, NAME=…")
            by_text[text] = parsed
        return by_text[text]

    roles = {role: volume(text, f"on-{role}", f"--{role}-volume") for role, text in texts.items() if text is not None}
    spaces = tuple(volume(text, f"space{number}", "--tablespace-volume") for number, text in enumerate(tablespaces))
    if len({entry.name for entry in spaces}) < len(spaces):
        raise UsageError("--tablespace-volume names a volume twice; name each once")
    allowed = {os.path.normpath(path) for path in allow_format}
    devices = {str(entry.path) for entry in by_text.values() if entry.kind == "device"}
    for path in sorted(devices - allowed):
        raise UsageError(f"device:{path}: formatting the device erases it; add --allow-format {path} to permit this")
    for path in sorted(allowed - devices):
        raise UsageError(f"--allow-format {path}: no volume option names device:{path}; name it there, or leave --allow-format out")
    return RequestedVolumes(roles, spaces)


def check_volumes(node: Node, requested: RequestedVolumes, account: str | None, needed: Mapping[Role, int]) -> ServerVolumes:
    """Check all requested volumes on this host. ``needed`` is the size in bytes of each role, for all servers together.

    Raises:
        UsageError: a volume is missing, in use, or too small.
        CapabilityError: this host cannot create a volume.
    """
    roles, spaces = requested.roles, requested.tablespaces
    if not roles and not spaces:
        return ServerVolumes()
    holds: dict[str, tuple[Volume, list[Role]]] = {}
    for role, volume in roles.items():
        holds.setdefault(volume.name, (volume, []))[1].append(role)
    for volume in spaces:
        holds.setdefault(volume.name, (volume, []))[1].append("tablespace")
    messages, changes, confirm = [], [], []
    contents: list[VolumeContents] = []
    for volume, volume_roles in holds.values():
        need = sum(needed.get(role, 0) // (len(spaces) if role == "tablespace" else 1) for role in volume_roles)
        text = " and ".join(_LABELS[role] for role in volume_roles)
        contents.append(VolumeContents(volume, text, need))
        change = look(node, contents[-1], account)
        changes.append(change)
        if volume.kind == "loop":
            confirm.append(change)
            messages.append(
                f"Warning: volume {volume.name} is a loop device, which distorts results: a file system in a file is slower than its disk."
            )
        else:
            messages.append(f"{text[0].upper()}{text[1:]} on volume {volume.name} ({volume.path}).")
    for volume, volume_roles in holds.values():
        if (
            volume.kind == "directory"
            and "data" not in volume_roles
            and same_device(node, str(volume.path), str(paths.cache_dir()))
            and "data" not in roles
        ):
            messages.append(f"Warning: volume {volume.name} ({volume.path}) is on the same file system as the servers' data.")
    return ServerVolumes(
        volumes=tuple(volume for volume, _ in holds.values()),
        holds=tuple(contents),
        roles={role: volume.name for role, volume in roles.items()},
        tablespaces=tuple(volume.name for volume in spaces),
        choices=tuple(messages),
        changes=tuple(changes),
        confirm=tuple(confirm),
        typed=tuple(str(volume.path) for volume, _ in holds.values() if volume.kind == "device"),
    )


def disk_space(
    workspace: Workspace,
    requested: RequestedVolumes | None,
    databases: int,
    database_bytes: int,
    *,
    writes: bool,
    settings: Mapping[str, str],
    lower: str = "--scale",
    templates: int = 1,
    loaded: int = 0,
) -> DiskSpace:
    """Return the disk space for ``databases`` clones and for templates with ``templates`` databases. It is 0 if ``requested`` is None.

    ``databases`` is the number on the fullest host. Of the templates, ``loaded`` databases exist already and need no free space.

    If the load ``writes``, ``WRITTEN_BYTES`` are counted for each server. WAL up to the max_wal_size of the servers' ``settings`` is only
    a warning, because short trials do not write that much.

    Raises:
        UsageError: there is less free space (the message names the options to ``lower``), or a volume is missing, in use, or too small.
        CapabilityError: this host cannot create a volume.
    """
    if requested is None:
        return DiskSpace()
    wal, written = wal_bytes(databases, not writes), WRITTEN_BYTES if writes else 0
    more_wal = databases * max(0, max_wal_bytes(settings) - WRITTEN_BYTES) if writes else 0
    needed: dict[Role, int] = {
        "data": databases * (database_bytes + EMPTY_CLUSTER + (0 if "wal" in requested.roles else written)),
        "wal": wal,
        "temp": databases * TEMP_BYTES,
        "tablespace": databases * (database_bytes + written),
    }
    wal_role: Role = "wal" if "wal" in requested.roles else "data"
    wal_volume = requested.roles.get(wal_role)
    warnings = []
    if wal_volume is not None and wal_volume.size is not None:
        if more_wal and wal_volume.size < (needed[wal_role] + more_wal) * _SPARE:
            left = max(0, int(wal_volume.size / _SPARE) - needed[wal_role])
            warnings.append(_wal_warning(more_wal, f"volume '{wal_volume.name}'", left))
        more_wal = 0
    checked = check_volumes(workspace.node, requested, workspace.account, needed)
    if "wal" in requested.roles:
        written = 0
    if "data" in requested.roles:
        databases = 0  # the cache contains only the template
    each = database_bytes + EMPTY_CLUSTER + written
    parts = []
    if databases:
        parts.append(f"{'1 database' if databases == 1 else f'{databases} databases'} of about {format_bytes(each)}")
    if templates > loaded:
        parts.append("a template" if templates - loaded == 1 else f"templates of {templates - loaded} databases")
    in_cache = (str(workspace.cache), " and ".join(parts), each * (databases + templates - loaded))
    wal_directory = in_cache[0] if wal_volume is None or wal_volume.path is None else wal_volume.path
    warnings += _require_space(workspace.node, in_cache, checked.holds, (wal_directory, more_wal), lower)
    return DiskSpace(each * (databases + templates), replace(checked, choices=(*checked.choices, *warnings)), each * loaded)


def _require_space(
    node: Node, in_cache: tuple[str, str, int], holds: tuple[VolumeContents, ...], more_wal: tuple[str, int], lower: str
) -> list[str]:
    """Require that each file system has space for all that the run stores on it: in the cache, in directories, in files of loop volumes.

    ``in_cache`` is the cache directory with its contents and their bytes. ``more_wal`` is the directory of the WAL with the bytes that WAL
    may take besides. Return a warning if there is no space for these.

    Raises:
        UsageError: there is less free space.
    """
    cache, together = in_cache[0], dict[str, list[tuple[str, str, int]]]()
    stored = [in_cache] if in_cache[2] else []
    for held in holds:
        if held.volume.kind != "device":
            directory, size = held.volume.path or cache, held.volume.size or held.bytes
            stored.append((directory, f"{held.words} on volume '{held.volume.name}'", size))
    for part in stored:
        together.setdefault(device_of(node, part[0]), []).append(part)
    warnings = []
    for device, parts in together.items():
        directory, need = parts[0][0], sum(size for _, _, size in parts)
        free = shutil.disk_usage(next(path for path in (Path(directory), *Path(directory).parents) if path.exists())).free
        alone = len(parts) == 1
        # check_volumes has checked a single volume
        if (not alone or directory == cache) and need + DISK_RESERVE > free:
            where = f"below {directory}" if alone else f"together on the file system of {directory}"
            remedy = "set XDG_CACHE_HOME to a larger disk" if alone else "move one of them to another disk"
            raise UsageError(
                f"{' and '.join(words for _, words, _ in parts)} may need {format_bytes(need)} {where}, which has {format_bytes(free)} "
                f"free; lower {lower}, or {remedy}"
            )
        if more_wal[1] and device == device_of(node, more_wal[0]) and need + more_wal[1] + DISK_RESERVE > free:
            warnings.append(_wal_warning(more_wal[1], f"the file system of {more_wal[0]}", free - need))
    return warnings


def _wal_warning(more: int, where: str, left: int) -> str:
    return (
        f"Warning: WAL may grow by {format_bytes(more)} more (max_wal_size), but {where} may have only {format_bytes(left)} left for it, "
        "and a server without space for WAL stops; use more space, or lower max_wal_size with --set."
    )


def look(node: Node, held: VolumeContents, account: str | None) -> str:
    """Require that the volume exists on this host, is usable and is large enough. Return the host change that it causes.

    Raises:
        UsageError: it is missing, in use, or too small.
        CapabilityError: this host cannot create it.
    """
    volume, need, words = held.volume, held.bytes, held.words
    if volume.kind == "device":
        assert volume.path is not None
        file_systems.require_tools(node, file_systems.DEVICE_TOOLS, f"device volume '{volume.name}'")
        _require_room(volume, require_empty(node, volume.path), need, words)
        return f"{volume.path} formatted and mounted for {words}, and emptied again"
    if volume.kind == "loop":
        assert volume.size is not None
        file_systems.require_loop(node, f"loop volume '{volume.name}'")
        _require_room(volume, volume.size, need, words)
        home = volume.path or str(paths.cache_dir())
        while volume.path is None and not os.path.isdir(home):
            home = os.path.dirname(home)
        check_directory(node, home, None, volume.size, "the volume's directory")
        return f"a loop device on a file of {format_bytes(volume.size)} with a separate file system, mounted for {words}"
    assert volume.path is not None
    check_directory(node, volume.path, account, need, "volume", words)
    return f"{words} in a private directory below {volume.path}"


def _require_room(volume: Volume, size: int, need: int, words: str) -> None:
    if size < need * _SPARE:
        raise UsageError(
            f"volume '{volume.name}' has {format_bytes(size)}, but {words} may need {format_bytes(need)} and the file system extra space; "
            "use a larger volume, or lower --scale"
        )
