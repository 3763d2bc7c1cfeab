from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.postgres.installations import Installation
from pgherd.runtimes.vm import initramfs, root_image
from pgherd.runtimes.vm.root_image import GuestTree, LibraryDependencies, parse


@pytest.fixture
def tree(tmp_path: Path) -> GuestTree:
    return GuestTree(tmp_path / "tree")


@pytest.fixture
def local_root(tmp_path: Path) -> Path:
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


def test_links_lead_to_the_same_files_as_here(tree: GuestTree, local_root: Path) -> None:
    assert tree.add(str(local_root / "lib/libx.so.1")) == str(local_root / "usr/lib/libx.so.1.2")
    assert inside(tree, local_root / "lib").is_symlink() and os.readlink(inside(tree, local_root / "lib")) == "usr/lib"
    assert os.readlink(inside(tree, local_root / "usr/lib/libx.so.1")) == "libx.so.1.2"
    assert inside(tree, local_root / "lib/libx.so.1").read_bytes() == b"library"


def test_a_way_with_dots_works_as_the_loader_walks_it(tree: GuestTree, local_root: Path) -> None:
    tree.add(str(local_root / "lib/deep/../libx.so.1"))
    assert inside(tree, local_root / "usr/lib/deep").is_dir() and inside(tree, local_root / "usr/lib/libx.so.1.2").is_file()


def test_an_absolute_link_is_kept(tree: GuestTree, local_root: Path) -> None:
    tree.add(str(local_root / "whole/tool"))
    assert os.readlink(inside(tree, local_root / "whole")) == str(local_root / "lib/deep")
    assert inside(tree, local_root / "usr/lib/deep/tool").stat().st_mode & 0o777 == 0o755


def test_directories_are_copied_without_what_is_skipped(tree: GuestTree, local_root: Path) -> None:
    (local_root / "usr/lib/test").mkdir()
    (local_root / "usr/lib/test/x").touch()
    (local_root / "usr/lib/dangling").symlink_to("nowhere")
    copied = tree.add_all(str(local_root / "lib"), skip=("test", "*.1.2"))
    assert copied == [str(local_root / "usr/lib/libx.so.1.2"), str(local_root / "usr/lib/deep/tool")]  # by the other name it is wanted
    assert not inside(tree, local_root / "usr/lib/test").exists() and not os.path.lexists(inside(tree, local_root / "usr/lib/dangling"))


def test_sources_tell_size_and_time(tree: GuestTree, local_root: Path) -> None:
    file = local_root / "usr/lib/libx.so.1.2"
    os.utime(file, ns=(5, 1_700_000_000_123_456_789))
    tree.add(str(file))
    assert tree.sources[str(file)] == (str(file), 7, 1_700_000_000_123_456_789)
    assert inside(tree, file).stat().st_mtime_ns == 1_700_000_000_123_456_789


def test_all_users_can_enter_its_directories_with_any_umask(tmp_path: Path, local_root: Path) -> None:
    before = os.umask(0o077)
    try:
        tree = GuestTree(tmp_path / "tree")
        tree.make("/root", 0o700)
        tree.add_all(str(local_root / "lib"))
        tree.write("/not/here/file", "x")
        tree.write("/root/file", "x")
    finally:
        os.umask(before)
    directories = [path for path in tree.root.rglob("*") if path.is_dir() and not path.is_symlink()]
    closed = {str(path.relative_to(tree.root)) for path in directories if path.stat().st_mode & 0o777 != 0o755}
    assert closed == {"root"} and (tree.root / "not/here").is_dir()


def test_watched_directories_are_sources(tree: GuestTree, local_root: Path) -> None:
    library = local_root / "usr/lib"
    (library / "test").mkdir()
    tree.add_all(str(local_root / "lib"), skip=("test",))
    assert str(library) not in tree.sources
    tree.add_all(str(local_root / "lib"), skip=("test",), watched=True)
    assert {str(library), str(library / "deep")} <= set(tree.sources) and str(library / "test") not in tree.sources
    assert tree.sources[str(library)][2] == library.stat().st_mtime_ns


def test_the_list_of_libraries_is_in_the_guest_and_is_no_source(tree: GuestTree) -> None:
    if not os.path.isfile("/etc/ld.so.cache"):
        pytest.skip("this machine's loader has no list of libraries")
    root_image._system(tree, Installation("/opt/pg/bin", "15.1", 15, "system", "15.1"), "nobody")
    assert (tree.root / "etc/ld.so.cache").read_bytes() == Path("/etc/ld.so.cache").read_bytes()
    assert "/etc/ld.so.cache" not in tree.sources


def test_a_circle_of_links_and_a_missing_file_are_refused(tree: GuestTree, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(CapabilityError, match="too many symbolic links"):
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


FIXTURES = Path(__file__).parents[2] / "fixtures/postgres"

SEVERAL = """/usr/bin/dash:
\tlinux-vdso.so.1 (0x00007ffd6b5f3000)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f1f6c8d0000)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f1f6caf0000)
/usr/bin/busybox:
\tnot a dynamic executable
/opt/pg/lib/odd.so:
\tlibpython3.9.so.1.0 => not found
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f0000000000)
"""


def test_several_files_are_told_apart() -> None:
    reported = parse(SEVERAL, ["/usr/bin/dash", "/usr/bin/busybox", "/opt/pg/lib/odd.so"])
    assert reported["/usr/bin/dash"] == LibraryDependencies(("/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"))
    assert reported["/usr/bin/busybox"] == LibraryDependencies(())
    assert reported["/opt/pg/lib/odd.so"] == LibraryDependencies(("/lib/x86_64-linux-gnu/libc.so.6",), ("libpython3.9.so.1.0",))


@pytest.mark.parametrize("name", ["ldd-15.txt", "ldd-18.txt"])
def test_captured_output_of_one_file(name: str) -> None:
    text = (FIXTURES / name).read_text()
    result = parse(text, ["postgres"])["postgres"].found
    assert len(result) == text.count("(0x") - text.count("linux-vdso")
    assert any(path.endswith("/libc.so.6") for path in result) and all(path.startswith("/") for path in result)


def test_a_program_s_own_libraries_are_found() -> None:
    result, usable = root_image.libraries(LocalNode(), [shutil.which("sh") or ""], [])
    assert any("ld-linux" in path or "ld-musl" in path for path in result) and usable == []
    assert all(Path(path).exists() for path in result)


def test_a_missing_library_of_a_program_is_an_error_and_of_a_module_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    reported = {"good": LibraryDependencies(("/lib/a.so",)), "bad": LibraryDependencies(("/lib/b.so",), ("libgone.so.1",))}
    monkeypatch.setattr(root_image, "library_dependencies", lambda node, files: {name: reported[name] for name in files})
    assert root_image.libraries(LocalNode(), ["good"], ["bad"]) == (["/lib/a.so"], [])
    with pytest.raises(CapabilityError, match=r"bad needs libgone\.so\.1"):
        root_image.libraries(LocalNode(), ["bad"])


def test_static_programs_are_told_from_others() -> None:
    assert not initramfs.is_static(Path(sys.executable).resolve().read_bytes())
    assert not initramfs.is_static(b"#!/bin/sh\n" + b"x" * 100)
    if busybox := shutil.which("busybox"):
        text = parse(LocalNode().run(__import__("pgherd.node.protocol", fromlist=["Command"]).Command(["ldd", busybox])).out, [busybox])
        assert initramfs.is_static(Path(busybox).read_bytes()) == (text[busybox].found == ())
