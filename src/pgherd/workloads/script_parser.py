"""Parser of pgbench scripts and SQL files: line numbers of commands, and names of files that an SQL file may read.

pgbench reports "command 2 of script 0" without a line. Both programs split text with the same lexer (src/fe_utils/psqlscan.l). A
statement ends at a semicolon outside of quotes, comments and parentheses, or at a backslash command. \\gset and \\aset belong to the
statement before them, and ``\\;`` does not split.

They differ in backslash commands. In pgbench a command extends to the end of its line, and a backslash at the end continues it. In psql
(psqlscanslash.l) a command ends at an unquoted backslash, which starts the next one. Only some commands take the whole line. psql also
reads the rows of COPY … FROM STDIN from the lines after the statement, up to a line with only ``\\.``. They contain no commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_WORD_START, _WORD_REST = r"A-Za-z_\u0080-\U0010ffff", r"A-Za-z0-9_$\u0080-\U0010ffff"
_COMMON = rf"""(?P<comment>--[^\r\n]*)
      | (?P<block>/\*)
      | (?P<escape>[eE]'(?:[^'\\]|\\.|'')*(?:'|\Z))
      | (?P<string>'(?:[^']|'')*(?:'|\Z))
      | (?P<name>"(?:[^"]|"")*(?:"|\Z))
      | (?P<dollar>\$(?:[{_WORD_START}][A-Za-z0-9_\u0080-\U0010ffff]*)?\$)
      | (?P<joint>\\[;:])"""
_PLAIN = rf"""(?P<semicolon>;)
      | (?P<open>\() | (?P<close>\))
      | (?P<space>\s+)
      | (?P<other>[{_WORD_START}][{_WORD_REST}]*|.)"""
_FLAGS = re.VERBOSE | re.DOTALL
_PGBENCH = re.compile(rf"{_COMMON} | (?P<meta>\\[A-Za-z!]+(?:[^\n\\]|\\\r?\n|\\(?!\n))*) | {_PLAIN}", _FLAGS)
_ARGUMENT = r"""'(?:[^'\\\n]|\\[^\n]|'')*'|"[^"\n]*"|`[^`\n]*`|[^\n\\]"""
_PSQL = re.compile(
    rf"""{_COMMON}
      | (?P<back>\\\\)
      | (?P<meta>\\(?:(?:!|(?:(?i:copy)|h|help|ef|ev|sf|sv)(?=[\s\\]|\Z))[^\n]*
               |[^\s\\]+[^\S\n]*(?:\|[^\n]*|(?:{_ARGUMENT})*)))
      | {_PLAIN}""",
    _FLAGS,
)


_IGNORES = re.compile(r"\\(?:unset\s+'?ON_ERROR_STOP\b|set\s+'?ON_ERROR_STOP'?\s+'?(?i:0|off?|no?|f(?:a(?:l(?:se?)?)?)?)'?\s*$)")
"""Command of psql that lets it go on after errors. A value may be shortened (ParseVariableBool in variables.c)."""


class _Token(NamedTuple):
    """Token of a script: its kind (a group of the patterns), its text and its span."""

    kind: str
    text: str
    start: int
    end: int


def command_lines(script: str) -> list[int]:
    """Return the line (from 1) on which each command of a pgbench script starts, in pgbench's order."""
    lines: list[int] = []
    start: int | None = None
    depth = 0
    for token in _tokens(script, _PGBENCH):
        if token.kind in ("space", "comment", "block"):
            continue
        if token.kind == "meta":
            if start is not None:
                lines.append(start)
                start, depth = None, 0
            if _command_of(token) not in ("gset", "aset"):
                lines.append(_line(script, token.start))
            continue
        if token.kind == "semicolon" and depth == 0:
            if start is not None:
                lines.append(start)
                start = None
            continue
        if token.kind == "joint" and start is None:
            continue
        depth += (token.kind == "open") - (token.kind == "close" and depth > 0)
        start = _line(script, token.start) if start is None else start
    if start is not None:
        lines.append(start)
    return lines


def backslash_commands(script: str, *, psql: bool) -> list[tuple[int, str]]:
    """Return (line, name) of the backslash commands of a file for psql or pgbench, outside of quotes, comments and inline rows."""
    tokens = _psql_tokens(script) if psql else _tokens(script, _PGBENCH)
    return [(_line(script, token.start), _command_of(token)) for token in tokens if token.kind == "meta"]


def line_of_ignored_errors(script: str) -> int | None:
    """Return the first line of an SQL file for psql after which errors do not end it (\\unset and \\set ON_ERROR_STOP), or None."""
    return next((_line(script, token.start) for token in _psql_tokens(script) if token.kind == "meta" and _IGNORES.match(token.text)), None)


def without_comments(script: str) -> str:
    """Return a pgbench script, or an SQL statement, with a blank instead of each SQL comment. Lines keep their numbers."""
    tokens = _tokens(script, _PGBENCH)
    return "".join(" " + "\n" * token.text.count("\n") if token.kind in ("comment", "block") else token.text for token in tokens)


