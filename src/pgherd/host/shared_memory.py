"""Shared memory that a PostgreSQL server leaves behind when it is killed with SIGKILL, and its removal.

A server makes one small System V segment, named with key and id in line 7 of ``postmaster.pid``
(src/backend/utils/init/miscinit.c, AddToDataDirLockFile), and POSIX segments ``/dev/shm/PostgreSQL.N``. The System V
segment's header names the POSIX control segment, which lists all others; the next start of the same data directory
would read them in the same way (src/backend/storage/ipc/dsm.c, dsm_cleanup_using_control_segment). Here there is no next start.

A process that is ended within dsm_create, after it made a segment and before it entered it into the list (some milliseconds, while the
system allots the memory), leaves one that nothing names and that holds only zeros. Neither PostgreSQL nor this module can tell whose it is.
"""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass

from pgherd.host import processes
from pgherd.node.protocol import Command, Node

_HEADER = struct.Struct("=iiQQI")
"""PGShmemHeader (src/include/storage/pg_shmem.h) up to dsm_control: magic, creator's pid, total size, free offset, handle."""
_HEADER_MAGIC = 679834894
_CONTROL = struct.Struct("=III")
"""dsm_control_header (dsm.c): magic, number of items, room for items."""
_CONTROL_MAGIC = 0x9A503D32
_ITEM = struct.Struct("=II8x8x8x8x")
"""dsm_control_item (dsm.c): handle, reference count, first page, pages, private handle, pinned; 40 bytes."""
_ITEMS_AT = 16


@dataclass(frozen=True)
class Segment:
    """A System V segment: key, id, pid of its creator and number of processes attached (/proc/sysvipc/shm)."""

    key: int
    id: int
    creator: int
    attached: int


def parse_lock_file(text: str) -> tuple[int, int, int] | None:
    """(postmaster's pid, key, id) from the text of a ``postmaster.pid``; None where it does not name a segment."""
    lines = text.splitlines()
    if len(lines) < 7:
        return None
    words = [lines[0], *lines[6].split()]
    try:
        pid, key, number = (int(word) for word in words)
    except ValueError:
        return None
    return abs(pid), key, number


def parse_segments(text: str) -> list[Segment]:
    """All segments in the text of ``/proc/sysvipc/shm``."""
    found = []
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) > 6:
            found.append(Segment(int(words[0]), int(words[1]), int(words[4]), int(words[6])))
    return found


def parse_control(data: bytes) -> list[int]:
    """Handles of the POSIX segments in use, from the bytes of a control segment; empty if it is not one."""
    if len(data) < _ITEMS_AT:
        return []
    magic, used, room = _CONTROL.unpack_from(data)
    if magic != _CONTROL_MAGIC or used > room or _ITEMS_AT + used * _ITEM.size > len(data):
        return []
    items = (_ITEM.unpack_from(data, _ITEMS_AT + index * _ITEM.size) for index in range(used))
    return [handle for handle, references in items if references > 0]


def release(node: Node, data_directory: str) -> str | None:
    """End what is still attached to a dead server's shared memory and remove it; a sentence on what was done, or None.

    Only a segment whose key, id and creator all match ``postmaster.pid`` is touched. Raises OSError when a process
    does not die or the segment can't be removed.
    """
    try:
        named = parse_lock_file(node.read(f"{data_directory}/postmaster.pid").decode(errors="replace"))
        table = node.read("/proc/sysvipc/shm").decode()
    except OSError:
        return None
    if named is None:
        return None
    pid, key, number = named

    def ours() -> Segment | None:
        segments = parse_segments(node.read("/proc/sysvipc/shm").decode())
        return next((x for x in segments if (x.key, x.id, x.creator) == (key, number, pid)), None)

    if not any((x.key, x.id, x.creator) == (key, number, pid) for x in parse_segments(table)):
        return None
    ended = attached_to(node, key, number)
    processes.kill(node, ended)
    if not processes.wait_until(lambda: (segment := ours()) is None or segment.attached == 0):
        raise OSError(f"processes stay attached to shared memory segment {number} of {data_directory}")
    if ours() is None:
        return None
    posix = _remove_posix(node, number)
    result = node.run(Command(("ipcrm", "-m", str(number))))
    if result.code and ours() is not None:
        raise OSError(f"shared memory segment {number} of {data_directory} can't be removed: {result.err.strip()}")
    more = f" and {posix} POSIX segments" if posix else ""
    killed = f", after ending {processes.counted(len(ended))}" if ended else ""
    return f"removed shared memory segment {number}{more} of the server in {data_directory}{killed}"


def attached_to(node: Node, key: int, number: int) -> list[int]:
    """Pids of the processes that have the segment mapped: in /proc/PID/maps its id stands as the inode."""
    name = f"/SYSV{key & 0xFFFFFFFF:08x}"
    pids = []
    for entry in node.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            text = node.read(f"/proc/{entry}/maps").decode(errors="replace")
        except OSError:
            continue
        for line in text.splitlines():
            words = line.split(maxsplit=5)
            if len(words) == 6 and words[4] == str(number) and words[5].startswith(name):
                pids.append(int(entry))
                break
    return pids


def _remove_posix(node: Node, number: int) -> int:
    """Remove the control segment that the System V segment names, and all that it lists; how many there were."""
    control = _control_handle(number)
    if not control:
        return 0
    try:
        handles = parse_control(node.read(f"/dev/shm/PostgreSQL.{control}"))
    except OSError:
        return 0
    paths = [f"/dev/shm/PostgreSQL.{handle}" for handle in {*handles, control}]
    present = [path for path in paths if node.exists(path)]
    if present:
        node.run(Command(("rm", "-f", "--", *present)))
    return len(present)


def _control_handle(number: int) -> int:
    """Handle of the POSIX control segment, read from the System V segment's header; 0 where it can't be read.

    This attaches to the segment in our own process, since no file shows its content: an undo is always played on the
    machine on which the server ran.
    """
    library = ctypes.CDLL(None, use_errno=True)
    library.shmat.restype = ctypes.c_void_p
    library.shmat.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
    library.shmdt.argtypes = (ctypes.c_void_p,)
    read_only = 0o10000
    address = library.shmat(number, None, read_only)
    if address in (None, ctypes.c_void_p(-1).value):
        return 0
    try:
        magic, _, _, _, handle = _HEADER.unpack(ctypes.string_at(address, _HEADER.size))
    finally:
        library.shmdt(address)
    return int(handle) if magic == _HEADER_MAGIC else 0
