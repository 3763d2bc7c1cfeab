"""Classes of tenants from a table of databases (``--tenants-from``), within the limits of this host.

The table has a header and a row for each database, with these columns in any order::

    database,size,tps,peak hour
    shop,12GB,340,14
    wiki,300MB,2.5,09:30

``tps`` is the rate in the peak hour. Names of columns may be written in other ways, and may have the unit of the size (``size_gb``).
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

import yaml

from pgherd.model.errors import UsageError
from pgherd.model.text import clean
from pgherd.model.units import Mark, parse_bytes, parse_number
from pgherd.postgres import settings
from pgherd.prepare.hosts import HostShare
from pgherd.prepare.load import LEAST_TRANSACTIONS
from pgherd.prepare.servers import UNCACHED_BUFFERS
from pgherd.prepare.text_tables import decimal_mark, read_text_table
from pgherd.studies.density.options import DensityRequest, default_clients, default_vcpus
from pgherd.studies.density.tenant_activity import HOURS
from pgherd.studies.density.tenant_table import (
    FACTOR,
    FACTOR_HOURS,
    JOIN_FACTOR,
    MB,
    MOST_CLASSES,
    NIGHT,
    Loadable,
    TableClass,
    TableDatabase,
    TenantTable,
    beyond_factor,
    classes_of,
    document,
)
from pgherd.studies.density.tenants import IDLE_SERVERS, largest_mix
from pgherd.study.objectives import BLOCK_S, MAX_BLOCK_S, parse_objectives, shortest_block
from pgherd.workloads.registry import find

COLUMNS = {
    "database": ("database", "name", "datname", "db", "tenant"),
    "size": ("size", "database size", "db size"),
    "tps": ("tps", "peak tps", "rate", "rate tps", "throughput", "throughput tps"),
    "peak hour": ("peak hour", "peak", "hour", "peak hour utc"),
}
"""Column → its names. Other characters than letters separate words."""
_UNITS = ("b", "bytes", "kb", "kib", "mb", "mib", "gb", "gib", "tb", "tib")
LEAST_SIZE = 2**20
"""Smallest size without a unit, in bytes. An empty database is larger, so that a smaller number has another unit."""
LARGEST_SIZE = 16 * 2**30
"""Largest database that is loaded, in bytes. Larger ones would take many minutes."""
LARGEST_SHARE = 0.25
"""Largest part of the host's memory for one tenant, if the user does not give --memory."""
_ROUND = 128 * 2**20
_MOST_BYTES, _MOST_TPS = 2**60, 1e9
"""Largest size and rate. Larger ones are mistakes."""
_NOT_WITH_TABLE = ("scale", "rate", "init_script")


# ---- the file


def read_databases(path: Path) -> list[TableDatabase]:
    """Read the databases of a table.

    Raises:
        UsageError: the file cannot be read, a column is missing or unknown, or a row is wrong. The message names line and value.
    """
    table = read_text_table(path, "database, size, tps and peak hour", "one database")
    header = [cell.strip() for cell in table.rows[0][1]]
    places, unit = _columns(table.source, header)
    rows = table.body(len(header))
    if not rows:
        raise UsageError(f"{table.source} has a header and no rows; it requires a row for each database")
    size, tps, hour = places["size"], places["tps"], places["peak hour"]
    numbers = [[(line, re.sub(r"[a-zA-Z\s]+$", "", row[place])) for line, row in rows] for place in (size, tps)]
    mark = decimal_mark([*numbers, [(line, row[hour]) for line, row in rows if ":" not in row[hour]]], table.separator, table.source)
    found: dict[str, tuple[int, TableDatabase]] = {}
    for line, row in rows:
        name = clean(row[places["database"]].strip())
        where = f"{table.source}, line {line}"
        if not name:
            raise UsageError(f"{where}: the name of the database is empty; write it under {header[places['database']]}")
        if name in found:
            raise UsageError(f"{where}: database {name} is there already in line {found[name][0]}; write one row for each database")
        where += f", database {name}"
        database = TableDatabase(
            name,
            _size(where, header[size], row[size], unit, mark),
            _rate(where, header[tps], row[tps], mark),
            _hour(where, header[hour], row[hour], mark),
        )
        found[name] = line, database
    return [database for _, database in found.values()]


