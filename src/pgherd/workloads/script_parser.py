"""Parser of pgbench scripts and SQL files: line numbers of commands, and names of files that an SQL file may read.

pgbench reports "command 2 of script 0" without a line. It splits a script like psql's lexer (src/fe_utils/psqlscan.l).
A statement ends at a semicolon outside of quotes, comments and parentheses, or at a backslash command. A backslash command
extends to the end of its line. \\gset and \\aset belong to the statement before them, and ``\\;`` does not split.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*)
      | (?P<block>/\*)
      | (?P<escape>[eE]'(?:[^'\\]|\\.|'')*')
      | (?P<string>'(?:[^']|'')*')
      | (?P<name>"(?:[^"]|"")*")
      | (?P<dollar>\$(?:[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_\u0080-\U0010ffff]*)?\$)
      | (?P<joint>\\;)
      | (?P<meta>\\(?P<command>[A-Za-z!]+)(?:[^\n\\]|\\\r?\n|\\(?!\n))*)
      | (?P<semicolon>;)
      | (?P<open>\() | (?P<close>\))
      | (?P<space>\s+)
      | (?P<other>[A-Za-z_][A-Za-z0-9_$]*|.)""",
    re.VERBOSE | re.DOTALL,
)


def command_lines(script: str) -> list[int]:
    """Return the line (from 1) on which each command of a pgbench script starts, in pgbench's order."""
    lines: list[int] = []
    start: int | None = None
    depth = 0
    for match, _ in _tokens(script):
        kind, position = match.lastgroup, match.start()
        if kind in ("space", "comment", "block"):
            continue
        if kind == "meta":
            if start is not None:
                lines.append(start)
                start, depth = None, 0
            if match["command"] not in ("gset", "aset"):
                lines.append(_line(script, position))
            continue
        if kind == "semicolon" and depth == 0:
            if start is not None:
                lines.append(start)
                start = None
            continue
        if kind == "joint" and start is None:
            continue
        depth += (kind == "open") - (kind == "close" and depth > 0)
        start = _line(script, position) if start is None else start
    if start is not None:
        lines.append(start)
    return lines


_INLINE = re.compile(
    r"(?:^\\copy\b[^\n]*\bfrom\s+p?stdin\b[^\n]*|\bfrom\s+stdin\b[^;]*;[^\n]*)\n.*?(?:^\\\.|\Z)", re.IGNORECASE | re.MULTILINE | re.DOTALL
)
"""Inline rows of COPY … FROM STDIN and \\copy, up to a line with only ``\\.``. They contain no commands."""


def backslash_commands(script: str) -> list[tuple[int, str]]:
    """Return (line, name) of the backslash commands of an SQL file, outside of quotes, comments and inline rows."""
    script = _without_rows(script)
    commands: list[tuple[int, str]] = []
    for match, _ in _tokens(script):
        if match.lastgroup == "meta":
            name = re.match(r"\\(\w+|.)", match["meta"])
            commands.append((_line(script, match.start()), name[1] if name else ""))
    return commands


_QUOTED = re.compile(r"""'((?:[^']|'')*)'|"([^"]*)"|`([^`]*)`""")
_WORD = re.compile(r"""[^\s'"`;|&<>()$]+""")
_OUTPUT = re.compile(r"""\\(?:o|out|gx?|w|write|s|lo_export\s+\S+)(?:\s*\([^)]*\))?\s+(?P<file>'(?:[^']|'')*'|"[^"]*"|[^\s|'"`][^\s]*)""")
"""Backslash command that writes a file, not the input of a program."""
_UNSPACED = re.compile(r"\S+")
LONGEST_NAME = 4096
"""Maximum length of a path in Linux, in bytes."""


