"""Files in places that another user can change, accessed by directory handles and without following links.

A process of root that opens such a file by its path follows whatever link the other user lays there. ``Directory`` opens a
directory once. Everything below it is opened relative to that handle, one name at a time, and only if it is a regular file or a
directory. ``trusted`` tells whether other users can exchange a path at all.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import grp
import os
import pwd
import re
import secrets
import shutil
import stat
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pgherd.model.errors import PgherdError
from pgherd.model.text import clean

MAX_END_BYTES = 256 * 2**10
"""Default limit of the end of a file, such as a log."""

MAX_BYTES = 64 * 2**20
"""Default limit of a file that is read whole."""

LOCK_TIMEOUT_S = 120.0
"""Default deadline of a lock that another process holds."""

_LOCK_POLL_S = 0.05
_MAX_LINKS = 40
"""As many as the kernel follows (path_resolution(7))."""

_NO_FOLLOW = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""Flags of each open: no link at the last name, and no waiting for a writer of a FIFO."""


class UnsafeFileError(PgherdError):
    """A file is a link, a device or a pipe, is too large, or belongs to another user."""


def require_name(name: str) -> str:
    """Return ``name``. Raise UnsafeFileError if it is not a single name of a file."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise UnsafeFileError(f"'{clean(name)}' is not the name of a file; names from other programs must not contain a directory")
    return name


class Directory:
    """Handle of a directory. Use it as a context manager, or call ``close``."""

    def __init__(self, path: Path | str, number: int) -> None:
        """Own the descriptor ``number`` of the directory ``path``. Use ``open`` instead."""
        self.path = Path(path)
        self.number = number

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Open an existing directory, whose last name must not be a link.

        Raises:
            FileNotFoundError, PermissionError: as ``os.open``.
            UnsafeFileError: it is a link, or no directory.
        """
        return cls(path, _open_directory(str(path), None, str(path)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self.number)

    def directory(self, name: str, *, create: bool = False, mode: int = 0o700) -> Directory:
        """Open a subdirectory, and create it first if ``create`` is set. Raises as ``open``."""
        path = self.path / require_name(name)
        if create:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, mode, dir_fd=self.number)
        return Directory(path, _open_directory(name, self.number, str(path)))

    def names(self) -> list[str]:
        """Return the names of all entries, sorted."""
        return sorted(os.listdir(self.number))

    def owner(self) -> int:
        """Return the uid that owns the directory."""
        return os.fstat(self.number).st_uid

    def exists(self, name: str) -> bool:
        """Return True if there is an entry of this name, even a dangling link."""
        try:
            os.stat(require_name(name), dir_fd=self.number, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    @contextlib.contextmanager
    def open_file(self, name: str, flags: int = os.O_RDONLY, mode: int = 0o600) -> Iterator[int]:
        """Open a regular file and yield its descriptor.

        Raises:
            FileNotFoundError, PermissionError: as ``os.open``.
            UnsafeFileError: it is a link, no regular file, or a hard link to a file of somebody else.
        """
        number = self.descriptor(name, flags, mode)
        try:
            status = os.fstat(number)
            if status.st_nlink > 1 and status.st_uid != self.owner():
                raise UnsafeFileError(f"{self.path / name} is a hard link to a file of uid {status.st_uid}; pgherd does not open it")
            yield number
        finally:
            os.close(number)

    def descriptor(self, name: str, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
        """Open a regular file and return its descriptor, which the caller closes. Raises as ``open_file``."""
        return _open_file(require_name(name), self.number, flags, mode, str(self.path / name))

    def own_descriptor(self, name: str, flags: int = os.O_RDONLY) -> int:
        """Open a regular file that belongs to this user or root, and that no other user can write.

        Raises:
            FileNotFoundError, PermissionError: as ``os.open``.
            UnsafeFileError: it is a link, no regular file, or not only ours.
        """
        number = self.descriptor(name, flags)
        try:
            _require_own(number, str(self.path / name))
        except BaseException:
            os.close(number)
            raise
        return number

    def require_own(self) -> None:
        """Raise UnsafeFileError unless the directory belongs to this user or root, and no other user can write in it."""
        _require_own(self.number, str(self.path))

    @contextlib.contextmanager
    def lock(self, name: str, *, timeout: float = LOCK_TIMEOUT_S) -> Iterator[None]:
        """Hold an exclusive lock (flock) on a file of mode 0600, which is created if missing.

        Other users cannot open the file, so they cannot hold the lock.

        Raises:
            TimeoutError: another process holds it for ``timeout`` seconds. The message names the process.
            UnsafeFileError: the file is a link, no regular file, or belongs to another user.
        """
        with self.open_file(name, os.O_RDWR | os.O_CREAT) as number:
            _require_own(number, str(self.path / name))
            if os.fstat(number).st_mode & 0o077:
                os.fchmod(number, 0o600)
            deadline = time.monotonic() + timeout
            while not try_lock(number):
                if time.monotonic() >= deadline:
                    raise TimeoutError(f"{self.path / name} is locked by {lock_holder(number)} for more than {timeout:g} s")
                time.sleep(_LOCK_POLL_S)
            yield

    def read(self, name: str, *, limit: int = MAX_BYTES, owner: int | None = None) -> bytes:
        """Return the contents of a regular file.

        Args:
            name: name of the file in this directory.
            limit: maximum size in bytes.
            owner: uid that must own the file. None: any.

        Raises:
            FileNotFoundError, PermissionError: as ``os.open``.
            UnsafeFileError: it is a link, no regular file, too large, or of another owner.
        """
        with self.open_file(name) as number:
            status = os.fstat(number)
            if owner is not None and status.st_uid != owner:
                raise UnsafeFileError(f"{self.path / name} belongs to uid {status.st_uid}, not to uid {owner}; it is not read")
            return read_all(number, limit, str(self.path / name))

    def write(self, name: str, data: bytes, *, mode: int | None = 0o600, owner: tuple[int, int] | None = None, sync: bool = True) -> None:
        """Write a file as ``replacing`` does.

        Args:
            name: name of the file in this directory.
            data: its contents.
            mode: its permissions. None: those that the umask leaves of 0666.
            owner: uid and gid. None: those of this process.
            sync: sync the file before it is renamed.
        """
        with self.replacing(name, mode=mode, owner=owner, sync=sync) as number:
            write_all(number, data)

    @contextlib.contextmanager
    def replacing(self, name: str, *, mode: int | None = 0o600, owner: tuple[int, int] | None = None, sync: bool = True) -> Iterator[int]:
        """Yield the descriptor of a new file with a random name. At the end it gets its mode and owner by handle, and its name.

        A link of this name is replaced and not followed. After an error nothing is left of the new file. Arguments as in ``write``.
        """
        temporary = f".{require_name(name)}.{secrets.token_hex(6)}"
        created = 0o666 if mode is None else 0o600
        number = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW, created, dir_fd=self.number)
        try:
            try:
                yield number
                if mode is not None:
                    os.fchmod(number, mode)
                if owner is not None:
                    os.fchown(number, *owner)
                if sync:
                    os.fsync(number)
            finally:
                os.close(number)
            os.rename(temporary, name, src_dir_fd=self.number, dst_dir_fd=self.number)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=self.number)
            raise

    def rename(self, old: str, new: str) -> None:
        """Rename an entry within this directory."""
        os.rename(require_name(old), require_name(new), src_dir_fd=self.number, dst_dir_fd=self.number)

    def remove(self, name: str) -> None:
        """Remove a file, or the link itself. Nothing happens if it is missing."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(require_name(name), dir_fd=self.number)

    def remove_tree(self, name: str) -> None:
        """Remove a subdirectory with its contents, without following links. Nothing happens if it is missing."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(require_name(name), dir_fd=self.number)


