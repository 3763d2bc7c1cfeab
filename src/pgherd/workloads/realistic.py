"""Workload ``realistic``: people, addresses and stock listings with realistic values.

The data is measured, not loaded by transactions: experiment E15 measures compression, and generated filler would mislead
there. Names, streets and occupations are those of mimesis in several languages, drawn uniformly. In real data few names
are common, so real data compresses slightly better. Prices are random walks. Equal scales give equal rows.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from importlib import resources
from typing import TYPE_CHECKING, Any, ClassVar

from pgherd.model.deployment import Database
from pgherd.model.errors import TrialError
from pgherd.model.load import Script
from pgherd.node.protocol import LoaderServer, Node, Say, silent
from pgherd.workloads import Query

if TYPE_CHECKING:
    import psycopg

SEED = 15
LOCALES = ("en", "de", "fr", "es", "it", "pl", "pt", "sv")
PEOPLE, LISTINGS = 1000, 1000
"""Rows of each per unit of scale. Every person has one address."""
DAYS = 250
"""Trading days of a company."""
COMPANIES = 1000
"""Number of companies per period of trading days. The next companies are traded in the next period."""

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
    """Hash everything that determines the contents of a database, including the version of mimesis."""
    from importlib.metadata import version

    library = version("mimesis")
    files = resources.files("pgherd.workloads")
    sources = [files.joinpath(name).read_bytes() for name in ("realistic.sql", "realistic.py")]
    return hashlib.sha256(b"\0".join([*sources, library.encode()])).hexdigest()[:12]


def size_estimate(scale: int) -> int:
    """Return the size of a loaded database (pg_database_size) in bytes."""
    return _EMPTY_DATABASE + _PER_SCALE * scale


class SampleRows:
    """Generator of rows for the three tables. Equal seeds give equal rows."""

    def __init__(self, seed: int = SEED) -> None:
        """``seed`` determines all rows."""
        import mimesis

        self._random = random.Random(seed)
        self._people = [mimesis.Person(mimesis.Locale(name), seed=seed) for name in LOCALES]
        self._addresses = [mimesis.Address(mimesis.Locale(name), seed=seed) for name in LOCALES]
        self._finance = [mimesis.Finance(mimesis.Locale(name), seed=seed) for name in LOCALES]

    def people(self, count: int) -> Iterator[tuple[Any, ...]]:
        draw = self._random
        start = datetime(2015, 1, 1, tzinfo=UTC)
        for number in range(1, count + 1):
            person = draw.choice(self._people)
            first, last = person.first_name(), person.last_name()
            host = draw.choice(("gmail.com", "outlook.com", "yahoo.com", "web.de", "orange.fr", "proton.me", "icloud.com", "example.org"))
            name = f"{first}.{last}".lower().replace(" ", "")
            email = f"{name}{draw.choice(('', '', draw.randrange(1950, 2010), draw.randrange(100)))}@{host}"
            born = date(1940, 1, 1) + timedelta(days=draw.randrange(70 * 365))
            phone = f"+{draw.randrange(1, 99)} {draw.randrange(100, 1000)} {draw.randrange(10**6, 10**8)}"
            registered = start + timedelta(seconds=draw.randrange(10 * 365 * 86400), microseconds=draw.randrange(10**6))
            yield number, first, last, email, phone, born, person.occupation(), person.nationality(), registered

    def addresses(self, count: int) -> Iterator[tuple[Any, ...]]:
        """Generate rows of address, one for each person."""
        draw = self._random
        for number in range(1, count + 1):
            address = draw.choice(self._addresses)
            house = f"{draw.randrange(1, 240)}{draw.choice(('', '', '', 'a', 'b'))}"
            latitude, longitude = round(draw.uniform(36, 60), 5), round(draw.uniform(-9, 25), 5)
            region = address.state()
            yield (
                number,
                number,
                address.street_name(),
                house,
                address.city(),
                region,
                address.postal_code(),
                address.country(),
                latitude,
                longitude,
            )

    def listings(self, count: int) -> Iterator[tuple[Any, ...]]:
        """Generate rows of listing by company and trading day. The price is a random walk of 2 % per day."""
        draw = self._random
        generated = 0
        for company in range(-(-count // DAYS)):
            name = draw.choice(self._finance).company()
            symbol = "".join(draw.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(4)) + f".{company}"
            price, first = draw.uniform(2, 800), date(2020, 1, 2) + timedelta(days=DAYS * (company // COMPANIES))
            for day in range(DAYS):
                if generated == count:
                    return
                opened, price = price, max(0.05, price * (1 + draw.gauss(0, 0.02)))
                high, low = max(opened, price) * (1 + abs(draw.gauss(0, 0.006))), min(opened, price) * (1 - abs(draw.gauss(0, 0.006)))
                figures = [round(value, 2) for value in (opened, high, low, price)]
                yield symbol, name, first + timedelta(days=day), *figures, int(draw.lognormvariate(13, 1))
                generated += 1


@dataclass(frozen=True)
class RealisticLoader:
    """Loader of ``scale`` thousand people, addresses and listings."""

    settings: ClassVar[Mapping[str, str]] = {}
    database: str
    scale: int

    @property
    def identity(self) -> str:
        """Identity such as ``realistic-100-a1b2c3d4e5f6``."""
        return f"realistic-{self.scale}-{digest()}"

    @property
    def size_estimate(self) -> int:
        """Expected size in bytes."""
        return size_estimate(self.scale)

    def load(self, target: LoaderServer, say: Say = silent) -> None:
        """Fill the database.

        Raises:
            TrialError: PostgreSQL reports an error.
        """
        import psycopg
        from psycopg.conninfo import make_conninfo

        values = SampleRows()
        conninfo = make_conninfo(
            host=target.socket_dir, port=str(target.port), user=target.user, dbname=self.database, application_name="pgherd"
        )
        try:
            with psycopg.connect(conninfo, connect_timeout=10) as connection:
                connection.execute(resources.files("pgherd.workloads").joinpath("realistic.sql").read_bytes())
                say(f"generating {self.scale * PEOPLE} people with their addresses, and listings")
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
    """Data without transactions. ``scale`` is the number of people in thousands."""

    name: str = "realistic"
    read_only: bool = True
    default_scale: int = 100

    def scripts(self) -> Sequence[Script]:
        return ()

    def filling(self, node: Node, database: Database) -> RealisticLoader:
        return RealisticLoader(database=database.name, scale=database.scale)

    def size_estimate(self, scale: int) -> int:
        return size_estimate(scale)

    def violations(self, query: Query) -> Sequence[str]:
        return ()


REALISTIC = RealisticWorkload()
