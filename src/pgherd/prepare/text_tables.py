"""Tables in text files: separators of columns, decimal marks, and cells by line."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pgherd.model.errors import UsageError
from pgherd.model.units import Mark, parse_number, required_marks
from pgherd.node.files import UnsafeFileError, read_all, read_input

_MAX_FILE_BYTES = 16 * 2**20
BLANKS = " "


@dataclass(frozen=True)
class TextTable:
    """Lines of a table as (number of the line, cells). ``source`` is its name in messages."""

    source: str
    separator: str
    rows: list[tuple[int, list[str]]]

    def body(self, columns: int) -> list[tuple[int, list[str]]]:
        """Return the rows below the header, each with this number of cells. Missing cells are empty. Raises UsageError for a longer row."""
        for line, row in self.rows[1:]:
            require_width(self.source, line, row, columns)
        return [(line, [*row, *[""] * columns][:columns]) for line, row in self.rows[1:]]


def require_width(source: str, line: int, row: Sequence[str], columns: int) -> None:
    """Require that a row has no cell right of the last column. Raises UsageError."""
    if any(cell.strip() for cell in row[columns:]):
        raise UsageError(
            f"{source}, line {line} has {len(row)} cells, but the table has {columns} columns; if a comma is part of a number, "
            "write the number in double quotes or separate the columns by semicolons"
        )


def read_text_table(path: Path, contents: str, row: str) -> TextTable:
    """Read a table from a file, or from standard input (``-``).

    Columns are separated by commas, semicolons, tabs or blanks. Empty lines and those that start with ``#`` are skipped. ``contents``
    names the contents for messages, such as 'load and throughput', and ``row`` a row, such as 'one load and its throughput'.

    Raises:
        UsageError: the file cannot be read, is empty, or has one column only.
    """
    source, text = "standard input" if str(path) == "-" else str(path), _text(path)
    numbered = [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip() and not line.lstrip().startswith("#")]
    if not numbered:
        raise UsageError(f"{source} is empty; it requires lines of {contents}")
    lines = [line for _, line in numbered]
    separator = _separator(lines)
    try:
        cells = [line.split() for line in lines] if separator == BLANKS else list(csv.reader(lines, delimiter=separator, strict=True))
        rows = list(zip((i for i, _ in numbered), cells, strict=True))
    except (csv.Error, ValueError) as error:
        raise UsageError(f"{source} is not a CSV table: {error}; write {row} per line") from None
    if len(rows[0][1]) < 2:
        raise UsageError(f"{source} has one column only ('{lines[0].strip()[:60]}'); it requires {contents}, separated by commas")
    return TextTable(source, separator, rows)


def decimal_mark(columns: Sequence[Sequence[tuple[int, str]]], separator: str, source: str) -> Mark:
    """Return the decimal mark of columns of (line, cell). It is unclear if no cell shows it and only some cells of a column have a mark.

    If all have one (``1,050``, ``11,400``), a comma groups thousands where it also separates columns. Else the mark is decimal.
    """
    required = required_marks(cell for column in columns for _, cell in column)
    if len(required) == 2:
        raise UsageError(f"{source} has numbers with a decimal point and numbers with a decimal comma; write all of them with a point")
    if required:
        return required.pop()
    comma = any("," in cell for column in columns for _, cell in column)
    point = any("." in cell for column in columns for _, cell in column)
    if not comma and separator in (",", BLANKS):
        return "."
    for column in columns:
        marked = [(line, cell) for line, cell in column if "," in cell or "." in cell]
        some = len(marked) < sum(parse_number(cell) != 0 for _, cell in column)
        if marked and (some or (comma and (point or separator in ("\t", BLANKS)))):
            line, cell = marked[0]
            raise UsageError(
                f"{source}, line {line}: '{cell.strip()}' may be a decimal or a grouped number; write all numbers with a decimal point "
                "and without grouping"
            )
    return "," if comma and separator == ";" else "."


def _separator(lines: list[str]) -> str:
    """Return the character between columns: the first of tab, semicolon and comma that every line has, or blanks."""
    common = next((separator for separator in "\t;," if all(separator in line for line in lines)), None)
    if common is not None:
        return common
    return BLANKS if all(len(line.split()) > 1 for line in lines) else max(",;\t", key=lines[0].count)


def _text(path: Path) -> str:
    try:
        data = read_all(sys.stdin.fileno(), _MAX_FILE_BYTES, "standard input") if str(path) == "-" else read_input(path, _MAX_FILE_BYTES)
        return data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError, UnsafeFileError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text" if isinstance(error, ValueError) else error
        raise UsageError(f"cannot read {path}: {reason}") from None
