"""pgbench scripts for captured statements, with their weights, and a list of what they cannot reproduce.

Statements are texts of a foreign server. A text with a backslash, a second statement or a quoted ``:name`` is left out, because
pgbench would read it as a command or a variable. Each statement has a comment with its number, so that
pg_stat_statements of the copy shows which statement it reproduces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import log, prod

from pgherd.capture.columns import INTEGERS, Formula, Shapes, largest_ordinal, render, text_literal
from pgherd.capture.model import Counters, Source, SourceTable, Statement, Type
from pgherd.capture.plans import Use, has_foreign_scan, modified, parameter_uses, relations_of

MAX_SCRIPTS = 100
"""Statements that become scripts. pgbench accepts 128 scripts."""
TAG = re.compile(r"[\s(]*[A-Za-z]+ /\* pgherd (\d+) \*/")
"""Comment after the first word of a statement of a script, with the number of the statement. PostgreSQL 18 removes earlier ones."""
_MAX_PARAMETERS = 200
"""Parameters of a statement. pgbench accepts 255."""
_MAX_ELEMENTS = 100
_WEIGHTS = 10_000
_TOLERANCE = 0.05
"""Relative difference up to which numbers of calls are those of one transaction."""
_LAG_S = 1.0
"""Delay with which sessions report their transactions, which may all fall into one end of the window."""
_AGREEMENT = 0.2
"""Relative difference between expected and counted transactions that still agree, apart from the delay."""
_MAX_CALLS = 20
"""Calls of one statement in a transaction."""
_MISSES = 0.95
"""Rows per call of a lookup by key, below which some calls find no row."""
_DUPLICATES_S = 60
"""Time for which duplicates of inserted values are predicted."""
_MIN_DUPLICATES = 0.01
"""Predicted duplicates from which they are reported."""

TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*)
      | (?P<quoted>[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(?P<tag>[A-Za-z_]\w*|)\$.*?\$(?P=tag)\$)
      | \$(?P<parameter>\d+)
      | (?P<colon>:{1,2}=?)
      | (?P<other>[A-Za-z_\u0080-\U0010ffff][\w$]*|\s+|.)""",
    re.VERBOSE | re.DOTALL,
)
"""Tokens of SQL. A block comment is only its start."""
_BEGIN = re.compile(r"\s*(begin|start\s+transaction)\b", re.IGNORECASE)
_COMMIT = re.compile(r"\s*(commit|end)\b(?!\s+prepared)", re.IGNORECASE)
_ROLLBACK = re.compile(r"\s*(rollback|abort)\b(?!\s+prepared|\s+((work|transaction)\s+)?to\b)", re.IGNORECASE)
_SYSTEM = ("pg_catalog", "information_schema")


class NotReproducible(Exception):
    """A statement cannot become a script. The message is the reason."""


@dataclass(frozen=True)
class ScriptFile:
    """pgbench script: its name, text, weight, and the number of calls of each of its statements by the statement's number."""

    name: str
    text: str
    weight: int
    statements: dict[int, int]


@dataclass
class Mix:
    """Scripts of a source, transactions per second, and what is lost."""

    scripts: list[ScriptFile]
    rate: float
    lost: list[str] = field(default_factory=list)


def is_control(text: str) -> bool:
    """Return True for BEGIN, COMMIT and ROLLBACK, with or without options."""
    return any(pattern.match(text) for pattern in (_BEGIN, _COMMIT, _ROLLBACK))