def _columns(source: str, header: Sequence[str]) -> tuple[dict[str, int], str]:
    """Return the place of each column, and the unit in the name of the size. Raises UsageError for a missing or unknown column."""
    places: dict[str, int] = {}
    unit = ""
    for place, text in enumerate(header):
        words = re.findall(r"[a-z]+", text.lower())
        unit_of_size = words.pop() if len(words) > 1 and words[-1] in _UNITS else ""
        column = next((name for name, names in COLUMNS.items() if " ".join(words) in names), None)
        if column is None or (unit_of_size and column != "size"):
            raise UsageError(f"{source}: column '{clean(text)}' is none of {', '.join(COLUMNS)}; rename or remove it")
        if column in places:
            raise UsageError(f"{source}: '{clean(header[places[column]])}' and '{clean(text)}' may both be the {column}; remove one")
        places[column] = place
        unit = unit_of_size or unit
    missing = next((name for name in COLUMNS if name not in places), None)
    if missing is not None:
        named = "size, or size_mb with its unit" if missing == "size" else missing
        raise UsageError(f"{source} has no column for the {missing} (it has {clean(', '.join(header))}); name it {named}")
    return places, unit


def _size(where: str, column: str, text: str, unit: str, mark: Mark) -> float:
    """Return a size in bytes. Its unit is in the cell or in the name of the column; without both it is a number of bytes."""
    match = re.fullmatch(r"\s*(.*?)\s*([a-zA-Z]*)\s*", text)
    number, own = (match[1], match[2].lower()) if match else (text, "")
    value = parse_number(number, mark)
    if value is None or value <= 0 or (own and (unit or own not in _UNITS)):
        allowed = f"a number above 0, as the unit is in the name {column}" if unit else "a size above 0, such as 512MB or 1.5GB"
        raise UsageError(f"{where}: '{clean(text.strip())}' under {column} is not {allowed}")
    if not own and not unit and value < LEAST_SIZE:
        raise UsageError(
            f"{where}: '{clean(text.strip())}' under {column} has no unit, and an empty database has more bytes; write the unit there, "
            f"such as {text.strip()}MB, or in the name of the column, such as size_mb"
        )
    size = value * parse_bytes(f"1{(own or unit or 'b').replace('bytes', 'b')}")
    if size > _MOST_BYTES:
        raise UsageError(f"{where}: '{clean(text.strip())}' under {column} is more than an exabyte; check the number and its unit")
    return size


def _rate(where: str, column: str, text: str, mark: Mark) -> float:
    value = parse_number(text, mark)
    if value is None or value < 0:
        raise UsageError(f"{where}: '{clean(text.strip())}' under {column} is not a number of at least 0; write 0 for an idle database")
    if value > _MOST_TPS:
        raise UsageError(f"{where}: '{clean(text.strip())}' under {column} is more than {_MOST_TPS:,.0f} tps; check the number")
    return value


def _hour(where: str, column: str, text: str, mark: Mark) -> float:
    """Return an hour, such as 13.5 of ``13.5`` or ``13:30``."""
    hours, _, minutes = text.strip().partition(":")
    value, part = parse_number(hours, mark), parse_number(minutes) if minutes else 0.0
    if value is None or part is None or not 0 <= value < HOURS or not 0 <= part < 60 or (minutes and value % 1):
        raise UsageError(
            f"{where}: '{clean(text.strip())}' under {column} is not an hour of the day; write 0 to 23, or a time such as 13:30"
        )
    return value + part / 60


# ---- this host


