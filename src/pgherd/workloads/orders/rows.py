"""Initial population as blocks of rows for binary COPY. Seed, warehouse and table determine all rows.

Counts, ranges and distributions follow clause 4.3.3.1 of the TPC-C specification. docs/reference/workloads.md lists the differences.

Last names, and the non-uniform choice of customers and items, follow clause 2.1.6: NURand(A, x, y) =
((random(0, A) | random(x, y)) + C) % (y − x + 1) + x. The specification draws the constants C once per database. Here they
are fixed, so that all databases are equal. Those of customers and items are 0, which the clause allows, and which saves
the client one addition per line. The two constants of last names differ by 69, as clause 2.1.6.1 requires (65 to 119, but
not 96 or 112).

NumPy is imported only when rows are generated.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pgherd.workloads.binary_copy import EPOCH, CopyRows, RandomText, TupleLayout, decimal, instant, integer, layout, null, text

if TYPE_CHECKING:
    import numpy as np

SYLLABLES = ("BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING")

NAMES_BY_NUMBER = tuple(SYLLABLES[n // 100] + SYLLABLES[n // 10 % 10] + SYLLABLES[n % 10] for n in range(1000))
"""All 1,000 last names."""

C_NAME_LOAD = 157
C_NAME = 226
C_CUSTOMER = 0
C_ITEM = 0

ITEMS = 100_000
DISTRICTS = 10
CUSTOMERS = 3_000
"""Customers per district, and also its initial number of orders."""
DELIVERED = 2_100
"""Number of delivered orders per district, which are the first ones. The others are new."""

_CHUNK_ROWS = 5_000  # a block of this size approximately fits into a CPU cache
_FULL_NAME = 24  # total length of first and last name
_TABLES = ("warehouse", "district", "customer", "history", "new_order", "orders", "order_line", "item", "stock")

_ADDRESS = (("street_1", 15), ("street_2", 15), ("city", 15), ("state", 2), ("zip", 9))


def nurand(a: int, x: int, y: int, c: int) -> str:
    """Return NURand as an expression for pgbench's ``\\set``."""
    bits = f"(random(0, {a}) | random({x}, {y}))"
    draw = f"({bits} + {c}) % {y - x + 1}" if c else f"{bits} % {y - x + 1}"
    return f"{draw} + {x}" if x else draw


def draw_load_name(random: np.random.Generator, count: int) -> Any:
    """Draw numbers of last names for the initial population: NURand(255, 0, 999)."""
    first = random.integers(0, 255, size=count, endpoint=True)
    second = random.integers(0, 999, size=count, endpoint=True)
    return ((first | second) + C_NAME_LOAD) % 1000


def _address(prefix: str) -> list[Any]:
    return [text(f"{prefix}_{name}", size) for name, size in _ADDRESS]


WAREHOUSE = layout([integer("w_id"), decimal("w_ytd", 2), decimal("w_tax", 4), text("w_name", 8), *_address("w")])
DISTRICT = layout(
    [
        integer("d_w_id"),
        integer("d_id"),
        integer("d_next_o_id"),
        decimal("d_ytd", 2),
        decimal("d_tax", 4),
        text("d_name", 8),
        *_address("d"),
    ]
)
HISTORY = layout([*map(integer, ("h_c_id", "h_c_d_id", "h_d_id")), text("h_data", 18)])
NEW_ORDER = layout([*map(integer, ("no_d_id", "no_o_id"))])
_ORDERS = [*map(integer, ("o_d_id", "o_id", "o_c_id", "o_ol_cnt"))]
ORDERS = {True: layout([*_ORDERS, integer("o_carrier_id")]), False: layout([*_ORDERS, null("o_carrier_id")])}
_LINES = [*map(integer, ("ol_d_id", "ol_o_id", "ol_number", "ol_i_id")), decimal("ol_amount", 2), text("ol_dist_info", 24)]
ORDER_LINE = {True: layout([*_LINES, instant("ol_delivery_d")]), False: layout([*_LINES, null("ol_delivery_d")])}
ITEM = layout([integer("i_id"), integer("i_im_id"), decimal("i_price", 2), text("i_name", 19), text("i_data", 38)])
STOCK = layout(
    [
        *map(integer, ("s_i_id", "s_quantity")),
        *(text(f"s_dist_{number:02d}", 24) for number in range(1, DISTRICTS + 1)),
        text("s_data", 38),
    ]
)


