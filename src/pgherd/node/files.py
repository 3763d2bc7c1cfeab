"""Files in places that another user can change, accessed by directory handles and without following links.

A process of root that opens such a file by its path follows whatever link the other user lays there. ``Directory`` opens a
directory once. Everything below it is opened relative to that handle, one name at a time, and only if it is a regular file or a
directory. ``trusted`` tells whether other users can exchange a path at all.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from pgherd.model.errors import PgherdError

MAX_BYTES = 64 * 2**20
"""Default limit of a file that is read whole."""

_NO_FOLLOW = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""Flags of each open: no link at the last name, and no waiting for a writer of a FIFO."""


class UnsafeFileError(PgherdError):
    """A file is a link, a device or a pipe, is too large, or belongs to another user."""


def _require_name(name: str) -> str:
    """Return ``name``. Raise UnsafeFileError if it is not a single name of a file."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise UnsafeFileError(f"'{name}' is not the name of a file; names from other programs must not contain a directory")
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
        path = self.path / _require_name(name)
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
            os.stat(_require_name(name), dir_fd=self.number, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    @contextlib.contextmanager
    def open_file(self, name: str, flags: int = os.O_RDONLY, mode: int = 0o600) -> Iterator[int]:
        """Open a regular file and yield its descriptor.

        Raises:
            FileNotFoundError, PermissionError: as ``os.open``.
            UnsafeFileError: it is a link, or no regular file.
        """
        number = _open_file(_require_name(name), self.number, flags, mode, str(self.path / name))
        try:
            yield number
        finally:
            os.close(number)

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

    def write(self, name: str, data: bytes, *, mode: int = 0o600, owner: tuple[int, int] | None = None) -> None:
        """Write a file atomically: a new file with a random name, its mode and owner set by handle, sync, rename.

        A link of this name is replaced and not followed.

        Args:
            name: name of the file in this directory.
            data: its contents.
            mode: its permissions.
            owner: uid and gid. None: those of this process.
        """
        temporary = f".{_require_name(name)}.{secrets.token_hex(6)}"
        number = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW, 0o600, dir_fd=self.number)
        try:
            try:
                write_all(number, data)
                os.fchmod(number, mode)
                if owner is not None:
                    os.fchown(number, *owner)
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
        os.rename(_require_name(old), _require_name(new), src_dir_fd=self.number, dst_dir_fd=self.number)

    def remove(self, name: str) -> None:
        """Remove a file, or the link itself. Nothing happens if it is missing."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_require_name(name), dir_fd=self.number)

    def remove_tree(self, name: str) -> None:
        """Remove a subdirectory with its contents, without following links. Nothing happens if it is missing."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(_require_name(name), dir_fd=self.number)


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


def trusted(path: Path | str, uid: int) -> bool:
    """Return True if only root and ``uid`` can exchange what ``path`` names.

    The file and each directory above it must belong to one of them, and other users must not be able to write there. A directory
    with the sticky bit (``/tmp``) counts as safe for what is in it, because others cannot rename it.
    """
    path = Path(os.path.realpath(path))
    for place in (path, *path.parents):
        try:
            status = place.lstat()
        except OSError:
            return False
        sticky = place != path and stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        if status.st_uid not in (0, uid) or (status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky):
            return False
    return True


def _open_directory(name: str, parent: int | None, path: str) -> int:
    try:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | _NO_FOLLOW, dir_fd=parent)
    except NotADirectoryError:
        raise UnsafeFileError(f"{path} is a link or no directory; pgherd does not follow it") from None


def _open_file(name: str, parent: int, flags: int, mode: int, path: str) -> int:
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
