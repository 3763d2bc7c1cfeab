"""Operating system user that servers run as: PostgreSQL refuses to run as root."""

from __future__ import annotations

import os
import pwd

from pgherd.model.errors import CapabilityError, UsageError

CANDIDATES = ("pgherd", "postgres", "nobody")
"""Users that are tried in this order if none is requested."""


def server_account(requested: str | None = None) -> str | None:
    """Return the unprivileged user that servers run as, or None for the current user.

    Raises:
        UsageError: the requested user does not exist, or is root.
        CapabilityError: another user is requested without root's rights, or root finds no unprivileged user.
    """
    entry = None
    if requested is not None:
        try:
            entry = pwd.getpwnam(requested)
        except KeyError:
            raise UsageError(f"there is no user '{requested}' on this host; 'getent passwd' lists the users") from None
        if entry.pw_uid == 0:
            raise UsageError(f"user '{requested}' is root, which PostgreSQL refuses; choose an unprivileged user")
    if os.geteuid() != 0:
        if entry is not None and entry.pw_uid != os.geteuid():
            raise CapabilityError(
                f"only root can run servers as '{requested}', and the current user has uid {os.geteuid()}; run pgherd as root, "
                "or leave out --run-as"
            )
        return None
    if entry is not None:
        return entry.pw_name
    for name in CANDIDATES:
        try:
            candidate = pwd.getpwnam(name)
        except KeyError:
            continue
        if candidate.pw_uid != 0:
            return name
    raise CapabilityError(
        f"PostgreSQL refuses to run as root, and none of the users {', '.join(CANDIDATES)} exists; "
        "create one with 'useradd --system pgherd', or run pgherd as an ordinary user"
    )
