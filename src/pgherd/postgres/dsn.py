"""How somebody else's server is named: a DSN, and the password that must not be written down with it.

A password that comes with a DSN is kept in this process only, under the DSN without it. Records hold that one.
"""

from __future__ import annotations

import re

from pgherd.model.errors import UsageError

_SECRETS = ("password", "sslpassword", "oauth_client_secret")
# Rather too much than too little: what ends an unquoted value is nothing but white space.
_VALUE = r"'(?:[^'\\]|\\.)*(?:'|$)|(?:\\.|\S)+"
_ASSIGNED = re.compile(rf"(?is)\b({'|'.join(_SECRETS)})(\s*=\s*)({_VALUE})")
_IN_URI = re.compile(r"(?i)(postgres(?:ql)?://[^\s/?#:@]*):\S*@")

HIDDEN = "***"
"""Stands in records where a password was."""

_passwords: dict[str, str] = {}


def take(dsn: str, option: str = "--server") -> str:
    """The DSN without its password, in one form (``host=… user=… dbname=…``) whichever it was given in; the password is kept
    for ``password_of``.

    Raises:
        UsageError: it is no DSN. The message names ``option`` and shows no password.
    """
    import psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    try:
        words = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    except psycopg.Error as error:
        raise UsageError(
            f"{option} {redact(dsn)}: this is not a DSN ({redact(str(error).strip())}); write it as postgresql://USER@HOST/DATABASE or as "
            "'host=HOST user=USER dbname=DATABASE'"
        ) from None
    password = words.pop("password", None)
    hidden = sorted(set(words) & set(_SECRETS))
    if hidden:
        raise UsageError(
            f"{option}: {', '.join(hidden)} cannot be given in a DSN, which is recorded; use a key without it, or a service file"
        )
    plain = make_conninfo("", **words)
    if password not in (None, HIDDEN):
        _passwords[plain] = str(password)
    return plain


def password_of(dsn: str) -> str | None:
    """The password that came with a DSN of which ``take`` gave this one."""
    return _passwords.get(dsn)


def redact(text: str) -> str:
    """Any text, such as a command line's word, with the passwords of DSNs in it replaced by ``HIDDEN``."""
    return _ASSIGNED.sub(rf"\1\2{HIDDEN}", _IN_URI.sub(rf"\1:{HIDDEN}@", text))
