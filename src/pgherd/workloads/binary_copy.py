"""PostgreSQL's binary COPY format, written in blocks of rows: a NumPy record array is a sequence of tuples in this format.

Sources: PostgreSQL documentation, COPY, "Binary Format", and numeric_recv in numeric.c for decimals. A record is one tuple
in which every column has a fixed size. A few array assignments therefore create a block of rows, which is sent unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
"""Header of a COPY: signature, no flags, no extension."""

TRAILER = b"\xff\xff"
"""Trailer of a COPY."""

EPOCH = 946_684_800
"""Epoch of PostgreSQL's timestamps, 2000-01-01 00:00 UTC, in seconds since 1970."""

_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
# 256 is not a multiple of 62: the first eight letters occur five times in 256 values, the others four times.
_TO_LETTERS = bytes(_LETTERS[i % len(_LETTERS)] for i in range(256))


@dataclass(frozen=True)
class CopyColumn:
    """CopyColumn of a layout.

    ``size`` is the length of a text in bytes, or the number of fractional digits of a decimal. A column of the kind
    ``null`` is NULL in all rows.
    """

    name: str
    kind: Literal["integer", "instant", "text", "decimal", "null"]
    size: int = 0

    @property
    def length(self) -> int:
        """Length of the value in bytes without its length word. -1 means NULL, as in the format."""
        return {"integer": 4, "instant": 8, "text": self.size, "decimal": 14, "null": -1}[self.kind]

    def fields(self) -> list[tuple[str, str]]:
        """Return the NumPy fields of the record after the length word."""
        if self.kind == "decimal":
            # Number of digits, weight of the first, sign, number of fractional digits, then the digits in base 10000.
            parts = ("digits", "weight", "sign", "scale", "high", "low", "fraction")
            return [(f"{self.name}.{part}", ">u2") for part in parts]
        return {"integer": [(self.name, ">i4")], "instant": [(self.name, ">i8")], "text": [(self.name, f"S{self.size}")], "null": []}[
            self.kind
        ]


def integer(name: str) -> CopyColumn:
    """Return a column of 4-byte integers."""
    return CopyColumn(name, "integer")


def instant(name: str) -> CopyColumn:
    """Return a column of timestamptz, in microseconds since PostgreSQL's epoch."""
    return CopyColumn(name, "instant")


def text(name: str, size: int) -> CopyColumn:
    """Return a text column of ``size`` bytes in every row."""
    return CopyColumn(name, "text", size)


def decimal(name: str, scale: int) -> CopyColumn:
    """Return a numeric column below 10^8 with up to four fractional digits, set in units of its last digit."""
    return CopyColumn(name, "decimal", scale)


def null(name: str) -> CopyColumn:
    """Return a column that is NULL in every row."""
    return CopyColumn(name, "null")


class RandomText:
    """Buffer of random letters and digits, drawn once. Texts are taken from it at random positions.

    Drawing new letters for every row would take longer than all other work of the loading client.
    """

    def __init__(self, random: np.random.Generator, size: int = 1 << 24) -> None:
        """Draw ``size`` bytes."""
        import numpy as np

        values = random.integers(0, 2**64 - 1, size=-(-size // 8), dtype=np.uint64, endpoint=True)
        self._buffer = memoryview(values.tobytes().translate(_TO_LETTERS))

    def some(self, size: int, random: np.random.Generator) -> bytearray:
        """Return ``size`` bytes from a random position, continued at the start of the buffer."""
        start = int(random.integers(len(self._buffer)))
        letters = bytearray(self._buffer[start : start + size])
        while len(letters) < size:
            letters += self._buffer[: size - len(letters)]
        return letters


@dataclass(frozen=True)
class TupleLayout:
    """Columns of a tuple, in the order in which they are sent."""

    columns: tuple[CopyColumn, ...]
    _types: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def dtype(self) -> np.dtype[Any]:
        """Return the record type: the number of columns, then length and value of each column."""
        import numpy as np

        if "dtype" not in self._types:
            fields: list[tuple[str, str]] = [("columns", ">i2")]
            for column in self.columns:
                fields += [(f"{column.name}.length", ">i4"), *column.fields()]
            self._types["dtype"] = np.dtype(fields)
        return self._types["dtype"]  # type: ignore[no-any-return]

    def rows(self, count: int, letters: RandomText, random: np.random.Generator) -> CopyRows:
        """Return ``count`` rows. Texts are taken from ``letters``. The caller must set the other columns."""
        import numpy as np

        if any(column.kind == "text" for column in self.columns):
            # Copy letters into the complete block. Other columns overwrite them.
            block = np.frombuffer(letters.some(count * self.dtype().itemsize, random), dtype=self.dtype())
        else:
            block = np.empty(count, dtype=self.dtype())
        block["columns"] = len(self.columns)
        for column in self.columns:
            block[f"{column.name}.length"] = column.length
            if column.kind == "decimal":
                for part, value in (("digits", 3), ("weight", 1), ("sign", 0), ("scale", column.size)):
                    block[f"{column.name}.{part}"] = value
        return CopyRows(self, block)


@dataclass(frozen=True)
class CopyRows:
    """Block of rows. ``block`` is the record array."""

    layout: TupleLayout
    block: np.ndarray[Any, Any]

    def set(self, **values: Any) -> CopyRows:
        """Set columns to an array with one value per row, or to one value for all rows. Return self.

        Decimals are set in units of their last digit, for example in hundredths with scale 2.

        Raises:
            KeyError: A column does not exist.
        """
        import numpy as np

        columns = {column.name: column for column in self.layout.columns}
        for name, value in values.items():
            column = columns[name]
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
        """Return the tuples as bytes, without header and trailer."""
        return self.block.view("u1").data.cast("B")


def layout(columns: Sequence[CopyColumn]) -> TupleLayout:
    """Return a layout of these columns."""
    return TupleLayout(tuple(columns))