def make_mix(source: Source, shapes: Shapes) -> Mix:
    """Return the scripts of a source. Weights are proportional to calls."""
    lost: list[str] = []
    kept: list[Statement] = []
    for statement in source.statements:
        if is_control(statement.text):
            continue
        reason = _reason_left_out(statement, source)
        if reason:
            lost.append(f"{_name(statement, source.total)}: {reason}")
        else:
            kept.append(statement)
            if statement.shortened:
                lost.append(f"{_name(statement, source.total)}: its lists of constants have one element in the copy")
    begun, rolled_back = (
        sum(statement.counters.calls for statement in source.statements if pattern.match(statement.text)) for pattern in (_BEGIN, _ROLLBACK)
    )
    transactions, members = _one_transaction(kept, begun, source)
    if members:
        lost.append(
            f"transaction boundaries: {len(members)} statements have as many calls as transactions, and form one in the copy; their "
            "order is not recorded, so the largest table comes first"
        )
    elif begun or sum(statement.counters.calls for statement in kept) > (1 + _AGREEMENT) * source.transactions:
        lost.append(
            f"transaction boundaries: the {source.transactions:,} transactions had several statements, but the numbers of calls do "
            "not show which; each statement commits by itself in the copy"
        )
    if rolled_back:
        lost.append(f"rollbacks: {rolled_back:,} transactions were rolled back; the copy commits them")
    number, unread = source.unread
    if number:
        lost.append(
            f"{number:,} rare statements: {_percent(unread.calls, source.total.calls)} of calls and "
            f"{_percent(unread.time_ms, source.total.time_ms)} of time"
        )
    writer = _Writer(source, shapes, lost)
    files: list[tuple[str, str, int, dict[int, int]]] = []
    if members:
        files.append(("transaction.sql", writer.transaction(members), transactions, {s.number: n for s, n in members}))
    inside = {statement.number for statement, _ in members}
    for statement in kept:
        if statement.number not in inside:
            name = f"statement-{statement.number:03}.sql"
            files.append((name, writer.single(statement), statement.counters.calls, {statement.number: 1}))
    total = sum(count for _, _, count, _ in files)
    scripts = [ScriptFile(name, text, max(1, round(_WEIGHTS * count / total)), numbers) for name, text, count, numbers in files]
    return Mix(scripts, total / source.seconds, lost)


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "0 %"


def _name(statement: Statement, total: Counters) -> str:
    return f"statement {statement.number} ({_percent(statement.counters.calls, total.calls)} of calls)"


def _reason_left_out(statement: Statement, source: Source) -> str:
    if statement.error:
        return f"the server does not accept its normalized text: {statement.error}"
    if statement.plan is None:
        return "utility statement"
    relations = relations_of(statement.plan)
    if relations and all(schema in _SYSTEM for schema, _ in relations):
        return "reads only system catalogs"
    if has_foreign_scan(statement.plan) or relations & set(source.foreign):
        return "uses a foreign table"
    if len(statement.parameters) > _MAX_PARAMETERS:
        return f"has {len(statement.parameters)} parameters; pgbench accepts 255"
    try:
        substitute(statement.text, ["NULL"] * len(statement.parameters))
    except NotReproducible as error:
        return str(error)
    return ""


def _one_transaction(kept: Sequence[Statement], begun: int, source: Source) -> tuple[int, list[tuple[Statement, int]]]:
    """Return the number of transactions with several statements, and these statements with their calls in one transaction.

    A statement is a member if its calls are a multiple of the transactions. BEGIN may be missing from pg_stat_statements (prepared
    in PostgreSQL before 17), so the calls of each statement are tried too. The members are accepted only if the number of
    transactions of the database agrees: these, and one per call of the other statements.
    """
    all_calls = sum(statement.counters.calls for statement in kept)

    def error(expected: int) -> float:
        return abs(log(max(expected, 1) / max(source.transactions, 1)))

    # Without members each call is a transaction.
    best: tuple[float, int, list[tuple[Statement, int]]] = (min(error(all_calls), log(1 + _AGREEMENT + _LAG_S / source.seconds)), 0, [])
    for number in sorted({begun, *(statement.counters.calls for statement in kept)} - {0}):
        members = []
        for statement in kept:
            ratio = statement.counters.calls / number
            count = round(ratio)
            if 1 <= count <= _MAX_CALLS and abs(ratio - count) <= _TOLERANCE * count:
                members.append((statement, count))
        outside = all_calls - sum(statement.counters.calls for statement, _ in members)
        if sum(count for _, count in members) > 1 and error(number + outside) < best[0]:
            best = (error(number + outside), number, members)
    _, number, members = best
    sizes = {(table.schema, table.name): table.rows for table in source.tables}

    def order(member: tuple[Statement, int]) -> tuple[bool, int, bool]:
        plan = member[0].plan or {}
        operations = modified(plan)
        # An insert comes last, an update of a large table first: rows of small tables are then locked only shortly.
        return ("Insert" in operations, -max([sizes.get(name, 0) for name in relations_of(plan)], default=0), not operations)

    return number, sorted(members, key=order)