def read_all(number: int, limit: int, name: str) -> bytes:
    """Return what can be read from a descriptor, up to its end.

    Raises:
        UnsafeFileError: there are more than ``limit`` bytes.
    """
    pieces, total = [], 0
    while piece := os.read(number, min(2**20, limit + 1 - total)):
        pieces.append(piece)
        total += len(piece)
        if total > limit:
            raise UnsafeFileError(f"{name} has more than {limit:,} bytes; pgherd reads no larger file of this kind")
    return b"".join(pieces)


def write_all(number: int, data: bytes) -> None:
    """Write all bytes to a descriptor. Raises OSError, for example if the disk is full."""
    view = memoryview(data)
    while view:
        view = view[os.write(number, view) :]


def read_file(path: Path | str, *, limit: int = MAX_BYTES, owner: int | None = None) -> bytes:
    """Return the contents of a regular file by its path. The last name must not be a link. Raises as ``Directory.read``."""
    path = Path(path)
    with Directory.open(path.parent) as directory:
        return directory.read(path.name, limit=limit, owner=owner)


def make_private(path: Path) -> None:
    """Remove all rights of other users from a directory and all that is in it. Links are not followed."""
    for _, directories, names, number in os.fwalk(path, follow_symlinks=False):
        os.fchmod(number, stat.S_IMODE(os.fstat(number).st_mode) & 0o700)
        for name in (*directories, *names):
            mode = os.stat(name, dir_fd=number, follow_symlinks=False).st_mode
            if stat.S_ISREG(mode):
                os.chmod(name, stat.S_IMODE(mode) & 0o700, dir_fd=number)