def _customer(last: int) -> TupleLayout:
    """Return the layout of customers with a last name of ``last`` letters.

    First and last name have 24 letters in total, so that all rows have the same size. A last name has 9 to 15 letters, and
    a first name may have 8 to 16.
    """
    return layout(
        [
            text("c_last", last),
            text("c_first", _FULL_NAME - last),
            *map(integer, ("c_d_id", "c_id")),
            decimal("c_discount", 4),
            *_address("c"),
            text("c_phone", 16),
            text("c_credit", 2),
            text("c_data", 400),
        ]
    )


CUSTOMER = {last: _customer(last) for last in range(9, 16)}

# Values that are equal in all rows, or in all rows of a warehouse, are column defaults and not sent. To receive a value costs
# PostgreSQL ten times as much as a default.
CONSTANTS: Mapping[str, Mapping[str, int | str]] = {
    "customer": {
        "c_payment_cnt": 1,
        "c_delivery_cnt": 0,
        "c_credit_lim": 50_000,
        "c_balance": -10,
        "c_ytd_payment": 10,
        "c_middle": "OE",
    },
    "history": {"h_amount": 10},
    "orders": {"o_all_local": 1},
    "order_line": {"ol_quantity": 5},
    "stock": {"s_ytd": 0, "s_order_cnt": 0, "s_remote_cnt": 0},
}
"""Constant values by table and column."""
DATES: Mapping[str, str] = {"customer": "c_since", "history": "h_date", "orders": "o_entry_d"}
"""Column with the population's instant in every row, by table. Delivered lines have it too."""
HOMES: Mapping[str, tuple[str, ...]] = {
    "customer": ("c_w_id",),
    "history": ("h_c_w_id", "h_w_id"),
    "new_order": ("no_w_id",),
    "orders": ("o_w_id",),
    "order_line": ("ol_w_id", "ol_supply_w_id"),
    "stock": ("s_w_id",),
}
"""Columns with the number of the warehouse, by table."""


