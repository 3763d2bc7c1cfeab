"""Where pgherd keeps what outlives a process, and a short private directory for sockets.

State (journal, reservations) and cache (golden copies) follow the XDG base directory specification. Root keeps them in
/var, since root's home can't be reached by the account that servers run under, unless the XDG variables are set.
"""

from __future__ import annotations

import os
import pwd
import secrets
import stat
from pathlib import Path

import platformdirs

from pgherd.host.journal import Journal
from pgherd.host.undo import PREFIX
from pgherd.model.errors import CapabilityError
from pgherd.node.protocol import Node

SOCKET_PATH_MAX = 107
"""Bytes that a Unix socket's path may have on Linux (unix(7): sun_path holds 108 with the final zero)."""
SOCKET_ROOT_MAX = 48
"""Bytes that a socket root may have, so that ``/container/server/.s.PGSQL.65535`` fits with names of usual length."""


def state_dir() -> Path:
    """The directory of journals and reservations; not made yet."""
    if os.geteuid() == 0 and not os.environ.get("XDG_STATE_HOME"):
        return Path("/var/lib/pgherd")
    return platformdirs.user_state_path("pgherd")


def cache_dir() -> Path:
    """The directory of golden copies; not made yet."""
    if os.geteuid() == 0 and not os.environ.get("XDG_CACHE_HOME"):
        return Path("/var/cache/pgherd")
    return platformdirs.user_cache_path("pgherd")


def unreachable(path: str | Path, account: str | None) -> str | None:
    """The first directory on the way to ``path`` (itself included) that ``account`` may not enter; None when all may be.

    Judged by owner, group and mode, and so not by access control lists. What does not exist yet is not judged.
    ``account`` None is ourselves: nothing is judged.
    """
    if account is None:
        return None
    entry = pwd.getpwnam(account)
    groups = set(os.getgrouplist(account, entry.pw_gid))
    whole = Path(os.path.abspath(path))
    for directory in [*reversed(whole.parents), whole]:
        try:
            found = directory.stat()
        except FileNotFoundError:
            return None
        if not stat.S_ISDIR(found.st_mode):
            return None
        if found.st_uid == entry.pw_uid:
            may = found.st_mode & stat.S_IXUSR
        elif found.st_gid in groups:
            may = found.st_mode & stat.S_IXGRP
        else:
            may = found.st_mode & stat.S_IXOTH
        if not may and entry.pw_uid != 0:
            return str(directory)
    return None


def work_tree(node: Node, journal: Journal, name: str, account: str | None) -> Path:
    """Make a directory below the cache in which servers live for a while; it goes with the journal.

    Mode 0711: the servers' account may pass through but not list it. Raises CapabilityError where it cannot enter.
    """
    parent = cache_dir() / "work"
    node.make_dir(str(parent), mode=0o711)
    path = parent / f"{name}-{journal.id[:8]}"
    journal.make_tree(str(path), mode=0o711)
    blocked = unreachable(path, account)
    if blocked is not None:
        raise CapabilityError(
            f"servers run as '{account}', which cannot enter {blocked}; set XDG_CACHE_HOME to a directory that it can enter"
        )
    return path


def socket_root(node: Node, journal: Journal) -> str:
    """Make a fresh directory with a short path for this run's sockets; it goes with the journal.

    Mode 0711: the servers' account may pass through but not list it. Give each server a directory of its own in it
    (``node.make_dir(…, mode=0o700, user=account)``). Raises CapabilityError where no such directory can be made.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    candidates = ["/run"] if os.geteuid() == 0 else [runtime] if runtime else []
    reasons = []
    for parent in [*candidates, "/tmp"]:
        path = f"{parent.rstrip('/')}/{PREFIX}{secrets.token_hex(4)}"
        if len(os.fsencode(path)) > SOCKET_ROOT_MAX:
            reasons.append(f"{parent} is too long a path")
        elif not node.exists(parent):
            reasons.append(f"{parent} does not exist")
        else:
            try:
                journal.make_tree(path, mode=0o711)
            except OSError as error:
                reasons.append(f"{parent}: {error.strerror or error}")
            else:
                return path
    raise CapabilityError(f"no directory for sockets can be made ({'; '.join(reasons)}); make /tmp writable")
