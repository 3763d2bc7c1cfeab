from __future__ import annotations

import os
from pathlib import Path

import pytest

from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.postgres.disk import check_space, free_bytes, insist_enterable, used_bytes


def test_free_bytes_as_the_kernel_says_even_below_what_does_not_exist(node: LocalNode, tmp_path: Path) -> None:
    found = os.statvfs(tmp_path)
    free = free_bytes(node, str(tmp_path / "not/yet/made"))
    assert free == pytest.approx(found.f_bavail * found.f_frsize, rel=0.05)


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
        pytest.skip("needs root: as an ordinary user servers run under our own account")
    insist_enterable(node, str(place), account)
    (place / "private").mkdir(mode=0o700)
    with pytest.raises(CapabilityError, match=f"account {account}, .* cannot enter .*private"):
        insist_enterable(node, str(place / "private"), account)
