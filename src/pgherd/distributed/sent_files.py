"""The user's files on the host that completes a request: sent there, and named as the user named them in what comes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pgherd.model.base import Model
from pgherd.model.errors import UsageError
from pgherd.prepare.variants import parse_variant, plain
from pgherd.workloads.script import parse_script

Options = TypeVar("Options", bound=Model)
Put = Callable[[str, bytes], str]
"""Keeps a file of this name on the other host; returns its path there."""

_ONE_FILE = ("init", "like")


class SentFiles:
    """Files of one request. ``back``: path there → absolute path here."""

    def __init__(self, put: Put) -> None:
        """Nothing is sent yet."""
        self.back: dict[str, str] = {}
        self._put = put

    def send(self, asked: Options) -> Options:
        """The request with the files that it names, its variants' and its arms' among them, as the other host has them.

        Raises:
            UsageError: one cannot be read.
        """
        changes = self._changed({name: getattr(asked, name) for name in asked.model_fields_set})
        if getattr(asked, "variant", ()):
            changes["variant"] = tuple(map(self._variant, asked.variant))  # type: ignore[attr-defined]  # just seen
        if getattr(asked, "arms", ()):
            arms = asked.arms  # type: ignore[attr-defined]  # just seen
            changes["arms"] = tuple(arm.model_copy(update={"options": arm.options | self._changed(arm.options)}) for arm in arms)
        return asked.model_copy(update=changes)

    def returned(self, options: Options) -> Options:
        """Complete options with the paths that they have here."""
        return type(options).model_validate(_replaced(options.model_dump(mode="json"), self.back)) if self.back else options

    def _changed(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Those of these options that name files, with the paths there."""
        found: dict[str, Any] = {}
        if options.get("script"):
            found["script"] = tuple(map(self._script, options["script"]))
        for name in _ONE_FILE:
            given = options.get(name)
            if given and (name != "like" or Path(given).is_file()):  # else it is a server's DSN
                found[name] = self._sent(given)
        return found

    def _variant(self, text: str) -> str:
        name, changes = parse_variant(text)
        options: dict[str, Any] = {plain(key): value for key, value in changes.items()}
        if "script" in options:
            options["script"] = options["script"].split(",")
        there = self._changed(options)
        if not there:
            return text
        values = {key: ",".join(new) if isinstance(new := there.get(plain(key), old), tuple) else new for key, old in changes.items()}
        return f"{name}:" + ",".join(f"{key}={_quoted(value)}" for key, value in values.items())

    def _script(self, text: str) -> str:
        one = parse_script(text)
        return text if ":" in one.source else f"{self._sent(one.source)}@{one.weight}"

    def _sent(self, path: str) -> str:
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None
        there = self._put(f"{len(self.back):03d}-{Path(path).name}", data)
        self.back[there] = str(Path(path).resolve())
        return there


def _quoted(value: str) -> str:
    """As a variant's text has it."""
    return '"' + value.replace('"', '""') + '"'


def _replaced(value: Any, names: Mapping[str, str]) -> Any:
    """The same structure with every text that is one of the names replaced."""
    if isinstance(value, dict):
        return {key: _replaced(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [_replaced(one, names) for one in value]
    return names.get(value, value) if isinstance(value, str) else value
