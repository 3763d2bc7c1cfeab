"""Requests of the user: from the command line or a scenario file, and those of variants.

Scenario files are YAML. Each error is one message. Their JSON Schema is made from the options.

A variant ``NAME:key=value,…`` lists its changes to the common request. A key is an option of the study, with dashes or underscores, or the
name of a PostgreSQL setting. ``NAME`` alone is the unchanged request. Compared variants must differ. This check compares completed options,
in which each size is a number of bytes, and settings as PostgreSQL parses them. PostgreSQL cannot parse a setting of an extension that is
not loaded, so these values are compared by their units.
"""

from __future__ import annotations

import difflib
import itertools
import os
import re
import reprlib
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pgherd.model.base import Model
from pgherd.model.errors import UsageError
from pgherd.model.study import Scenario
from pgherd.model.units import parse_bytes, parse_seconds
from pgherd.node.files import UnsafeFileError, read_input
from pgherd.node.protocol import Node
from pgherd.node.secrets import redact_dsn
from pgherd.postgres import configuration, settings_validation
from pgherd.postgres.huge_pages import OFF, ON
from pgherd.store.open_run import Run
from pgherd.study.comparison.tables import EXECUTION_OPTIONS
from pgherd.study.option import option_of
from pgherd.study.shared_options import CLUSTER_FIELDS
from pgherd.study.study import studies, study_of

_MAX_BYTES = 256 * 2**10
_MAX_TEXT = 200
_short = reprlib.Repr()
_short.maxlevel, _short.maxstring, _short.maxother, _short.maxlong = 2, _MAX_TEXT, _MAX_TEXT, _MAX_TEXT


class _Loader(yaml.SafeLoader):
    """Loader without aliases, because a few lines of them expand to any size, and without repeated keys, which would hide a value."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "aliases (*name) are not allowed", self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[typing.Hashable, typing.Any]:
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key '{key.value}' is repeated", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> object:
    """Return the document of a YAML file. Raises UsageError if it cannot be read, or is not YAML."""
    try:
        return yaml.load(read_input(path, _MAX_BYTES).decode(), Loader=_Loader)  # noqa: S506 (a SafeLoader)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnsafeFileError as error:
        raise UsageError(str(error)) from None
    except RecursionError:
        raise UsageError(f"{path}: it is nested too deeply") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "not a text file"
        raise UsageError(f"{path}{where}: this is not YAML: {problem}") from None
    except ValueError as error:  # such as a date in month 13
        raise UsageError(f"{path}: this is not YAML: {error}") from None


def read_scenario(path: Path) -> Scenario:
    """Read and check a scenario file. The file that an option names is searched next to it, then in the working directory.

    Raises:
        UsageError: as ``read_yaml``, or the file contains an option or value that the study does not accept.
    """
    document = read_yaml(path)
    if not isinstance(document, dict):
        raise UsageError(f"{path}: a scenario is a mapping with 'study' and 'options', but this is a {type(document).__name__}")
    try:
        scenario = Scenario.model_validate(document)
    except ValidationError as error:
        raise UsageError(f"{path}: {first_fault(error)}") from None
    request(scenario.study, scenario.options, str(path))
    return scenario.model_copy(update={"options": _with_files(path.parent, scenario)})


def _with_files(directory: Path, scenario: Scenario) -> dict[str, Any]:
    """Return a scenario's options, with the path of each named file that is in its directory. Files in variants are included."""

    def located(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [located(item) for item in value]
        file = re.sub(r"@\d+$", "", value) if isinstance(value, str) else ""
        return str(directory / value) if file and os.path.isfile(directory / file) else value

    def names_files(option: str) -> bool:
        declared = option_of(fields[option]) if option in fields else None
        return declared is not None and declared.metavar.startswith("FILE")

    def located_in_variant(text: str) -> str:
        name, changes = parse_variant(text)
        found = dict(changes)
        for key, value in changes.items():
            if names_files(option := plain(key)):
                several = _takes_several(fields[option].annotation)
                found[key] = ",".join(located(several_values(value, directory))) if several else located(value)
        return text if found == changes else variant_text(name, found)

    fields, options = study_of(scenario.study).request_model.model_fields, dict(scenario.options)
    for name, value in options.items():
        if names_files(name):
            options[name] = located(value)
        elif name == "variant" and value is not None:
            options[name] = [located_in_variant(text) for text in value]
    return options


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
    document = {"schema": "pgherd/scenario/1", "study": study, "options": _without_secrets(options)}
    try:
        path.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
    except OSError as error:
        raise UsageError(f"the scenario cannot be written to {path}: {error.strerror}") from None


def _without_secrets(value: Any) -> Any:
    """Return a value without passwords of DSNs, and tuples as lists, because YAML has no tuples. Mappings are nested scenarios."""
    if isinstance(value, str):
        return redact_dsn(value)
    if isinstance(value, dict):
        return {name: _without_secrets(item) for name, item in value.items()}
    return [_without_secrets(item) for item in value] if isinstance(value, tuple | list) else value


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


Request = TypeVar("Request", bound=Model)

FIXED = frozenset(
    {"set", "variant", "host_cores", "host_memory", "run_as", "repeats", "min_repeats", "duration", "warmup", "time_budget", "seed"}
    | {"track", "threshold", "trace_io", "vm_memory_policy", "vm_idle_tax"}
    | CLUSTER_FIELDS
)
"""Options that apply to the run as a whole: host budget, times, order of trials, memory policy of guests, tracing of devices."""
_EXCLUSIVE: Mapping[str, tuple[str, ...]] = {"pg_bin": ("pg_version",), "pg_version": ("pg_bin",), "workload": ("script", "init_script")}
"""Option → other options for the same property. A variant with the option resets them."""
VARIANT_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,39}", re.IGNORECASE)
_SETTING = re.compile(r"[a-z_][a-z0-9_$]*(\.[a-z_][a-z0-9_$]*)?", re.IGNORECASE)
_NEAR = 0.8
"""Minimum similarity of a key to an option to be treated as a typing error.

Among the settings of PostgreSQL 15 to 18, geqo_threshold is the most similar to an option, at 0.78.
"""
_SYNTAX = "write it as NAME:key=value,key=value, such as big:shared_buffers=1GB,pg-version=17, or NAME alone for the unchanged request"


