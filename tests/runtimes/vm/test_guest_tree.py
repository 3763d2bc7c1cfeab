from __future__ import annotations

import os
from pathlib import Path

import pytest

from pgherd.model.errors import CapabilityError
from pgherd.runtimes.vm.guest_tree import GuestTree


@pytest.fixture
def tree(tmp_path: Path) -> GuestTree:
    return GuestTree(tmp_path / "tree")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """usr/lib with a library of two names, lib → usr/lib, and an absolute link into it."""
    root = tmp_path / "here"
    (root / "usr/lib/deep").mkdir(parents=True)
    (root / "usr/lib/libx.so.1.2").write_bytes(b"library")
    (root / "usr/lib/libx.so.1").symlink_to("libx.so.1.2")
    (root / "usr/lib/deep/tool").write_bytes(b"#!/bin/sh\n")
    (root / "usr/lib/deep/tool").chmod(0o700)
    (root / "lib").symlink_to("usr/lib")
    (root / "whole").symlink_to(root / "lib/deep")
    return root


def inside(tree: GuestTree, path: Path) -> Path:
    return tree.root / str(path).lstrip("/")


def test_links_lead_to_the_same_files_as_here(tree: GuestTree, here: Path) -> None:
    assert tree.add(str(here / "lib/libx.so.1")) == str(here / "usr/lib/libx.so.1.2")
    assert inside(tree, here / "lib").is_symlink() and os.readlink(inside(tree, here / "lib")) == "usr/lib"
    assert os.readlink(inside(tree, here / "usr/lib/libx.so.1")) == "libx.so.1.2"
    assert inside(tree, here / "lib/libx.so.1").read_bytes() == b"library"


def test_a_way_with_dots_works_as_the_loader_walks_it(tree: GuestTree, here: Path) -> None:
    tree.add(str(here / "lib/deep/../libx.so.1"))
    assert inside(tree, here / "usr/lib/deep").is_dir() and inside(tree, here / "usr/lib/libx.so.1.2").is_file()


def test_an_absolute_link_is_kept(tree: GuestTree, here: Path) -> None:
    tree.add(str(here / "whole/tool"))
    assert os.readlink(inside(tree, here / "whole")) == str(here / "lib/deep")
    assert inside(tree, here / "usr/lib/deep/tool").stat().st_mode & 0o777 == 0o755


def test_directories_are_copied_without_what_is_skipped(tree: GuestTree, here: Path) -> None:
    (here / "usr/lib/test").mkdir()
    (here / "usr/lib/test/x").touch()
    (here / "usr/lib/dangling").symlink_to("nowhere")
    copied = tree.add_all(str(here / "lib"), skip=("test", "*.1.2"))
    assert copied == [str(here / "usr/lib/libx.so.1.2"), str(here / "usr/lib/deep/tool")]  # by the other name it is wanted
    assert not inside(tree, here / "usr/lib/test").exists() and not os.path.lexists(inside(tree, here / "usr/lib/dangling"))


def test_sources_tell_size_and_time(tree: GuestTree, here: Path) -> None:
    file = here / "usr/lib/libx.so.1.2"
    os.utime(file, ns=(5, 1_700_000_000_123_456_789))
    tree.add(str(file))
    assert tree.sources[str(file)] == (str(file), 7, 1_700_000_000_123_456_789)
    assert inside(tree, file).stat().st_mtime_ns == 1_700_000_000_123_456_789


def test_a_circle_of_links_and_a_missing_file_are_refused(tree: GuestTree, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(CapabilityError, match="more symbolic links"):
        tree.add(str(tmp_path / "a/x"))
    with pytest.raises(CapabilityError, match="cannot be copied: No such file"):
        tree.add(str(tmp_path / "none"))


def test_own_files_links_and_size(tree: GuestTree) -> None:
    tree.write("/no-such-place/deep/file", "x" * 5000, 0o755)
    tree.link("/no-such-place/link", "deep/file")
    tree.link("/no-such-place/link", "elsewhere")
    tree.make("/no-such-place/tmp", 0o1777)
    assert os.readlink(tree.root / "no-such-place/link") == "deep/file"
    assert (tree.root / "no-such-place/tmp").stat().st_mode & 0o7777 == 0o1777
    size, entries = tree.size()
    assert entries == 5 and size == (3 + 2 + 1) * 4096
