from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from pgherd.host import shared_memory
from pgherd.host.shared_memory import Segment

LOCK_FILE = "4711\n/srv/db/data\n1732230000\n5432\n/run/pgherd-1/a\n\n  5432001     32769\nready   \n"
SEGMENTS = (
    "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime"
    "                   rss                  swap\n"
    "   5432001      32769   600                    56  4711  4720      6   101   104   101   104 1732230000 1732230001 1732230000"
    "                  4096                     0\n"
)


def test_lock_file() -> None:
    assert shared_memory.parse_lock_file(LOCK_FILE) == (4711, 5432001, 32769)


def test_a_single_user_backend_writes_its_pid_negative() -> None:
    assert shared_memory.parse_lock_file(LOCK_FILE.replace("4711", "-4711")) == (4711, 5432001, 32769)


def test_a_lock_file_that_is_not_complete_names_no_segment() -> None:
    for end in range(LOCK_FILE.index("5432001")):
        assert shared_memory.parse_lock_file(LOCK_FILE[:end]) is None


@given(st.text())
def test_any_text_may_stand_in_a_lock_file(text: str) -> None:
    shared_memory.parse_lock_file(text)


def test_segments() -> None:
    assert shared_memory.parse_segments(SEGMENTS) == [Segment(key=5432001, id=32769, creator=4711, attached=6)]
    assert shared_memory.parse_segments("") == []


def control(*items: tuple[int, int], magic: int = 0x9A503D32, used: int | None = None) -> bytes:
    head = struct.pack("=IIII", magic, len(items) if used is None else used, 64, 0)
    return head + b"".join(struct.pack("=IIQQQQ", handle, count, 0, 0, 0, 0) for handle, count in items)


def test_control_segment_lists_what_is_referenced() -> None:
    assert shared_memory.parse_control(control((77, 2), (78, 0), (79, 1))) == [77, 79]


def test_other_bytes_list_nothing() -> None:
    assert shared_memory.parse_control(b"") == []
    assert shared_memory.parse_control(control((77, 2), magic=1)) == []
    assert shared_memory.parse_control(control((77, 2), used=60)) == []
