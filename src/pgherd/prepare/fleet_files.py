"""Files of a fleet: the demand of its databases, their constraints, and the classes of hosts.

A demand file is CSV or Parquet with a row for each database and time. It is wide (a column for each resource) or long (the columns
``resource`` and ``value``). An empty cell is unknown. A missing row is an error. Instead of resources it may have the rate, which runs
turn into resources.
"""

from __future__ import annotations

import csv
import itertools
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from pgherd.model.errors import UsageError
from pgherd.model.text import clean
from pgherd.model.units import Mark
from pgherd.node.files import UnsafeFileError, read_input
from pgherd.prepare.requests import first_fault, read_yaml
from pgherd.prepare.text_tables import decimal_mark
from pgherd.store.samples import escape, open_database

if TYPE_CHECKING:
    import duckdb

    from pgherd.analysis.demand import Array, Cost, Demand
    from pgherd.analysis.host_class import HostClass
    from pgherd.analysis.host_plan import Rule

_MAX_RULES_BYTES = 64 * 2**20
_MAX_DEMAND_BYTES = 4 * 2**30
MAX_CELLS = 120_000_000
_MAX_TIMES = 40_000
_DECIMAL_COMMA = r"[-+]?([1-9]\d{0,2}(\.\d{3})+|\d+)(,\d*)?(e[-+]?\d+)?"
"""Number with a decimal comma, in lower case; points may group thousands."""
_RULE_COLUMNS = ("database", "apart", "labels", "pin", "host")


