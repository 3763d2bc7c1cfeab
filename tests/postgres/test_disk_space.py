from __future__ import annotations

import os
from pathlib import Path

import pytest

from pgherd.model.errors import CapabilityError, TrialError
from pgherd.node.local import LocalNode
from pgherd.postgres.disk_space import check_space, free_bytes, move_wal, require_enterable, used_bytes


def test_free_bytes_equal_statvfs_even_below_a_missing_directory(node: LocalNode, tmp_path: Path) -> None:
    stat = os.statvfs(tmp_path)
    free = free_bytes(node, str(tmp_path / "not/yet/made"))
    assert free == pytest.approx(stat.f_bavail * stat.f_frsize, rel=0.05)


def test_used_bytes(node: LocalNode, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/file").write_bytes(b"x" * 3_000_000)
    assert 3_000_000 <= used_bytes(node, str(tmp_path)) < 3_200_000
    with pytest.raises(OSError, match="nowhere"):
        used_bytes(node, str(tmp_path / "nowhere"))


def test_too_little_space_says_both_numbers(node: LocalNode, tmp_path: Path) -> None:
    check_space(node, str(tmp_path), 1, "nothing")
    with pytest.raises(CapabilityError, match=r"cloning 3 servers needs .* TB in .*, but .* are free; make room"):
        check_space(node, str(tmp_path), 2**60, "cloning 3 servers")


def test_a_private_directory_is_no_place_for_the_account(node: LocalNode, account: str | None, place: Path) -> None:
    if account is None:
        pytest.skip("requires root: otherwise servers run as the current user")
    require_enterable(node, str(place), account)
    (place / "private").mkdir(mode=0o700)
    with pytest.raises(CapabilityError, match=f"servers run as '{account}', which cannot enter .*private"):
        require_enterable(node, str(place / "private"), account)


def test_wal_is_moved_and_linked(node: LocalNode, tmp_path: Path) -> None:
    data, path = tmp_path / "data", tmp_path / "it's there"
    (data / "pg_wal" / "archive_status").mkdir(parents=True)
    (data / "pg_wal" / "000000010000000000000001").write_bytes(b"segment")
    (data / "pg_wal").chmod(0o700)
    path.mkdir()
    move_wal(node, str(data), str(path))
    assert (data / "pg_wal").readlink() == path / "pg_wal"
    assert (data / "pg_wal" / "000000010000000000000001").read_bytes() == b"segment"
    assert (path / "pg_wal").stat().st_mode & 0o777 == 0o700 and not (path / "pg_wal").is_symlink()


def test_a_failed_move_of_the_wal_names_the_reason(node: LocalNode, tmp_path: Path) -> None:
    (tmp_path / "data" / "pg_wal").mkdir(parents=True)
    with pytest.raises(TrialError, match=f"the WAL of {tmp_path}/data cannot be moved to {tmp_path}/nowhere: .*No such file"):
        move_wal(node, str(tmp_path / "data"), str(tmp_path / "nowhere"))
    (tmp_path / "there" / "pg_wal").mkdir(parents=True)
    (tmp_path / "there" / "pg_wal" / "of another").touch()
    with pytest.raises(TrialError, match="not empty"):
        move_wal(node, str(tmp_path / "data"), str(tmp_path / "there"))
    assert (tmp_path / "there" / "pg_wal" / "of another").exists()
