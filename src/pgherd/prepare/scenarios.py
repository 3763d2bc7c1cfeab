"""Scenario files in YAML: reading with one message per error, writing, and their JSON Schema."""

from __future__ import annotations

import reprlib
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pgherd.model.base import Model
from pgherd.model.errors import UsageError
from pgherd.model.study import Scenario
from pgherd.node.files import UnsafeFileError, read_input
from pgherd.node.secrets import redact_dsn
from pgherd.study.registry import studies, study_of

_MAX_BYTES = 256 * 2**10
_MAX_TEXT = 200
_short = reprlib.Repr()
_short.maxlevel, _short.maxstring, _short.maxother, _short.maxlong = 2, _MAX_TEXT, _MAX_TEXT, _MAX_TEXT


class _Loader(yaml.SafeLoader):
    """Loader without aliases, because a few lines of them expand to any size."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "aliases (*name) are not allowed", self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        return super().compose_node(parent, index)


def read_scenario(path: Path) -> Scenario:
    """Read and check a scenario file.

    Raises:
        UsageError: the file cannot be read, is not YAML, or contains an option or value that the study does not accept.
    """
    try:
        document = yaml.load(read_input(path, _MAX_BYTES).decode(), Loader=_Loader)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnsafeFileError as error:
        raise UsageError(str(error)) from None
    except RecursionError:
        raise UsageError(f"{path}: this is no scenario: it is nested too deeply") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "not a text file"
        raise UsageError(f"{path}{where}: this is not YAML: {problem}") from None
    except ValueError as error:  # such as a date in month 13
        raise UsageError(f"{path}: this is not YAML: {error}") from None
    if not isinstance(document, dict):
        raise UsageError(f"{path}: a scenario is a mapping with 'study' and 'options', but this is a {type(document).__name__}")
    try:
        scenario = Scenario.model_validate(document)
    except ValidationError as error:
        raise UsageError(f"{path}: {first_fault(error)}") from None
    request(scenario.study, scenario.options, str(path))
    return scenario


def request(study: str, options: dict[str, Any], where: str = "the command line") -> Model:
    """Return the study's request with these options.

    ``where`` is the origin of the options for messages.

    Raises:
        UsageError: the study does not exist, or an option is unknown or wrong.
    """
    if study not in studies():
        raise UsageError(f"{where}: there is no study '{study}'; there are {', '.join(sorted(studies()))}")
    model = study_of(study).request_model
    try:
        return model.model_validate(options)
    except ValidationError as error:
        raise UsageError(f"{where}: {first_fault(error)}") from None


def first_fault(error: ValidationError) -> str:
    """Return pydantic's first error as one sentence: the option, the error and the rejected value."""
    fault = error.errors()[0]
    where = ".".join(str(part) for part in fault["loc"])[:_MAX_TEXT] or "the whole"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if fault["type"] == "extra_forbidden":
        return f"'{where}' is not an option; check its spelling{more}"
    if fault["type"] == "missing":
        return f"'{where}' is missing{more}"
    return f"'{where}': {rejection(fault)}{more}"


def rejection(fault: ErrorDetails) -> str:
    """Return the message of one of pydantic's errors, with the rejected value. Passwords in it are redacted."""
    message = fault["msg"].removeprefix("Value error, ")
    value = redact_dsn(_short.repr(fault["input"]))
    return f"{message[0].lower()}{message[1:]}" + ("" if message.startswith(value) else f", but it is {value}")


def write_scenario(path: Path, study: str, options: dict[str, Any]) -> None:
    """Write options of a command line as a scenario file. Raises UsageError if the file cannot be written."""
    document = {"schema": "pgherd/scenario/1", "study": study, "options": {n: _plain(v) for n, v in options.items()}}
    try:
        path.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
    except OSError as error:
        raise UsageError(f"the scenario cannot be written to {path}: {error.strerror}") from None


def _plain(value: Any) -> Any:
    """Return a value without the password of a DSN, and tuples as lists, because YAML has no tuples."""
    if isinstance(value, str):
        return redact_dsn(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of scenario files. The schema of the options depends on the study."""
    schema = Scenario.model_json_schema(by_alias=True)
    definitions = schema.setdefault("$defs", {})
    cases = []
    for study in sorted(studies()):
        definitions[study] = study_of(study).request_model.model_json_schema(ref_template="#/$defs/{model}")
        definitions.update(definitions[study].pop("$defs", {}))
        cases.append({"if": {"properties": {"study": {"const": study}}}, "then": {"properties": {"options": {"$ref": f"#/$defs/{study}"}}}})
    return schema | {"allOf": cases}
