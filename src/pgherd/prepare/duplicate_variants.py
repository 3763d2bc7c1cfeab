"""That the things compared do differ: two that say the same in other words would be told apart by nothing but noise.

Options are held against each other as they were completed, where a size is a number of bytes however it was written; settings as
PostgreSQL understands them; and those that it does not know before an extension is loaded by their units.
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
"""Directory of PostgreSQL's programs and settings of each server that an option describes."""


def require_different(node: Node, what: str, requests: Mapping[str, Model], options: Mapping[str, Model], hint: str = "") -> None:
    """Raise UsageError where two of the ``options`` (by name) would measure the same. The ``requests`` that they were completed from show
    in which words they differ all the same; ``what`` they are called, and a ``hint``, are said in the message."""
    told: dict[str, tuple[Any, _Servers]] = {}
    for name, complete in options.items():
        servers: _Servers = []
        told[name] = _apart(complete.model_dump(mode="json", exclude=set(EXECUTION_OPTIONS)), servers), servers
    for one, other in itertools.combinations(told, 2):
        (rest, servers), (others, their_servers) = told[one], told[other]
        pairs = zip(servers, their_servers, strict=False)
        if rest == others and all(_alike(node, bin_, settings, theirs) for (bin_, settings), (_, theirs) in pairs):
            words = _otherwise_said(requests, one, other)
            raise UsageError(
                f"{what}s '{one}' and '{other}' are identical: {words}nothing could differ but noise{hint}; change one of them, or leave "
                "it out"
            )


def _apart(told: Any, servers: _Servers) -> Any:
    """Options without the settings of their servers, which are added to ``servers``; those of arms and variants in them too."""
    if isinstance(told, list):
        return [_apart(part, servers) for part in told]
    if not isinstance(told, dict):
        return told
    if "pg_bin" in told and "settings" in told:
        servers.append((told["pg_bin"], told["settings"]))
        told = {name: part for name, part in told.items() if name != "settings" and name not in EXECUTION_OPTIONS}
    return {name: _apart(part, servers) for name, part in told.items()}


def _alike(node: Node, bin_: str, one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether the same PostgreSQL would run alike with either settings. It is asked only for those that are written differently."""
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
    """A value of which PostgreSQL cannot say what it is: the same for 1GB and 1024MB, 1min and 60s, on and true. A bare number counts
    units that are not known, and is only itself."""
    word = "" if value is None else value.strip().lower()
    if word in (*ON, *OFF):
        return word in ON
    for unit, read in (("bytes", parse_bytes), ("seconds", parse_seconds)):
        if re.search("[a-z]$", word):
            try:
                return unit, round(read(word), 9)
            except UsageError:
                continue
    return value


def _otherwise_said(requests: Mapping[str, Model], one: str, other: str) -> str:
    """In which words two requests that are the same differ: both values of each option and setting."""
    first, second = _said(requests[one]), _said(requests[other])
    words = [
        f"{name} is {first.get(name, 'not given')} in '{one}' and {second.get(name, 'not given')} in '{other}'"
        for name in dict.fromkeys((*first, *second))
        if first.get(name) != second.get(name)
    ]
    return f"{', '.join(words)}, which comes to the same; " if words else ""


def _said(request: Model) -> dict[str, str]:
    """What a request says, by option (as a variant has it) or setting, in words."""
    asked = {name: getattr(request, name) for name in type(request).model_fields}
    settings = configuration.parse_set(asked.pop("set", ()))
    options = {name.replace("_", "-"): value for name, value in asked.items() if value not in (None, ())}
    words = {name: ", ".join(map(str, value)) if isinstance(value, tuple) else str(value) for name, value in options.items()}
    return {name: redact(value) for name, value in words.items()} | settings
