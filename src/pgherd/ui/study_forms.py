"""Web forms that start studies, made from their declared options.

The forms have only options for the amount of measurement. No option names a file, a program, a device, a server or a PostgreSQL setting,
so that a user of the page can do no more than load this host for a limited time. The command line has all options.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from pgherd.model.errors import UsageError
from pgherd.model.units import parse_bytes, parse_seconds
from pgherd.study.objectives import parse_price
from pgherd.study.option import Declared, declared
from pgherd.study.study import Study, studies

LONGEST_SECONDS = 1800.0
"""Longest time under load of a study that the page starts. Longer studies require the command line."""

_LONGEST = 120
_MOST = 64

Kind = Literal["whole", "number", "wholes", "words", "size", "time", "share", "choice", "flag", "price"]


@dataclass(frozen=True)
class FormField:
    """Input field for one option: ``name`` on the command line, ``label``, ``kind`` of value, ``filled`` (initial value)."""

    name: str
    label: str
    kind: Kind
    hint: str = ""
    choices: tuple[str, ...] = ()
    filled: str = ""


@dataclass(frozen=True)
class StudyForm:
    """Form of one study: its command, its help line, the fields shown first, and further fields."""

    study: str
    question: str
    first: tuple[FormField, ...]
    further: tuple[FormField, ...] = ()

    @property
    def fields(self) -> tuple[FormField, ...]:
        return self.first + self.further


_BY_METAVAR: Mapping[str, Kind] = {"TIME": "time", "SIZE": "size", "PERCENT": "share", "PRICE/h": "price"}
_BY_KIND: Mapping[str, Kind] = {"flag": "flag", "switch": "flag", "choice": "choice", "whole number": "whole", "number": "number"}


@cache
def study_forms() -> dict[str, StudyForm]:
    """Return command → form, for each study that the page starts."""
    return {study.name: _form(study) for study in studies().values() if study.web}


def _form(study: Study) -> StudyForm:
    fields = {one.name.replace("_", "-"): _field(one) for one in declared(study.request_model) if one.option.web}
    first = tuple(fields.pop(name) for name in study.web)
    return StudyForm(study.name, study.help, first, tuple(fields.values()))


def _field(one: Declared) -> FormField:
    name = one.name.replace("_", "-")
    label = one.name.replace("_", " ").replace("vcpus", "vCPUs").replace("pg version", "PostgreSQL version")
    hint = one.option.help + (f" Default: {one.default_text}." if one.default_text else "")
    kind = _BY_METAVAR.get(one.option.metavar) or _BY_KIND.get(one.kind)
    if kind is None:
        kind = "wholes" if one.kind == "list" and one.element is int else "words"
    return FormField(name, label[:1].upper() + label[1:], kind, hint, one.choices, one.option.filled)


def arguments(study: str, given: Mapping[str, str]) -> list[str]:
    """Return the filled fields of a form as command-line arguments (``--name=value``). Each value is checked by its kind.

    Raises:
        UsageError: the page does not start the study, the form has no such field, or a value is invalid.
    """
    if study not in study_forms():
        raise UsageError(f"this page does not start '{study[:_LONGEST]}'; choose one of {', '.join(study_forms())}")
    known = {field.name: field for field in study_forms()[study].fields}
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise UsageError(f"this page has no option '{unknown[0][:_LONGEST]}'; the command line has all options")
    words = []
    for name, field in known.items():
        value = given.get(name, "").strip()
        if not value:
            continue
        if field.kind == "flag":
            words.append(f"--{name}")
        else:
            words.append(f"--{name}={_checked(field, value)}")
    return words


def _checked(field: FormField, value: str) -> str:
    """Return the value, without spaces in lists of numbers. Raises UsageError if the field does not accept it."""
    if len(value) > _LONGEST or not value.isprintable():
        raise UsageError(f"{field.label} takes at most {_LONGEST} printable characters, not {len(value)}; shorten the value")
    try:
        match field.kind:
            case "whole":
                _whole(value)
            case "number" | "share":
                _number(value.removesuffix("%") if field.kind == "share" else value)
            case "wholes":
                value = ",".join(_whole(part.strip()) for part in _parts(value))
            case "size":
                parse_bytes(value)
            case "time":
                parse_seconds(value)
            case "price":
                parse_price(value)
            case "choice" if value not in field.choices:
                raise ValueError(f"one of {', '.join(field.choices)}")
            case "words":
                for part in _parts(value):
                    if not part.isascii() or not re.sub("[.=-]", "", part).isalnum() or part.startswith("-"):
                        raise ValueError("words of letters, digits, points, hyphens and equals signs, separated by commas")
    except UsageError as error:
        raise UsageError(f"{field.label}: {error}") from None
    except ValueError as error:
        raise UsageError(f"{field.label} takes {error}, not '{value}'") from None
    return value


def _parts(value: str) -> list[str]:
    parts = value.split(",")
    if len(parts) > _MOST:
        raise ValueError(f"at most {_MOST} values")
    return parts


def _whole(value: str) -> str:
    if not value.isascii() or not value.isdecimal() or len(value) > 10:
        raise ValueError("whole numbers")
    return value


def _number(value: str) -> None:
    try:
        number = float(value)
    except ValueError:
        raise ValueError("a number") from None
    if not value.isascii() or not 0 <= number < 1e9:
        raise ValueError("a number")
