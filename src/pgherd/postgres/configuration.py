"""Syntax of postgresql.conf: a parser, and a writer of values that PostgreSQL reads back unchanged.

The grammar is that of src/backend/utils/misc/guc-file.l.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pgherd.model.errors import UsageError
from pgherd.node.files import UnsafeFileError, open_regular, read_all, read_input
from pgherd.node.protocol import Node

_LETTER = r"[A-Za-z_\u0080-\U0010ffff]"
_ID = rf"{_LETTER}(?:{_LETTER}|[0-9])*"
_NAME = rf"{_ID}(?:\.{_ID})?"
_STRING = r"'((?:[^'\\\n]|\\.|'')*)'"
_NUMBER = r"[-+]?(?:(?:0x[0-9A-Fa-f]+|[0-9]+)[A-Za-z]*|[0-9]*\.[0-9]*(?:[Ee][-+]?[0-9]+)?)"
_WORD = rf"{_LETTER}(?:{_LETTER}|[0-9\-._:/])*"
_BLANK = r"[ \t\r]*"
_REST = rf"{_BLANK}(?:\#.*)?"
_NOTHING = re.compile(_REST)
_LINE = re.compile(rf"{_BLANK}((?>{_NAME})){_BLANK}=?{_BLANK}(?:{_STRING}|({_NUMBER}|{_WORD})){_REST}")
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_INCLUDES = ("include", "include_if_exists", "include_dir")
_AUTOMATIC = "postgresql.auto.conf"
"""File of ALTER SYSTEM, in the data directory. PostgreSQL reads it last."""
_COMMAND_LINE = "postmaster.opts"
"""File with the server's last command line, in the data directory."""
_SHORT_OPTIONS = {"-B": "shared_buffers", "-N": "max_connections", "-S": "work_mem"}
"""Option of postgres with a value → its setting. Of the others only -F matters to a private server."""
_MAX_DEPTH = 10
"""Maximum depth of includes, as in PostgreSQL (CONF_FILE_MAX_DEPTH)."""
_MAX_FILE_BYTES = 2**20


