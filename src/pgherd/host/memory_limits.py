"""Memory and swap limits of a control group, and emptying a group whose processes have ended.

v1 (admin-guide/cgroup-v1/memory.rst) limits memory, and memory and swap together (memsw), which must never be the smaller of
the two; v2 (admin-guide/cgroup-v2.rst) limits each for itself.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from pgherd.host import processes
from pgherd.host.cgroup_layout import text_of
from pgherd.model.errors import CapabilityError
from pgherd.node.protocol import Node

_PATIENCE = 30.0
_ROUNDS = 5


def limit_v1(node: Node, group: str, memory: int | None, swap: int | None) -> None:
    """Limit a v1 group to ``memory`` bytes, and to ``swap`` bytes swapped out beside it; None leaves a limit as it is.

    Raises CapabilityError where the kernel refuses. A kernel that does not account for swap limits no swap: then swapping of the group
    is discouraged as far as it can be where none is to be used, and left to the host's swap space otherwise.
    """
    memory_file, both_file = f"{group}/memory.limit_in_bytes", f"{group}/memory.memsw.limit_in_bytes"
    if swap is None or (memory is None and text_of(node, memory_file) == ""):
        if memory is not None:
            _write_patiently(node, memory_file, memory)
        return
    given = memory if memory is not None else int(text_of(node, memory_file))
    if not node.exists(both_file):
        _write_patiently(node, memory_file, given)
        if swap == 0:
            write(node, f"{group}/memory.swappiness", 0)
        return
    both, current = given + swap, int(text_of(node, both_file) or 0)
    steps = [(memory_file, given), (both_file, both)]
    for file, value in reversed(steps) if both >= current else steps:
        _write_patiently(node, file, value)


def limit_v2(node: Node, group: str, memory: int | None, swap: int | None) -> None:
    """Limit a v2 group; as ``limit_v1``.

    Of a group that uses more memory the rest is reclaimed first: memory.max itself, written below what is in use, ends processes after a
    few attempts to reclaim (mm/memcontrol.c, memory_max_write), where memory.high never does.
    """
    if memory is not None:
        with _reclaimed(node, group, memory):
            write(node, f"{group}/memory.max", memory)
    if swap is not None and node.exists(f"{group}/memory.swap.max"):
        write(node, f"{group}/memory.swap.max", swap)


@contextlib.contextmanager
def _reclaimed(node: Node, group: str, memory: int) -> Iterator[None]:
    """Hold a v2 group at ``memory`` bytes by memory.high while the body sets the limit; raises CapabilityError where it stays above."""
    current, high = f"{group}/memory.current", f"{group}/memory.high"

    def fits() -> bool:
        return int(text_of(node, current) or 0) <= memory

    def held() -> bool:
        write(node, high, memory)  # each write reclaims anew, down to it or until the kernel finds nothing more
        return fits()

    before = text_of(node, high)
    if before == "" or fits():
        yield
        return
    try:
        if not processes.wait_until(held, _PATIENCE):
            raise CapabilityError(
                f"{group}/memory.max can't be lowered to {memory} bytes within {_PATIENCE:.0f} s, since {text_of(node, current)} bytes are "
                f"in use; stop servers first"
            )
        yield
    finally:
        write(node, high, before)


def empty(node: Node, group: str, *, v2: bool) -> None:
    """Have the kernel drop what a group without processes is still charged for (page cache); what it keeps, it keeps."""
    with contextlib.suppress(OSError):
        if not v2:
            node.write(f"{group}/memory.force_empty", b"0")
            return
        for _ in range(_ROUNDS):  # one write reclaims as much as the kernel finds at once, and fails when that is less
            used = text_of(node, f"{group}/memory.current")
            if used in ("", "0") or not node.exists(f"{group}/memory.reclaim"):
                return
            with contextlib.suppress(BlockingIOError):
                node.write(f"{group}/memory.reclaim", used.encode())


def write(node: Node, path: str, value: int | str) -> None:
    """Write one limit; raises CapabilityError with the kernel's reason."""
    try:
        node.write(path, str(value).encode())
    except OSError as error:
        raise CapabilityError(f"the kernel does not take {value} for {path}: {error.strerror or error}") from error


def _write_patiently(node: Node, path: str, value: int) -> None:
    """v1 answers EBUSY when it could not reclaim enough at once: ask again for a while."""
    failure: OSError | None = None

    def taken() -> bool:
        nonlocal failure
        try:
            node.write(path, str(value).encode())
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise CapabilityError(f"the kernel does not take {value} for {path}: {error.strerror or error}") from error
            failure = error
            return False
        return True

    if not processes.wait_until(taken, _PATIENCE):
        raise CapabilityError(
            f"{path} can't be lowered to {value} bytes within {_PATIENCE:.0f} s, since more is in use: {failure}; stop servers first"
        )
