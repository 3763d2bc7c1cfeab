"""Forms of the page that start studies, made from their declared options.

Only options that say how much is measured: none that names a file, a program, a device, a server or a PostgreSQL setting. A user of the
page may load this host for a while, and no more; for the rest there is the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from pgherd.model.errors import UsageError
from pgherd.model.units import parse_bytes, parse_seconds
from pgherd.study.option import Declared, declared
from pgherd.study.registry import studies
from pgherd.study.study import Study

LONGEST_SECONDS = 1800.0
"""Time under load beyond which a study is not of laptop size, and is started from the command line."""

_LONGEST = 120
_MOST = 64

Kind = Literal["whole", "number", "wholes", "words", "size", "time", "share", "choice", "flag"]


@dataclass(frozen=True)
class FormField:
    """One option: its name on the command line, what is shown, what it takes, the form's first value."""

    name: str
    label: str
    kind: Kind
    hint: str = ""
    choices: tuple[str, ...] = ()
    filled: str = ""


@dataclass(frozen=True)
class StudyForm:
    """A study: its verb, its line of help, the options shown first, and further ones."""

    study: str
    question: str
    first: tuple[FormField, ...]
    further: tuple[FormField, ...] = ()

    @property
    def fields(self) -> tuple[FormField, ...]:
        """All of them."""
        return self.first + self.further


_BY_METAVAR: Mapping[str, Kind] = {"TIME": "time", "SIZE": "size", "PERCENT": "share"}
_BY_KIND: Mapping[str, Kind] = {"flag": "flag", "switch": "flag", "choice": "choice", "whole number": "whole", "number": "number"}


@cache
def study_forms() -> dict[str, StudyForm]:
    """Verb → form of each study that the page starts, made from its declared options."""
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
    """The words of the command line for what a form says: ``--name=value``, checked by kind; empty fields are left out.

    Raises:
        UsageError: there is no such study here, a field is not offered, or does not hold what it takes.
    """
    if study not in study_forms():
        raise UsageError(f"'{study[:_LONGEST]}' is not started from here; there are {', '.join(study_forms())}")
    known = {field.name: field for field in study_forms()[study].fields}
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise UsageError(f"'{unknown[0][:_LONGEST]}' is not an option that can be given here; the command line takes all of them")
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
    """The value, if it is what the field takes."""
    if len(value) > _LONGEST or not value.isprintable():
        raise UsageError(f"{field.label}: at most {_LONGEST} characters in one line")
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
            case "choice" if value not in field.choices:
                raise ValueError(f"one of {', '.join(field.choices)}")
            case "words":
                for part in _parts(value):
                    if not part.isascii() or not part.replace(".", "").replace("-", "").isalnum() or part.startswith("-"):
                        raise ValueError("words such as those beside it")
    except UsageError as error:
        raise UsageError(f"{field.label}: {error}") from None
    except ValueError as error:
        raise UsageError(f"{field.label} takes {error}, not '{value}'") from None
    return value


def _parts(value: str) -> list[str]:
    parts = value.split(",")
    if len(parts) > _MOST:
        raise ValueError(f"at most {_MOST} of them")
    return parts


def _whole(value: str) -> str:
    if not value.isascii() or not value.isdecimal() or len(value) > 10:
        raise ValueError("whole numbers")
    return value


def _number(value: str) -> None:
    try:
        found = float(value)
    except ValueError:
        raise ValueError("a number") from None
    if not value.isascii() or not 0 <= found < 1e9:
        raise ValueError("a number")
