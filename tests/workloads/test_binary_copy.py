from __future__ import annotations

import struct
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.workloads.binary_copy import HEADER, RandomText, decimal, instant, integer, layout, null, text


def random() -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(5))


def numeric(value: bytes) -> Decimal:
    """As numeric_recv reads it: digit count, weight, sign, display scale, then base-10000 digits."""
    count, weight, sign, scale = struct.unpack(">hhHh", value[:8])
    digits = struct.unpack(f">{count}h", value[8:])
    assert all(0 <= digit < 10_000 for digit in digits)
    total = sum((Decimal(digit) * Decimal(10_000) ** (weight - position) for position, digit in enumerate(digits)), Decimal(0))
    return (-total if sign == 0x4000 else total).quantize(Decimal(1).scaleb(-scale))


def tuples(data: bytes) -> list[list[bytes | None]]:
    """The format as the documentation gives it: a count of fields, then each field's length and value."""
    result, at = [], 0
    while at < len(data):
        (count,) = struct.unpack_from(">h", data, at)
        at += 2
        row: list[bytes | None] = []
        for _ in range(count):
            (length,) = struct.unpack_from(">i", data, at)
            at += 4
            row.append(None if length == -1 else data[at : at + length])
            at += max(length, 0)
        result.append(row)
    return result


def test_the_header_is_the_formats() -> None:
    assert struct.unpack(">11sii", HEADER) == (b"PGCOPY\n\xff\r\n\0", 0, 0)


def test_rows_are_tuples_of_the_format() -> None:
    created = layout([integer("a"), text("b", 3), null("c"), instant("d"), decimal("e", 2)])
    rows = created.rows(2, RandomText(random(), 64), random()).set(a=[7, -7], b=[b"one", b"two"], d=2**40, e=[12345, -5])
    first, second = tuples(bytes(rows.data()))
    assert first[:4] == [struct.pack(">i", 7), b"one", None, struct.pack(">q", 2**40)]
    assert second[:3] == [struct.pack(">i", -7), b"two", None]
    assert [numeric(row[4] or b"") for row in (first, second)] == [Decimal("123.45"), Decimal("-0.05")]
    assert created.names == ["a", "b", "c", "d", "e"]
    with pytest.raises(KeyError):
        rows.set(z=1)


@given(st.lists(st.integers(-(10**10) + 1, 10**10 - 1), min_size=1, max_size=20), st.integers(0, 4))
def test_decimals_keep_their_value(units: list[int], scale: int) -> None:
    units = [unit % (10 ** (scale + 8)) * (1 if unit >= 0 else -1) for unit in units]
    rows = layout([decimal("x", scale)]).rows(len(units), RandomText(random(), 64), random()).set(x=units)
    assert [numeric(row[0] or b"") for row in tuples(bytes(rows.data()))] == [Decimal(unit).scaleb(-scale) for unit in units]


@given(st.integers(1, 300), st.integers(1, 200))
def test_letters_never_run_out(size: int, wanted: int) -> None:
    letters = RandomText(random(), size)
    result = letters.some(wanted, random())
    assert len(result) == wanted
    assert bytes(result).isalnum()


def test_all_letters_come_up_about_as_often() -> None:
    counts = np.bincount(np.frombuffer(RandomText(random(), 1 << 20).some(1 << 20, random()), dtype=np.uint8), minlength=256)
    used = counts[counts > 0]
    assert len(used) == 62
    assert used.max() / used.min() < 1.4  # 5 in 256 against 4
