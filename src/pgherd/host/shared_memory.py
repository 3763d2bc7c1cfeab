"""Removal of the shared memory that a server leaves behind after SIGKILL.

A server creates one small System V segment, with key and id in line 7 of ``postmaster.pid``
(src/backend/utils/init/miscinit.c, AddToDataDirLockFile), and POSIX segments ``/dev/shm/PostgreSQL.N``. The header of the
System V segment names the POSIX control segment, which lists all others. The next start of the same data directory would
read them in the same way (src/backend/storage/ipc/dsm.c, dsm_cleanup_using_control_segment). Servers of a killed run are
never started again.

A process killed within dsm_create can leave a segment of zeros that is not listed. This takes place between the creation
of the segment and its entry in the list (some milliseconds, while the system allocates the memory). Neither PostgreSQL
nor this module can identify its owner.

The user of the server can write anything into ``postmaster.pid`` and into the segments. Therefore only segments, files and
processes of the user that owns the data directory are touched. That user could remove or end them without pgherd.
"""

from __future__ import annotations

import ctypes
import os
import struct
from dataclasses import dataclass

from pgherd.host import processes
from pgherd.node.files import UnsafeFileError
from pgherd.node.protocol import Command, Node

_HEADER = struct.Struct("=iiQQI")
"""PGShmemHeader (src/include/storage/pg_shmem.h) up to dsm_control: magic, creator's pid, total size, free offset, handle."""
_HEADER_MAGIC = 679834894
_CONTROL = struct.Struct("=III")
"""dsm_control_header (dsm.c): magic, number of items, maximum number of items."""
_CONTROL_MAGIC = 0x9A503D32
_ITEM = struct.Struct("=II8x8x8x8x")
"""dsm_control_item (dsm.c): handle, reference count, first page, pages, private handle, pinned; 40 bytes."""
_ITEMS_OFFSET = 16
_MAX_LOCK_FILE_BYTES = 65536


@dataclass(frozen=True)
class Segment:
    """System V segment of /proc/sysvipc/shm, with its number of attached processes, and the uids of its owner and maker."""

    key: int
    id: int
    creator: int
    attached: int
    owner: int
    maker: int


def parse_lock_file(text: str) -> tuple[int, int, int] | None:
    """Parse ``postmaster.pid`` into the postmaster's pid, key and id.

    The result is None if it names no segment.
    """
    lines = text.splitlines()
    if len(lines) < 7:
        return None
    fields = [lines[0], *lines[6].split()]
    try:
        pid, key, number = (int(field) for field in fields)
    except ValueError:
        return None
    return abs(pid), key, number


def parse_segments(text: str) -> list[Segment]:
    """Parse the text of ``/proc/sysvipc/shm``."""
    segments = []
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9:
            segments.append(Segment(*(int(fields[column]) for column in (0, 1, 4, 6, 7, 9))))
    return segments


def parse_control(data: bytes) -> list[int]:
    """Parse a control segment into the handles of the POSIX segments in use.

    The result is empty for other data.
    """
    if len(data) < _ITEMS_OFFSET:
        return []
    magic, count, maximum = _CONTROL.unpack_from(data)
    if magic != _CONTROL_MAGIC or count > maximum or _ITEMS_OFFSET + count * _ITEM.size > len(data):
        return []
    items = (_ITEM.unpack_from(data, _ITEMS_OFFSET + index * _ITEM.size) for index in range(count))
    return [handle for handle, references in items if references > 0]


def release(node: Node, data_directory: str) -> str | None:
    """Remove a dead server's shared memory after killing the attached processes.

    Describe the action, or return None.

    Only a segment whose key, id and creator all match ``postmaster.pid`` is removed, and only if it and the attached
    processes belong to the owner of the data directory. Raises OSError if a process does not end or the segment can't be
    removed.
    """
    try:
        owner = os.lstat(data_directory).st_uid
        lock_file = node.read_untrusted(f"{data_directory}/postmaster.pid", _MAX_LOCK_FILE_BYTES)
        identity = parse_lock_file(lock_file.decode(errors="replace"))
        table = node.read("/proc/sysvipc/shm").decode()
    except (OSError, UnsafeFileError):
        return None
    if identity is None or owner == 0:  # no server runs as root: its user left the file in a directory that root took back
        return None
    pid, key, number = identity

    def segment_in(text: str) -> Segment | None:
        named = (key, number, pid, owner, owner)
        return next((s for s in parse_segments(text) if (s.key, s.id, s.creator, s.owner, s.maker) == named), None)

    def current_segment() -> Segment | None:
        return segment_in(node.read("/proc/sysvipc/shm").decode())

    if segment_in(table) is None:
        return None
    attached = [pid for pid in attached_to(node, key, number) if processes.users(node, pid) == {owner}]
    processes.kill(node, attached)
    if not processes.wait_until(lambda: (segment := current_segment()) is None or segment.attached == 0):
        raise OSError(f"processes stay attached to shared memory segment {number} of {data_directory}")
    if current_segment() is None:
        return None
    posix_count = _remove_posix(node, number, owner)
    result = node.run(Command(("ipcrm", "-m", str(number))))
    if result.code and current_segment() is not None:
        raise OSError(f"shared memory segment {number} of {data_directory} can't be removed: {result.err.strip()}")
    posix = f" and {posix_count} POSIX segments" if posix_count else ""
    killed = f", after ending {processes.counted(len(attached))}" if attached else ""
    return f"removed shared memory segment {number}{posix} of the server in {data_directory}{killed}"


def attached_to(node: Node, key: int, number: int) -> list[int]:
    """Return the pids that map the segment, whose id is an inode in /proc/PID/maps."""
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
            fields = line.split(maxsplit=5)
            if len(fields) == 6 and fields[4] == str(number) and fields[5].startswith(name):
                pids.append(int(entry))
                break
    return pids


def _remove_posix(node: Node, number: int, owner: int) -> int:
    """Remove the POSIX segments of a System V segment that belong to ``owner``, and return their number."""
    control = _control_handle(number)
    if not control:
        return 0
    try:
        handles = parse_control(node.read_untrusted(f"/dev/shm/PostgreSQL.{control}"))  # noqa: S108 (PostgreSQL's name)
    except (OSError, UnsafeFileError):
        return 0
    paths = [f"/dev/shm/PostgreSQL.{handle}" for handle in {*handles, control}]  # noqa: S108 (their owner is checked)
    present = [path for path in paths if _owner(path) == owner]
    if present:
        node.run(Command(("rm", "-f", "--", *present)))
    return len(present)


def _owner(path: str) -> int | None:
    try:
        return os.lstat(path).st_uid
    except OSError:
        return None


def _control_handle(number: int) -> int:
    """Read the POSIX control segment's handle from the System V segment's header.

    The result is 0 if that fails.

    This attaches the segment to the current process, because no file provides its content. Undo always runs on the
    machine of the server.
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