# ---- one script


def _tokens(text: str) -> Iterator[re.Match[str]]:
    """Yield the tokens of a statement without its comments.

    Raises:
        NotReproducible: pgbench could read a part of it as a command or variable.
    """
    if "\\" in text or "\0" in text:
        raise NotReproducible("contains a backslash, which starts a command of pgbench")
    position = 0
    while position < len(text):
        match = TOKEN.match(text, position)
        assert match is not None  # the last alternative matches any character
        position = match.end()
        if match["comment"] == "/*":
            end = text.find("*/", position)
            if end < 0 or "/*" in text[position:end]:
                raise NotReproducible("contains a nested comment")
            position = end + 2
            continue
        if match["comment"]:
            continue
        if match["quoted"] and re.search(r":[\w\u0080-\U0010ffff]", match["quoted"]):
            raise NotReproducible("contains a quoted colon, which pgbench reads as a variable")
        if match[0] == ";" and text[position:].strip():
            raise NotReproducible("contains several statements")
        if match[0] != ";":
            yield match


def substitute(text: str, values: Sequence[str]) -> str:
    """Return a statement for pgbench with an expression for each parameter.

    Raises:
        NotReproducible: The text is not safe in a script of pgbench.
    """
    parts: list[str] = []
    for token in _tokens(text):
        if token["parameter"]:
            number = int(token["parameter"])
            if not 1 <= number <= len(values):
                raise NotReproducible(f"has no type for ${number}")
            parts.append(values[number - 1])
        elif token["colon"] == ":":
            parts.append(" : ")  # bounds of an array slice
        else:
            parts.append(token[0])
    return "".join(parts).strip()


class _Writer:
    """Writes statements with drawn parameters. Unknown parameters are added to ``lost``."""

    def __init__(self, source: Source, shapes: Shapes, lost: list[str]) -> None:
        self._source, self._shapes, self._lost = source, shapes, lost

    def single(self, statement: Statement) -> str:
        """Return the script of one statement."""
        sets, text = self._statement(statement, {}, "")
        return "\n".join([_head(statement), *sets, text]) + "\n"

    def transaction(self, members: Sequence[tuple[Statement, int]]) -> str:
        """Return the script of a transaction. Its statements use the same row of a table that they select by equal columns."""
        rows: dict[tuple[int, frozenset[str]], str] = {}
        heads, sets, lines = [], [], []
        for statement, count in members:
            heads.append(_head(statement))
            for repeat in range(count):
                more, text = self._statement(statement, rows if repeat == 0 else {}, f"_{repeat}" if repeat else "")
                sets += more
                lines.append(text)
        return "\n".join([*heads, *sets, "BEGIN;", *lines, "END;"]) + "\n"

    def _statement(self, statement: Statement, rows: dict[tuple[int, frozenset[str]], str], suffix: str) -> tuple[list[str], str]:
        draws = _Draws(statement, self._source, self._shapes, rows, suffix)
        values = draws.values()
        self._lost += [line for line in draws.lost if line not in self._lost]  # a transaction can repeat a statement
        text = re.sub(r"^[\s(]*[A-Za-z]+", rf"\g<0> /* pgherd {statement.number} */", substitute(statement.text, values))
        return draws.sets, f"{text};"


def _head(statement: Statement) -> str:
    counters = statement.counters
    rows = counters.rows / counters.calls if counters.calls else 0
    return f"-- statement {statement.number}: {counters.calls} calls, {rows:.2f} rows per call"


