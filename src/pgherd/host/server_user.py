"""Operating system user that servers run as: PostgreSQL refuses to run as root."""

from __future__ import annotations

import os
import pwd
import time
from pathlib import Path

from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.text import clean
from pgherd.node.process import MARK

DEDICATED = "pgherd"
"""User of pgherd's servers only."""

CANDIDATES = (DEDICATED, "postgres")
"""Users that are tried in this order if none is requested.

initdb requires an account, so that a uid without one does not do. A user that other services share does not, either: SQL and commands of
a run could change their files, and they could change those of the run. ``nobody`` is always shared.
"""

ORPHAN_SECONDS = 3.0
"""Time that the remaining processes of a killed postmaster have to end."""


def server_account(requested: str | None = None) -> str | None:
    """Return the unprivileged user that servers run as, or None for the current user.

    Raises:
        UsageError: the requested user does not exist, or is root.
        CapabilityError: another user is requested without root's rights, or root finds no unprivileged user that runs nothing else.
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
    reasons = []
    for name in CANDIDATES:
        try:
            candidate = pwd.getpwnam(name)
        except KeyError:
            continue
        if candidate.pw_uid == 0:
            continue
        other = None if name == DEDICATED else other_process(candidate.pw_uid)
        if other is None:
            return name
        reasons.append(f"user '{name}' already runs {other}, whose files and processes servers and drivers of pgherd could change")
    why = "; ".join(reasons) or f"this host has none of the users {', '.join(CANDIDATES)}"
    raise CapabilityError(
        f"servers need an unprivileged user, and {why}; "
        f"create one of their own with 'useradd --system {DEDICATED}', or name one with --run-as"
    )


def require_initdb(account: str | None) -> None:
    """Require that initdb knows the user that servers run as (``account``, None: the current one).

    Raises:
        CapabilityError: the current uid has no entry among the users, as in a container that runs with any uid.
    """
    if account is not None:
        return
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        raise CapabilityError(
            f"uid {os.geteuid()} has no entry among the users of this host, and initdb requires one; add it as root "
            f"(useradd --uid {os.geteuid()} {DEDICATED}), run pgherd as a user that 'getent passwd' lists, or give --dsn"
        ) from None


def other_process(uid: int) -> str | None:
    """Return a process of a user that no pgherd has started, as a text: ``process 12 (postgres)``. None: there is none.

    Commands of pgherd and what they start have a mark in their environment. A server writes over its own, but not over that of the
    postmaster, so that a process with a marked ancestor counts as marked. Servers of a killed postmaster have lost that ancestor, and
    end by themselves within seconds: only what outlives them counts.
    """
    others, end = _processes_of_others(uid), time.monotonic() + ORPHAN_SECONDS
    while others and time.monotonic() < end:
        time.sleep(0.1)
        others &= _processes_of_others(uid)
    return min(others) if others else None


def _processes_of_others(uid: int) -> set[str]:
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            status = Path("/proc", pid, "status").read_text(errors="replace")
        except OSError:  # it has ended
            continue
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        if str(uid) in fields.get("Uid", "").split() and not fields["State"].startswith(("Z", "X")) and not _is_ours(pid):
            found.add(f"process {pid} ({clean(fields['Name'])})")
    return found


def _is_ours(pid: str) -> bool:
    mark = f"{MARK}=".encode()
    while pid not in ("0", "1"):
        try:
            if any(variable.startswith(mark) for variable in Path("/proc", pid, "environ").read_bytes().split(b"\0")):
                return True
            pid = Path("/proc", pid, "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
        except (OSError, IndexError):  # it has ended, or root may not trace other users here, as in a container
            return True
    return False
