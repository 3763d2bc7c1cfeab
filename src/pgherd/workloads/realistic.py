"""The workload ``realistic``: people, their addresses and stock listings, with values as they are found in life.

It is looked at, not loaded: E15's question is how far data compresses, and machine-made filler misleads there. Names, streets and
occupations come from mimesis' lists in several languages; its lists are drawn from evenly, where in life few names are
common, so that real data compresses rather better than this. Prices are random walks. The same scale gives the same rows.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from importlib import resources
from typing import TYPE_CHECKING, Any

from pgherd.model.deployment import Database
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.model.load import Script
from pgherd.node.protocol import LoadTarget, Node, Say, silent
from pgherd.workloads.workload import Query

if TYPE_CHECKING:
    import psycopg

SEED = 15
LOCALES = ("en", "de", "fr", "es", "it", "pl", "pt", "sv")
PEOPLE, LISTINGS = 1000, 1000
"""Rows of each per unit of scale; every person has one address."""
DAYS = 250
"""Trading days of a company."""
COMPANIES = 1000
"""Different ones; later ones are traded on other days."""

# Measured on PostgreSQL 15 and 18.
_EMPTY_DATABASE = 7_800_000
_PER_SCALE = 430_000

_KEYS = (
    "ALTER TABLE person ADD PRIMARY KEY (id)",
    "CREATE INDEX person_name ON person (last_name, first_name)",
    "ALTER TABLE address ADD PRIMARY KEY (id)",
    "ALTER TABLE listing ADD PRIMARY KEY (symbol, day)",
    "VACUUM (ANALYZE) person",
    "VACUUM (ANALYZE) address",
    "VACUUM (ANALYZE) listing",
)


def digest() -> str:
    """Hash of all that decides what a database holds, mimesis' version included."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        library = version("mimesis")
    except PackageNotFoundError:
        library = "missing"
    files = resources.files("pgherd.workloads")
    decisive = [files.joinpath(name).read_bytes() for name in ("realistic.sql", "realistic.py")]
    return hashlib.sha256(b"\0".join([*decisive, library.encode()])).hexdigest()[:12]


def size_estimate(scale: int) -> int:
    """Size of a freshly loaded database (pg_database_size) in bytes."""
    return _EMPTY_DATABASE + _PER_SCALE * scale


