"""Test for direct I/O (without the page cache) on a file system. Leaves no file."""

from __future__ import annotations

import errno
import os

_NO_UNNAMED_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT)


def direct_io_works(directory: str) -> bool:
    """Return whether a directory's files can be opened with O_DIRECT (open(2)).

    An unnamed file (O_TMPFILE) is tried first, because the kernel removes it on close. A file system without unnamed
    files gets a short-lived named one. The result is False if the test itself fails.
    """
    try:
        os.close(os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT, 0o600))
        return True
    except OSError as error:
        if error.errno not in _NO_UNNAMED_FILES:
            return False
    path = os.path.join(directory, f"pgherd-probe-{os.getpid()}")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_DIRECT, 0o600))
        return True
    except OSError:
        return False
    finally:
        if os.path.lexists(path):
            os.unlink(path)
