from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgherd.model.errors import CapabilityError, TrialError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command, Completed
from pgherd.postgres.templates import Template
from pgherd.runtimes.vm import disk_image

MIB = 2**20
OURSELVES = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture(autouse=True)
def tools() -> None:
    for tool in ("mkfs.ext4", "debugfs", "e2fsck"):
        if shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
            pytest.skip(f"{tool} is not installed")


def debugfs(image: str, request: str) -> str:
    """What the file system's own debugger says of it."""
    path = {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin", "DEBUGFS_PAGER": "cat"}
    return subprocess.run(["debugfs", "-R", request, image], capture_output=True, text=True, check=True, env=path).stdout


def sound(image: str) -> bool:
    path = {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    return subprocess.run(["e2fsck", "-fn", image], capture_output=True, env=path).returncode == 0


def cluster(directory: Path) -> Path:
    (directory / "data/pg_wal").mkdir(parents=True)
    (directory / "data/pg_wal/0001").write_bytes(b"w" * MIB)
    (directory / "data/PG_VERSION").write_text("15\n")
    (directory / "data/PG_VERSION").chmod(0o600)
    (directory / "data").chmod(0o700)
    return directory


def test_a_directory_is_packed_with_room_to_write(tmp_path: Path) -> None:
    created = disk_image.pack(LocalNode(), str(cluster(tmp_path / "d")), str(tmp_path / "disk"), free=100 * MIB)
    assert debugfs(created.path, "cat /data/PG_VERSION") == "15\n" and sound(created.path)
    assert "Mode:  0700" in debugfs(created.path, "stat /data")
    stats = debugfs(created.path, "stats")
    free = int(re.search(r"Free blocks:\s+(\d+)", stats)[1]) * 4096  # type: ignore[index]
    assert 100 * MIB <= free < 220 * MIB  # part of it is a reserve for the file system itself
    assert (
        "has_journal" in stats
        and "uninit" not in debugfs(created.path, "show_super_stats -h").partition("Filesystem features")[2].partition("\n")[0]
    )
    assert os.stat(created.path).st_mode & 0o777 == 0o600, "it holds all data"
    assert created.size == os.path.getsize(created.path) and created.bytes < created.size  # what is free takes no space here


def test_a_template_is_packed_and_its_wal_apart(tmp_path: Path) -> None:
    golden = cluster(tmp_path / "golden")
    copy = Template("k", str(golden), "15", (), False, MIB, {}, 0.0, 0.0, parts={})
    images = str(tmp_path / "data.raw"), str(tmp_path / "wal.raw")
    data, wal = disk_image.pack_template(
        LocalNode(),
        copy,
        str(tmp_path / "stage"),
        images[0],
        free=16 * MIB,
        account=OURSELVES,
        wal=images[1],
        wal_mount="/srv/w",
        wal_free=16 * MIB,
    )
    assert (data.path, wal.path) == images and sound(data.path) and sound(wal.path)
    assert 'Fast link dest: "/srv/w/wal"' in debugfs(data.path, "stat /data/pg_wal")
    assert "Size: 1048576" in debugfs(wal.path, "stat /wal/0001")
    uid = f"User: {os.getuid():5}"
    assert uid in debugfs(data.path, "stat /data/PG_VERSION") and uid in debugfs(data.path, "stat /")
    assert sorted(os.listdir(golden / "data")) == ["PG_VERSION", "pg_wal"] and (golden / "data/pg_wal/0001").stat().st_nlink == 1
    assert not (tmp_path / "stage").exists()


def test_files_of_another_account_are_copied_and_not_given_away(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files to another account")
    golden = cluster(tmp_path / "golden")
    copy = Template("k", str(golden), "15", (), False, MIB, {}, 0.0, 0.0, parts={})
    (created,) = disk_image.pack_template(LocalNode(), copy, str(tmp_path / "stage"), str(tmp_path / "x"), free=MIB, account="nobody")
    assert f"User: {pwd.getpwnam('nobody').pw_uid}" in debugfs(created.path, "stat /data/PG_VERSION")
    assert (golden / "data/PG_VERSION").stat().st_uid == 0


class Intruder(LocalNode):
    """Node on which another user tries to reach what mkfs is about to read."""

    reached = -1

    def run(self, command: Command, timeout: float = 60.0) -> Completed:
        if command.argv[0].endswith("mkfs.ext4"):
            directory = command.argv[command.argv.index("-d") + 1]
            self.reached = super().run(Command(["test", "-e", f"{directory}/data"], user="nobody")).code
        return super().run(command, timeout)


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that every user can enter, as a run's work directory is."""
    place = Path(tempfile.mkdtemp(prefix="pgherd-disk-", dir="/tmp"))
    place.chmod(0o711)
    yield place
    shutil.rmtree(place)


def test_nobody_else_can_exchange_what_mkfs_reads(open_place: Path) -> None:
    """It opens files by their paths, and some belong to the servers' user already."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as another user")
    copy = Template("k", str(cluster(open_place / "golden")), "15", (), False, MIB, {}, 0.0, 0.0, parts={})
    node = Intruder()
    disk_image.pack_template(node, copy, str(open_place / "stage"), str(open_place / "x"), free=MIB, account="nobody")
    assert node.reached == 1
    assert node.run(Command(["test", "-e", f"{open_place}/golden"], user="nobody")).code == 0, "only the stage is closed"


def test_what_does_not_fit_is_an_error_and_leaves_no_image(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/file").write_bytes(os.urandom(20 * MIB))
    with pytest.raises(TrialError, match="cannot be packed into a disk of 16 MB"):
        disk_image.make_file_system(LocalNode(), tmp_path / "d", tmp_path / "image", MIB, inodes=100, journal=False)
    assert not (tmp_path / "image").exists()


class Interrupted(LocalNode):
    """Node on which packing the n-th disk is interrupted, or takes too long."""

    def __init__(self, fails_at: int, error: BaseException) -> None:
        super().__init__()
        self.remaining, self.error = fails_at, error

    def run(self, command: Command, timeout: float = 60.0) -> Completed:
        if command.argv[0].endswith("mkfs.ext4"):
            self.remaining -= 1
            if self.remaining == 0:
                raise self.error
        return super().run(command, timeout)


@pytest.mark.parametrize("fails_at", [1, 2])
@pytest.mark.parametrize(("error", "seen"), [(TimeoutError("too slow"), TrialError), (KeyboardInterrupt(), KeyboardInterrupt)])
def test_packing_that_fails_leaves_no_image_and_can_be_repeated(tmp_path: Path, fails_at: int, error, seen) -> None:
    copy = Template("k", str(cluster(tmp_path / "golden")), "15", (), False, MIB, {}, 0.0, 0.0, parts={})
    node, images = Interrupted(fails_at, error), [str(tmp_path / "data.raw"), str(tmp_path / "wal.raw")]

    def pack() -> list[disk_image.DiskImage]:
        return disk_image.pack_template(
            node, copy, str(tmp_path / "stage"), images[0], free=MIB, account=OURSELVES, wal=images[1], wal_mount="/w", wal_free=MIB
        )

    with pytest.raises(seen):
        pack()
    assert os.listdir(tmp_path) == ["golden"]
    assert [disk.path for disk in pack()] == images


def test_an_existing_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "image").write_text("kept")
    with pytest.raises(FileExistsError):
        disk_image.make_file_system(LocalNode(), tmp_path / "d", tmp_path / "image", MIB, inodes=100)
    assert (tmp_path / "image").read_text() == "kept"


def test_without_mkfs_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_image.shutil, "which", lambda name, path=None: None)
    with pytest.raises(CapabilityError, match="install e2fsprogs"):
        disk_image.mkfs()