class Values:
    """Rows of the three tables; the same for the same seed."""

    def __init__(self, seed: int = SEED) -> None:
        """Raises CapabilityError where mimesis is not installed."""
        try:
            import mimesis
        except ImportError:
            raise CapabilityError(
                "the Python package mimesis is not installed, and realistic values come from it; install it with: "
                "pip install 'pgherd[compression]'"
            ) from None
        self._random = random.Random(seed)
        self._people = [mimesis.Person(mimesis.Locale(name), seed=seed) for name in LOCALES]
        self._places = [mimesis.Address(mimesis.Locale(name), seed=seed) for name in LOCALES]
        self._finance = [mimesis.Finance(mimesis.Locale(name), seed=seed) for name in LOCALES]

    def people(self, count: int) -> Iterator[tuple[Any, ...]]:
        """Rows of person."""
        draw = self._random
        start = datetime(2015, 1, 1, tzinfo=UTC)
        for number in range(1, count + 1):
            one = draw.choice(self._people)
            first, last = one.first_name(), one.last_name()
            host = draw.choice(("gmail.com", "outlook.com", "yahoo.com", "web.de", "orange.fr", "proton.me", "icloud.com", "example.org"))
            name = f"{first}.{last}".lower().replace(" ", "")
            email = f"{name}{draw.choice(('', '', draw.randrange(1950, 2010), draw.randrange(100)))}@{host}"
            born = date(1940, 1, 1) + timedelta(days=draw.randrange(70 * 365))
            phone = f"+{draw.randrange(1, 99)} {draw.randrange(100, 1000)} {draw.randrange(10**6, 10**8)}"
            registered = start + timedelta(seconds=draw.randrange(10 * 365 * 86400), microseconds=draw.randrange(10**6))
            yield number, first, last, email, phone, born, one.occupation(), one.nationality(), registered

    def addresses(self, count: int) -> Iterator[tuple[Any, ...]]:
        """Rows of address, one to each person."""
        draw = self._random
        for number in range(1, count + 1):
            one = draw.choice(self._places)
            house = f"{draw.randrange(1, 240)}{draw.choice(('', '', '', 'a', 'b'))}"
            latitude, longitude = round(draw.uniform(36, 60), 5), round(draw.uniform(-9, 25), 5)
            region = one.state()
            yield number, number, one.street_name(), house, one.city(), region, one.postal_code(), one.country(), latitude, longitude

    def listings(self, count: int) -> Iterator[tuple[Any, ...]]:
        """Rows of listing: a company's trading days after each other, its price a random walk of 2 % a day."""
        draw = self._random
        made = 0
        for company in range(-(-count // DAYS)):
            name = draw.choice(self._finance).company()
            symbol = "".join(draw.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(4)) + f".{company}"
            price, first = draw.uniform(2, 800), date(2020, 1, 2) + timedelta(days=DAYS * (company // COMPANIES))
            for day in range(DAYS):
                if made == count:
                    return
                opened, price = price, max(0.05, price * (1 + draw.gauss(0, 0.02)))
                high, low = max(opened, price) * (1 + abs(draw.gauss(0, 0.006))), min(opened, price) * (1 - abs(draw.gauss(0, 0.006)))
                figures = [round(value, 2) for value in (opened, high, low, price)]
                yield symbol, name, first + timedelta(days=day), *figures, int(draw.lognormvariate(13, 1))
                made += 1


@dataclass(frozen=True)
class RealisticFilling:
    """So many thousand people, addresses and listings (``scale``)."""

    database: str
    scale: int

    @property
    def identity(self) -> str:
        """``realistic-100-a1b2c3d4e5f6``."""
        return f"realistic-{self.scale}-{digest()}"

    @property
    def size_estimate(self) -> int:
        """Bytes."""
        return size_estimate(self.scale)

    def load(self, target: LoadTarget, say: Say = silent) -> None:
        """Fill the database.

        Raises:
            CapabilityError: mimesis is not installed.
            TrialError: PostgreSQL refused something.
        """
        import psycopg
        from psycopg.conninfo import make_conninfo

        values = Values()
        where = make_conninfo(
            host=target.socket_dir, port=str(target.port), user=target.user, dbname=self.database, application_name="pgherd"
        )
        try:
            with psycopg.connect(where, connect_timeout=10) as connection:
                connection.execute(resources.files("pgherd.workloads").joinpath("realistic.sql").read_bytes())
                say(f"making {self.scale * PEOPLE} people with their addresses, and listings")
                _copy(connection, "person", values.people(self.scale * PEOPLE))
                _copy(connection, "address", values.addresses(self.scale * PEOPLE))
                _copy(connection, "listing", values.listings(self.scale * LISTINGS))
                connection.commit()
                connection.autocommit = True
                for statement in _KEYS:
                    connection.execute(statement.encode())
        except psycopg.Error as error:
            raise TrialError(f"the database of the workload realistic cannot be filled: {str(error).strip()}") from None


def _copy(connection: psycopg.Connection[Any], table: str, rows: Iterator[tuple[Any, ...]]) -> None:
    from psycopg import sql

    with connection.cursor() as cursor, cursor.copy(sql.SQL("COPY {} FROM STDIN (FREEZE)").format(sql.Identifier(table))) as copy:
        for row in rows:
            copy.write_row(row)


@dataclass(frozen=True)
class RealisticWorkload:
    """Data to look at; ``scale`` is thousands of people."""

    name: str = "realistic"
    read_only: bool = True
    default_scale: int = 100

    def scripts(self) -> Sequence[Script]:
        """It has no transactions."""
        return ()

    def filling(self, node: Node, database: Database) -> RealisticFilling:
        """So many thousand people as the database's scale says."""
        return RealisticFilling(database=database.name, scale=database.scale)

    def size_estimate(self, scale: int) -> int:
        """Bytes of a database."""
        return size_estimate(scale)

    def violations(self, query: Query) -> Sequence[str]:
        """It has no rules to check."""
        return ()


REALISTIC = RealisticWorkload()