def named_words(script: str) -> set[str]:
    """Return words in an SQL file for psql that may be names of files that it reads.

    These are the words of backslash commands (\\copy, \\lo_import, \\!, backquotes), quoted or not, and words that start
    with ``/`` in SQL strings (COPY … FROM '/a/file', PROGRAM 'zcat /a/file'). Files that the script writes before it names
    them in another way are omitted (\\copy and COPY … TO, \\o, \\g, \\w, \\s, \\lo_export).

    The caller checks if the files exist. Names that variables or SQL expressions compute are not found.
    """
    script = _without_rows(script)
    names: set[str] = set()
    written: set[str] = set()
    target: tuple[int, int] | None = None  # span of the file name in the current COPY … TO
    for match, end in _tokens(script):
        text = script[match.start() : end]
        words: set[str] = set()
        if match.lastgroup == "meta":
            output = _output_of(text)
            if output is not None:
                written |= {_unquoted(text[slice(*output)])} - names
                text = f"{text[: output[0]]} {text[output[1] :]}"
            quoted = ["".join(parts).replace("''", "'") for parts in _QUOTED.findall(text)]
            words = {*quoted, *_WORD.findall(text)}
        elif text.lower() == "copy":
            target = _copied_to(script, end)
        elif match.span() == target and match.lastgroup in ("string", "escape"):
            written |= {_unquoted(text)} - names
        elif match.lastgroup in ("string", "escape", "dollar") and "/" in text:
            literal = _unquoted(text) if "'" in text else ""
            words = {word for word in (literal, *_WORD.findall(text)) if word.startswith("/")}
        names |= words - written
    return {word for word in names if 0 < len(word.encode(errors="surrogateescape")) <= LONGEST_NAME and "\0" not in word}


def _output_of(command: str) -> tuple[int, int] | None:
    """Return the span of the file name that a backslash command writes, or None."""
    if re.match(r"\\copy\s", command, re.IGNORECASE):
        return _copied_to(command, len("\\copy"))
    match = _OUTPUT.match(command)
    return None if match is None else match.span("file")


def _copied_to(script: str, position: int) -> tuple[int, int] | None:
    """Return the span of the file name that COPY or \\copy, continued at ``position``, writes, or None."""
    depth, to = 0, False
    for match, _ in _tokens(script, position):
        word = match[0].lower()
        if match.lastgroup in ("space", "comment", "block"):
            continue
        if to:
            if word in ("program", "stdout", "pstdout"):
                return None
            name = match if match.lastgroup in ("string", "escape") else _UNSPACED.match(script, match.start())
            return None if name is None else name.span()
        depth += (match.lastgroup == "open") - (match.lastgroup == "close")
        if depth == 0 and (word == "from" or match.lastgroup in ("semicolon", "meta")):
            return None
        to = depth == 0 and word == "to"
    return None


def _unquoted(text: str) -> str:
    """Return the value of a string in SQL or psql. A word is returned unchanged."""
    if text.endswith("'") and "'" in text[:-1]:
        return text[text.index("'") + 1 : -1].replace("''", "'")
    return text.rstrip(";").strip('"')


def runs_programs(script: str) -> bool:
    """Return True if an SQL file runs a program: \\!, backquotes, \\copy or COPY … FROM PROGRAM.

    The files that a program reads are not known.
    """
    previous = ""
    for match, _ in _tokens(_without_rows(script)):
        text = match[0].lower()
        if match.lastgroup == "meta" and (text.startswith("\\!") or "`" in text or re.search(r"\bprogram\s*'", text)):
            return True
        if previous == "from" and text == "program":
            return True
        previous = text if match.lastgroup not in ("space", "comment", "block") else previous
    return False


def _without_rows(script: str) -> str:
    """Replace inline rows by empty lines, so that line numbers stay the same."""
    return _INLINE.sub(lambda rows: "\n" * rows[0].count("\n"), script)


def _tokens(script: str, position: int = 0) -> Iterator[tuple[re.Match[str], int]]:
    """Yield the tokens from ``position`` with their ends."""
    while position < len(script):
        match = _TOKEN.match(script, position)
        assert match is not None  # the last alternative matches any character
        position = _end_of(script, match)
        yield match, position


def _end_of(script: str, match: re.Match[str]) -> int:
    """Return the end of a token. Block comments nest, and a dollar quote ends at its tag."""
    if match["dollar"]:
        end = script.find(match["dollar"], match.end())
        return len(script) if end < 0 else end + len(match["dollar"])
    if match["block"]:
        depth = 1
        for mark in re.finditer(r"/\*|\*/", script[match.end() :]):
            depth += 1 if mark[0] == "/*" else -1
            if depth == 0:
                return match.end() + mark.end()
        return len(script)
    return match.end()


def _line(script: str, position: int) -> int:
    return script.count("\n", 0, position) + 1