@dataclass(frozen=True)
class Population:
    """Generator of the initial rows.

    ``seed`` determines all random values. ``instant`` (microseconds since PostgreSQL's epoch) is the time of all initial
    events: registration, payment, order and delivery.
    """

    seed: int
    instant: int
    _shared_letters: list[RandomText] = field(default_factory=list, compare=False, repr=False)
    _lock: Any = field(default_factory=threading.Lock, compare=False, repr=False)

    def moment(self) -> datetime:
        """Return ``instant`` as a datetime."""
        return datetime.fromtimestamp(EPOCH, UTC) + timedelta(microseconds=self.instant)

    def _letters(self) -> RandomText:
        import numpy as np

        with self._lock:  # because several threads fill tables
            if not self._shared_letters:
                self._shared_letters.append(RandomText(np.random.Generator(np.random.SFC64(self.seed))))
        return self._shared_letters[0]

    def _random(self, table: str, w: int) -> np.random.Generator:
        import numpy as np

        return np.random.Generator(np.random.SFC64(np.random.SeedSequence((self.seed, w, _TABLES.index(table)))))

    def items(self) -> Iterator[CopyRows]:
        random = self._random("item", 0)
        for first, count in _chunks(ITEMS):
            rows = ITEM.rows(count, self._letters(), random).set(
                i_id=_from(first, count), i_im_id=_between(random, 1, 10_000, count), i_price=_between(random, 100, 10_000, count)
            )
            _mark_original(rows, "i_data", random)
            yield rows

    def warehouse(self, w: int) -> Iterator[CopyRows]:
        """Generate the row of a warehouse."""
        random = self._random("warehouse", w)
        rows = WAREHOUSE.rows(1, self._letters(), random).set(w_id=w, w_ytd=30_000_000, w_tax=_between(random, 0, 2_000, 1))
        yield rows.set(w_zip=_zips(random, 1))

    def districts(self, w: int) -> Iterator[CopyRows]:
        """Generate the districts of a warehouse."""
        random = self._random("district", w)
        rows = DISTRICT.rows(DISTRICTS, self._letters(), random).set(
            d_w_id=w,
            d_id=_from(1, DISTRICTS),
            d_next_o_id=CUSTOMERS + 1,
            d_ytd=3_000_000,
            d_tax=_between(random, 0, 2_000, DISTRICTS),
            d_zip=_zips(random, DISTRICTS),
        )
        yield rows

    def customers(self, w: int) -> Iterator[CopyRows]:
        """Generate the customers of a warehouse, one block per district."""
        import numpy as np

        random = self._random("customer", w)
        names = np.array([name.encode() for name in NAMES_BY_NUMBER])
        sizes = np.array([len(name) for name in NAMES_BY_NUMBER])
        ids = _from(1, CUSTOMERS)
        for d in range(1, DISTRICTS + 1):
            # The first 1,000 customers have each name once.
            numbers = np.where(ids <= len(names), ids - 1, draw_load_name(random, CUSTOMERS))
            rows = CUSTOMER[9].rows(CUSTOMERS, self._letters(), random)
            rows.set(
                c_d_id=d,
                c_id=ids,
                c_discount=_between(random, 0, 5_000, CUSTOMERS),
                c_zip=_zips(random, CUSTOMERS),
                c_phone=_digits(random, CUSTOMERS, 16),
                c_credit=np.where(random.random(CUSTOMERS) < 0.1, b"BC", b"GC"),
            )
            for size, customer_layout in CUSTOMER.items():
                # View the same rows with the boundary of last and first name moved. The letters after it are already random.
                chosen = sizes[numbers] == size
                moved = rows.block.view(customer_layout.dtype())
                moved["c_last.length"][chosen] = size
                moved["c_last"][chosen] = names[numbers[chosen]]
                moved["c_first.length"][chosen] = _FULL_NAME - size
                moved["c_first"][chosen] = _letters(random, int(chosen.sum()), _FULL_NAME - size)
            yield rows

    def history(self, w: int) -> Iterator[CopyRows]:
        """Generate one payment per customer."""
        random = self._random("history", w)
        for d in range(1, DISTRICTS + 1):
            yield HISTORY.rows(CUSTOMERS, self._letters(), random).set(h_c_id=_from(1, CUSTOMERS), h_c_d_id=d, h_d_id=d)

    def stock(self, w: int) -> Iterator[CopyRows]:
        """Generate the stock of every item."""
        random = self._random("stock", w)
        for first, count in _chunks(ITEMS):
            rows = STOCK.rows(count, self._letters(), random).set(s_i_id=_from(first, count), s_quantity=_between(random, 10, 100, count))
            _mark_original(rows, "s_data", random)
            yield rows

    def new_orders(self, w: int) -> Iterator[CopyRows]:
        """Generate the orders that are not delivered."""
        random = self._random("new_order", w)
        for d in range(1, DISTRICTS + 1):
            count = CUSTOMERS - DELIVERED
            yield NEW_ORDER.rows(count, self._letters(), random).set(no_d_id=d, no_o_id=_from(DELIVERED + 1, count))

    def orders(self, w: int) -> Iterator[CopyRows]:
        """Generate one order per customer, in random order of customers."""
        lines = self._lines(w)
        random = self._random("orders", w)
        for d in range(DISTRICTS):
            customers = random.permutation(_from(1, CUSTOMERS))
            for delivered, span in _by_delivery():
                count = span.stop - span.start
                rows = (
                    ORDERS[delivered]
                    .rows(count, self._letters(), random)
                    .set(
                        o_d_id=d + 1,
                        o_id=_from(span.start + 1, count),
                        o_c_id=customers[span],
                        o_ol_cnt=lines[d][span],
                    )
                )
                yield rows.set(o_carrier_id=_between(random, 1, 10, count)) if delivered else rows

    def order_lines(self, w: int) -> Iterator[CopyRows]:
        """Generate the lines of the orders."""
        import numpy as np

        lines = self._lines(w)
        random = self._random("order_line", w)
        for d in range(DISTRICTS):
            for delivered, span in _by_delivery():
                counts = lines[d][span]
                count = int(counts.sum())
                starts = np.repeat(np.cumsum(counts) - counts, counts)
                rows = (
                    ORDER_LINE[delivered]
                    .rows(count, self._letters(), random)
                    .set(
                        ol_d_id=d + 1,
                        ol_o_id=np.repeat(_from(span.start + 1, len(counts)), counts),
                        ol_number=np.arange(1, count + 1) - starts,
                        ol_i_id=_between(random, 1, ITEMS, count),
                        ol_amount=0 if delivered else _between(random, 1, 999_999, count),
                    )
                )
                yield rows.set(ol_delivery_d=self.instant) if delivered else rows

    def _lines(self, w: int) -> Any:
        """Return the number of lines of each order, by district."""
        return _between(self._random("warehouse", w + 1_000_000_000), 5, 15, DISTRICTS * CUSTOMERS).reshape(DISTRICTS, CUSTOMERS)