def try_lock(number: int, *, shared: bool = False) -> bool:
    """Take the exclusive or a shared lock of an open file, and return False if another process holds it."""
    try:
        fcntl.flock(number, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_holders(status: os.stat_result) -> list[int]:
    """Return the processes that hold the exclusive lock (flock) of a file, from the kernel's list, which all users can read.

    The list (proc_locks(5)) has no processes of other containers. Raises OSError if it cannot be read.
    """
    by_device: dict[str, list[int]] = {}
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()  # 12: FLOCK  ADVISORY  WRITE 345 00:19:678 0 EOF; with -> after the number: a waiting process
        if len(words) > 5 and words[1] == "FLOCK" and words[3] == "WRITE":
            device, _, inode = words[5].rpartition(":")
            if inode == str(status.st_ino):
                by_device.setdefault(device, []).append(int(words[4]))
    # The device in this list is that of the file system. On btrfs it differs from st_dev, so that the inode alone must do.
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    return by_device.get(device) or [pid for pids in by_device.values() for pid in pids]


def has_lock(status: os.stat_result, *uids: int) -> bool:
    """Return True if a process of root or ``uids`` holds the exclusive lock of a file, or it is unknown which process does.

    A process that another user started does not count, even if it is a set-user-ID program: it may hold a lock only to obstruct.
    """
    try:
        pids = lock_holders(status)
    except OSError:
        return True
    return any(_real_uid(pid) in (None, 0, *uids) for pid in pids)


def _real_uid(pid: int) -> int | None:
    """Return the uid of the user who started a process. None: there is no such process, or it is hidden."""
    try:
        found = re.search(r"^Uid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(errors="replace"), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found else None


def lock_holder(number: int) -> str:
    """Return the process that holds the exclusive lock of an open file as a text: ``process 12 (pgherd)``."""
    with contextlib.suppress(OSError):
        for pid in lock_holders(os.fstat(number)):
            return f"process {pid}{_command_of(pid)}"
    return "another process"


def _command_of(pid: int) -> str:
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return ""
    return f" ({''.join(character for character in name if character.isprintable())})"


def _require_own(number: int, name: str) -> None:
    status = os.fstat(number)
    if status.st_uid not in (0, os.geteuid()):
        raise UnsafeFileError(f"{name} belongs to uid {status.st_uid}, and not to this user (uid {os.geteuid()}); it is not used")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UnsafeFileError(f"other users can write to {name}; it is not used. Correct that with 'chmod go-w'")


def read_head(path: Path | str, size: int) -> bytes:
    """Return at most ``size`` bytes from the start of a regular file. Raises as ``open_regular``."""
    with open_regular(path) as number:
        return os.read(number, size)


@dataclass(frozen=True)
class FileEnd:
    """Last bytes of a file of ``size`` bytes."""

    size: int
    data: bytes

    def after(self, offset: int) -> str:
        """Return what these bytes have after an offset in the file."""
        return self.data[max(0, offset - self.size + len(self.data)) :].decode(errors="replace")


def read_end(path: Path | str, limit: int = MAX_END_BYTES) -> FileEnd:
    """Return at most ``limit`` bytes from the end of a regular file. Raises as ``Directory.open_file``, also for its directory."""
    path = Path(path)
    with Directory.open(path.parent) as directory, directory.open_file(path.name) as number:
        size = os.fstat(number).st_size
        return FileEnd(size, os.pread(number, min(limit, size), max(0, size - limit)))


def read_below(directory: Path | str, name: str, *, limit: int = MAX_BYTES) -> bytes:
    """Return the contents of a regular file below a directory. ``name`` is a relative path, none of whose parts may be a link.

    Raises as ``Directory.read``, and UnsafeFileError if the path leads out of the directory.
    """
    *parents, last = name.split("/")
    with contextlib.ExitStack() as stack:
        place: Directory = stack.enter_context(Directory.open(os.path.realpath(directory)))
        for part in parents:
            place = stack.enter_context(place.directory(part))
        return place.read(last, limit=limit)


def read_input(path: Path | str, limit: int) -> bytes:
    """Return the contents of a file that the user names: a regular file, a link to one, or a pipe with a writer.

    Raises:
        OSError: as ``os.open``.
        UnsafeFileError: it is a device or a socket, or has more than ``limit`` bytes.
    """
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        mode = os.fstat(number).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            raise UnsafeFileError(f"{path} is no regular file; pgherd reads regular files and pipes only")
        os.set_blocking(number, True)  # a pipe without a writer is at its end at once
        return read_all(number, limit, str(path))
    finally:
        os.close(number)


@contextlib.contextmanager
def open_regular(path: Path | str) -> Iterator[int]:
    """Open a regular file by its path for reading and yield its descriptor. The last name must not be a link.

    Raises:
        FileNotFoundError, PermissionError: as ``os.open``.
        UnsafeFileError: it is a link, or no regular file.
    """
    number = _open_file(str(path), None, os.O_RDONLY, 0, str(path))
    try:
        yield number
    finally:
        os.close(number)


@contextlib.contextmanager
def replacing(path: Path | str) -> Iterator[int]:
    """Yield the descriptor of a new file that replaces ``path`` at the end, as ``Directory.replacing`` with mode None does."""
    path = Path(path)
    with Directory.open(os.path.realpath(path.parent)) as directory, directory.replacing(path.name, mode=None) as number:
        yield number


def write_file(path: Path | str, data: bytes, *, sync: bool = True) -> None:
    """Replace a file by its path, and create its directory first. Permissions as the umask leaves them. Raises OSError."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with Directory.open(os.path.realpath(path.parent)) as directory:
        directory.write(path.name, data, mode=None, sync=sync)


def write_below(directory: Directory, name: str, data: bytes, *, mode: int | None = None) -> None:
    """Write a file below an open directory, as ``Directory.write`` with this mode does. ``name`` may contain subdirectories.

    Raises:
        OSError: for example if the disk is full.
        UnsafeFileError: a subdirectory is a link.
    """
    *parents, last = name.split("/")
    with contextlib.ExitStack() as stack:
        for part in parents:
            directory = stack.enter_context(directory.directory(part, create=True, mode=0o777 if mode is None else 0o700))
        directory.write(last, data, mode=mode)


def copy_tree(source: Directory, target: Directory, limit: int, only: Collection[str] | None = None) -> int:
    """Copy regular files and directories (``only`` those names), without following links, and return the number of bytes.

    Raises:
        UnsafeFileError: there is a link or a special file, or more than ``limit`` bytes.
    """
    copied = 0
    for name in source.names() if only is None else only:
        if stat.S_ISDIR(os.stat(name, dir_fd=source.number, follow_symlinks=False).st_mode):
            with source.directory(name) as inner, target.directory(name, create=True, mode=0o755) as copy:
                copied += copy_tree(inner, copy, limit - copied)
        else:
            data = source.read(name, limit=max(min(limit - copied, MAX_BYTES), 0))
            target.write(name, data, mode=None, sync=False)
            copied += len(data)
    return copied


def ours() -> frozenset[int]:
    """Return the uids whose files this process may treat as its user's: the effective uid, and for root the caller of ``sudo``.

    Without the second, nobody could use ``sudo`` in a directory of one's home. Git has the same rule.
    """
    uid = os.geteuid()
    caller = os.environ.get("SUDO_UID", "")
    return frozenset({uid, int(caller)} if uid == 0 and caller.isdecimal() else {uid})


def user_name(uid: int) -> str:
    """Return text such as ``user 'nobody'``, or ``uid 54321`` for a uid without an account."""
    try:
        return f"user '{pwd.getpwuid(uid).pw_name}'"
    except KeyError:
        return f"uid {uid}"


def trusted(path: Path | str, *uids: int, inside: bool = False) -> bool:
    """Return True if only root and ``uids`` can exchange what ``path`` names (see ``distrust``)."""
    return distrust(path, *uids, inside=inside) is None


def distrust(path: Path | str, *uids: int, inside: bool = False) -> str | None:
    """Return why users other than root and ``uids`` can exchange what ``path`` names, or with ``inside`` what they create in it.

    None: they cannot.

    The file, each directory above it and each link on the way must belong to one of them, and other users must not be able to
    write there. A directory with the sticky bit (``/tmp``) counts as safe for what is in it, because others cannot rename it. A
    group that only the owner is a member of does not count as others.
    """
    place, remaining, links = "/", [*reversed(os.path.abspath(path).split("/"))], 0
    while remaining:
        name = remaining.pop()
        place = os.path.normpath(f"{place}/{name}")  # without links so far, so '..' is the directory above
        try:
            status = os.lstat(place)
            target = os.readlink(place) if stat.S_ISLNK(status.st_mode) else None
        except OSError as error:
            return f"{place} cannot be examined: {error.strerror}"
        if status.st_uid != 0 and status.st_uid not in uids:
            return f"{place} belongs to {user_name(status.st_uid)}"
        if target is not None:
            links += 1
            if links > _MAX_LINKS:
                return f"{path} has too many links"
            place = "/" if target.startswith("/") else os.path.dirname(place)
            remaining += reversed(target.split("/"))
            continue
        sticky = (inside or remaining) and stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        group = status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid, status.st_uid)
        if (group or status.st_mode & stat.S_IWOTH) and not sticky:
            return f"other users can write to {place} (mode {stat.S_IMODE(status.st_mode):04o})"
    return None


def _is_private_group(gid: int, uid: int) -> bool:
    """Return True for the group of the same name as its only member, which many systems give each account."""
    if uid == 0:
        return False
    try:
        account, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    except KeyError:
        return False
    return account.pw_gid == gid and group.gr_name == account.pw_name and set(group.gr_mem) <= {account.pw_name}


def _open_directory(name: str, parent: int | None, path: str) -> int:
    try:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | _NO_FOLLOW, dir_fd=parent)
    except NotADirectoryError:
        raise UnsafeFileError(f"{path} is a link or no directory; pgherd does not follow it") from None


def _open_file(name: str, parent: int | None, flags: int, mode: int, path: str) -> int:
    try:
        number = os.open(name, flags | _NO_FOLLOW, mode, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, or a FIFO or socket without a reader
            raise UnsafeFileError(f"{path} is a link, a pipe or a socket; pgherd opens regular files only") from None
        raise
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise UnsafeFileError(f"{path} is no regular file; pgherd opens regular files only")
    return number
