"""Parts of all scripts that repeat a trial: quoted texts, and the directories of volumes.

The author of a run directory chooses the texts of a run, and none of them may become a command: all that are in a script pass ``comment``,
``quote``, ``say`` or ``join``.

A volume is a variable ``DIR_NAME`` of the script, with the original directory as default. A volume made by pgherd (loop device, formatted
device) no longer exists, so the user names a mounted directory.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pgherd.model.deployment import Deployment, Server, Volume
from pgherd.model.errors import UsageError
from pgherd.model.text import clean
from pgherd.postgres.relation_files import RELATIONS, SPACE, TEMP


def comment(text: object) -> str:
    """Return the text as one comment line."""
    return "# " + " ".join(clean(text).split())


def quote(text: str, variables: Mapping[str, str] | None = None) -> str:
    """Return the text as one word of the shell.

    Args:
        text: any text.
        variables: placeholders in the text and the quoted variables that replace them. A placeholder has a NUL, so that no text of a run
            contains one by chance.

    Raises:
        UsageError: the text contains a NUL character.
    """
    variables = variables or {}
    pieces = re.split(f"({'|'.join(map(re.escape, variables))})", text) if variables else [text]
    words = [variables[piece] if piece in variables else shlex.quote(piece) for piece in pieces if piece]
    word = "".join(words) or "''"
    if "\0" in word:
        raise UsageError("a script cannot repeat this trial: one of its texts contains a NUL character")
    return word


def say(text: str) -> str:
    """Return the command that prints a line. ``echo`` would interpret backslashes."""
    return f"printf '%s\\n' {quote(clean(text))}"


def join(words: Iterable[str], variables: Mapping[str, str] | None = None) -> str:
    """Return a command line. Raises as ``quote``."""
    return " ".join(quote(word, variables) for word in words)


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
    for database in dict.fromkeys(database.dbname for database in server.databases) if spaces else ():
        yield f"spread {name} {quote(database)} {' '.join(spaces)}"
