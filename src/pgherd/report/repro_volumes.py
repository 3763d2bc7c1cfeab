"""Volumes in a script that repeats a trial: their directories, and the steps that place parts of servers there.

A volume is a variable ``DIR_NAME`` of the script, with the original directory as default. A volume made by pgherd (loop device, formatted
device) no longer exists, so the user names a mounted directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pgherd.model.deployment import Deployment, Server, Volume
from pgherd.postgres.relation_files import RELATIONS, SPACE, TEMP
from pgherd.report.shell_text import comment, quote

_PART_NAMES = {"data": "data", "wal": "WAL", "temp": "temporary files"}


def variable_part(name: str) -> str:
    """Return a volume's name as part of a shell variable's name."""
    return name.replace("-", "_")


def variable(name: str) -> str:
    """Return the shell variable of a volume's directory."""
    return f"DIR_{variable_part(name)}"


def default_line(volume: Volume) -> str:
    """Return the line that sets the variable's default, or ends the script if there is none."""
    name = variable(volume.name)
    if volume.kind == "directory" and volume.path is not None:
        return f'[ -n "${{{name}:-}}" ] || {name}={quote(volume.path)}'
    message = f"pgherd removed its {volume.kind} volume: set {name} to a mounted directory"
    return f': "${{{name}:?{message}}}"'


def used_volumes(deployment: Deployment) -> dict[str, tuple[Volume, list[str]]]:
    """Return the volumes of servers, with the parts of servers on each as text."""
    volumes = {volume.name: volume for volume in deployment.volumes}
    used: dict[str, tuple[Volume, list[str]]] = {}
    for _, _, server in deployment.servers():
        parts = [(name, _PART_NAMES[role]) for role, name in server.volumes.items()]
        for name, part in [*parts, *((name, "tables and indexes") for name in server.tablespaces)]:
            parts_of = used.setdefault(name, (volumes[name], []))[1]
            if part not in parts_of:
                parts_of.append(part)
    return used


def environment_comments(deployment: Deployment) -> Iterator[str]:
    """Yield comments for the script's head about environment variables."""
    for name, (volume, parts) in used_volumes(deployment).items():
        original = volume.path if volume.kind == "directory" and volume.path else f"a {volume.kind} volume made by pgherd"
        yield comment(f"{variable(name)}, directory for the servers' {' and '.join(parts)} (in the run: {original}).")


def default_lines(deployment: Deployment) -> Iterator[str]:
    """Yield the lines that set the defaults of all variables."""
    volumes = [volume for volume, _ in used_volumes(deployment).values()]
    yield from (default_line(volume) for volume in volumes)
    if volumes:
        yield ""


def relations_lines(servers: Sequence[Server]) -> Iterator[str]:
    """Yield the query for relations to spread over tablespaces, as a variable, if a server has tablespaces."""
    if any(server.tablespaces for server in servers):
        yield from ("relations=$(", "cat <<'END'", RELATIONS, "END", ")", "")


def copy_lines(loaded: str, name: str, server: Server) -> Iterator[str]:
    """Yield the lines that copy a loaded cluster for a server, with data and WAL on their volumes. It is not running yet."""
    data, wal = server.volumes.get("data"), server.volumes.get("wal")
    if data is not None:
        yield f'data {name} "${variable(data)}"'
    yield f"copy {loaded} {name}"
    if wal is not None:
        yield f'wal {name} "${variable(wal)}"'


def tablespace_lines(name: str, server: Server) -> Iterator[str]:
    """Yield the tablespaces of a running server, and their contents."""
    temp = server.volumes.get("temp")
    if temp is not None:
        yield f'space {name} {TEMP} "${variable(temp)}"'
        yield f"temporary {name} {TEMP}"
    spaces = [f"{SPACE}_{number}" for number in range(len(server.tablespaces))]
    for space, volume in zip(spaces, server.tablespaces, strict=True):
        yield f'space {name} {space} "${variable(volume)}"'
    for database in server.databases if spaces else ():
        yield f"spread {name} {quote(database.name)} {' '.join(spaces)}"
