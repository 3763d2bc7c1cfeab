"""Where the commands of a pgbench script begin, so that an error can name a line; and which files an SQL file may read.

pgbench says "command 2 of script 0" and no line. It splits a script as psql's lexer does (src/fe_utils/psqlscan.l):
statements end at a semicolon outside of quotes, comments and parentheses, or at a backslash command; a backslash
command takes the rest of its line; \\gset and \\aset belong to the statement before them, and ``\\;`` does not split.
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
    """The line (counted from 1) on which each command of a pgbench script begins, in pgbench's order."""
    lines: list[int] = []
    began: int | None = None
    depth = 0
    for match, _ in _tokens(script):
        kind, here = match.lastgroup, match.start()
        if kind in ("space", "comment", "block"):
            continue
        if kind == "meta":
            if began is not None:
                lines.append(began)
                began, depth = None, 0
            if match["command"] not in ("gset", "aset"):
                lines.append(_line(script, here))
            continue
        if kind == "semicolon" and depth == 0:
            if began is not None:
                lines.append(began)
                began = None
            continue
        if kind == "joint" and began is None:
            continue
        depth += (kind == "open") - (kind == "close" and depth > 0)
        began = _line(script, here) if began is None else began
    if began is not None:
        lines.append(began)
    return lines


_INLINE = re.compile(
    r"(?:^\\copy\b[^\n]*\bfrom\s+p?stdin\b[^\n]*|\bfrom\s+stdin\b[^;]*;[^\n]*)\n.*?(?:^\\\.|\Z)", re.IGNORECASE | re.MULTILINE | re.DOTALL
)
"""The rows of COPY … FROM STDIN and of \\copy, which end at a line of their own; what stands there is no command."""


def backslash_commands(script: str) -> list[tuple[int, str]]:
    """(line, name) of every backslash command of an SQL file for psql, outside of quotes, comments and rows for COPY."""
    script = _without_rows(script)
    found: list[tuple[int, str]] = []
    for match, _ in _tokens(script):
        if match.lastgroup == "meta":
            name = re.match(r"\\(\w+|.)", match["meta"])
            found.append((_line(script, match.start()), name[1] if name else ""))
    return found


_QUOTED = re.compile(r"""'((?:[^']|'')*)'|"([^"]*)"|`([^`]*)`""")
_WORD = re.compile(r"""[^\s'"`;|&<>()$]+""")
_OUTPUT = re.compile(r"""\\(?:o|out|gx?|w|write|s|lo_export\s+\S+)(?:\s*\([^)]*\))?\s+(?P<file>'(?:[^']|'')*'|"[^"]*"|[^\s|'"`][^\s]*)""")
"""A backslash command that writes a file, and no program's input."""
_UNSPACED = re.compile(r"\S+")
LONGEST_NAME = 4096
"""Longest path that Linux takes, bytes."""


def named_words(script: str) -> set[str]:
    """What in an SQL file for psql may name a file that it reads: every word of a backslash command (\\copy, \\lo_import, \\!, what stands
    in backquotes), in quotes or not, and what begins with ``/`` in an SQL string (COPY … FROM '/a/file', PROGRAM 'zcat /a/file').
    Left out are files that it writes before it names them in another way (\\copy and COPY … TO, \\o, \\g, \\w, \\s, \\lo_export).

    Whether there is such a file is for the caller to see. Names that are put together by variables or by SQL are not found.
    """
    script = _without_rows(script)
    found: set[str] = set()
    written: set[str] = set()
    target: tuple[int, int] | None = None  # of the COPY that is being read
    for match, end in _tokens(script):
        text = script[match.start() : end]
        words: set[str] = set()
        if match.lastgroup == "meta":
            output = _output_of(text)
            if output is not None:
                written |= {_unquoted(text[slice(*output)])} - found
                text = f"{text[: output[0]]} {text[output[1] :]}"
            quoted = ["".join(parts).replace("''", "'") for parts in _QUOTED.findall(text)]
            words = {*quoted, *_WORD.findall(text)}
        elif text.lower() == "copy":
            target = _copied_to(script, end)
        elif match.span() == target and match.lastgroup in ("string", "escape"):
            written |= {_unquoted(text)} - found
        elif match.lastgroup in ("string", "escape", "dollar") and "/" in text:
            whole = _unquoted(text) if "'" in text else ""
            words = {word for word in (whole, *_WORD.findall(text)) if word.startswith("/")}
        found |= words - written
    return {word for word in found if 0 < len(word.encode(errors="surrogateescape")) <= LONGEST_NAME and "\0" not in word}


def _output_of(command: str) -> tuple[int, int] | None:
    """Where in a backslash command the file stands that it writes; None: it writes none."""
    if re.match(r"\\copy\s", command, re.IGNORECASE):
        return _copied_to(command, len("\\copy"))
    found = _OUTPUT.match(command)
    return None if found is None else found.span("file")


def _copied_to(script: str, position: int) -> tuple[int, int] | None:
    """Where the file stands that a COPY or \\copy writes, whose text goes on at a position; None: it writes none."""
    depth, to = 0, False
    for match, _ in _tokens(script, position):
        word = match[0].lower()
        if match.lastgroup in ("space", "comment", "block"):
            continue
        if to:
            if word in ("program", "stdout", "pstdout"):
                return None
            named = match if match.lastgroup in ("string", "escape") else _UNSPACED.match(script, match.start())
            return None if named is None else named.span()
        depth += (match.lastgroup == "open") - (match.lastgroup == "close")
        if depth == 0 and (word == "from" or match.lastgroup in ("semicolon", "meta")):
            return None
        to = depth == 0 and word == "to"
    return None


def _unquoted(text: str) -> str:
    """The value of a string of SQL or psql; of a word the word itself."""
    if text.endswith("'") and "'" in text[:-1]:
        return text[text.index("'") + 1 : -1].replace("''", "'")
    return text.rstrip(";").strip('"')


def runs_programs(script: str) -> bool:
    """Whether an SQL file for psql has a program run, whose own reading nobody sees: \\!, backquotes, \\copy or COPY … FROM PROGRAM."""
    before = ""
    for match, _ in _tokens(_without_rows(script)):
        text = match[0].lower()
        if match.lastgroup == "meta" and (text.startswith("\\!") or "`" in text or re.search(r"\bprogram\s*'", text)):
            return True
        if before == "from" and text == "program":
            return True
        before = text if match.lastgroup not in ("space", "comment", "block") else before
    return False


def _without_rows(script: str) -> str:
    """The same lines, with those of rows for COPY empty."""
    return _INLINE.sub(lambda rows: "\n" * rows[0].count("\n"), script)


def _tokens(script: str, position: int = 0) -> Iterator[tuple[re.Match[str], int]]:
    """Every token from a position on, and where it ends."""
    while position < len(script):
        match = _TOKEN.match(script, position)
        assert match is not None  # the last alternative takes any character
        position = _end_of(script, match)
        yield match, position


def _end_of(script: str, match: re.Match[str]) -> int:
    """Where the token ends; block comments nest and dollar quotes need their own tag."""
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
