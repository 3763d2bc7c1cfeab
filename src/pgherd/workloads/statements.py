"""Where the commands of a pgbench script begin, so that an error can name a line.

pgbench says "command 2 of script 0" and no line. It splits a script as psql's lexer does (src/fe_utils/psqlscan.l):
statements end at a semicolon outside of quotes, comments and parentheses, or at a backslash command; a backslash
command takes the rest of its line; \\gset and \\aset belong to the statement before them, and ``\\;`` does not split.
"""

from __future__ import annotations

import re

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
    depth = position = 0
    while position < len(script):
        match = _TOKEN.match(script, position)
        assert match is not None  # the last alternative takes any character
        kind, here = match.lastgroup, position
        position = _end_of(script, match)
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


_INLINE = re.compile(r"\bfrom\s+stdin\b[^;]*;[^\n]*\n.*?(?:^\\\\\.|\Z)", re.IGNORECASE | re.MULTILINE | re.DOTALL)
"""The rows of COPY … FROM STDIN, which end at a line of their own; what stands there is no command."""


def backslash_commands(script: str) -> list[tuple[int, str]]:
    """(line, name) of every backslash command of an SQL file for psql, outside of quotes, comments and rows for COPY."""
    script = _INLINE.sub(lambda rows: "\n" * rows[0].count("\n"), script)
    found: list[tuple[int, str]] = []
    position = 0
    while position < len(script):
        match = _TOKEN.match(script, position)
        assert match is not None  # the last alternative takes any character
        if match.lastgroup == "meta":
            name = re.match(r"\\(\w+|.)", match["meta"])
            found.append((_line(script, position), name[1] if name else ""))
        position = _end_of(script, match)
    return found


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