class _Draws:
    """Draws the parameters of one statement: lines of ``\\set``, and an SQL expression for each parameter."""

    def __init__(
        self, statement: Statement, source: Source, shapes: Shapes, rows: dict[tuple[int, frozenset[str]], str], suffix: str
    ) -> None:
        self.sets: list[str] = []
        self.lost: list[str] = []
        self._statement, self._shapes, self._rows, self._seconds = statement, shapes, rows, source.seconds
        self._prefix, self._count = f"s{statement.number}{suffix}", 0
        self._uses = parameter_uses(statement, source.tables, source.functions)
        counters = statement.counters
        self._per_call = counters.rows / counters.calls if counters.calls else 1.0
        self._row_of: dict[str, str] = {}
        self._ranges: dict[tuple[str, str], tuple[str, int]] = {}
        self._upsert = re.search(r"\bon\s+conflict\b", statement.text, re.IGNORECASE) is not None
        self._inserted = ""

    def values(self) -> list[str]:
        """Return one SQL expression per parameter."""
        return [self._value(number, kind) for number, kind in enumerate(self._statement.parameters, 1)]

    def _set(self, expression: str) -> str:
        if re.fullmatch(r":\w+", expression):
            return expression
        self._count += 1
        name = f"{self._prefix}_{self._count}"
        self.sets.append(f"\\set {name} {expression}")
        return f":{name}"

    def _value(self, number: int, kind: Type) -> str:
        use = self._uses.get(number)
        if use is not None and use.operator == "limit":
            return self._cast(self._set(str(max(1, round(self._per_call)))), kind)
        if use is not None and use.operator == "offset":
            return self._cast(self._set("0"), kind)
        table = self._shapes.tables.get(use.table) if use is not None else None
        formula = self._shapes.formulas(table).get(use.column) if use is not None and table is not None else None
        if use is None or table is None or formula is None:
            return self._unknown(number, kind)
        if use.operator == "any" or (kind.element is not None and formula.column.type.element is None):
            return self._elements(number, use, table, formula, kind)
        is_new = use.operator == "insert"
        ordinal = self._set(self._inserted_ordinal(number, use, table, formula, kind) if is_new else self._ordinal(use, table, formula))
        if kind.name in INTEGERS and formula.column.type.name in INTEGERS and not formula.has_values:
            return self._cast(ordinal, kind)
        value = formula.value(f"CAST({ordinal} AS int8)", text_literal)
        if value is None:
            return self._unknown(number, kind)
        return f"CAST({value} || '%' AS text)" if use.operator.lstrip("!").startswith("~~") else self._cast(value, kind)

    def _cast(self, value: str, kind: Type) -> str:
        return f"CAST({value} AS {kind.quoted()})"

    def _ordinal(self, use: Use, table: SourceTable, formula: Formula) -> str:
        """Return pgbench's expression of the ordinal of a parameter."""
        rows = max(self._shapes.rows(table), 1)
        if use.operator in ("<", "<=", ">", ">="):
            return self._bound(use, table, formula, rows)
        if use.operator != "=":
            return formula.ordinal(self._set(f"random(1, {rows})"))
        if use.alias not in self._row_of:
            equal = frozenset(other.column for other in self._uses.values() if other.operator == "=" and other.alias == use.alias)
            key = (table.oid, equal)
            if key not in self._rows:
                largest = rows
                if (
                    formula.is_row
                    and equal == set(table.key)
                    and 0 < self._per_call < _MISSES
                    and self._statement.text[:6].lower() != "insert"
                ):
                    largest = round(rows / self._per_call)
                self._rows[key] = self._set(f"random(1, {largest})")
            self._row_of[use.alias] = self._rows[key]
        return formula.ordinal(self._row_of[use.alias])

    def _inserted_ordinal(self, number: int, use: Use, table: SourceTable, formula: Formula, kind: Type) -> str:
        rows = max(self._shapes.rows(table), 1)
        references = {name for key in table.foreign_keys for name in key.columns}
        unique = [table.key, *(names for names in table.uniques if names[-1] not in references)]
        unique = [names for names in unique if names[-1:] == (use.column,)]
        if unique and not self._upsert:
            largest = min(largest_ordinal(formula.column, rows), 2 ** INTEGERS.get(kind.name, 63) - 1)
            # A type with fewer values than rows has no new ones, but a group may lack some of them.
            first, taken = (rows + 1, 0) if rows < largest else (1, rows)
            formulas, inserted = self._shapes.formulas(table), self._statement.counters.rows / self._seconds * _DUPLICATES_S
            values = (largest - first + 1) * min(prod(formulas[name].distinct for name in names[:-1]) for names in unique)
            duplicates = min(inserted, inserted * (taken + inserted / 2) / values)
            if duplicates >= _MIN_DUPLICATES:
                self._lost_parameter(
                    number,
                    kind,
                    f"new random values of a unique column; {duplicates:{',.0f' if duplicates >= 10 else '.2g'}} duplicates in "
                    f"{_DUPLICATES_S} s are expected, and each ends a client of pgbench",
                )
            return f"random({first}, {largest})"
        if not self._inserted:
            self._inserted = self._set(f"random(1, {rows})")
        return formula.ordinal(self._inserted)

    def _bound(self, use: Use, table: SourceTable, formula: Formula, rows: int) -> str:
        """Return a bound of a range with as many rows as the statement returns per call."""
        same = [other for other in self._uses.values() if other.alias == use.alias and other.table == use.table]
        distinct = formula.distinct
        width = max(1, min(distinct, round(distinct * self._selected(use, table, rows))))
        operators = {other.operator for other in same if other.column == use.column}
        both = operators & {"<", "<="} and operators & {">", ">="}
        has_limit = any(other.operator == "limit" for other in self._uses.values())
        key = (use.alias, use.column)
        if key not in self._ranges:
            if both or has_limit:
                start = self._set(f"random(1, {max(1, distinct - width + 1)})")
            else:
                start = self._set(str(1 if use.operator in ("<", "<=") else distinct - width + 1))
            self._ranges[key] = (start, width)
        start, width = self._ranges[key]
        shift = {">=": 0, ">": -1, "<=": width - 1, "<": width}[use.operator]
        return f"{start} + {shift}"

    def _selected(self, use: Use, table: SourceTable, rows: int) -> float:
        """Return the fraction of a column's values that a call selects, of the rows with the values that other columns are equal to."""
        selected = float(rows)
        for other in self._uses.values():
            if other.operator == "=" and other.alias == use.alias and other.table == use.table:
                selected /= self._shapes.formulas(table)[other.column].distinct
        return self._per_call / max(selected, 1.0)

    def _elements(self, number: int, use: Use, table: SourceTable, formula: Formula, kind: Type) -> str:
        rows, element = max(self._shapes.rows(table), 1), kind.element or kind
        wanted = round(min(formula.distinct, rows) * self._selected(use, table, rows) if use.operator == "any" else self._per_call)
        count = max(1, min(_MAX_ELEMENTS, wanted)) if kind.element is not None and use.operator in ("any", "=") else 1
        if kind.element is not None and use.operator != "any":
            self._lost_parameter(number, kind, f"number of elements is unknown; {count} in the copy")
        elif wanted > count:
            self._lost_parameter(number, kind, f"{wanted:,} elements; {count} in the copy")
        values = []
        for _ in range(count):
            ordinal = self._set(formula.ordinal(self._set(f"random(1, {rows})")))
            values.append(formula.value(f"CAST({ordinal} AS int8)", text_literal) or "NULL")
        if kind.element is None:
            return self._cast(values[0], kind)
        return self._cast(f"ARRAY[{', '.join(self._cast(value, element) for value in values)}]", kind)

    def _unknown(self, number: int, kind: Type) -> str:
        observed = self._statement.observed.get(number, ())
        if observed:
            chosen = self._set(f"random(1, {len(observed)})") if len(observed) > 1 else "1"
            texts = ", ".join(map(text_literal, observed))
            return self._cast(f"(ARRAY[{texts}])[CAST({chosen} AS int4)]" if len(observed) > 1 else texts, kind)
        drawn = self._set("random(1, 100)")
        value = drawn if kind.name in INTEGERS else render(kind, drawn)
        self._lost_parameter(number, kind, f"compared with no column; {'null' if value is None else 'one of 100 values'}")
        return self._cast("NULL" if value is None else value, kind)

    def _lost_parameter(self, number: int, kind: Type, line: str) -> None:
        self.lost.append(f"statement {self._statement.number}, parameter ${number} ({kind.name}): {line}")