def parse_variant(text: str) -> tuple[str, dict[str, str]]:
    """Parse ``NAME:key=value,…`` into the name and its changes. Keys keep their spelling.

    A value in double quotes may contain commas, and two double quotes in it denote one. ``NAME`` alone has no changes.

    Raises:
        UsageError: the text has another form, or a key occurs twice.
    """
    name, colon, rest = text.partition(":")
    name = name.strip()
    if not VARIANT_NAME.fullmatch(name):
        fault = f"'{name}' is not a valid name" if name else "the name is missing"
        raise UsageError(f"--variant {text}: {fault}; use letters, digits, '.', '-' and '_'; {_SYNTAX}")
    if not colon or not rest.strip():
        return name, {}
    changes: dict[str, str] = {}
    for part in _split(text, name, rest):
        key, equals, value = part.partition("=")
        key, value = key.strip(), value.strip()
        if not equals or not key:
            raise UsageError(f"variant '{name}': '{part.strip()}' is not key=value; {_SYNTAX}")
        if not value:
            raise UsageError(f"variant '{name}': '{key}' has no value; write {key}=\"\" for an empty value")
        if plain(key) in map(plain, changes):
            raise UsageError(f"variant '{name}': '{key}' occurs twice; give it once")
        changes[key] = value[1:-1].replace('""', '"') if value.startswith('"') else value
    return name, changes


def variant_text(name: str, changes: Mapping[str, str]) -> str:
    """Return the text of a variant, which ``parse_variant`` parses into the same name and changes."""
    quoted = {key: '"' + value.replace('"', '""') + '"' for key, value in changes.items()}
    return f"{name}:" + ",".join(f"{key}={value}" for key, value in quoted.items())


def apply(request: Request, changes: Mapping[str, str], name: str = "", *, fixed: frozenset[str] = FIXED) -> Request:
    """Return the request with a variant's changes. Options replace those of the request, and settings are added to its settings.

    A text for an option with several values is split by ``several_values``. A DSN is not, because it may have commas (several hosts).

    Args:
        request: common request of all variants.
        changes: values by key.
        name: name of the variant for messages.
        fixed: options that cannot differ between variants.

    Raises:
        UsageError: a key is neither an option nor a setting, an option is fixed, or a value is invalid.
    """
    label = f"variant '{name}'" if name else "a variant"
    fields = type(request).model_fields
    options: dict[str, object] = {}
    settings: list[str] = []
    for key, value in changes.items():
        option = plain(key)
        if option in fixed and option in fields:
            reason = "write each setting as a key" if option == "set" else "it is the same for all variants; give it once, as an option"
            raise UsageError(f"{label}: '{key}' cannot differ between variants: {reason}; {_known(fields, fixed)}")
        if option in fields:
            several = option != "dsn" and _takes_several(fields[option].annotation)
            options[option] = several_values(value) if several else value
        elif _SETTING.fullmatch(key) and "set" in fields and not _similar(option, fields):
            settings.append(f"{key}={value}")
        else:
            near = _similar(option, fields)
            raise UsageError(
                f"{label}: '{key}' is neither an option nor a setting{f' (did you mean {near}?)' if near else ''}; {_known(fields, fixed)}"
            )
    reset = {other for option in options for other in _EXCLUSIVE.get(option, ()) if other in fields and other not in options}
    values: dict[str, typing.Any] = {field: getattr(request, field) for field in request.model_fields_set - reset}
    if settings:
        values["set"] = (*values.get("set", ()), *settings)
    try:
        return type(request).model_validate({**values, **options})
    except ValidationError as error:
        fault = error.errors()[0]
        key = next((key for key in changes if fault["loc"] and plain(key) == fault["loc"][0]), ", ".join(changes))
        raise UsageError(f"{label}: '{key}': {rejection(fault)}") from None


