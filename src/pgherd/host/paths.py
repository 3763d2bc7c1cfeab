"""Directories of pgherd (state, cache, work, sockets), and free TCP ports.

State (journal, reservations) and cache (data directory templates) follow the XDG base directory specification. For root
they are in /var unless the XDG variables are set, because the user that servers run as cannot enter root's home. Root uses no XDG
directory in which other users could exchange files: what is in it is undone, executed and given to servers.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import socket
import stat
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import platformdirs

from pgherd.host.journal import Journal
from pgherd.host.undo_actions import PREFIX
from pgherd.model.errors import CapabilityError
from pgherd.node.files import distrust
from pgherd.node.protocol import Node

SOCKET_PATH_MAX = 107
"""Maximum length of a Unix socket's path on Linux, in bytes (unix(7): sun_path has 108 with the final zero)."""
SOCKET_ROOT_MAX = 48
"""Maximum length of a socket root in bytes, which leaves room for ``/container/server/.s.PGSQL.65535``."""


def state_dir() -> Path:
    """Return the directory of journals and reservations, which may not exist yet. Raises CapabilityError."""
    return _home("XDG_STATE_HOME", Path("/var/lib/pgherd"), platformdirs.user_state_path)


def cache_dir() -> Path:
    """Return the directory of data directory templates, which may not exist yet. Raises CapabilityError."""
    return _home("XDG_CACHE_HOME", Path("/var/cache/pgherd"), platformdirs.user_cache_path)


def _home(variable: str, system: Path, personal: Callable[[str], Path]) -> Path:
    """Return the directory that an XDG variable selects.

    Raises:
        CapabilityError: other users can change it and pgherd runs as root, or the current user has no home directory.
    """
    if os.geteuid() != 0:
        try:
            return personal("pgherd")
        except RuntimeError:  # neither HOME nor an entry among the users
            raise CapabilityError(
                f"uid {os.geteuid()} has no home directory, so that pgherd has no place for its files; set HOME (or {variable}) to a "
                "directory that only this user can change"
            ) from None
    if not os.environ.get(variable):
        return system
    path = personal("pgherd")
    existing = next(place for place in (path, *path.parents) if os.path.lexists(place) or place == place.parent)
    if (reason := distrust(existing, 0)) is not None:
        raise CapabilityError(
            f"{variable} selects {path}, where other users can exchange files ({reason}), and pgherd runs as root; "
            f"unset {variable} to use {system}, or select a directory that only root can change"
        )
    return path


def unreachable(path: str | Path, account: str | None) -> str | None:
    """Return the first directory of ``path`` that user ``account`` may not enter.

    The result is None if it may enter all.

    The check uses owner, group and mode, but no access control lists. It ends at the first directory that does not exist.
    ``account`` None is the current user, for whom nothing is checked.
    """
    if account is None:
        return None
    entry = pwd.getpwnam(account)
    groups = set(os.getgrouplist(account, entry.pw_gid))
    absolute = Path(os.path.abspath(path))
    for directory in [*reversed(absolute.parents), absolute]:
        try:
            status = directory.stat()
        except FileNotFoundError:
            return None
        if not stat.S_ISDIR(status.st_mode):
            return None
        if status.st_uid == entry.pw_uid:
            permitted = status.st_mode & stat.S_IXUSR
        elif status.st_gid in groups:
            permitted = status.st_mode & stat.S_IXGRP
        else:
            permitted = status.st_mode & stat.S_IXOTH
        if not permitted and entry.pw_uid != 0:
            return str(directory)
    return None


def make_cache_dir() -> Path:
    """Create the cache directory and return it. Of root, other accounts may enter it and its new parents, whatever the umask is."""
    path = cache_dir()
    for missing in reversed([directory for directory in (path, *path.parents) if not directory.exists()]):
        missing.mkdir(exist_ok=True)
        if os.geteuid() == 0:
            missing.chmod(0o711)
    return path


def work_tree(node: Node, journal: Journal, name: str, account: str | None) -> Path:
    """Create a directory for servers in the cache, removed with the journal.

    Mode 0711: the servers' user may enter but not list it. Raises CapabilityError if it cannot enter.
    """
    parent = make_cache_dir() / "work"
    node.make_dir(str(parent), mode=0o711)
    path = parent / f"{name}-{journal.id[:8]}"
    journal.make_tree(str(path), mode=0o711)
    require_reachable(path, account)
    return path


@contextlib.contextmanager
def temporary_tree(node: Node, name: str, account: str | None, say: Callable[[str], object]) -> Iterator[Path]:
    """Yield a new directory as of ``work_tree``, and remove it on exit. After a kill 'pgherd clean' removes it.

    ``say`` gets a warning if it cannot be removed. Raises CapabilityError as ``work_tree``, or if no journal can be written.
    """
    journal = Journal.open(node, state_dir(), name)
    try:
        yield work_tree(node, journal, name, account)
    finally:
        journal.end(say)


def require_reachable(path: Path, account: str | None) -> None:
    """Require that user ``account`` may enter ``path``, as far as it exists. Raises CapabilityError."""
    blocked = unreachable(path, account)
    if blocked is not None:
        raise CapabilityError(
            f"servers run as '{account}', which cannot enter {blocked}; run 'chmod o+x {blocked}', or set XDG_CACHE_HOME to a directory "
            "that it can enter"
        )


def socket_root(node: Node, journal: Journal) -> str:
    """Create a short directory for this run's sockets, removed with the journal.

    Mode 0711: the servers' user may enter but not list it. Each server needs a separate directory in it
    (``node.make_dir(…, mode=0o700, user=account)``). Raises CapabilityError if no directory can be created.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    candidates = ["/run"] if os.geteuid() == 0 else [runtime] if runtime else []
    reasons = []
    for parent in [*candidates, "/tmp"]:  # noqa: S108 (a new directory with a random name)
        path = f"{parent.rstrip('/')}/{PREFIX}{secrets.token_hex(4)}"
        if len(os.fsencode(path)) > SOCKET_ROOT_MAX:
            reasons.append(f"the path {parent} is too long")
        elif not node.exists(parent):
            reasons.append(f"{parent} does not exist")
        else:
            try:
                journal.make_tree(path, mode=0o711)
            except OSError as error:
                reasons.append(f"{parent}: {error.strerror or error}")
            else:
                return path
    raise CapabilityError(f"no directory for sockets can be created ({'; '.join(reasons)}); make /tmp writable")


def free_ports(address: str, count: int, taken: Collection[int] = ()) -> list[int]:
    """Return different TCP ports without a listener, and not among ``taken``."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    ports: list[int] = []
    with contextlib.ExitStack() as stack:  # all sockets stay open until the end: a released port may be assigned again
        while len(ports) < count:
            probe = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            probe.bind((address, 0))
            port = int(probe.getsockname()[1])
            if port not in taken:
                ports.append(port)
    return ports
