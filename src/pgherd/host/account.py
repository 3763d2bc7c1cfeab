"""The account that servers run under: PostgreSQL refuses to run as root."""

from __future__ import annotations

import os
import pwd

from pgherd.model.errors import CapabilityError, UsageError

CANDIDATES = ("pgherd", "postgres", "nobody")
"""Tried in this order when none was asked for."""


def server_account(requested: str | None = None) -> str | None:
    """The unprivileged account under which servers run, or None to run them as ourselves (when we are not root).

    Raises:
        UsageError: the requested account does not exist, or is root.
        CapabilityError: we are not root and another account was requested, or root finds no account at all.
    """
    entry = None
    if requested is not None:
        try:
            entry = pwd.getpwnam(requested)
        except KeyError:
            raise UsageError(f"there is no account '{requested}' on this host; name one that 'getent passwd' lists") from None
        if entry.pw_uid == 0:
            raise UsageError(f"account '{requested}' is root, which PostgreSQL refuses; name an unprivileged account")
    if os.geteuid() != 0:
        if entry is not None and entry.pw_uid != os.geteuid():
            raise CapabilityError(
                f"only root can run servers as '{requested}', and this is user {os.geteuid()}; run pgherd as root or leave the account out"
            )
        return None
    if entry is not None:
        return entry.pw_name
    for name in CANDIDATES:
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        if found.pw_uid != 0:
            return name
    raise CapabilityError(
        f"PostgreSQL refuses to run as root, and none of the accounts {', '.join(CANDIDATES)} exists; "
        "make one with 'useradd --system pgherd', or run pgherd as an ordinary user"
    )
