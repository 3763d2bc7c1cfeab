"""Check that compared variants or scenarios differ. Two identical ones could differ only by noise.

The check compares completed options, in which each size is a number of bytes. It compares settings as PostgreSQL parses them. PostgreSQL
cannot parse a setting of an extension that is not loaded, so these values are compared by their units.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any

from pgherd.model.base import Model
from pgherd.model.errors import UsageError
from pgherd.model.units import parse_bytes, parse_seconds
from pgherd.node.protocol import Node
from pgherd.postgres import configuration, validation
from pgherd.postgres.external import redact
from pgherd.postgres.huge_pages import OFF, ON
from pgherd.study.comparison.tables import EXECUTION_OPTIONS

_Servers = list[tuple[str, Mapping[str, str]]]
"""Directory of PostgreSQL's programs, and settings, of each server in the options."""


def require_different(node: Node, what: str, requests: Mapping[str, Model], options: Mapping[str, Model], hint: str = "") -> None:
    """Raise UsageError if two of the ``options`` (by name) would measure the same.

    The message lists the values that the ``requests`` spell differently. It contains ``what``, the noun for the compared things, and a
    ``hint``.
    """
    described: dict[str, tuple[Any, _Servers]] = {}
    for name, complete in options.items():
        servers: _Servers = []
        described[name] = _apart(complete.model_dump(mode="json", exclude=set(EXECUTION_OPTIONS)), servers), servers
    for one, other in itertools.combinations(described, 2):
        (rest, servers), (others, their_servers) = described[one], described[other]
        pairs = zip(servers, their_servers, strict=False)
        if rest == others and all(_alike(node, bin_, settings, theirs) for (bin_, settings), (_, theirs) in pairs):
            spellings = _spellings(requests, one, other)
            raise UsageError(
                f"{what}s '{one}' and '{other}' are identical: {spellings}results would differ only by noise{hint}; change one of them, "
                "or leave it out"
            )


def _apart(value: Any, servers: _Servers) -> Any:
    """Return options without the settings of their servers, and append these to ``servers``. Nested variants are included."""
    if isinstance(value, list):
        return [_apart(part, servers) for part in value]
    if not isinstance(value, dict):
        return value
    if "pg_bin" in value and "settings" in value:
        servers.append((value["pg_bin"], value["settings"]))
        value = {name: part for name, part in value.items() if name != "settings" and name not in EXECUTION_OPTIONS}
    return {name: _apart(part, servers) for name, part in value.items()}


def _alike(node: Node, bin_: str, one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Return True if both settings have the same effect in the PostgreSQL of ``bin_``. Only values that are spelled differently are
    parsed."""
    differ = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
    if not differ:
        return True
    mine, theirs = (
        validation.understood(node, bin_, {name: of[name] for name in differ if name in of}, [name for name in differ if "." not in name])
        for of in (one, other)
    )
    return all(
        mine[name] == theirs[name] if name in mine and name in theirs else _by_units(one.get(name)) == _by_units(other.get(name))
        for name in differ
    )


def _by_units(value: str | None) -> object:
    """Return a comparable form of a value that PostgreSQL cannot parse.

    It is equal for 1GB and 1024MB, for 1min and 60s, and for on and true. The unit of a bare number is unknown, so a bare number equals
    only itself.
    """
    text = "" if value is None else value.strip().lower()
    if text in (*ON, *OFF):
        return text in ON
    for unit, read in (("bytes", parse_bytes), ("seconds", parse_seconds)):
        if re.search("[a-z]$", text):
            try:
                return unit, round(read(text), 9)
            except UsageError:
                continue
    return value


def _spellings(requests: Mapping[str, Model], one: str, other: str) -> str:
    """Describe the options and settings that two identical requests spell differently, with both values."""
    first, second = _given(requests[one]), _given(requests[other])
    spellings = [
        f"{name} is {first.get(name, 'not given')} in '{one}' and {second.get(name, 'not given')} in '{other}'"
        for name in dict.fromkeys((*first, *second))
        if first.get(name) != second.get(name)
    ]
    return f"{', '.join(spellings)}, which is the same value; " if spellings else ""


def _given(request: Model) -> dict[str, str]:
    """Return the given options and settings of a request as text, by the name that a variant uses. Secrets are redacted."""
    fields = {name: getattr(request, name) for name in type(request).model_fields}
    settings = configuration.parse_set(fields.pop("set", ()))
    options = {name.replace("_", "-"): value for name, value in fields.items() if value not in (None, ())}
    texts = {name: ", ".join(map(str, value)) if isinstance(value, tuple) else str(value) for name, value in options.items()}
    return {name: redact(value) for name, value in texts.items()} | settings
