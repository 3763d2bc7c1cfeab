"""Variants: ``NAME:key=value,…`` says how one of the things compared differs from the rest of the request. Pure.

A key is an option of the study, with dashes or underscores, or else the name of a PostgreSQL setting. ``NAME`` alone is
the request as it stands.
"""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from pydantic import ValidationError

from pgherd.model.base import Model
from pgherd.model.errors import UsageError
from pgherd.study.cluster_options import CLUSTER_FIELDS

Request = TypeVar("Request", bound=Model)

FIXED = frozenset(
    {"set", "variant", "host_cores", "host_memory", "run_as", "repeats", "duration", "warmup", "time_budget", "seed", "track"}
    | {"threshold", "trace_io", "vm_memory_policy", "vm_idle_tax"}
    | CLUSTER_FIELDS
)
"""Options that are the same for all variants of a run: its budget of the host, its time, its order, how its guests share memory, whether
its devices are traced."""
_RIVALS: Mapping[str, tuple[str, ...]] = {"pg_bin": ("pg_version",), "pg_version": ("pg_bin",), "workload": ("script", "init_script")}
"""Option → others that say the same thing in another way, which a variant that gives it takes back."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,39}", re.IGNORECASE)
_SETTING = re.compile(r"[a-z_][a-z0-9_$]*(\.[a-z_][a-z0-9_$]*)?", re.IGNORECASE)
_NEAR = 0.8
"""Likeness from which on a key counts as a mistyped option; the closest setting of PostgreSQL 15 to 18 is at 0.78 (geqo_threshold)."""
_SYNTAX = "write it as NAME:key=value,key=value, such as big:shared_buffers=1GB,pg-version=17, or NAME alone for the request as it is"


def parse_variant(text: str) -> tuple[str, dict[str, str]]:
    """Read ``NAME:key=value,…`` into the name and what it changes, keys as they were written.

    A value in double quotes may hold commas, and two double quotes in it are one. ``NAME`` alone changes nothing.

    Raises:
        UsageError: it is not written so, or says a key twice.
    """
    name, colon, rest = text.partition(":")
    name = name.strip()
    if not _NAME.fullmatch(name):
        what = f"'{name}' is no name" if name else "the name is missing"
        raise UsageError(f"--variant {text}: {what}; letters, digits, '.', '-' and '_' make one; {_SYNTAX}")
    if not colon or not rest.strip():
        return name, {}
    changes: dict[str, str] = {}
    for part in _split(text, name, rest):
        key, equals, value = part.partition("=")
        key, value = key.strip(), value.strip()
        if not equals or not key:
            raise UsageError(f"variant '{name}': '{part.strip()}' is not key=value; {_SYNTAX}")
        if not value:
            raise UsageError(f"variant '{name}': '{key}' has no value; write {key}=\"\" if an empty one is meant")
        if plain(key) in map(plain, changes):
            raise UsageError(f"variant '{name}': '{key}' stands twice; give it once")
        changes[key] = value[1:-1].replace('""', '"') if value.startswith('"') else value
    return name, changes


def apply(request: Request, changes: Mapping[str, str], name: str = "", *, fixed: frozenset[str] = FIXED) -> Request:
    """The request with a variant's changes: keys that are its options replace them, all others are added to its settings.

    A text for an option that takes several values is split at its commas. ``name`` is said in messages; ``fixed`` are
    options that no variant may have of its own.

    Raises:
        UsageError: a key is neither an option nor a setting's name, or is fixed, or a value is none for its option.
    """
    who = f"variant '{name}'" if name else "a variant"
    fields = type(request).model_fields
    options: dict[str, object] = {}
    settings: list[str] = []
    for key, value in changes.items():
        option = plain(key)
        if option in fixed and option in fields:
            why = (
                "write settings as keys of their own" if option == "set" else "it is the same for all variants; give it once, as an option"
            )
            raise UsageError(f"{who}: '{key}' cannot differ between variants: {why}; {_known(fields, fixed)}")
        if option in fields:
            options[option] = tuple(value.split(",")) if _takes_several(fields[option].annotation) else value
        elif _SETTING.fullmatch(key) and "set" in fields and not _meant(option, fields):
            settings.append(f"{key}={value}")
        else:
            near = _meant(option, fields)
            raise UsageError(
                f"{who}: '{key}' is neither an option nor a setting's name{f' (is {near} meant?)' if near else ''}; {_known(fields, fixed)}"
            )
    taken_back = {rival for option in options for rival in _RIVALS.get(option, ()) if rival in fields and rival not in options}
    kept: dict[str, typing.Any] = {field: getattr(request, field) for field in request.model_fields_set - taken_back}
    if settings:
        kept["set"] = (*kept.get("set", ()), *settings)
    try:
        return type(request).model_validate({**kept, **options})
    except ValidationError as error:
        fault = error.errors()[0]
        key = next((key for key in changes if fault["loc"] and plain(key) == fault["loc"][0]), ", ".join(changes))
        raise UsageError(f"{who}: '{key}': {fault['msg'][0].lower()}{fault['msg'][1:]}, but it is {fault['input']!r}") from None


def expand(request: Request, texts: Sequence[str], *, fixed: frozenset[str] = FIXED) -> dict[str, Request]:
    """One request for each variant, by name, in their order; ``fixed`` as in ``apply``.

    Raises:
        UsageError: a variant is wrong, a name stands twice, or two variants are the same.
    """
    found: dict[str, Request] = {}
    for text in texts:
        name, changes = parse_variant(text)
        if name in found:
            raise UsageError(f"--variant {text}: the name '{name}' stands twice; give each variant a name of its own")
        changed = apply(request, changes, name, fixed=fixed)
        twin = next((other for other, one in found.items() if _same(one, changed)), None)
        if twin is not None:
            raise UsageError(
                f"the variants '{twin}' and '{name}' are the same: nothing could differ but noise; change one, or leave it out"
            )
        found[name] = changed
    return found


def _same(one: Model, other: Model) -> bool:
    """Whether two requests ask for the same; the order of settings counts only for those of one name."""
    first, second = one.model_dump(), other.model_dump()
    for dump in (first, second):
        settings = (text.partition("=") for text in dump.get("set", ()))
        dump["set"] = {name.strip().lower(): value.strip() for name, _, value in settings}
    return first == second


def _split(text: str, name: str, rest: str) -> Iterator[str]:
    """The parts between commas outside double quotes; a quoted value must be quoted whole."""
    quoted = r'"(?:[^"]|"")*"'
    part = re.compile(rf'([^,="]*=\s*{quoted}\s*|[^,"]*)(,|$)')
    at = 0
    while True:
        match = part.match(rest, at)
        if match is None:
            raise UsageError(
                f"variant '{name}': a double quote opens or closes in the middle of a value of '{text}'; quote the whole value, key=\"a,b\""
            )
        yield match[1]
        if not match[2]:
            return
        at = match.end()


def plain(key: str) -> str:
    """A variant's key as options are called."""
    return key.lower().replace("-", "_")


def _meant(option: str, fields: Mapping[str, object]) -> str | None:
    """The option that a mistyped key is likely to mean."""
    near = difflib.get_close_matches(option, [field for field in fields if field not in FIXED], n=1, cutoff=_NEAR)
    return near[0].replace("_", "-") if near else None


def _known(fields: Mapping[str, object], fixed: frozenset[str]) -> str:
    names = ", ".join(sorted(field.replace("_", "-") for field in fields if field not in fixed))
    return f"a key is one of {names}, or a PostgreSQL setting"


def _takes_several(annotation: object) -> bool:
    """Whether an option's type is a tuple, or a tuple or None."""
    return any(typing.get_origin(one) is tuple for one in (annotation, *typing.get_args(annotation)))
