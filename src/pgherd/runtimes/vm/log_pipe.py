"""Named pipe for a program's log, of which only the end is kept, in memory.

A guest can print without end, and a log file would then fill the disk. libvirt gives QEMU a pipe for the same reason (virtlogd). A limit
of file sizes (setrlimit(2)) would also apply to the images of disks, and QEMU's ring buffer is lost when QEMU ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
import threading
from typing import Self

from pgherd.node.files import Directory, UnsafeFileError

KEPT_BYTES = 256 * 2**10
"""Bytes that are kept."""
_PIPE_BYTES = 64 * 2**10
"""Capacity of a pipe (pipe(7)): one read empties it."""
_PAUSE_S = 0.05
"""Pause after each read, so that a guest that prints without end takes little CPU. The pipe fills meanwhile, and QEMU delays the guest."""


class LogPipe:
    """Pipe that a program opens by its path as it would open a log file. Use it as a context manager, or call ``close``.

    A full pipe delays the guest's output, and QEMU itself if the pipe is its ``logfile``, until the next read.
    """

    def __init__(self, path: str) -> None:
        """Create the pipe in place of what has this name. It belongs to the owner of its directory.

        Raises:
            OSError: it cannot be created.
            UnsafeFileError: the directory is a link, or its owner has exchanged the pipe.
        """
        self._kept = b""
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._number = _create(path)
        self._thread = threading.Thread(target=self._follow, name="pgherd-log", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def text(self) -> str:
        """Return the end of what was written so far, also after ``close``."""
        self._read()
        return self._kept.decode(errors="replace")

    def close(self) -> None:
        """Close the pipe after all that was written has been read. Call it once the program has ended."""
        if self._closed.is_set():
            return
        self._closed.set()
        with contextlib.suppress(BlockingIOError):  # a full pipe has woken the thread already
            os.write(self._number, b"\n")
        self._thread.join()
        self._read()
        with self._lock:
            os.close(self._number)
            self._number = -1

    def _follow(self) -> None:
        ready = select.poll()
        ready.register(self._number, select.POLLIN)
        while not self._closed.is_set():
            ready.poll()
            self._read()
            self._closed.wait(_PAUSE_S)

    def _read(self) -> None:
        with self._lock, contextlib.suppress(BlockingIOError):  # another thread has read it
            if self._number >= 0:
                self._kept = (self._kept + os.read(self._number, _PIPE_BYTES))[-KEPT_BYTES:]


def _create(path: str) -> int:
    """Return the descriptor of a new pipe. It is open in both directions, so the pipe has no end while it is open."""
    parent, name = os.path.split(path)
    with Directory.open(parent) as directory:
        directory.remove(name)
        os.mkfifo(name, 0o600, dir_fd=directory.number)
        number = os.open(name, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory.number)
        try:
            status = os.fstat(number)
            if not stat.S_ISFIFO(status.st_mode) or status.st_uid != os.geteuid() or status.st_nlink != 1:
                raise UnsafeFileError(f"{path} was exchanged while it was created; it is not used")
            os.fchown(number, directory.owner(), -1)
        except BaseException:
            os.close(number)
            raise
    return number
