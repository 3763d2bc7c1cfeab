"""Reads a server for a capture: one read-only transaction with a statement timeout.

Statements of pg_stat_statements are foreign texts. They reach the server only in Parse messages of the protocol, which accept one
statement, and are never executed. ``EXPLAIN EXECUTE`` of the prepared statement returns its generic plan. Locks of planning are
released after each statement, by its savepoint.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from psycopg import errors, pq, sql
from psycopg.rows import dict_row

from pgherd.capture.model import Counters, ForeignKey, Function, Source, SourceColumn, SourceTable, Statement, Type, Values, quoted
from pgherd.capture.scripts import MAX_SCRIPTS, is_control
from pgherd.model.errors import UsageError
from pgherd.postgres.statement_statistics import OUTDATED
from pgherd.workloads.script_parser import without_comments

if TYPE_CHECKING:
    import psycopg

STATEMENT_TIMEOUT_S = 10
_LOCK_TIMEOUT_S = 1
_LOOK_EVERY_S = 0.2
_MAX_OBSERVED = 20
"""Texts of a running statement that are kept."""
_MAX_COMMON = 25
"""Most common values of a column. Each takes time for each generated row."""
_NUMERIC_OID = 1700
_MARK = "pgherd capture"
_LIST = re.compile(r"\$(\d+) /\*(, \.\.\.) \*/")
"""First element of a list, as PostgreSQL 18 shortens it."""
_LISTS = (
    (r"\bNOT\s+IN\s*\((\$\d+), \.\.\.\)", r"<> ALL (\1)"),
    (r"\bIN\s*\((\$\d+), \.\.\.\)", r"= ANY (\1)"),
    (r"\bARRAY\s*\[(\$\d+), \.\.\.\]", r"\1"),
)
"""Patterns of a list of which a text has the first element only, and what the parameter is as an array."""
_PLANNED = ("select", "insert", "update", "delete", "merge", "with", "values", "table")

_SETTINGS = {
    "statement_timeout": f"{STATEMENT_TIMEOUT_S}s",
    "lock_timeout": f"{_LOCK_TIMEOUT_S}s",
    "idle_in_transaction_session_timeout": "0",  # the window lasts longer than usual limits
    "stats_fetch_consistency": "none",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}
_SETTINGS_SINCE_17 = {"transaction_timeout": "0"}

_TABLES = """SELECT c.oid, n.nspname AS schema, c.relname AS name, c.relkind::text AS kind,
    (SELECT sum(coalesce(nullif(greatest(l.reltuples, 0), 0), s.n_live_tup, 0)) FROM pg_partition_tree(c.oid) AS p
        JOIN pg_class AS l ON l.oid = p.relid LEFT JOIN pg_stat_all_tables AS s ON s.relid = l.oid WHERE p.isleaf)::int8 AS part_rows,
    coalesce(nullif(greatest(c.reltuples, 0), 0), s.n_live_tup, 0)::int8 AS rows,  -- as of the last ANALYZE, like the statistics
    CASE WHEN c.relkind <> 'p' THEN ''
        WHEN p.partstrat = 'h' OR p.partdefid <> 0 THEN 'any'
        WHEN p.partstrat = 'r' AND p.partnatts = 1 AND (SELECT a.atttypid::regtype::text IN ('smallint', 'integer', 'bigint')
            FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attnum = p.partattrs[0]) THEN 'any'
        ELSE 'some' END AS partitioning,
    ARRAY(SELECT conname::text FROM pg_constraint WHERE conrelid = c.oid AND contype = 'c' AND conislocal ORDER BY 1) AS checks
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace LEFT JOIN pg_stat_all_tables AS s ON s.relid = c.oid
LEFT JOIN pg_partitioned_table AS p ON p.partrelid = c.oid
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
    AND c.relpersistence <> 't' AND NOT EXISTS (SELECT FROM pg_depend AS d
        WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
ORDER BY 2, 3"""

_COLUMNS = """SELECT a.attrelid AS table, a.attname AS name, a.attnum AS number, a.attnotnull AS not_null, a.attgenerated = '' AS writable,
    a.atthasdef OR a.attidentity <> '' AS has_default, CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END AS modifier,
    bn.nspname AS type_schema, b.typname AS type, b.typtype = 'e' AS enum,
    en.nspname AS element_schema, e.typname AS element, coalesce(e.typtype = 'e', false) AS element_enum,
    s.n_distinct::float8 AS distinct, s.null_frac::float8 AS null_fraction, s.avg_width AS width, s.correlation::float8 AS correlation,
    {common} AS common, {frequencies} AS frequencies, {bounds} AS bounds
FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_type AS t ON t.oid = a.atttypid JOIN pg_type AS b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
JOIN pg_namespace AS bn ON bn.oid = b.typnamespace
LEFT JOIN pg_type AS e ON e.oid = b.typelem AND b.typcategory = 'A' LEFT JOIN pg_namespace AS en ON en.oid = e.typnamespace
LEFT JOIN pg_stats AS s ON s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = a.attname
    AND s.inherited = (c.relkind = 'p')
WHERE a.attrelid = ANY (%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY 1, 3"""

_COMMON = "CASE WHEN b.typcategory <> 'A' THEN s.most_common_vals::text::text[] END"
_BOUNDS = "CASE WHEN b.typcategory <> 'A' THEN s.histogram_bounds::text::text[] END"

_KEYS = """SELECT i.indrelid AS table, i.indisprimary AS is_primary,
    ARRAY(SELECT a.attname::text FROM unnest(i.indkey) WITH ORDINALITY AS k (number, position)
        JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.number
        WHERE k.position <= i.indnkeyatts ORDER BY k.position)
    -- pg_depend has the columns of the predicate, too
    || ARRAY(SELECT a.attname::text FROM regexp_matches(i.indexprs::text, ':varattno ([0-9]+)', 'g') WITH ORDINALITY AS e (found, position)
        JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = e.found[1]::int2 ORDER BY e.position) AS columns
FROM pg_index AS i WHERE i.indrelid = ANY (%s) AND i.indisunique ORDER BY i.indexrelid"""

_REFERENCES = """SELECT o.conrelid AS table, o.confrelid AS referenced,
    ARRAY(SELECT a.attname::text FROM unnest(o.conkey) WITH ORDINALITY AS k (number, position)
        JOIN pg_attribute AS a ON a.attrelid = o.conrelid AND a.attnum = k.number ORDER BY k.position) AS columns,
    ARRAY(SELECT a.attname::text FROM unnest(o.confkey) WITH ORDINALITY AS k (number, position)
        JOIN pg_attribute AS a ON a.attrelid = o.confrelid AND a.attnum = k.number ORDER BY k.position) AS targets
FROM pg_constraint AS o WHERE o.contype = 'f' AND o.conrelid = ANY (%s) ORDER BY o.oid"""

_FUNCTIONS = """SELECT p.proname AS name, coalesce(p.proargnames[1:p.pronargs], '{{}}') AS arguments,
    p.prosrc || coalesce(pg_get_function_sqlbody(p.oid), '') AS body
FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang JOIN pg_namespace AS n ON n.oid = p.pronamespace
WHERE l.lanname IN ('sql', 'plpgsql') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND p.proargnames IS NOT NULL
    AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
ORDER BY p.oid"""

_FOREIGN = """SELECT n.nspname AS schema, c.relname AS name FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind = 'f' ORDER BY 1, 2"""

_COUNTERS = """SELECT queryid, sum(calls)::int8 AS calls, sum(rows)::int8 AS rows, sum(shared_blks_hit)::int8 AS hit,
    sum(shared_blks_read)::int8 AS read, sum(total_exec_time)::float8 AS time_ms, sum(wal_bytes)::int8 AS wal_bytes,
    sum(wal_fpi)::int8 AS wal_fpi
FROM {statements}(false) WHERE dbid = {database} AND toplevel AND queryid IS NOT NULL GROUP BY queryid"""

_DATABASE = "(SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())"


def read_source(
    connection: psycopg.Connection[Any], *, seconds: float, values: Values, sleep: Callable[[float], None] = time.sleep
) -> Source:
    """Observe the statements of a database for a window, and read its catalogue.

    Args:
        connection: read-only connection in autocommit mode. It is closed.
        seconds: length of the window.
        values: data values that may be read.
        sleep: function that waits for the end of the window.

    Raises:
        UsageError: pg_stat_statements is missing or not readable, or nothing ran in the window.
        psycopg.Error: a query fails.
    """
    with connection, connection.transaction():
        statistics = _begin(connection)
        running: dict[int, set[str]] = {}
        look = (lambda: _look_at_running(connection, running)) if values != "none" else None
        found, texts, transactions, length = _observe(connection, statistics, seconds, sleep, look)
        total = sum_counters(list(found.values()))
        chosen = _largest(found, total)
        statements = _analyse(connection, texts, chosen, running)
        if not any(not is_control(statement.text) for statement in statements):
            raise UsageError(f"no statement ran in the {length:.0f} s of the capture; start the load first, or extend --duration")
        tables, notes = _tables(connection, values)
        functions = tuple(Function(row["name"], tuple(row["arguments"]), row["body"]) for row in _rows(connection, _FUNCTIONS))
        rest = [counters for queryid, counters in found.items() if queryid not in dict(chosen)]
        info = connection.info
        return Source(
            database=info.dbname,
            version=info.parameter_status("server_version") or "",
            major=info.server_version // 10000,
            tables=tables,
            functions=functions,
            statements=statements,
            total=total,
            unread=(len(rest), sum_counters(rest)),
            transactions=transactions,
            seconds=length,
            notes=tuple(notes),
            schemas=tuple(_rows(connection, "SELECT current_schemas(false)::text[] AS schemas")[0]["schemas"]),
            foreign=tuple((row["schema"], row["name"]) for row in _rows(connection, _FOREIGN)),
        )


def read_statistics(
    connection: psycopg.Connection[Any], *, seconds: float, sleep: Callable[[float], None] = time.sleep
) -> tuple[list[tuple[str, Counters]], float]:
    """Observe the statements of a database for a window.

    Returns:
        The text and the counters of each statement with a call, and the length of the window.

    Raises:
        UsageError: pg_stat_statements is missing or not readable.
        psycopg.Error: a query fails.
    """
    with connection, connection.transaction():
        statistics = _begin(connection)
        found, texts, _, length = _observe(connection, statistics, seconds, sleep)
        return [(texts[queryid], counters) for queryid, counters in found.items() if queryid in texts], length


def sum_counters(counters: Sequence[Counters]) -> Counters:
    return Counters(**{name: sum(getattr(one, name) for one in counters) for name in vars(Counters())})


def _rows(
    connection: psycopg.Connection[Any], statement: str, parameters: Sequence[Any] = (), **parts: sql.Composable
) -> list[dict[str, Any]]:
    """Run a query with a mark, by which it is not taken for a statement of the load. ``parts`` replace ``{name}``."""
    query = sql.SQL(statement.replace("SELECT", f"SELECT /* {_MARK} */", 1)).format(**parts)
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query, parameters or None).fetchall()


# ---- statements


def _begin(connection: psycopg.Connection[Any]) -> sql.Identifier:
    """Make the transaction read-only with timeouts, and return the name of pg_stat_statements, with its schema."""
    connection.execute("SET TRANSACTION READ ONLY")
    settings = _SETTINGS if connection.info.server_version < 170000 else {**_SETTINGS, **_SETTINGS_SINCE_17}
    for name, value in settings.items():
        connection.execute("SELECT set_config(%s, %s, true)", [name, value])
    found = _rows(
        connection,
        "SELECT n.nspname FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace WHERE extname = 'pg_stat_statements'",
    )
    if not found:
        raise UsageError(
            "the database has no extension pg_stat_statements; add it to shared_preload_libraries, restart the server, and run "
            "CREATE EXTENSION pg_stat_statements"
        )
    if not _rows(connection, "SELECT pg_has_role('pg_read_all_stats', 'USAGE') AS granted")[0]["granted"]:
        raise UsageError("the user cannot read the statements of other users; run GRANT pg_monitor TO the user")
    return sql.Identifier(found[0]["nspname"], "pg_stat_statements")


def _observe(
    connection: psycopg.Connection[Any],
    statistics: sql.Identifier,
    seconds: float,
    sleep: Callable[[float], None],
    look: Callable[[], None] | None = None,
) -> tuple[dict[int, Counters], dict[int, str], int, float]:
    """Return the increase in a window by statement, their texts, transactions, and the length. ``look`` is called repeatedly."""
    started = time.monotonic()
    before, transactions = _counters(connection, statistics), _transactions(connection)
    while (left := started + seconds - time.monotonic()) > 0:
        sleep(min(left, _LOOK_EVERY_S) if look is not None else left)
        if look is not None:
            look()
    after, transactions = _counters(connection, statistics), _transactions(connection) - transactions
    length = time.monotonic() - started
    found = {queryid: counters.since(before.get(queryid)) for queryid, counters in after.items()}
    found = {queryid: counters for queryid, counters in found.items() if counters.calls > 0}
    texts = _texts(connection, statistics, list(found))
    found = {queryid: counters for queryid, counters in found.items() if _MARK not in texts.get(queryid, "")}
    return found, texts, transactions, length


def _counters(connection: psycopg.Connection[Any], statistics: sql.Identifier) -> dict[int, Counters]:
    try:
        rows = _rows(connection, _COUNTERS, statements=statistics, database=sql.SQL(_DATABASE))
    except errors.ObjectNotInPrerequisiteState:
        raise UsageError("pg_stat_statements is not loaded; add it to shared_preload_libraries and restart the server") from None
    except errors.UndefinedColumn:
        raise UsageError(f"{OUTDATED}; run ALTER EXTENSION pg_stat_statements UPDATE") from None
    return {row.pop("queryid"): Counters(**row) for row in rows}


def _transactions(connection: psycopg.Connection[Any]) -> int:
    query = "SELECT xact_commit + xact_rollback AS n FROM pg_stat_database WHERE datname = current_database()"
    return int(_rows(connection, query)[0]["n"])


def _look_at_running(connection: psycopg.Connection[Any], running: dict[int, set[str]]) -> None:
    """Add the texts of the last statements of all sessions, which contain constants, by their query identifier."""
    query = """SELECT query_id, query FROM pg_stat_activity
        WHERE datname = current_database() AND query_id IS NOT NULL AND pid <> pg_backend_pid()"""
    _rows(connection, "SELECT pg_stat_clear_snapshot()")  # a transaction sees the sessions as of its first look otherwise
    for row in _rows(connection, query):
        texts = running.setdefault(row["query_id"], set())
        if len(texts) < _MAX_OBSERVED:
            texts.add(row["query"])


def observed_constants(normalized: str, texts: Iterable[str]) -> dict[int, tuple[str, ...]]:
    """Return the constants in the place of each ``$n`` of a normalized text. Texts that differ otherwise are ignored."""
    parts = re.split(r"\$(\d+)", normalized.strip().rstrip(";"))
    numbers = [int(number) for number in parts[1::2]]
    pattern = re.compile(r"('(?:[^']|'')*'|\$\d+|[0-9.][0-9.eE+]*|true|false|null)".join(map(re.escape, parts[::2])), re.IGNORECASE)
    found: dict[int, set[str]] = {}
    for text in texts:
        match = pattern.fullmatch(text.strip().rstrip(";"))
        for number, value in zip(numbers, match.groups() if match is not None else (), strict=False):
            if not value.startswith("$") and value.lower() != "null":
                found.setdefault(number, set()).add(value[1:-1].replace("''", "'") if value.startswith("'") else value)
    return {number: tuple(sorted(values)) for number, values in found.items()}


def _largest(found: dict[int, Counters], total: Counters) -> list[tuple[int, Counters]]:
    """Return the statements with the largest share of calls or time."""

    def share(counters: Counters) -> float:
        return max(counters.calls / max(total.calls, 1), counters.time_ms / max(total.time_ms, 1e-9))

    return sorted(found.items(), key=lambda item: share(item[1]), reverse=True)[:MAX_SCRIPTS]


def _texts(connection: psycopg.Connection[Any], statistics: sql.Identifier, queryids: Sequence[int]) -> dict[int, str]:
    query = """SELECT queryid, min(query) AS text FROM {statistics}(true)
        WHERE queryid = ANY (%s) AND dbid = {database} AND toplevel GROUP BY queryid"""
    rows = _rows(connection, query, [list(queryids)], statistics=statistics, database=sql.SQL(_DATABASE))
    return {row["queryid"]: row["text"] or "" for row in rows}


def _analyse(
    connection: psycopg.Connection[Any],
    texts: dict[int, str],
    chosen: Sequence[tuple[int, Counters]],
    running: dict[int, set[str]],
) -> tuple[Statement, ...]:
    types: dict[int, Type] = {}
    seen = [without_comments(text) for texts in running.values() for text in texts]
    statements: list[Statement] = []
    for queryid, counters in chosen:
        text = texts.get(queryid, "")
        if not text or text.startswith("SET TRANSACTION READ ONLY"):
            continue
        number, code = len(statements) + 1, without_lists(text)
        statement = _analysed(connection, number, code, counters, types)
        arrays = {n for n, kind in enumerate(statement.parameters, 1) if kind.element is not None}
        if not {int(found[1]) for found in _LIST.finditer(text)} <= arrays:
            code = without_comments(text).strip()
            statement = replace(_analysed(connection, number, code, counters, types), shortened=True)
        statements.append(replace(statement, observed=observed_constants(code, seen)))
    return tuple(statements)


def _analysed(connection: psycopg.Connection[Any], number: int, text: str, counters: Counters, types: dict[int, Type]) -> Statement:
    first = _first_word(text)
    if first not in _PLANNED:
        return Statement(number, text, counters)
    text = _typed_constants(text)
    name = f"pgherd_{number}_{hash(text)}"  # a rollback leaves what a former text of this number prepared
    try:
        with connection.transaction(force_rollback=True):
            oids = _prepare(connection, name, text)
            for oid in set(oids) - set(types):
                types[oid] = _type(connection, oid)
            arguments = sql.SQL(", ").join([sql.NULL] * len(oids))
            execute = sql.SQL("EXECUTE {} ({})" if oids else "EXECUTE {}").format(sql.Identifier(name), arguments)
            explained = connection.execute(sql.SQL("EXPLAIN (VERBOSE, COSTS OFF, FORMAT JSON) ") + execute).fetchone()
        assert explained is not None
        plan = json.loads(explained[0]) if isinstance(explained[0], str) else explained[0]
        return Statement(number, text, counters, tuple(types[oid] for oid in oids), plan[0]["Plan"])
    except errors.Error as error:
        return Statement(number, text, counters, error=str(error).strip().splitlines()[0])


def _prepare(connection: psycopg.Connection[Any], name: str, text: str) -> list[int]:
    """Prepare one statement by a Parse message, and return the types of its parameters."""
    encoding = connection.info.encoding
    prepared = connection.pgconn.prepare(name.encode(), text.encode(encoding), _arithmetic(text))
    if prepared.status != pq.ExecStatus.COMMAND_OK:
        raise errors.DatabaseError(prepared.get_error_message(encoding))
    described = connection.pgconn.describe_prepared(name.encode())
    return [described.param_type(k) for k in range(described.nparams)]


def _arithmetic(text: str) -> list[int]:
    """Return the types (0: unknown) of parameters that a normalized text combines only with each other: ``$1 / $2``."""
    numbers = {int(number) for pair in re.findall(r"\$(\d+)\s*[-+*/%]\s*\$(\d+)", text) for number in pair}
    return [_NUMERIC_OID if number in numbers else 0 for number in range(1, max(numbers, default=0) + 1)]


def _type(connection: psycopg.Connection[Any], oid: int) -> Type:
    query = """SELECT n.nspname AS schema, t.typname AS name, t.typtype = 'e' AS enum, e.oid AS element
        FROM pg_type AS t JOIN pg_namespace AS n ON n.oid = t.typnamespace
        LEFT JOIN pg_type AS e ON e.oid = t.typelem AND t.typcategory = 'A' WHERE t.oid = %s"""
    row = _rows(connection, query, [oid])[0]
    return Type(row["schema"], row["name"], row["enum"], _type(connection, row["element"]) if row["element"] else None)


def _first_word(text: str) -> str:
    """Return the first word of a statement without comments, in lower case."""
    match = re.match(r"[\s(]*([A-Za-z]*)", text)
    return match[1].lower() if match is not None else ""


def without_lists(text: str) -> str:
    """Return a normalized text without comments, and with an array parameter for each list that PostgreSQL 18 shortens.

    ``IN ($1 /*, ... */)`` becomes ``= ANY ($1)``. A list in another place keeps its dots, which the server does not accept.
    """
    code = without_comments(_LIST.sub(r"$\1\2", text)).strip()
    for pattern, array in _LISTS:
        code = re.sub(pattern, array, code, flags=re.IGNORECASE)
    return code


def _typed_constants(text: str) -> str:
    """Replace constants with a type name before them, which do not accept a parameter: ``interval $1``."""
    return re.sub(r"\b(interval|date|timestamp|timestamptz|time)\s+\$(\d+)", r"CAST($\2 AS \1)", text, flags=re.IGNORECASE)


# ---- catalogue


def _tables(connection: psycopg.Connection[Any], values: Values) -> tuple[tuple[SourceTable, ...], list[str]]:
    found = _rows(connection, _TABLES)
    oids = [row["oid"] for row in found]
    none = sql.SQL("NULL::text[]")
    parts = {
        "common": sql.SQL(_COMMON) if values != "none" else none,
        "frequencies": sql.SQL("s.most_common_freqs::float8[]" if values != "none" else "NULL::float8[]"),
        "bounds": sql.SQL(_BOUNDS) if values == "all" else none,
    }
    columns_of: dict[int, list[SourceColumn]] = {}
    measured: set[int] = set()
    for row in _rows(connection, _COLUMNS, [oids], **parts):
        columns_of.setdefault(row["table"], []).append(_column(row))
        if row["distinct"] is not None:
            measured.add(row["table"])
    keys = _rows(connection, _KEYS, [oids])
    references = _rows(connection, _REFERENCES, [oids])
    tables = tuple(
        SourceTable(
            oid=row["oid"],
            schema=row["schema"],
            name=row["name"],
            rows=row["part_rows"] or 0 if row["kind"] == "p" else row["rows"],
            columns=tuple(columns_of.get(row["oid"], ())),
            key=next((tuple(key["columns"]) for key in keys if key["table"] == row["oid"] and key["is_primary"]), ()),
            uniques=tuple(tuple(key["columns"]) for key in keys if key["table"] == row["oid"] and not key["is_primary"] and key["columns"]),
            foreign_keys=tuple(
                ForeignKey(tuple(key["columns"]), key["referenced"], tuple(key["targets"]))
                for key in references
                if key["table"] == row["oid"]
            ),
            checks=tuple(row["checks"]),
            partitioning=row["partitioning"],
        )
        for row in found
    )
    notes = []
    for table in tables:
        unknown = [column.name for column in table.columns if column.distinct is None and column.null_fraction < 1]
        if table.rows and unknown:
            names = "all columns" if table.oid not in measured else ", ".join(map(quoted, unknown))
            notes.append(f"table {table.quoted()}: no statistics of {names}, so each value is distinct; run ANALYZE and grant SELECT on it")
    return tables, notes


def _column(row: dict[str, Any]) -> SourceColumn:
    element = Type(row["element_schema"], row["element"], row["element_enum"]) if row["element"] else None
    return SourceColumn(
        name=row["name"],
        number=row["number"],
        type=Type(row["type_schema"], row["type"], row["enum"], element),
        modifier=row["modifier"],
        not_null=row["not_null"],
        has_default=row["has_default"],
        writable=row["writable"],
        distinct=row["distinct"] or None,  # 0 means unknown
        null_fraction=row["null_fraction"] or 0.0,
        width=row["width"] or 8,
        correlation=row["correlation"],
        common=tuple(zip(row["common"], row["frequencies"], strict=True))[:_MAX_COMMON] if row["common"] else (),
        bounds=tuple(row["bounds"] or ()),
    )
