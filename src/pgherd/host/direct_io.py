"""Whether a file system takes direct I/O, past the page cache. Leaves nothing behind."""

from __future__ import annotations

import errno
import os

_UNKNOWN = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT)


def possible(directory: str) -> bool:
    """Whether a file in the directory can be opened for direct I/O (open(2), O_DIRECT).

    A file without a name is opened (O_TMPFILE), which the kernel forgets as it is closed; where a file system has no such
    files, a short-lived one with a name. What cannot be tried counts as no.
    """
    try:
        os.close(os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT, 0o600))
        return True
    except OSError as error:
        if error.errno not in _UNKNOWN:
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
