"""Volumes in a script that repeats a trial: the directories that stand for them, and the steps that put parts of servers there.

A volume is a variable of the script's, ``DIR_NAME``: a directory as it was, unless the environment names another one. A volume that
pgherd made itself (a loop device, a device that it formatted) is gone, so the user names a mounted directory in its place.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from pgherd.model.deployment import Deployment, Server, Volume
from pgherd.postgres.relations import RELATIONS, SPACE, TEMP
from pgherd.report.formatting import clean

_WORDS = {"data": "data", "wal": "WAL", "temp": "temporary files"}


def variable_part(name: str) -> str:
    """A volume's name as a part of a shell variable's."""
    return name.replace("-", "_")


def variable(name: str) -> str:
    """The variable that names a volume's directory."""
    return f"DIR_{variable_part(name)}"


def default_line(volume: Volume) -> str:
    """The line that gives the variable its value, or ends the script where there is none to give."""
    name = variable(volume.name)
    if volume.kind == "directory" and volume.path is not None:
        return f'[ -n "${{{name}:-}}" ] || {name}={shlex.quote(volume.path)}'
    what = f"a {volume.kind} volume that pgherd made and took away: name a mounted directory in {name}"
    return f': "${{{name}:?{what}}}"'


def used_volumes(deployment: Deployment) -> dict[str, tuple[Volume, list[str]]]:
    """The volumes on which parts of servers lie, and which parts, in words."""
    volumes = {volume.name: volume for volume in deployment.volumes}
    found: dict[str, tuple[Volume, list[str]]] = {}
    for _, _, server in deployment.servers():
        parts = [(name, _WORDS[role]) for role, name in server.volumes.items()]
        for name, what in [*parts, *((name, "tables and indexes") for name in server.tablespaces)]:
            words = found.setdefault(name, (volumes[name], []))[1]
            if what not in words:
                words.append(what)
    return found


def environment_comments(deployment: Deployment) -> Iterator[str]:
    """Comments for the script's head: what may be named in the environment."""
    for name, (volume, parts) in used_volumes(deployment).items():
        was = " ".join(clean(volume.path).split()) if volume.kind == "directory" and volume.path else f"a {volume.kind} volume of pgherd's"
        yield f"# {variable(name)}, a directory for the servers' {' and '.join(parts)} (it was {was})."


def default_lines(deployment: Deployment) -> Iterator[str]:
    """The lines that give all variables their values."""
    volumes = [volume for volume, _ in used_volumes(deployment).values()]
    yield from (default_line(volume) for volume in volumes)
    if volumes:
        yield ""


def relations_lines(servers: Sequence[Server]) -> Iterator[str]:
    """The query for what is spread over tablespaces, as a variable, where a server has some."""
    if any(server.tablespaces for server in servers):
        yield from ("relations=$(", "cat <<'END'", RELATIONS, "END", ")", "")


def copy_lines(loaded: str, name: str, server: Server) -> Iterator[str]:
    """A server's cluster from a loaded one, its data and its WAL where they lay; it is not running yet."""
    data, wal = server.volumes.get("data"), server.volumes.get("wal")
    if data is not None:
        yield f'data {name} "${variable(data)}"'
    yield f"copy {loaded} {name}"
    if wal is not None:
        yield f'wal {name} "${variable(wal)}"'


def tablespace_lines(name: str, server: Server) -> Iterator[str]:
    """The tablespaces of a running server, and what goes to them."""
    temp = server.volumes.get("temp")
    if temp is not None:
        yield f'space {name} {TEMP} "${variable(temp)}"'
        yield f"temporary {name} {TEMP}"
    spaces = [f"{SPACE}_{number}" for number in range(len(server.tablespaces))]
    for space, volume in zip(spaces, server.tablespaces, strict=True):
        yield f'space {name} {space} "${variable(volume)}"'
    for database in server.databases if spaces else ():
        yield f"spread {name} {shlex.quote(database.name)} {' '.join(spaces)}"