def read_demand(path: Path, percentile: float, costs: Sequence[Cost] = ()) -> Demand:
    """Read the demand of all databases, and fold several days into one by this percentile. ``costs`` turn rates into resources.

    Raises:
        UsageError: the file cannot be read, a value is negative or no number, a row is missing or there twice, or times are unequal.
    """
    import duckdb

    try:
        if not path.is_file():
            raise UsageError(f"{path} is no regular file; name a CSV or Parquet file of the demand")
        if os.stat(path).st_size > _MAX_DEMAND_BYTES:
            raise UsageError(f"{path} has {os.stat(path).st_size / 2**30:.1f} GB, and at most {_MAX_DEMAND_BYTES / 2**30:.0f} GB are read")
        with open_database(threads=2) as database:
            names, resources, values, seconds = _read_cells(database, path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except duckdb.Error as error:
        raise UsageError(f"cannot read {path} as CSV or Parquet: {clean(str(error).partition(chr(10))[0])}") from None
    slot_of, slots = _slots(seconds, path)
    rows = [row for _, row in names]
    return folded(str(path), [name for name, _ in names], resources, values, slot_of, slots, percentile, rows=rows, costs=costs)


def folded(
    origin: str,
    names: Sequence[str],
    resources: Sequence[str],
    values: Array,
    slot_of: Sequence[int],
    slots: int,
    percentile: float,
    *,
    low: Array | None = None,
    rows: Sequence[int] = (),
    costs: Sequence[Cost] = (),
    notes: Sequence[str] = (),
) -> Demand:
    """Turn rates into resources, and fold several days into one. ``origin`` is the input, for messages.

    Raises:
        UsageError: there are rates without costs, or costs without rates.
    """
    from pgherd.analysis.demand import RATE, fold, from_rates

    if RATE in resources:
        if not costs:
            raise UsageError(f"{origin} has {RATE}, the rate of transactions; give the run that measured their cost with --demand-run")
        resources, values, low = from_rates(names, resources, values, values if low is None else low, costs)
    elif costs:
        raise UsageError(f"{costs[0].source} needs the rate of each database, and {origin} has no column {RATE}; add it")
    notes = [*notes, *(cost.note for cost in costs if cost.note)]
    return fold(names, resources, values, slot_of, slots, percentile, rows, low, notes)


def _separator(header: str) -> str:
    """Return the separator of cells, as spreadsheets in several languages write it."""
    return next((separator for separator in "\t;" if separator in header), ",")


def _decimal_mark(relation: duckdb.DuckDBPyRelation, path: Path, columns: Sequence[str]) -> Mark:
    """Return the decimal mark of columns of ``relation``, which are SQL expressions.

    Cells of one shape, in which digits after the first are equal, show the same. One of each is read, so a large file takes no longer.
    """
    with path.open(encoding="utf-8", errors="replace") as file:
        header = file.readline()
    separator = _separator(header)
    if separator == ",":
        return "."
    shapes = []
    for column in columns:
        found = relation.query(
            "cells",
            "SELECT min(line), arg_min(text, line) FROM "  # noqa: S608
            f"(SELECT row_number() OVER () + 1 AS line, {column} AS text FROM cells) WHERE text <> '' "
            "GROUP BY left(text, 1), regexp_replace(substr(text, 2), '[0-9]', '1', 'g') ORDER BY 1",
        )
        assert found is not None  # it is a SELECT
        shapes.append(found.fetchall())
    return decimal_mark(shapes, separator, str(path))


def _number_sql(column: str, mark: Mark) -> str:
    if mark == ".":
        return f'TRY_CAST("{column}" AS FLOAT)'
    text = f"replace(replace(\"{column}\", '.', ''), ',', '.')"
    return f"CASE WHEN \"{column}\" = 'nan' OR regexp_full_match(\"{column}\", '{_DECIMAL_COMMA}') THEN TRY_CAST({text} AS FLOAT) END"


def _read_cells(
    database: duckdb.DuckDBPyConnection, path: Path
) -> tuple[list[tuple[str, int]], list[str], Any, list[tuple[int, str, int]]]:
    """Return the databases with their first rows, the resources, the values, and the times as (second, text, first row)."""
    import numpy as np

    from pgherd.analysis.demand import MOST, RATE, RESOURCES

    measurable = [*RESOURCES, RATE]
    file = escape(str(path))
    parquet = path.suffix.lower() == ".parquet"
    # Without skiprows, DuckDB skips lines above those that fit the columns it guesses.
    relation = database.read_parquet(file) if parquet else database.read_csv(file, header=True, all_varchar=True, skiprows=0)
    columns = {column.strip().lower(): column for column in relation.columns}
    if len(columns) < len(relation.columns):
        raise UsageError(f"{path} has two columns of one name ({', '.join(relation.columns)}); remove one")
    long = "resource" in columns and "value" in columns
    known = {"database", "time", *(("resource", "value") if long else measurable)}
    if len(relation.columns) == 1 and any(separator in relation.columns[0] for separator in ",;\t"):
        raise UsageError(
            f"{path}: not all rows have the cells of its first line ({clean(relation.columns[0])}); let that be the header of all rows, "
            "and give no row more cells"
        )
    if "database" not in columns:
        raise UsageError(f"{path} has no column 'database' (it has {', '.join(relation.columns)}); name that column so")
    foreign = [text for name, text in columns.items() if name not in known]
    resources = [name for name in measurable if name in columns]
    if foreign or not (long or resources):
        problem = f"column '{foreign[0]}' is no resource" if foreign else "no column is a resource"
        raise UsageError(f"{path}: {problem}; there are {', '.join(measurable)}, or the columns resource and value")

    def quoted(name: str) -> str:
        return "NULL" if name not in columns else 'trim(CAST("' + columns[name].replace('"', '""') + '" AS VARCHAR))'

    measured = ["value"] if long else resources
    mark = "." if parquet else _decimal_mark(relation, path, [quoted(name) for name in measured])
    cells = ", ".join(
        f'nullif(lower({quoted(name)}), \'\') AS "text_{name}", {_number_sql(f"text_{name}", mark)} AS "{name}"' for name in measured
    )
    # 1 is the header of a CSV file. Rows of Parquet are counted from 1.
    database.execute(
        f"CREATE TABLE cells AS SELECT row_number() OVER () + {int(not parquet)} AS line, {quoted('database')} AS database, "  # noqa: S608
        f"coalesce({quoted('time')}, '0') AS time, {quoted('resource')} AS resource, {cells} FROM relation"
    )
    for name in measured:
        bad = database.execute(
            f'SELECT line, database, "text_{name}" FROM cells WHERE "text_{name}" IS NOT NULL AND NOT coalesce(isnan("{name}"), false) '  # noqa: S608
            f'AND ("{name}" IS NULL OR "{name}" < 0 OR "{name}" > {MOST}) ORDER BY line LIMIT 1'
        ).fetchone()
        if bad is not None:
            raise UsageError(
                f"{path}, row {bad[0]}: '{clean(bad[2])}' under {name} of database {clean(bad[1])} is not a number from 0 to {MOST:g}; "
                "leave an unknown value empty"
            )
    names = [(clean(name or ""), int(row)) for name, row in database.execute(
        "SELECT database, min(line) FROM cells GROUP BY database ORDER BY min(line)").fetchall()]  # fmt: skip
    if not names:
        raise UsageError(f"{path} has a header and no rows; add a row for each database and time")
    nameless = next((row for name, row in names if not name), None)
    if nameless is not None:
        raise UsageError(f"{path}, row {nameless}: the name of the database is empty; write it in the column 'database'")
    if long:
        found = database.execute("SELECT resource, min(line) FROM cells GROUP BY resource").fetchall()
        wrong = next(((name, row) for name, row in found if name not in measurable), None)
        if wrong is not None:
            raise UsageError(f"{path}, row {wrong[1]}: '{clean(wrong[0])}' is no resource; there are {', '.join(measurable)}")
        resources = [name for name in measurable if name in dict(found)]
    times = _times(database, path)
    many = len(names) * len(resources) * len(times)
    if many > MAX_CELLS:
        raise UsageError(
            f"{path} has {len(names):,} databases at {len(times):,} times, {many:,} values; average them to at most {MAX_CELLS:,}"
        )
    distinct = sorted({second for second, _, _ in times})
    number = {second: i for i, second in enumerate(distinct)}
    database.execute("CREATE TABLE codes (time VARCHAR, t INTEGER)")
    database.executemany("INSERT INTO codes VALUES (?, ?)", [[text, number[second]] for second, text, _ in times])
    database.execute(
        "CREATE TABLE numbers AS SELECT database, row_number() OVER (ORDER BY min(line)) - 1 AS d FROM cells GROUP BY database"
    )
    order = {name: i for i, name in enumerate(resources)}
    of_resource = "0" if not long else "CASE resource " + " ".join(f"WHEN '{name}' THEN {i}" for name, i in order.items()) + " END"
    listed = ", ".join(f'CAST("{name}" AS FLOAT) AS "{name}"' for name in measured)
    arrays = database.execute(
        f"SELECT line, d, t, {of_resource} AS r, {listed} FROM cells JOIN numbers USING (database) JOIN codes USING (time) ORDER BY line"  # noqa: S608
    ).fetchnumpy()
    d, r, t = (np.ma.getdata(arrays[name]).astype(np.int64) for name in ("d", "r", "t"))
    flat = (d * (len(resources) if long else 1) + r) * len(distinct) + t
    _check_complete(path, flat, np.ma.getdata(arrays["line"]), names, resources if long else ["row"], [text for _, text in _first(times)])
    values = np.full((len(names), len(resources), len(distinct)), np.nan, np.float32)
    for i, name in enumerate(measured):
        column = np.ma.filled(arrays[name].astype(np.float32), np.nan)
        values[d, r if long else i, t] = column
    return names, resources, values, _merged(times)


def _first(times: Sequence[tuple[int, str, int]]) -> list[tuple[int, str]]:
    return [(second, text) for second, text, _ in _merged(times)]


def _merged(times: Sequence[tuple[int, str, int]]) -> list[tuple[int, str, int]]:
    """Return one entry for each instant, in order: two texts may be the same instant in different time zones."""
    by_second: dict[int, tuple[int, str, int]] = {}
    for one in times:
        by_second.setdefault(one[0], one)
    return [by_second[second] for second in sorted(by_second)]


def _check_complete(path: Path, flat: Any, line: Any, names: Sequence[tuple[str, int]], parts: Sequence[str], times: Sequence[str]) -> None:
    """Raise UsageError for a row that is there twice or is missing."""
    import numpy as np

    def described(cell: int) -> str:
        database, part, time = cell // (len(parts) * len(times)), cell // len(times) % len(parts), cell % len(times)
        return f"database {names[database][0]} at {times[time]}" + (f", {parts[part]}" if len(parts) > 1 else "")

    count = np.bincount(flat, minlength=len(names) * len(parts) * len(times))
    if count.max() > 1:
        cell = int(count.argmax())
        rows = line[flat == cell]
        raise UsageError(
            f"{path}, row {rows[1]}: {described(cell)} is there already in row {rows[0]}; remove one. Local times repeat an hour when "
            "summer time ends, so write the offset from UTC, such as 2026-10-25T02:00+01:00"
        )
    if count.min() == 0:
        cell = int(count.argmin())
        last = int(line[flat // (len(parts) * len(times)) == cell // (len(parts) * len(times))].max())
        raise UsageError(f"{path}, row {last}: {described(cell)} is missing; add the row, with an empty value if it is unknown")


def _times(database: duckdb.DuckDBPyConnection, path: Path) -> list[tuple[int, str, int]]:
    """Return each text in the column ``time`` as (second, text, first row). Texts are numbers of slots, times of day, or ISO 8601."""
    texts = database.execute("SELECT time, min(line) FROM cells GROUP BY time ORDER BY min(line)").fetchmany(_MAX_TIMES + 1)
    if len(texts) > _MAX_TIMES:
        raise UsageError(f"{path} has more than {_MAX_TIMES:,} different times; average them over longer slots")
    kinds: dict[str, tuple[str, int]] = {}
    times = []
    for text, row in texts:
        kind, second = _parse_time(text, path, row)
        kinds.setdefault(kind, (text, row))
        if len(kinds) > 1:
            first, other = kinds.values()
            raise UsageError(
                f"{path}, row {other[1]}: the time '{clean(other[0])}' has another form than '{clean(first[0])}'; write all in one form"
            )
        times.append((second, text, int(row)))
    if "number" in kinds:  # the slots of a day, from 0 or 1
        numbers = sorted({second for second, _, _ in times})
        wrong = next((n for i, n in enumerate(numbers) if n != numbers[0] + i), None)
        if numbers[0] > 1 or wrong is not None:
            missing = 0 if numbers[0] > 1 else next(n for n in range(numbers[0], numbers[-1]) if n not in set(numbers))
            raise UsageError(f"{path}: slot {missing} is missing; number the slots of a day from 0 or 1 without gaps")
        if 86400 % len(numbers):
            raise UsageError(
                f"{path} has {len(numbers)} slots, which do not divide a day of 86,400 s equally; use a number such as 24 or 288"
            )
        times = [((second - numbers[0]) * (86400 // len(numbers)), text, row) for second, text, row in times]
    return times


def _parse_time(text: str, path: Path, row: int) -> tuple[str, int]:
    """Return form and second of a time."""
    if text.isdecimal() and len(text) < 6:
        return "number", int(text)
    try:
        if len(text) in (5, 8) and text[2] == ":":
            return "time of day", int(datetime.fromisoformat(f"1970-01-01T{text}+00:00").timestamp())
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{path}, row {row}: '{clean(text)}' is no time; write a slot such as 13, a time of day such as 13:00, or 2026-01-31T13:00Z"
        ) from None
    if moment.tzinfo is None:
        return "local time", int(moment.replace(tzinfo=UTC).timestamp())
    return "time with offset", int(moment.timestamp())


def _slots(times: Sequence[tuple[int, str, int]], path: Path) -> tuple[list[int], int]:
    """Return the slot of each time, and the number of slots of a day. Days are in UTC, or local without an offset."""
    from pgherd.analysis.demand import DAY, MAX_SLOTS

    if len(times) == 1:
        return [0], 1
    step = times[1][0] - times[0][0]
    for before, after in itertools.pairwise(times):
        if after[0] - before[0] != step:
            raise UsageError(
                f"{path}, row {after[2]}: {clean(after[1])} is {after[0] - before[0]:,} s after {clean(before[1])}, and the first slot has "
                f"{step:,} s; give every slot, with an empty value if it is unknown"
            )
    if DAY % step or DAY // step > MAX_SLOTS:
        raise UsageError(f"{path}: slots of {step:,} s do not divide a day into at most {MAX_SLOTS} slots; average them over 5 min or 1 h")
    slots = DAY // step
    slot_of = [second % DAY // step for second, _, _ in times]
    if len(set(slot_of)) < slots:
        raise UsageError(f"{path} has {len(times)} slots of {step:,} s, from {times[0][1]} to {times[-1][1]}; give at least a whole day")
    return slot_of, slots


def read_rules(path: Path) -> list[Rule]:
    """Read the constraints of databases from a CSV file with the columns database, apart, labels, pin and host.

    Cells are separated by comma, semicolon or tab.

    Raises:
        UsageError: the file cannot be read, or a row is wrong.
    """
    from pgherd.analysis.host_plan import Rule

    try:
        text = read_input(path, _MAX_RULES_BYTES).decode("utf-8-sig")
        table = csv.DictReader(text.splitlines(), strict=True, delimiter=_separator(text.partition("\n")[0]))
        rows = [(table.line_num, row) for row in table]
    except (OSError, UnicodeDecodeError, UnsafeFileError, csv.Error) as error:
        raise UsageError(f"cannot read {path}: {error.strerror if isinstance(error, OSError) else error}") from None
    header = list(table.fieldnames or ())
    foreign = [name for name in header if name not in _RULE_COLUMNS]
    if "database" not in header or foreign or len(set(header)) < len(header):
        raise UsageError(f"{path} must have the column database, and of the others only {', '.join(_RULE_COLUMNS[1:])}, each once")
    rules: list[Rule] = []
    seen: dict[str, int] = {}
    for number, row in rows:
        if table.restkey in row:
            raise UsageError(f"{path}, row {number} has more cells than columns; separate several groups or labels by blanks")
        name = clean((row["database"] or "").strip())
        if name in seen:
            raise UsageError(f"{path}, row {number}: database {name} is there already in row {seen[name]}; write one row for each database")
        seen[name] = number
        words = (row.get("labels") or "").split()
        wrong = next((word for word in words if "=" not in word), None)
        if wrong is not None:
            raise UsageError(f"{path}, row {number}: '{clean(wrong)}' is no label; write it as key=value")
        rules.append(
            Rule(
                database=name,
                row=number,
                apart=tuple(map(clean, (row.get("apart") or "").split())),
                labels=dict(word.split("=", 1) for word in words),
                pin=clean((row.get("pin") or "").strip()),
                host=clean((row.get("host") or "").strip()),
            )
        )
    return rules


def read_classes(path: Path) -> list[HostClass]:
    """Read the classes of hosts from a YAML file with a list ``classes``. Raises UsageError."""
    from pgherd.analysis.host_class import HostClass

    document = read_yaml(path)
    if (
        not isinstance(document, dict)
        or set(document) != {"classes"}
        or not isinstance(document["classes"], list)
        or not document["classes"]
    ):
        raise UsageError(f"{path}: write a list 'classes', each with name and capacity")
    classes = []
    for number, one in enumerate(document["classes"], 1):
        try:
            classes.append(HostClass.model_validate(one))
        except ValidationError as error:
            raise UsageError(f"{path}, class {number}: {first_fault(error)}") from None
    return classes