def several_values(text: str, directory: Path = Path()) -> tuple[str, ...]:
    """Split a variant's text for an option with several values at commas. The name of an existing file, with a weight after ``@`` or
    without one, is not split. Files are searched in the ``directory``, then in the working directory.
    """

    def exists(name: str) -> bool:
        return os.path.exists(directory / name) or os.path.exists(name)

    parts, values = text.split(","), []
    while parts:
        joined = (",".join(parts[:count]) for count in range(len(parts), 1, -1))
        value = next((one for one in joined if any(map(exists, (one, re.sub(r"@[^@,]*$", "", one))))), parts[0])
        values.append(value)
        del parts[: value.count(",") + 1]
    return tuple(values)


def run_and_its_subject(text: str) -> tuple[str, str]:
    """Split ``NAME=RUN`` into both. Without a name it is ''. A path may contain ``=``, so an existing one is a run as a whole."""
    name, separator, run = text.partition("=")
    return ("", text) if os.path.exists(text) or not separator else (name, run)


def doubts(run: Run) -> list[str]:
    """Return a sentence, without a full stop, if a run supports its numbers less than a finished one of grade A or B."""
    analysis = run.record.analysis
    if run.record.state != "finished":
        return [f"Run {run.name} is not finished ({run.record.state})"]
    if analysis is not None and analysis.grade == "C":
        return [f"Run {run.name} is an indication only{f': {analysis.grade_reason}' if analysis.grade_reason else ''}"]
    return []


def expand(request: Request, texts: Sequence[str], *, fixed: frozenset[str] = FIXED) -> dict[str, Request]:
    """Return the request of each variant by name, in the order of ``texts``. ``fixed``: see ``apply``.

    Raises:
        UsageError: a variant is invalid, a name occurs twice, or two variants are the same.
    """
    requests: dict[str, Request] = {}
    for text in texts:
        name, changes = parse_variant(text)
        if name in requests:
            raise UsageError(f"--variant {text}: the name '{name}' occurs twice; give each variant a different name")
        changed = apply(request, changes, name, fixed=fixed)
        twin = next((other for other, earlier in requests.items() if _same(earlier, changed)), None)
        if twin is not None:
            raise UsageError(f"the variants '{twin}' and '{name}' are the same, so only noise can differ; change one, or leave it out")
        requests[name] = changed
    return requests


def _same(first: Model, second: Model) -> bool:
    """Return True if two requests are equivalent. The order of settings matters only if a setting occurs twice."""
    dumps = first.model_dump(), second.model_dump()
    for dump in dumps:
        settings = (text.partition("=") for text in dump.get("set", ()))
        dump["set"] = {name.strip().lower(): value.strip() for name, _, value in settings}
    return dumps[0] == dumps[1]


def _split(text: str, name: str, rest: str) -> Iterator[str]:
    """Yield the parts between commas. Commas in a quoted value do not separate, and quotes must enclose the complete value."""
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
    """Return a variant's key in the spelling of field names."""
    return key.lower().replace("-", "_")


def _similar(option: str, fields: Mapping[str, object]) -> str | None:
    """Return the option that is most similar to a mistyped key. None if there is none."""
    near = difflib.get_close_matches(option, [field for field in fields if field not in FIXED], n=1, cutoff=_NEAR)
    return near[0].replace("_", "-") if near else None


def _known(fields: Mapping[str, object], fixed: frozenset[str]) -> str:
    names = ", ".join(sorted(field.replace("_", "-") for field in fields if field not in fixed))
    return f"a key is one of {names}, or a PostgreSQL setting"


def _takes_several(annotation: object) -> bool:
    """Return True if an option's type is a tuple, or a tuple or None."""
    return any(typing.get_origin(part) is tuple for part in (annotation, *typing.get_args(annotation)))


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
        settings_validation.understood(
            node, bin_, {name: of[name] for name in differ if name in of}, [name for name in differ if "." not in name]
        )
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
    return {name: redact_dsn(value) for name, value in texts.items()} | settings
