"""Declaration of a study's options as fields of its request model.

Each field defines the command line option, the scenario schema, the form on the web page, the reference page and the validation of the
user's value. The default is the field's default. If it depends on the host or on other options, it is None and ``computed`` describes it.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

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
"""Headings of ``--help-all`` in their order. The options that every run has follow under a separate heading."""

Kind = Literal["flag", "switch", "choice", "whole number", "number", "text", "list", "repeated"]


@dataclass(frozen=True)
class Option:
    """Properties of an option in addition to its field's type, default and limits.

    Attributes:
        help: text of at most 70 characters that starts with a noun or verb.
        section: heading in ``--help-all``.
        metavar: form of the value.
        computed: description of a default that pgherd computes. Numbers in it are taken from the constants in the code.
        repeated: the user repeats the option for several values. False: one value with commas.
        positional: placeholder of the arguments after the options, if the option takes these.
        web: the form on the web page contains the option. It must not name a file, program, device, server or setting.
        filled: initial value in the form.
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
    """Declare an option as a field of a request model. ``limits`` are pydantic's (``ge``, ``le`` …). The others: see ``Option``."""
    field = Field(default, description=help, **limits)
    field.metadata.append(Option(help, section, metavar, computed, repeated, positional, web, filled))
    return field


def redefined(model: type[Model], name: str, default: Any, *, help: str = "", computed: str = "", filled: str | None = None) -> Any:
    """Declare an inherited option with another default and, if given, another help text. The other properties are inherited."""
    field = model.model_fields[name]
    old = option_of(field)
    assert old is not None
    info = Field(default, description=help or old.help)
    info.metadata += [item for item in field.metadata if not isinstance(item, Option)]
    info.metadata.append(replace(old, help=help or old.help, computed=computed, filled=old.filled if filled is None else filled))
    return info


def null_means_default(*names: str) -> Any:
    """Return a validator that replaces null by the default, for options that always have a value."""

    def replace_null(cls: type[Model], value: object, info: ValidationInfo) -> object:
        return cls.model_fields[info.field_name or ""].default if value is None else value

    return field_validator(*names, mode="before")(replace_null)


def option_of(field: FieldInfo) -> Option | None:
    """Return the declaration of a field. None: users cannot set it."""
    return next((item for item in field.metadata if isinstance(item, Option)), None)


class StudyRequest(Model):
    """Base of a study's request. ``LEFT_OUT`` maps each inherited option that the study rejects to the reason."""

    LEFT_OUT: ClassVar[dict[str, str]] = {}

    @field_validator("*")
    @classmethod
    def _refuse_left_out(cls, value: object, info: ValidationInfo) -> object:
        name = info.field_name or ""
        if name in cls.LEFT_OUT and value != cls.model_fields[name].default:
            raise ValueError(cls.LEFT_OUT[name])
        return value

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the JSON schema without the options that the study rejects."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        for name in cls.LEFT_OUT:
            schema.get("properties", {}).pop(name, None)
        return schema


def without_nulls(values: Any) -> Any:
    """Return a request's values without those that are None, so that an explicit null means the default."""
    return {name: value for name, value in values.items() if value is not None} if isinstance(values, dict) else values


@dataclass(frozen=True)
class Declared:
    """An option of one study: the field's name, the declaration, and the properties derived from the field's type."""

    name: str
    option: Option
    kind: Kind
    element: type
    choices: tuple[str, ...]
    default: Any

    @property
    def flag(self) -> str:
        """Option on the command line, such as ``--max-blocks``."""
        return "--" + self.name.replace("_", "-")

    @property
    def default_text(self) -> str:
        """Default in help texts. Empty: none to show."""
        if self.option.computed:
            return self.option.computed
        if self.default in (None, (), "") or self.kind == "flag":
            return ""
        if self.kind == "switch":
            return "yes" if self.default else "no"
        return ",".join(map(str, self.default)) if isinstance(self.default, tuple) else str(self.default)


def declared(model: type[Model]) -> Iterator[Declared]:
    """Yield the options of a request model by section. Within a section, the study's options precede inherited ones."""
    left_out = getattr(model, "LEFT_OUT", {})
    options = [
        _declared(name, field, declaration)
        for name, field in model.model_fields.items()
        if (declaration := option_of(field)) is not None and name not in left_out
    ]
    inherited = {name for base in model.__mro__[1:] for name in getattr(base, "model_fields", {})}
    options.sort(key=lambda item: item.name in inherited)
    for section in SECTIONS:
        yield from (item for item in options if item.option.section == section)


def _declared(name: str, field: FieldInfo, declaration: Option) -> Declared:
    annotation, several = _plain(typing.Annotated[field.annotation, *field.metadata])
    choices = tuple(map(str, typing.get_args(annotation))) if typing.get_origin(annotation) is Literal else ()
    element: type = annotation if annotation in (int, float, bool) else str
    kind: Kind
    if several:
        kind = "repeated" if declaration.repeated else "list"
    elif element is bool:
        kind = "flag" if field.default is False else "switch"
    elif choices:
        kind = "choice"
    else:
        kind = "whole number" if element is int else "number" if element is float else "text"
    return Declared(name, declaration, kind, element, choices, field.default)


def _plain(annotation: Any) -> tuple[Any, bool]:
    """Return a field's type without None and annotations, and True if the field has several values.

    For several values, the type is that of each value. A type with a validator for a special notation, such as 2%, is returned as
    str, so that the validator receives the user's text unchanged.
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
