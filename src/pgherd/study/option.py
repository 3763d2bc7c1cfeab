"""Declaration of a study's options: each is a field of its request model, with all that the command line, scenarios and forms need.

From the field come the option of the command line, the scenario schema, the form of the web page, the reference page and the check of
what a user gives. A default is the field's value; one that depends on the host or on other options is None, and ``computed`` describes it.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from pgherd.model.base import Model

STUDY = "Study"
WORKLOAD = "Workload"
MEASUREMENT = "Measurement"
POSTGRESQL = "PostgreSQL"
LIMITS = "CPU, memory and isolation"
MEMORY = "Swap"
STORAGE = "Storage"
VM = "Virtual machines (--runtime vm)"
CLUSTER = "Cluster"
SECTIONS = (STUDY, WORKLOAD, MEASUREMENT, POSTGRESQL, LIMITS, MEMORY, STORAGE, VM, CLUSTER)
"""Headings of ``--help-all`` in their order; options of every run follow under one of their own."""

Kind = Literal["flag", "switch", "choice", "whole number", "number", "text", "list", "repeated"]


@dataclass(frozen=True)
class Option:
    """An option beside its field's type, default and limits.

    ``help`` starts with a noun or verb and has at most 70 characters. ``metavar`` shows the form of the value. ``computed`` describes a
    default that pgherd works out; numbers in it come from the constants that are used. ``repeated``: several values are given by
    repeating the option, else as a list with commas. ``positional``: the words after the options, shown as this. ``web``: the form of
    the web page offers it, as it names no file, program, device, server or setting. ``filled`` is the form's first value.
    """

    help: str
    section: str
    metavar: str = ""
    computed: str = ""
    repeated: bool = False
    positional: str = ""
    web: bool = False
    filled: str = ""


def option(
    default: Any,
    help: str,
    section: str = STUDY,
    *,
    metavar: str = "",
    computed: str = "",
    repeated: bool = False,
    positional: str = "",
    web: bool = False,
    filled: str = "",
    **limits: Any,
) -> Any:
    """Declare an option: a field of a request model. ``limits`` are pydantic's (``ge``, ``le`` …); see ``Option`` for the rest."""
    field = Field(default, description=help, **limits)
    field.metadata.append(Option(help, section, metavar, computed, repeated, positional, web, filled))
    return field


def redefined(model: type[Model], name: str, default: Any, *, help: str = "", computed: str = "", filled: str | None = None) -> Any:
    """Declare an inherited option again with another default, and perhaps another help; everything else stays."""
    field = model.model_fields[name]
    old = option_of(field)
    assert old is not None
    info = Field(default, description=help or old.help)
    info.metadata += [item for item in field.metadata if not isinstance(item, Option)]
    info.metadata.append(replace(old, help=help or old.help, computed=computed, filled=old.filled if filled is None else filled))
    return info


def option_of(field: FieldInfo) -> Option | None:
    """The declaration of a field; None for one that pgherd fills in."""
    return next((item for item in field.metadata if isinstance(item, Option)), None)


class StudyRequest(Model):
    """Base of what a user gives for a study. ``LEFT_OUT`` are inherited options that this study does not take, with the reason."""

    LEFT_OUT: ClassVar[dict[str, str]] = {}

    @field_validator("*")
    @classmethod
    def _refuse_left_out(cls, value: object, info: ValidationInfo) -> object:
        name = info.field_name or ""
        if name in cls.LEFT_OUT and value != cls.model_fields[name].default:
            raise ValueError(cls.LEFT_OUT[name])
        return value


@dataclass(frozen=True)
class Declared:
    """An option of one study: its field's name, the declaration, the kind and what follows from the type."""

    name: str
    option: Option
    kind: Kind
    element: type
    choices: tuple[str, ...]
    default: Any

    @property
    def flag(self) -> str:
        """The option as it is typed: ``--max-blocks``."""
        return "--" + self.name.replace("_", "-")

    @property
    def default_text(self) -> str:
        """The default as help shows it; empty where there is none to show."""
        if self.option.computed:
            return self.option.computed
        if self.default in (None, (), "") or self.kind == "flag":
            return ""
        if self.kind == "switch":
            return "yes" if self.default else "no"
        return ",".join(map(str, self.default)) if isinstance(self.default, tuple) else str(self.default)


def declared(model: type[Model]) -> Iterator[Declared]:
    """The options of a request model, section by section, each section in the order of declaration."""
    left_out = getattr(model, "LEFT_OUT", {})
    found = [
        _declared(name, field, one)
        for name, field in model.model_fields.items()
        if (one := option_of(field)) is not None and name not in left_out
    ]
    inherited = {name for base in model.__mro__[1:] for name in getattr(base, "model_fields", {})}
    found.sort(key=lambda one: one.name in inherited)  # a study's own options before those that it shares
    for section in SECTIONS:
        yield from (one for one in found if one.option.section == section)


def _declared(name: str, field: FieldInfo, one: Option) -> Declared:
    annotation, several = _plain(typing.Annotated[field.annotation, *field.metadata])
    choices = tuple(map(str, typing.get_args(annotation))) if typing.get_origin(annotation) is Literal else ()
    element: type = annotation if annotation in (int, float, bool) else str
    kind: Kind
    if several:
        kind = "repeated" if one.repeated else "list"
    elif element is bool:
        kind = "flag" if field.default is False else "switch"
    elif choices:
        kind = "choice"
    else:
        kind = "whole number" if element is int else "number" if element is float else "text"
    return Declared(name, one, kind, element, choices, field.default)


def _plain(annotation: Any) -> tuple[Any, bool]:
    """A field's type without None and annotations, and whether it holds several values: then that of each.

    A type that reads its own notation, such as 2%, is text here: what a user writes reaches it unchanged.
    """
    several = False
    while True:
        origin = typing.get_origin(annotation)
        if origin is typing.Annotated:
            annotation, *metadata = typing.get_args(annotation)
            if any(isinstance(item, BeforeValidator) for item in metadata):
                return str, several
        elif origin in (typing.Union, types.UnionType):
            annotation = next(part for part in typing.get_args(annotation) if part is not type(None))
        elif origin is tuple:
            several, annotation = True, typing.get_args(annotation)[0]
        else:
            return annotation, several
