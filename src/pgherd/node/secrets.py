"""Secrets: passwords, and values of environment variables for commands. They stay in this process.

Requests, records, scenarios and messages have ``HIDDEN`` or nothing in their place. A secret is kept under a name: a password under its
DSN, the value of a variable under ``env:NAME``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence

from pgherd.model.errors import UsageError
from pgherd.model.text import HIDDEN

DSN_SECRETS = ("password", "sslpassword", "oauth_client_secret")
# The patterns match too much rather than too little: only white space ends an unquoted value.
_VALUE = r"'(?:[^'\\]|\\.)*(?:'|$)|(?:\\.|\S)+"
_ASSIGNED = re.compile(rf"(?is)\b({'|'.join(DSN_SECRETS)})(\s*=\s*)({_VALUE})")
_IN_URI = re.compile(r"(?i)(postgres(?:ql)?://[^\s/?#:@]*):\S*@")
_SECRET_WORD = r"pass|pwd|secret|token|key|credential"
# Each name is examined from its start only, and taken whole, so that a long text takes no quadratic time.
_NAMED = re.compile(rf"(?is)(?<![\w.-])(?=[\w.-]*(?:{_SECRET_WORD}))([\w.-]++)(\s*=\s*|['\"]\s*:\s*)(\"(?:[^\"\\]|\\.)*(?:\"|$)|{_VALUE})")
_VARIABLE = "env:"
_MIN_LENGTH = 4
"""Shorter secrets, such as the value 1 of a variable, are not searched in texts."""

_kept: dict[str, str] = {}


def keep(name: str, secret: str) -> None:
    """Keep a secret in this process."""
    _kept[name] = secret


def kept(name: str) -> str | None:
    """Return the secret with this name, or None."""
    return _kept.get(name)


def is_secret_name(name: str) -> bool:
    """Return True if a variable, an option or a setting of this name may have a secret as its value."""
    return re.search(_SECRET_WORD, name, re.IGNORECASE) is not None


def redact_dsn(text: str) -> str:
    """Return the text with the passwords of DSNs in it replaced by ``HIDDEN``. What is left can still be used."""
    return _ASSIGNED.sub(rf"\1\2{HIDDEN}", _IN_URI.sub(rf"\1:{HIDDEN}@", text))


def redact(text: str) -> str:
    """Return a text for people without secrets: passwords of DSNs, values of names such as ``API_KEY=``, and all kept secrets."""
    text = _NAMED.sub(rf"\1\2{HIDDEN}", redact_dsn(text))
    for secret in sorted({secret for secret in _kept.values() if len(secret) >= _MIN_LENGTH}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def redact_arguments(arguments: Iterable[str]) -> list[str]:
    """Return the words of a command line without secrets. Each value of ``--env`` is one."""
    shown: list[str] = []
    before = ""
    for word in arguments:
        option, equals, value = word.partition("=")
        if before == "--env" and equals:
            shown.append(f"{option}={HIDDEN}")
        elif option == "--env" and "=" in value:
            shown.append(f"--env={value.partition('=')[0]}={HIDDEN}")
        elif before.startswith("-") and "=" not in before and is_secret_name(before) and not word.startswith("-"):
            shown.append(HIDDEN)
        else:
            shown.append(redact(word))
        before = word
    return shown


def take_variables(words: Sequence[str], environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Keep the values of variables, given as ``NAME=VALUE``, or as ``NAME`` with its value in the environment. Return the names.

    ``NAME=***``, as in a record, is the same as ``NAME``.

    Raises:
        UsageError: the environment has no such variable, or a value contains a NUL character.
    """
    names = []
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or value == HIDDEN:
            given = environment.get(name)
            if given is None:
                raise UsageError(f"--env {name}: there is no variable {name} in the environment; set it, or write --env {name}=VALUE")
            value = given
        if "\0" in value:
            raise UsageError(f"--env {name}: the value contains a NUL character; remove it")
        keep(_VARIABLE + name, value)
        names.append(name)
    return tuple(dict.fromkeys(names))


def variable(name: str) -> str:
    """Return the value of a variable that was taken. Raises UsageError if this process has none."""
    value = kept(_VARIABLE + name)
    if value is None:
        raise UsageError(f"the value of the variable {name} is not recorded; set {name} in the environment")
    return value


def keep_variables(values: Mapping[str, str]) -> None:
    """Keep the values of these variables only."""
    for name in [name for name in _kept if name.startswith(_VARIABLE)]:
        del _kept[name]
    _kept.update({_VARIABLE + name: value for name, value in values.items()})


def variables() -> dict[str, str]:
    """Return all variables that were taken, with their values."""
    return {name.removeprefix(_VARIABLE): value for name, value in _kept.items() if name.startswith(_VARIABLE)}
