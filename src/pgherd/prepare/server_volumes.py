"""Volumes of a request: placement of the servers' data, WAL, temporary files, tables and indexes.

This module only checks the volumes before a run starts. It creates nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from pgherd.host import file_systems, paths
from pgherd.host.file_systems import require_empty
from pgherd.model.deployment import Role, Volume
from pgherd.model.errors import UsageError
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Node
from pgherd.prepare.volume_syntax import parse_volume
from pgherd.runner.deploy.volumes import check_directory, same_device
from pgherd.study.database_options import DatabaseRequest

OPTIONS = {"data": "data_volume", "wal": "wal_volume", "temp": "temp_volume"}
"""Role → option of the request that names its volume. ``tablespace_volume`` is separate, because it names several."""
_LABELS = {"data": "servers' data", "wal": "servers' WAL", "temp": "servers' temporary files", "tablespace": "tables and indexes"}
_SPARE = 1.2
"""Size of a separate file system as a multiple of the bytes that it stores."""


@dataclass(frozen=True)
class Holding:
    """Contents of one volume.

    ``words`` describes them. ``bytes`` is their estimated size for all servers of one host together.
    """

    volume: Volume
    words: str
    bytes: int

    def part(self, servers: int, of: int) -> Holding:
        """Return the contents of ``servers`` servers, if this volume has those of ``of`` servers."""
        return replace(self, bytes=-(-self.bytes * servers // of))


@dataclass(frozen=True)
class ServerPlaces:
    """Checked volumes of a run.

    ``roles`` and ``tablespaces`` refer to ``volumes`` by name. ``holds`` lists the contents of the volumes. The other fields are for the
    user: ``choices`` are messages, ``changes`` are host changes, ``confirm`` are the changes that the user must confirm, and ``typed``
    are the devices whose names the user must type.
    """

    volumes: tuple[Volume, ...] = ()
    holds: tuple[Holding, ...] = ()
    roles: dict[Role, str] | None = None
    tablespaces: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    confirm: tuple[str, ...] = ()
    typed: tuple[str, ...] = ()


def asked_places(asked: DatabaseRequest) -> tuple[dict[Role, Volume], tuple[Volume, ...]]:
    """Return the volume of each role, and the volumes of the tablespaces. Equal texts are one volume. The host is not read.

    Raises:
        UsageError: a text is no volume, two volumes have the same name, or --allow-format does not match the devices.
    """
    by_text: dict[str, Volume] = {}

    def volume(text: str, name: str, option: str) -> Volume:
        if text not in by_text:
            parsed = parse_volume(text, name, f"--{option.replace('_', '-')}")
            if any(parsed.name == other.name for other in by_text.values()):
                raise UsageError(f"--{option.replace('_', '-')} {text}: two volumes are called '{parsed.name}'; give each a name, NAME=…")
            by_text[text] = parsed
        return by_text[text]

    roles: dict[Role, Volume] = {}
    for role, option in OPTIONS.items():
        text = getattr(asked, option)
        if text is not None:
            roles[role] = volume(text, f"on-{role}", option)  # type: ignore[index]
    spaces = tuple(volume(text, f"space{number}", "tablespace_volume") for number, text in enumerate(asked.tablespace_volume))
    if len({entry.name for entry in spaces}) < len(spaces):
        raise UsageError("--tablespace-volume names a volume twice; name each once")
    allowed = {os.path.normpath(path) for path in asked.allow_format}
    devices = {str(entry.path) for entry in by_text.values() if entry.kind == "device"}
    for path in sorted(devices - allowed):
        raise UsageError(f"device:{path}: formatting the device erases it; add --allow-format {path} to permit this")
    for path in sorted(allowed - devices):
        raise UsageError(f"--allow-format {path}: no volume option names device:{path}; name it there, or leave --allow-format out")
    return roles, spaces


def server_places(node: Node, asked: DatabaseRequest, account: str | None, needed: dict[Role, int]) -> ServerPlaces:
    """Check all volumes of a request on this host. ``needed`` is the size in bytes of each role, for all servers together.

    Raises:
        UsageError: a volume is missing, in use, or too small.
        CapabilityError: this host cannot create a volume.
    """
    roles, spaces = asked_places(asked)
    if not roles and not spaces:
        return ServerPlaces()
    holds: dict[str, tuple[Volume, list[Role]]] = {}
    for role, volume in roles.items():
        holds.setdefault(volume.name, (volume, []))[1].append(role)
    for volume in spaces:
        holds.setdefault(volume.name, (volume, []))[1].append("tablespace")
    messages, changes, confirm = [], [], []
    contents: list[Holding] = []
    for volume, volume_roles in holds.values():
        need = sum(needed.get(role, 0) // (len(spaces) if role == "tablespace" else 1) for role in volume_roles)
        text = " and ".join(_LABELS[role] for role in volume_roles)
        contents.append(Holding(volume, text, need))
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
    return ServerPlaces(
        volumes=tuple(volume for volume, _ in holds.values()),
        holds=tuple(contents),
        roles={role: volume.name for role, volume in roles.items()},
        tablespaces=tuple(volume.name for volume in spaces),
        choices=tuple(messages),
        changes=tuple(changes),
        confirm=tuple(confirm),
        typed=tuple(str(volume.path) for volume, _ in holds.values() if volume.kind == "device"),
    )


def look(node: Node, held: Holding, account: str | None) -> str:
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
        file_systems.require_tools(node, file_systems.LOOP_TOOLS, f"loop volume '{volume.name}'")
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