def _command_of(token: _Token) -> str:
    match = re.match(r"\\([A-Za-z_]+|\S)", token.text)
    return match[1] if match else ""


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
    names: set[str] = set()
    written: set[str] = set()
    target: tuple[int, int] | None = None  # span of the file name in the current COPY … TO
    for token in _psql_tokens(script):
        text = token.text
        words: set[str] = set()
        if token.kind == "meta":
            output = _output_of(text)
            if output is not None:
                written |= {_unquoted(text[slice(*output)])} - names
                text = f"{text[: output[0]]} {text[output[1] :]}"
            quoted = ["".join(parts).replace("''", "'") for parts in _QUOTED.findall(text)]
            words = {*quoted, *_WORD.findall(text)}
        elif text.lower() == "copy":
            target = _copied_to(script, token.end)
        elif (token.start, token.end) == target and token.kind in ("string", "escape"):
            written |= {_unquoted(text)} - names
        elif token.kind in ("string", "escape", "dollar") and "/" in text:
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
    for token in _tokens(script, _PSQL, position):
        word = token.text.lower()
        if token.kind in ("space", "comment", "block"):
            continue
        if to:
            if word in ("program", "stdout", "pstdout"):
                return None
            if token.kind in ("string", "escape"):
                return token.start, token.end
            name = _UNSPACED.match(script, token.start)
            return None if name is None else name.span()
        depth += (token.kind == "open") - (token.kind == "close")
        if depth == 0 and (word == "from" or token.kind in ("semicolon", "meta")):
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
    for token in _psql_tokens(script):
        text = token.text.lower()
        if token.kind == "meta" and (text.startswith("\\!") or "`" in text or re.search(r"\bprogram\s*'", text)):
            return True
        if previous == "from" and text == "program":
            return True
        previous = text if token.kind not in ("space", "comment", "block") else previous
    return False


_ROWS_END = re.compile(r"^\\\.\r?$", re.MULTILINE)


def _psql_tokens(script: str) -> Iterator[_Token]:
    """Yield the tokens of an SQL file for psql without inline rows.

    psql reads the rows after the line on which the statement is sent, and then the rest of that line.
    """
    position = 0
    words: list[str] = []  # of the current statement, outside of parentheses
    depth = inline = 0  # inline: COPY … FROM STDIN in the current query, which may have several statements
    rows_at: int | None = None
    while position < len(script):
        token = next(_tokens(script, _PSQL, position))
        position = token.end
        if rows_at is not None and position >= rows_at:
            position = max(position, _after_rows(script, rows_at, inline))
            rows_at, inline = None, 0
        yield token
        if token.kind in ("space", "comment", "block"):
            continue
        sends = token.kind == "semicolon" and depth <= 0
        if token.kind == "meta":
            command = _command_of(token)
            if command.lower() == "copy":
                copied = [part.text.lower() for part in _outside_parentheses(_tokens(token.text, _PSQL, len("\\copy")))]
                if _from_stdin(copied):
                    position = _after_rows(script, _next_line(script, token.end), 1)
                continue
            sends = command.startswith("g") or command in ("watch", "crosstabview")
        if sends or (token.kind == "joint" and token.text == "\\;"):
            inline += words[:1] == ["copy"] and _from_stdin(words)
            words = []
        elif depth <= 0 and token.kind not in ("open", "close", "meta"):
            words.append(token.text.lower())
        if sends and inline:
            rows_at = _next_line(script, token.end)
        depth = 0 if sends else depth + (token.kind == "open") - (token.kind == "close")


def _outside_parentheses(tokens: Iterator[_Token]) -> Iterator[_Token]:
    depth = 0
    for token in tokens:
        depth += (token.kind == "open") - (token.kind == "close")
        if depth == 0 and token.kind not in ("space", "comment", "block", "close"):
            yield token


def _from_stdin(words: list[str]) -> bool:
    """Return True if the first FROM among the words is followed by stdin."""
    after = words[words.index("from") + 1 :] if "from" in words else []
    return after[:1] in (["stdin"], ["pstdin"])


def _next_line(script: str, position: int) -> int:
    newline = script.find("\n", position)
    return len(script) if newline < 0 else newline + 1


def _after_rows(script: str, position: int, blocks: int) -> int:
    """Return the end of this many blocks of inline rows."""
    for _ in range(blocks):
        end = _ROWS_END.search(script, position)
        if end is None:
            return len(script)
        position = end.end()
    return position


def _tokens(script: str, pattern: re.Pattern[str], position: int = 0) -> Iterator[_Token]:
    """Yield the tokens from ``position`` on."""
    while position < len(script):
        match = pattern.match(script, position)
        assert match is not None and match.lastgroup is not None  # the last alternative matches any character
        position = _end_of(script, match)
        yield _Token(match.lastgroup, script[match.start() : position], match.start(), position)


_COMMENT_MARK = re.compile(r"/\*|\*/")


def _end_of(script: str, match: re.Match[str]) -> int:
    """Return the end of a token. Block comments nest, and a dollar quote ends at its tag."""
    if match["dollar"]:
        end = script.find(match["dollar"], match.end())
        return len(script) if end < 0 else end + len(match["dollar"])
    if match["block"]:
        depth = 1
        for mark in _COMMENT_MARK.finditer(script, match.end()):
            depth += 1 if mark[0] == "/*" else -1
            if depth == 0:
                return mark.end()
        return len(script)
    return match.end()


def _line(script: str, position: int) -> int:
    return script.count("\n", 0, position) + 1