@dataclass(frozen=True)
class Configuration:
    """Parsed postgresql.conf.

    ``settings`` are keyed by lower-case name. The last occurrence of a name counts. ``includes`` are the include
    directives that were not followed.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    includes: Sequence[str] = ()


def read(text: str, source: str = "postgresql.conf") -> Configuration:
    """Parse the text of a postgresql.conf.

    Raises:
        UsageError: The text has a syntax error. The message contains ``source`` and the line.
    """
    found = entries(text, source)
    includes = [f"{name} '{value}'" for name, value in found if name in _INCLUDES]
    return Configuration({name: value for name, value in found if name not in _INCLUDES}, includes)


def entries(text: str, source: str = "postgresql.conf") -> list[tuple[str, str]]:
    """Return the names (lower case) and values of all lines in order, including the include directives. Raises as ``read``."""
    found: list[tuple[str, str]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if _NOTHING.fullmatch(line):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise UsageError(f"{source}, line {number}: '{line.strip()}' is not a line of the form 'name = value'")
        name, quoted, bare = match.groups()
        value = bare if quoted is None else unquote(quoted)
        found.append((name.lower(), value))
    return found


def read_files(node: Node, path: str) -> Configuration:
    """Read a postgresql.conf with its includes, its postgresql.auto.conf and the server's last command line, in PostgreSQL's order.

    The owner of the server may not be this user, and chooses what the file includes: only regular files are read, up to a limit.
    ``includes`` of the result are the files that cannot be read, each with the reason.

    Raises:
        UsageError: A file has a syntax error.
        OSError, UnsafeFileError: The file itself cannot be read.
    """
    settings: dict[str, str] = {}
    unread: list[str] = []

    def add(file: str, data: bytes, depth: int) -> None:
        for name, value in entries(data.decode(errors="replace"), file):
            if name not in _INCLUDES:
                settings[name] = value
                continue
            target = os.path.join(os.path.dirname(os.path.abspath(file)), value)
            if depth == _MAX_DEPTH:
                unread.append(f"{target}: more than {_MAX_DEPTH} files include each other")
                return
            try:
                for included in _included_files(node, name, target):
                    add(included, _included(included), depth + 1)
            except FileNotFoundError as error:
                if name != "include_if_exists":
                    unread.append(f"{error.filename or target}: {error.strerror}")
            except OSError as error:
                unread.append(f"{error.filename or target}: {error.strerror}")
            except UnsafeFileError as error:
                unread.append(str(error))

    def add_command_line(file: str) -> None:
        settings.update(command_line_settings(_included(file).decode(errors="replace")))

    add(path, read_input(path, _MAX_FILE_BYTES), 0)
    directory = os.path.join(os.path.dirname(os.path.abspath(path)), settings.get("data_directory", ""))
    if os.path.basename(path) == _AUTOMATIC:
        return Configuration(settings, unread)
    for name, read_file in ((_AUTOMATIC, lambda file: add(file, _included(file), 0)), (_COMMAND_LINE, add_command_line)):
        file = os.path.join(directory, name)
        try:
            read_file(file)
        except FileNotFoundError as error:  # no ALTER SYSTEM in a cluster of this host, or it was never started
            if name == _AUTOMATIC and not node.exists(directory):
                unread.append(f"{file}: {error.strerror}")
        except OSError as error:
            unread.append(f"{file}: {error.strerror}")
        except UnsafeFileError as error:
            unread.append(str(error))
    return Configuration(settings, unread)


def command_line_settings(text: str) -> dict[str, str]:
    """Return the settings in the text of a postmaster.opts: its program and the arguments, each in quotes (CreateOptsFile, postmaster.c).

    Patroni and other managers of clusters set values there, which override those of files.
    """
    words = iter(re.findall(r' "(.*?)"(?=\s*\Z| ")', text, re.DOTALL))
    settings: dict[str, str] = {}
    for word in words:
        if word == "-c":
            word = next(words, "")
        elif word.startswith(("-c", "--")):
            word = word[2:]
        elif word == "-F":
            word = "fsync=off"
        elif word[:2] in _SHORT_OPTIONS:
            word = f"{_SHORT_OPTIONS[word[:2]]}={word[2:] or next(words, '')}"
        else:
            continue
        name, equals, value = word.partition("=")
        if equals:
            settings[name.replace("-", "_").lower()] = value
    return settings


def _included(path: str) -> bytes:
    with open_regular(os.path.realpath(path)) as number:
        return read_all(number, _MAX_FILE_BYTES, path)


def _included_files(node: Node, directive: str, target: str) -> list[str]:
    """Return the files of an include directive. Those of a directory are sorted by their bytes."""
    if directive != "include_dir":
        return [target]
    names = [name for name in node.listdir(target) if name.endswith(".conf") and not name.startswith(".")]
    return [os.path.join(target, name) for name in sorted(names, key=os.fsencode)]


def unquote(inner: str) -> str:
    """Resolve the escapes of a string without its quotes, as in PostgreSQL's DeescapeQuotedString."""

    def resolve(match: re.Match[str]) -> str:
        if match[0] == "''":
            return "'"
        if match["octal"]:
            return chr(int(match["octal"], 8) & 0xFF)
        return _ESCAPES.get(match["other"], match["other"])

    return re.sub(r"''|\\(?:(?P<octal>[0-7]{1,3})|(?P<other>.))", resolve, inner, flags=re.DOTALL)


def quote(value: str) -> str:
    """Quote a value so that PostgreSQL reads it back unchanged.

    Raises:
        UsageError: The value contains a NUL character.
    """
    if "\0" in value:
        raise UsageError(f"a setting cannot contain a NUL character: {value!r}")
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    for letter, character in _ESCAPES.items():
        escaped = escaped.replace(character, f"\\{letter}")
    return f"'{escaped}'"


def write(settings: Mapping[str, str], heading: str = "Written by pgherd; changes are lost.") -> str:
    """Return the text of a postgresql.conf with exactly these settings.

    Raises:
        UsageError: A name or value cannot be written to a configuration file.
    """
    for name in settings:
        if not re.fullmatch(_NAME, name):
            raise UsageError(f"'{name}' is not the name of a PostgreSQL setting")
    return "".join([f"# {heading}\n", *(f"{name} = {quote(value)}\n" for name, value in settings.items())])


def parse_set(assignments: Sequence[str]) -> dict[str, str]:
    """Parse ``--set name=value`` options. The last occurrence of a name counts, and a value may contain ``=``.

    Raises:
        UsageError: The option is not an assignment to a valid name.
    """
    settings: dict[str, str] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        name = name.strip().lower()
        if not equals or not re.fullmatch(_NAME, name):
            raise UsageError(f"--set {assignment}: write it as name=value, such as --set work_mem=64MB")
        value = value.strip()
        quoted = re.fullmatch(_STRING, value)
        settings[name] = unquote(quoted[1]) if quoted else value
    return settings
