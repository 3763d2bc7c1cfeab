"""Meaning of a statement's parameters, from the generic plan that the server made for it, its text, and function bodies.

A plan qualifies and resolves each column: ``(accounts.aid = $1)``. So the server is the parser of its SQL dialect. The text is
used only where the plan does not show a parameter: in LIMIT, SET, VALUES lists and arguments of functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pgherd.capture.model import Function, SourceTable, Statement

_NAME = r'(?:"(?:[^"]|"")+"|[A-Za-z_\u0080-\U0010ffff][\w$]*)'
_CAST = r"(?:::[A-Za-z_][\w ]*(?:\(\d+(?:,\d+)?\))?(?:\[\])?)?"
_OPERATOR = r"(?P<operator><=|>=|<>|=|<|>|~~\*?|!~~\*?)"
_COLUMN = rf"\(?(?P<alias>{_NAME})\.(?P<column>{_NAME})\)?{_CAST}"
_FORWARD = re.compile(rf"{_COLUMN} {_OPERATOR} (?P<any>ANY \()?\(*(?P<array>ARRAY\[)?(?P<value>[^\]]*?\$\d+[^)\]]*)")
_BACKWARD = re.compile(rf"\(?\$(?P<number>\d+)\)?{_CAST} {_OPERATOR} {_COLUMN}")
_PARAMETER = re.compile(r"\$(\d+)")
_ALONE = re.compile(rf"\(*\$(\d+)\)*{_CAST}\)*")
_FILLED = re.compile(r"\barray_fill\s*\(([^(),]*),[^()]*\)")
"""Array of equal elements, which stand for it."""
_PLAIN_ARGUMENT = re.compile(rf"\$\d+{_CAST}|ARRAY\[\s*\$\d+(?:\s*,\s*\$\d+)*\s*\]{_CAST}", re.IGNORECASE)
_COUNTED = re.compile(r"\b(\w+)\s*=\s*(?:\w+\.)?\1\s*\+\s*1\b")
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_CONDITIONS = ("Index Cond", "Recheck Cond", "Filter", "Join Filter", "Hash Cond", "Merge Cond", "One-Time Filter", "TID Cond")
_SUBPLAN_RESULT = re.compile(r"returns ([^)]*)\)")


@dataclass(frozen=True)
class Use:
    """Use of a parameter: compared with a column, stored into one, or a limit.

    ``operator`` is a comparison of the column with the parameter, 'in' for one of several elements, 'any' for an array,
    'insert', 'update', or 'limit' and 'offset' without a column. ``alias`` distinguishes several uses of a table.
    """

    operator: str
    table: int = 0
    column: str = ""
    alias: str = ""


def parameter_uses(statement: Statement, tables: Sequence[SourceTable], functions: Sequence[Function]) -> dict[int, Use]:
    """Return the use of each parameter that has a known one."""
    if statement.plan is None:
        return {}
    by_name = {(table.schema, table.name): table for table in tables}
    nodes = list(_nodes(statement.plan))
    ambiguous = {
        int(n) for node in nodes for names in _SUBPLAN_RESULT.findall(node.get("Subplan Name", "")) for n in _PARAMETER.findall(names)
    }
    relations = {
        node["Alias"]: by_name[node.get("Schema", ""), node["Relation Name"]]
        for node in nodes
        if "Alias" in node and (node.get("Schema", ""), node.get("Relation Name", "")) in by_name
    }
    uses: dict[int, Use] = {}
    for node in nodes:
        for condition in (node[key] for key in _CONDITIONS if isinstance(node.get(key), str)):
            for number, use in _compared(condition, relations):
                if number not in ambiguous:
                    uses.setdefault(number, use)
    for number, use in (
        *_inserted(nodes, relations),
        *_listed(statement.text, nodes, relations),
        *_assigned(statement.text, nodes, relations),
    ):
        uses.setdefault(number, use)
    for word, operator in (("limit", "limit"), ("offset", "offset"), ("fetch first", "limit"), ("fetch next", "limit")):
        for match in re.finditer(rf"\b{word}\s+\(?\s*\$(\d+)", statement.text, re.IGNORECASE):
            uses.setdefault(int(match[1]), Use(operator))
    for number, use in _passed(statement.text, functions, tables):
        uses.setdefault(number, use)
    return uses


def counters(functions: Sequence[Function]) -> set[str]:
    """Return the names of columns that functions increase by one."""
    return {name for function in functions for name in _COUNTED.findall(function.body)}


def relations_of(plan: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return the relations in a plan as (schema, name)."""
    return {(node.get("Schema", ""), node["Relation Name"]) for node in _nodes(plan) if "Relation Name" in node}


