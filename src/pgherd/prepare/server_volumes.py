"""Where parts of the servers lie, as a request says: data, WAL, temporary files, tables and indexes on volumes of their own.

Everything is looked at before anything is begun; nothing is made here.
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
"""Role → option of the request that names its one volume; ``tablespaces_on`` names several."""
_WORDS = {"data": "servers' data", "wal": "servers' WAL", "temp": "servers' temporary files", "tablespace": "tables and indexes"}
_SPARE = 1.2
"""A file system of its own needs so many times the bytes of what lies on it."""


@dataclass(frozen=True)
class Holding:
    """What is to lie on one volume: in words, and how many bytes of all servers of one host together. ``option`` is what the user knows
    the volume by."""

    volume: Volume
    words: str
    bytes: int
    option: str = "volume"

    def part(self, servers: int, of: int) -> Holding:
        """The same for so many of its servers."""
        return replace(self, bytes=-(-self.bytes * servers // of))


@dataclass(frozen=True)
class ServerPlaces:
    """``roles`` and ``tablespaces`` name ``volumes``; ``holds`` is what lies on them. The rest is for the user: sentences, changes of
    the host, those that are to be confirmed, devices whose name is to be typed."""

    volumes: tuple[Volume, ...] = ()
    holds: tuple[Holding, ...] = ()
    roles: dict[Role, str] | None = None
    tablespaces: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    confirm: tuple[str, ...] = ()
    typed: tuple[str, ...] = ()


def asked_places(asked: DatabaseRequest) -> tuple[dict[Role, Volume], tuple[Volume, ...]]:
    """The volume of each role, and those of the tablespaces; the same text is the same volume. Nothing is looked at.

    Raises:
        UsageError: a text is no volume, names contradict each other, or a device is named without permission to format it.
    """
    if asked.wal_dir is not None and asked.wal_volume is not None:
        raise UsageError(f"--wal-dir {asked.wal_dir} and --wal-volume {asked.wal_volume} both say where the WAL lies; leave one out")
    seen: dict[str, Volume] = {}

    def volume(text: str, name: str, option: str) -> Volume:
        if text not in seen:
            found = parse_volume(text, name, f"--{option.replace('_', '-')}")
            if any(found.name == other.name for other in seen.values()):
                raise UsageError(f"--{option.replace('_', '-')} {text}: two volumes are called '{found.name}'; give each a name, NAME=…")
            seen[text] = found
        return seen[text]

    roles: dict[Role, Volume] = {}
    for role, option in OPTIONS.items():
        text = getattr(asked, option)
        if text is not None:
            roles[role] = volume(text, f"on-{role}", option)  # type: ignore[index]
    spaces = tuple(volume(text, f"space{number}", "tablespace_volume") for number, text in enumerate(asked.tablespace_volume))
    if len({one.name for one in spaces}) < len(spaces):
        raise UsageError("--tablespace-volume names a volume twice; name each once")
    allowed = {os.path.normpath(path) for path in asked.allow_format}
    devices = {str(one.path) for one in seen.values() if one.kind == "device"}
    for path in sorted(devices - allowed):
        raise UsageError(f"device:{path}: a device is formatted, and what is on it is lost; say --allow-format {path} if that is meant")
    for path in sorted(allowed - devices):
        raise UsageError(f"--allow-format {path}: nothing is to lie on device:{path}")
    return roles, spaces


def server_places(node: Node, asked: DatabaseRequest, account: str | None, needed: dict[Role, int]) -> ServerPlaces:
    """All of them, looked at; ``needed`` are bytes by role, of all servers together.

    Raises:
        UsageError: a volume is missing, in use, or too small.
        CapabilityError: it cannot be had.
    """
    roles, spaces = asked_places(asked)
    if not roles and not spaces:
        return ServerPlaces()
    holds: dict[str, tuple[Volume, list[Role]]] = {}
    for role, one in roles.items():
        holds.setdefault(one.name, (one, []))[1].append(role)
    for one in spaces:
        holds.setdefault(one.name, (one, []))[1].append("tablespace")
    said, changes, confirm = [], [], []
    held: list[Holding] = []
    for one, what in holds.values():
        need = sum(needed.get(role, 0) // (len(spaces) if role == "tablespace" else 1) for role in what)
        words = " and ".join(_WORDS[role] for role in what)
        held.append(Holding(one, words, need))
        change = look(node, held[-1], account)
        changes.append(change)
        if one.kind == "loop":
            confirm.append(change)
            said.append(f"Warning: volume {one.name} is a loop device, which distorts: a file system in a file is slower than its disk.")
        else:
            said.append(f"{words[0].upper()}{words[1:]} on volume {one.name} ({one.path}).")
    for one, what in holds.values():
        if (
            one.kind == "directory"
            and "data" not in what
            and same_device(node, str(one.path), str(paths.cache_dir()))
            and "data" not in roles
        ):
            said.append(f"Warning: volume {one.name} ({one.path}) lies on the same file system as the servers' data.")
    return ServerPlaces(
        volumes=tuple(one for one, _ in holds.values()),
        holds=tuple(held),
        roles={role: one.name for role, one in roles.items()},
        tablespaces=tuple(one.name for one in spaces),
        choices=tuple(said),
        changes=tuple(changes),
        confirm=tuple(confirm),
        typed=tuple(str(one.path) for one, _ in holds.values() if one.kind == "device"),
    )


def wal_beside(directory: str, need: int) -> Holding:
    """The WAL in a directory that ``--wal-dir`` names."""
    return Holding(Volume(name="wal-dir", path=directory), "the servers' WAL", need, "--wal-dir")


def look(node: Node, held: Holding, account: str | None) -> str:
    """Insist that this host has the volume, that it may be used, and that there is room on it; the change of the host that it means.

    Raises:
        UsageError: it is missing, in use, or too small.
        CapabilityError: it cannot be had.
    """
    one, need, words = held.volume, held.bytes, held.words
    if one.kind == "device":
        assert one.path is not None
        file_systems.require_tools(node, file_systems.DEVICE_TOOLS, f"device volume '{one.name}'")
        _insist_room(one, require_empty(node, one.path), need, words)
        return f"{one.path} formatted and mounted for {words}, and emptied again"
    if one.kind == "loop":
        assert one.size is not None
        file_systems.require_tools(node, file_systems.LOOP_TOOLS, f"loop volume '{one.name}'")
        _insist_room(one, one.size, need, words)
        home = one.path or str(paths.cache_dir())
        while one.path is None and not os.path.isdir(home):
            home = os.path.dirname(home)
        check_directory(node, home, None, one.size, "the volume's directory")
        return f"a loop device on a file of {format_bytes(one.size)} with a file system of its own, mounted for {words}"
    assert one.path is not None
    check_directory(node, one.path, account, need, held.option, words)
    return f"{words} in a private directory below {one.path}"


def _insist_room(one: Volume, size: int, need: int, words: str) -> None:
    if size < need * _SPARE:
        raise UsageError(
            f"volume '{one.name}' has {format_bytes(size)}, but {words} may need {format_bytes(need)}, and a file system some room; "
            "name a larger one, or lower --scale"
        )