def table_of_tenants(path: Path, request: DensityRequest, share: HostShare, seed: int, *, limited: bool) -> TenantTable:
    """Return the classes of a table of databases, with the document of those that fit into a mix on this host.

    Without ``limited`` the host cannot limit the memory of containers, and the classes have none.

    Raises:
        UsageError: the table is wrong, or an option contradicts it.
    """
    given = next((name for name in _NOT_WITH_TABLE if getattr(request, name)), None)
    if given is not None:
        option = f"--{given.replace('_', '-')}"
        raise UsageError(f"{option} does not go with --tenants-from, which makes classes with scale and rate; leave one of them out")
    vcpus = request.vcpus or default_vcpus(share.smallest)
    clients = request.clients or default_clients(vcpus)
    memory = request.memory or int(share.memory * LARGEST_SHARE)
    estimate = find(request.workload).size_estimate
    one, two = estimate(1), estimate(2)
    assert one is not None and two is not None  # the size is known for every workload with a scale
    base, per_scale = 2 * one - two, two - one

    def need(scale: int) -> int:
        return _memory(base + per_scale * scale, clients, request)

    largest = bisect_right(range(1, (LARGEST_SIZE - base) // per_scale + 1), memory, key=need)
    loadable = Loadable(base, per_scale, max(1, largest), LEAST_TRANSACTIONS / BLOCK_S)
    databases = read_databases(path)

    def most(classes: Sequence[TableClass]) -> int:
        all_idle = all(one.rate is None for one in classes)
        requested = request.databases or ((max(IDLE_SERVERS, len(classes)),) if all_idle else None)
        mix = [(one.databases, 0.0 if one.rate is None and not all_idle else vcpus, request.memory or need(one.scale)) for one in classes]
        return min(largest_mix(requested, share.cores, mix, share.memory, seed))

    classes = classes_of(databases, loadable, most)
    common = {"vcpus": vcpus, **({} if request.script else {"workload": request.workload})}
    kept = [one for one in classes if not one.left_out]
    judged = _judged(request, kept)
    options: dict[str, dict[str, object]] = {
        one.name: {
            **({"memory": str(request.memory or f"{need(one.scale) // MB}MB")} if limited else {}),
            **({"slo": list(request.slo) if one.name in judged else []} if request.slo and one.rate is not None else {}),
        }
        for one in kept
    }
    text = yaml.safe_dump(document(kept, common, options), sort_keys=False, default_flow_style=None, width=70)
    beyond = beyond_factor(databases, loadable)
    fewest = "Classes are the fewest in which all databases are"
    rule = fewest if not beyond else f"There are at most {MOST_CLASSES} classes, so that {beyond} of {len(databases)} databases are not"
    notes: tuple[str, ...] = (
        f"{rule} within a factor of {FACTOR} of their class in size and tps together; {FACTOR_HOURS} hours between the peaks count as that "
        f"factor. A class of less than one tenant joins another one within a factor of {JOIN_FACTOR}, or is left out.",
        *loadable.changes(databases),
        f"A day is a cosine curve with {100 * NIGHT:.0f} % of the peak load at night, and a transaction is one of the workload.",
    )
    without = ", ".join(one.name for one in kept if one.name not in judged and one.rate is not None)
    if request.slo and without:
        notes += (f"Classes with too few transactions for --slo, which have to keep their rate only: {without}.",)
    return TenantTable(source=path.name, classes=classes, document=text, notes=notes)


def _judged(request: DensityRequest, classes: Sequence[TableClass]) -> set[str]:
    """Return the names of classes with enough transactions for the latency objectives. Raises UsageError if no class with a load has."""
    rates = {one.name: one.rate for one in classes if one.rate is not None}
    if not request.slo or not rates:
        return set()
    objectives = parse_objectives(request.slo)
    found = {name for name, rate in rates.items() if shortest_block(objectives, rate) <= MAX_BLOCK_S}
    if not found:
        most = max(rates.values())
        raise UsageError(
            f"--slo {', '.join(request.slo)}: the classes of the table have at most {most:g} tps, too few for that percentile in a short "
            "block; give a lower percentile, or none"
        )
    return found


def _memory(size: int, clients: int, request: DensityRequest) -> int:
    """Return the memory (bytes) of a server whose database has this size, in multiples of 128 MB."""
    writes = not request.read_only if request.script else request.workload != "select-only"
    buffers = settings.buffers_for(size, writes) if request.bound_by == "cpu" else UNCACHED_BUFFERS
    return math.ceil(settings.memory_needed(buffers, clients) / _ROUND) * _ROUND