def has_foreign_scan(plan: Mapping[str, Any]) -> bool:
    """Return True if a plan reads or changes foreign tables on their server."""
    return any(node.get("Node Type") == "Foreign Scan" for node in _nodes(plan))


def modified(plan: Mapping[str, Any]) -> set[str]:
    """Return the operations of a plan that write: Insert, Update, Delete and Merge."""
    return {node["Operation"] for node in _nodes(plan) if node.get("Node Type") == "ModifyTable"}


def _nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _plain(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _compared(condition: str, relations: Mapping[str, SourceTable]) -> Iterator[tuple[int, Use]]:
    for match in _FORWARD.finditer(condition):
        table = relations.get(_plain(match["alias"]))
        numbers = [int(number) for number in _PARAMETER.findall(match["value"])]
        if table is None or table.column(_plain(match["column"])) is None:
            continue
        operator = "any" if match["any"] and not match["array"] else "in" if match["any"] else match["operator"]
        for number in numbers if operator == "in" else numbers[:1]:
            yield number, Use(operator, table.oid, _plain(match["column"]), match["alias"])
    for match in _BACKWARD.finditer(condition):
        table = relations.get(_plain(match["alias"]))
        if table is not None and table.column(_plain(match["column"])) is not None:
            operator = _FLIPPED.get(match["operator"], match["operator"])
            yield int(match["number"]), Use(operator, table.oid, _plain(match["column"]), match["alias"])


def _inserted(nodes: Sequence[Mapping[str, Any]], relations: Mapping[str, SourceTable]) -> Iterator[tuple[int, Use]]:
    """Map parameters to the columns of an INSERT. Its child node returns one expression per column, in their order."""
    for node in nodes:
        table = relations.get(node.get("Alias", ""))
        if node.get("Operation") != "Insert" or table is None or not node.get("Plans"):
            continue
        columns = {column.number: column.name for column in table.columns}
        for position, expression in enumerate(node["Plans"][0].get("Output", ()), 1):
            match = _ALONE.fullmatch(expression)
            if match is not None and position in columns:
                yield int(match[1]), Use("insert", table.oid, columns[position])


def _target(nodes: Sequence[Mapping[str, Any]], relations: Mapping[str, SourceTable], operation: str) -> SourceTable | None:
    return next((relations.get(node.get("Alias", "")) for node in nodes if node.get("Operation") == operation), None)


def _listed(text: str, nodes: Sequence[Mapping[str, Any]], relations: Mapping[str, SourceTable]) -> Iterator[tuple[int, Use]]:
    """Map parameters in VALUES lists of several rows, whose plan does not show them."""
    table = _target(nodes, relations, "Insert")
    match = re.search(r"\binsert\s+into\b[^(]*\(([^()]*)\)\s*values\s*(.*)", text, re.IGNORECASE | re.DOTALL)
    if table is None or match is None:
        return
    names = [_plain(word) if word.startswith('"') else word.lower() for word in map(str.strip, match[1].split(","))]
    for row in re.findall(r"\(([^()]*)\)", match[2]):
        for name, value in zip(names, map(str.strip, row.split(",")), strict=False):
            alone = _ALONE.fullmatch(value)
            if alone is not None and table.column(name) is not None:
                yield int(alone[1]), Use("insert", table.oid, name)


def _assigned(text: str, nodes: Sequence[Mapping[str, Any]], relations: Mapping[str, SourceTable]) -> Iterator[tuple[int, Use]]:
    """Map parameters that SET assigns."""
    table = _target(nodes, relations, "Update") or _target(nodes, relations, "Insert")
    if table is None:
        return
    for name, number in re.findall(rf"({_NAME})\s*=\s*\$(\d+)", text):
        column = _plain(name) if name.startswith('"') else name.lower()
        if table.column(column) is not None:
            yield int(number), Use("update", table.oid, column)


# ---- arguments of functions


def _passed(text: str, functions: Sequence[Function], tables: Sequence[SourceTable]) -> Iterator[tuple[int, Use]]:
    """Map parameters that are arguments of a function to a column with which its body compares this argument."""
    for function in functions:
        for call in re.finditer(rf"\b{re.escape(function.name)}\s*\(", text):
            arguments = _arguments(text, call.end())
            for name, value in zip(function.arguments, arguments, strict=False):
                value = _FILLED.sub(r"\1", value)
                numbers = sorted({int(number) for number in _PARAMETER.findall(value)})
                is_plain = _PLAIN_ARGUMENT.fullmatch(value.strip()) is not None
                use = _use_in_body(name, function.body, tables) if is_plain else None
                if use is not None:
                    use = replace(use, operator="in") if len(numbers) > 1 else use
                    yield from ((number, use) for number in numbers)


def _arguments(text: str, position: int) -> list[str]:
    """Return the arguments of a call, whose opening parenthesis ends at ``position``."""
    found: list[str] = []
    start, depth = position, 0
    for index in range(position, len(text)):
        character = text[index]
        if character in ")]" and depth == 0:
            return [*found, text[start:index]]
        if character == "," and depth == 0:
            found.append(text[start:index])
            start = index + 1
        depth += (character in "([") - (character in ")]")
    return []


def _use_in_body(argument: str, body: str, tables: Sequence[SourceTable]) -> Use | None:
    """Return the column that a body compares with an argument or stores it into, None without a unique name of a column.

    An array stands for the column that is compared with the name of its elements: ``unnest(items) AS asked (item)``.
    """
    if not argument:
        return None
    names = [argument]
    for call, aliases in re.findall(r"unnest\s*\(([^()]*)\)[^()]*?\bas\s+\w+\s*\(([^()]*)\)", body, re.IGNORECASE):
        expressions = [expression.strip() for expression in call.split(",")]
        names += [
            alias.strip()
            for expression, alias in zip(expressions, aliases.split(","), strict=False)
            if re.match(rf"{re.escape(argument)}\b", expression)
        ]
    for name in names:
        word = rf"(?<![\w.]){re.escape(name)}(?![\w.(])"
        for pattern in (rf"(?<![\w])(?:\w+\.)?(\w+)\s*=\s*{word}", rf"{word}\s*=\s*(?:\w+\.)?(\w+)"):
            for match in re.finditer(pattern, body, re.IGNORECASE):
                use = _column_named(match[1], body, tables)
                if use is not None:
                    return use
    pattern = r"insert\s+into\s+(\w+)\s*\(([^()]*)\)\s*(?:values\s*\(|select\s+)((?:[^();]|\([^();]*\))*)"
    for relation, columns, values in re.findall(pattern, body, re.IGNORECASE):
        for column, value in zip(columns.split(","), values.split(","), strict=False):
            if value.strip().removesuffix(")") in names:
                use = _column_named(column.strip(), relation, tables)
                if use is not None:
                    return use
    return None


def _column_named(name: str, body: str, tables: Sequence[SourceTable]) -> Use | None:
    found = [table for table in tables if table.column(name) is not None and re.search(rf"\b{re.escape(table.name)}\b", body)]
    return Use("=", found[0].oid, name, f"argument of {found[0].oid}") if len(found) == 1 else None