def _chunks(count: int) -> Iterator[tuple[int, int]]:
    """Split 1 to ``count`` into blocks of (first number, number of rows)."""
    for start in range(0, count, _CHUNK_ROWS):
        yield start + 1, min(_CHUNK_ROWS, count - start)


def _by_delivery() -> tuple[tuple[bool, slice], ...]:
    return (True, slice(0, DELIVERED)), (False, slice(DELIVERED, CUSTOMERS))


def _from(first: int, count: int) -> Any:
    import numpy as np

    return np.arange(first, first + count, dtype=np.int32)


def _between(random: np.random.Generator, low: int, high: int, count: int) -> Any:
    import numpy as np

    return random.integers(low, high, size=count, dtype=np.int32, endpoint=True)


def _letters(random: np.random.Generator, count: int, size: int) -> Any:
    import numpy as np

    return random.integers(ord("a"), ord("z"), size=count * size, dtype=np.uint8, endpoint=True).view(f"S{size}")


def _digits(random: np.random.Generator, count: int, size: int) -> Any:
    import numpy as np

    return random.integers(ord("0"), ord("9"), size=count * size, dtype=np.uint8, endpoint=True).view(f"S{size}")


def _zips(random: np.random.Generator, count: int) -> Any:
    """Generate four random digits, followed by 11111."""
    import numpy as np

    zips = np.full((count, 9), ord("1"), dtype=np.uint8)
    zips[:, :4] = random.integers(ord("0"), ord("9"), size=(count, 4), dtype=np.uint8, endpoint=True)
    return zips.reshape(-1).view("S9")


def _mark_original(rows: CopyRows, column: str, random: np.random.Generator) -> None:
    """Write ORIGINAL into 10 % of the rows, at a random position of the column."""
    import numpy as np

    word = np.frombuffer(b"ORIGINAL", dtype=np.uint8)
    chosen = np.flatnonzero(random.random(len(rows.block)) < 0.1)
    kind, offset = rows.block.dtype.fields[column][:2]
    starts = chosen * rows.block.dtype.itemsize + offset + random.integers(0, kind.itemsize - len(word), size=len(chosen), endpoint=True)
    letters = rows.block.view("u1")
    letters[starts[:, None] + np.arange(len(word))] = word
