from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.host import shared_memory
from pgherd.host.shared_memory import Segment
from pgherd.node.local import LocalNode

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for another user")

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
    assert shared_memory.parse_segments(SEGMENTS) == [Segment(key=5432001, id=32769, creator=4711, attached=6, owner=101, maker=101)]
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


# ---- postmaster.pid belongs to the servers' user, who can write anything into it

HOLDER = """
import ctypes, sys, time
library = ctypes.CDLL(None, use_errno=True)
library.shmat.restype = ctypes.c_void_p
number = library.shmget(int(sys.argv[1]), 4096, 0o1600)
assert number >= 0 and library.shmat(number, None, 0)
print(number, flush=True)
time.sleep(60)
"""
KEY = 0x5EC31


@pytest.fixture
def segment_and_process():
    """Start a process of a uid with an attached segment of its own; returns (process, segment)."""
    started = []

    def start(uid):
        argv = ["setpriv", f"--reuid={uid}", "--clear-groups", sys.executable, "-c", HOLDER, str(KEY)]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        number = int(process.stdout.readline())
        started.append((process, number))
        return started[-1]

    yield start
    for process, number in started:
        process.kill()
        process.wait()
        subprocess.run(["ipcrm", "-m", str(number)], capture_output=True)


def data_directory(place, owner, process, number):
    data = place / "data"
    data.mkdir()
    (data / "postmaster.pid").write_text(f"{process.pid}\n{data}\n1\n5432\n/run\n\n{KEY} {number}\nready\n")
    for path in (data / "postmaster.pid", data):
        os.chown(path, owner, owner)
    return str(data)


@as_root
def test_the_segment_and_the_process_of_somebody_else_stay(segment_and_process, place):
    process, number = segment_and_process(54321)
    assert shared_memory.release(LocalNode(), data_directory(place, 65534, process, number)) is None
    assert process.poll() is None
    assert number in {segment.id for segment in shared_memory.parse_segments(Path("/proc/sysvipc/shm").read_text())}


@as_root
def test_processes_of_root_stay(segment_and_process, place):
    process, number = segment_and_process(0)  # a template's directory belongs to root, but a server's user wrote its files
    assert shared_memory.release(LocalNode(), data_directory(place, 0, process, number)) is None
    assert process.poll() is None


@as_root
def test_the_segment_and_the_process_of_the_owner_go(segment_and_process, place):
    process, number = segment_and_process(54321)
    text = shared_memory.release(LocalNode(), data_directory(place, 54321, process, number))
    assert text is not None and "after ending 1 process" in text
    assert process.wait(10) == -9
    assert number not in {segment.id for segment in shared_memory.parse_segments(Path("/proc/sysvipc/shm").read_text())}


@as_root
def test_posix_segments_of_somebody_else_stay(monkeypatch):
    """The header of the segment, which names the control segment, is the attacker's, too."""
    paths = {handle: Path(f"/dev/shm/PostgreSQL.{handle}") for handle in (911_000_001, 911_000_002)}
    monkeypatch.setattr(shared_memory, "_control_handle", lambda number: 911_000_001)
    try:
        paths[911_000_001].write_bytes(control((911_000_002, 2)))
        paths[911_000_002].write_bytes(b"of another server")
        os.chown(paths[911_000_001], 65534, 65534)
        assert shared_memory._remove_posix(LocalNode(), 1, 65534) == 1
        assert not paths[911_000_001].exists() and paths[911_000_002].exists()
    finally:
        for path in paths.values():
            path.unlink(missing_ok=True)


def test_a_lock_file_that_is_a_link_or_a_pipe_is_not_read(tmp_path):
    (tmp_path / "postmaster.pid").symlink_to("/etc/passwd")
    assert shared_memory.release(LocalNode(), str(tmp_path)) is None
    (tmp_path / "postmaster.pid").unlink()
    os.mkfifo(tmp_path / "postmaster.pid")
    assert shared_memory.release(LocalNode(), str(tmp_path)) is None
