"""What a file system that compresses by itself makes of data: written into a directory of pgherd's own on it, and asked.

ZFS says it in the blocks that a file takes (stat(2), after a sync). btrfs does not; the tool compsize asks it. Others do not
compress, and are refused.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import TracebackType

from pgherd.model.errors import CapabilityError, TrialError, UsageError
from pgherd.node.protocol import Command, Node
from pgherd.runner.session import RunSession

KINDS = ("btrfs", "zfs")
_COMPSIZE = re.compile(r"^TOTAL\s+\d+%\s+(\d+)\s+(\d+)\s+(\d+)", re.MULTILINE)
_SETTLE_SECONDS = 120.0


def kind_of(node: Node, directory: str) -> str:
    """The type of the file system that a directory lies on, as stat(1) names it; raises UsageError where there is none."""
    found = node.run(Command(["stat", "--file-system", "--format=%T", "--", directory]))
    if found.code != 0:
        raise UsageError(f"--filesystem {directory}: {found.err.strip()}")
    return found.out.strip()


def check(node: Node, directory: str) -> str:
    """The kind of a file system that compresses, and can be asked what it made of a file.

    Raises:
        UsageError: the directory is not there.
        CapabilityError: the file system does not compress, or the tool that asks it is missing.
    """
    kind = kind_of(node, directory)
    if kind not in KINDS:
        raise CapabilityError(f"--filesystem {directory}: {kind} does not compress what is written to it; {' and '.join(KINDS)} do")
    if kind == "btrfs":
        try:
            node.run(Command(["compsize", "--help"]))
        except OSError:
            raise CapabilityError("btrfs tells its compressed sizes through compsize; install the package btrfs-compsize") from None
    return kind


class Compressing:
    """A private directory on such a file system, which goes at the end (and with the journal)."""

    def __init__(self, session: RunSession, directory: str) -> None:
        """Nothing is made yet."""
        self._session, self._node = session, session.node
        self._place = os.path.join(os.path.abspath(directory), f"pgherd-compression-{session.journal.id[:8]}")
        self._names: list[str] = []
        self._kind = check(session.node, directory)
        self._undo = 0

    def __enter__(self) -> Compressing:
        """Make the directory."""
        try:
            self._undo = self._session.journal.make_tree(self._place)
        except OSError as error:
            raise TrialError(f"{self._place} cannot be made: {error.strerror}") from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Remove the directory."""
        self._session.journal.undo(self._undo)

    def write(self, name: str, data: bytes) -> None:
        """One segment, as a file of its own; raises TrialError where it cannot be written."""
        try:
            Path(self._place, str(len(self._names))).write_bytes(data)
        except OSError as error:
            raise TrialError(f"{self._place}: {error.strerror}") from None
        self._names.append(name)

    def sizes(self) -> dict[str, float]:
        """Name → bytes that its file takes on the file system, once all is written; raises TrialError where it does not say."""
        done = self._node.run(Command(["sync", "-f", "--", self._place]), timeout=_SETTLE_SECONDS)
        if done.code != 0:
            raise TrialError(f"{self._place}: {done.err.strip()}")
        return {name: self._size(str(number)) for number, name in enumerate(self._names)}

    def _size(self, file: str) -> float:
        path = os.path.join(self._place, file)
        if self._kind == "zfs":
            return float(os.stat(path).st_blocks * 512)
        told = self._node.run(Command(["compsize", "-b", path]))
        return parse_compsize(told.out, told.err)


def parse_compsize(out: str, err: str = "") -> float:
    """Bytes on disk of compsize's line TOTAL; raises TrialError with its words where there is none."""
    found = _COMPSIZE.search(out)
    if not found:
        raise TrialError(f"compsize does not say what btrfs made of a file: {err.strip() or out.strip()}")
    return float(found[1])
