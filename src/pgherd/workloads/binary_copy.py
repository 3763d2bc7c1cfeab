"""PostgreSQL's binary COPY format, many rows at a time: a NumPy record array is a run of tuples as COPY wants them.

Format: PostgreSQL documentation, COPY, "Binary Format"; numeric_recv of numeric.c for decimals. A record is one tuple in
which every column has a fixed size, so that a whole block of rows is made by a few array assignments, and sent as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
"""What a COPY begins with: signature, no flags, no extension."""

TRAILER = b"\xff\xff"
"""What it ends with."""

EPOCH = 946_684_800
"""PostgreSQL's instants count from 2000-01-01 00:00 UTC: that in seconds since 1970."""

_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
# 256 is no multiple of 62: the first eight letters come up five times in 256, the others four times.
_TO_LETTERS = bytes(_LETTERS[i % len(_LETTERS)] for i in range(256))


@dataclass(frozen=True)
class Column:
    """One column: its name, what it holds, and for text its length in bytes, for decimals their digits after the point.

    ``null`` is a column that is NULL in all rows of the layout.
    """

    name: str
    kind: Literal["integer", "instant", "text", "decimal", "null"]
    size: int = 0

    @property
    def length(self) -> int:
        """Bytes of the value, without its length word; -1 for NULL, as in the format."""
        return {"integer": 4, "instant": 8, "text": self.size, "decimal": 14, "null": -1}[self.kind]

    def fields(self) -> list[tuple[str, str]]:
        """The record's fields after the length word, as NumPy wants them."""
        if self.kind == "decimal":
            # Count of digits, weight of the first, sign, digits after the point; then the digits, base 10000.
            parts = ("digits", "weight", "sign", "scale", "high", "low", "fraction")
            return [(f"{self.name}.{part}", ">u2") for part in parts]
        return {"integer": [(self.name, ">i4")], "instant": [(self.name, ">i8")], "text": [(self.name, f"S{self.size}")], "null": []}[
            self.kind
        ]


def integer(name: str) -> Column:
    """A 4-byte integer."""
    return Column(name, "integer")


def instant(name: str) -> Column:
    """A timestamptz, in microseconds since PostgreSQL's epoch."""
    return Column(name, "instant")


def text(name: str, size: int) -> Column:
    """Text of this many bytes in every row."""
    return Column(name, "text", size)


def decimal(name: str, scale: int) -> Column:
    """A numeric with up to four digits after the point, below 10^8; set by whole numbers of its last digit."""
    return Column(name, "decimal", scale)


def null(name: str) -> Column:
    """NULL in every row."""
    return Column(name, "null")


class Letters:
    """A supply of random letters and digits, drawn once: what is taken repeats only after the supply's length or more.

    Drawing fresh ones for every row would take longer than all else that a loader's client does.
    """

    def __init__(self, random: np.random.Generator, size: int = 1 << 24) -> None:
        """Draw ``size`` bytes."""
        import numpy as np

        drawn = random.integers(0, 2**64 - 1, size=-(-size // 8), dtype=np.uint64, endpoint=True)
        self._supply = memoryview(drawn.tobytes().translate(_TO_LETTERS))

    def some(self, size: int, random: np.random.Generator) -> bytearray:
        """So many bytes from any place on, around the end if need be."""
        start = int(random.integers(len(self._supply)))
        taken = bytearray(self._supply[start : start + size])
        while len(taken) < size:
            taken += self._supply[: size - len(taken)]
        return taken


@dataclass(frozen=True)
class Layout:
    """The columns of a tuple in the order in which they are sent."""

    columns: tuple[Column, ...]
    _types: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def names(self) -> list[str]:
        """The columns' names."""
        return [column.name for column in self.columns]

    def dtype(self) -> np.dtype[Any]:
        """The record: the number of columns, then each column's length and value."""
        import numpy as np

        if "dtype" not in self._types:
            fields: list[tuple[str, str]] = [("columns", ">i2")]
            for column in self.columns:
                fields += [(f"{column.name}.length", ">i4"), *column.fields()]
            self._types["dtype"] = np.dtype(fields)
        return self._types["dtype"]  # type: ignore[no-any-return]

    def rows(self, count: int, letters: Letters, random: np.random.Generator) -> Rows:
        """So many rows. Texts hold letters and digits from any place of ``letters``; all else is to be set."""
        import numpy as np

        if any(column.kind == "text" for column in self.columns):
            # One copy for the whole block: what is not text is written over.
            block = np.frombuffer(letters.some(count * self.dtype().itemsize, random), dtype=self.dtype())
        else:
            block = np.empty(count, dtype=self.dtype())
        block["columns"] = len(self.columns)
        for column in self.columns:
            block[f"{column.name}.length"] = column.length
            if column.kind == "decimal":
                for part, value in (("digits", 3), ("weight", 1), ("sign", 0), ("scale", column.size)):
                    block[f"{column.name}.{part}"] = value
        return Rows(self, block)


@dataclass(frozen=True)
class Rows:
    """A block of rows: ``block`` is the record array."""

    layout: Layout
    block: np.ndarray[Any, Any]

    def set(self, **values: Any) -> Rows:
        """Set columns: arrays of a value per row, or one value for all. Decimals count their last digit's units, so that
        scale 2 is set in hundredths. Returns itself.

        Raises:
            KeyError: there is no such column.
        """
        import numpy as np

        kinds = {column.name: column for column in self.layout.columns}
        for name, value in values.items():
            column = kinds[name]
            if column.kind != "decimal":
                self.block[name] = value
                continue
            units = np.asarray(value, dtype=np.int64)
            if (units < 0).any():
                self.block[f"{name}.sign"] = np.where(units < 0, 0x4000, 0)
            whole, fraction = np.divmod(np.abs(units), 10**column.size)
            high, low = np.divmod(whole, 10_000)
            self.block[f"{name}.high"] = high
            self.block[f"{name}.low"] = low
            self.block[f"{name}.fraction"] = fraction * 10 ** (4 - column.size)
        return self

    def data(self) -> memoryview:
        """The tuples as bytes, without header and trailer."""
        return self.block.view("u1").data.cast("B")


def layout(columns: Sequence[Column]) -> Layout:
    """A layout of these columns."""
    return Layout(tuple(columns))
