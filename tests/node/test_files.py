import os
import stat
import subprocess
from pathlib import Path

import pytest

from pgherd.node import files
from pgherd.node.files import Directory, UnsafeFileError, make_private

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@pytest.fixture
def directory(tmp_path: Path):
    with Directory.open(tmp_path) as opened:
        yield opened


def test_written_file_can_be_read(directory):
    directory.write("a", b"one", mode=0o640)
    assert directory.read("a") == b"one" and directory.names() == ["a"]
    assert stat.S_IMODE((directory.path / "a").stat().st_mode) == 0o640


def test_write_replaces_a_link_and_leaves_its_target(directory, tmp_path):
    target = tmp_path / "target"
    target.write_bytes(b"secret")
    (tmp_path / "a").symlink_to(target)
    directory.write("a", b"new")
    assert target.read_bytes() == b"secret" and not (tmp_path / "a").is_symlink() and directory.read("a") == b"new"


def test_failed_write_leaves_no_temporary_file(directory, monkeypatch):
    def full(number, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write_all", full)
    with pytest.raises(OSError, match="No space"):
        directory.write("a", b"one")
    assert directory.names() == []


def test_link_is_not_read(directory, tmp_path):
    (tmp_path / "a").symlink_to("/etc/passwd")
    with pytest.raises(UnsafeFileError, match="a is a link"):
        directory.read("a")


@pytest.mark.parametrize("kind", ["fifo", "directory", "device"])
def test_only_regular_files_are_read(directory, tmp_path, kind):
    path = tmp_path / "a"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path = Path("/dev/null")
    with pytest.raises(UnsafeFileError, match="no regular file"):
        files.read_file(path)


def test_larger_file_than_the_limit_is_refused(directory, tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 11)
    assert directory.read("a", limit=11) == b"x" * 11
    with pytest.raises(UnsafeFileError, match="more than 10 bytes"):
        directory.read("a", limit=10)


def test_sparse_file_of_a_terabyte_is_refused_without_reading_it(directory, tmp_path):
    with open(tmp_path / "a", "wb") as file:
        file.truncate(2**40)
    with pytest.raises(UnsafeFileError, match="more than 1,000 bytes"):
        directory.read("a", limit=1000)


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/etc/passwd", "a/b", "a\0b"])
def test_name_with_a_directory_is_refused(directory, name):
    for use in (directory.read, directory.remove, directory.directory, directory.exists, lambda n: directory.write(n, b"")):
        with pytest.raises(UnsafeFileError):
            use(name)


def test_linked_subdirectory_is_not_opened(directory, tmp_path):
    (tmp_path / "sub").symlink_to("/etc")
    with pytest.raises(UnsafeFileError, match="link or no directory"):
        directory.directory("sub", create=True)
    with pytest.raises(UnsafeFileError, match="link or no directory"):
        Directory.open(tmp_path / "sub")


def test_subdirectory_is_created_with_its_mode(directory):
    with directory.directory("sub", create=True, mode=0o711) as sub:
        sub.write("b", b"2")
    assert stat.S_IMODE((directory.path / "sub").stat().st_mode) == 0o711
    directory.remove_tree("sub")
    directory.remove_tree("sub")
    assert directory.names() == []


def test_remove_tree_keeps_what_a_link_in_it_names(directory, tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "link").symlink_to(kept)
    directory.remove_tree("tree")
    assert (kept / "file").read_text() == "x" and not directory.exists("tree")


def test_open_handle_stays_when_the_path_is_exchanged(tmp_path):
    (tmp_path / "real").mkdir()
    with Directory.open(tmp_path / "real") as directory:
        (tmp_path / "real").rename(tmp_path / "moved")
        (tmp_path / "real").symlink_to("/etc")
        directory.write("a", b"1")
    assert (tmp_path / "moved" / "a").read_bytes() == b"1"


@as_root
def test_owner_is_required_and_set(directory):
    directory.write("a", b"1", owner=(NOBODY, NOBODY))
    assert (directory.path / "a").stat().st_uid == NOBODY and directory.read("a", owner=NOBODY) == b"1"
    with pytest.raises(UnsafeFileError, match="belongs to uid 65534, not to uid 0"):
        directory.read("a", owner=0)


@as_root
def test_trusted_paths(tmp_path):
    assert files.trusted("/etc/passwd", 0) and files.trusted("/usr/bin/env", NOBODY)
    ours = tmp_path / "ours"
    ours.mkdir(mode=0o755)
    program = ours / "program"
    program.write_text("")
    program.chmod(0o755)
    tmp_path.chmod(0o755)
    assert files.trusted(program, 0)
    program.chmod(0o775)
    assert not files.trusted(program, 0)
    program.chmod(0o755)
    os.chown(ours, NOBODY, NOBODY)
    assert not files.trusted(program, 0) and files.trusted(program, NOBODY)
    os.chown(ours, 0, 0)
    ours.chmod(0o777)
    assert not files.trusted(program, 0)
    assert not files.trusted(ours / "missing", 0)


@as_root
def test_link_of_another_user_reads_nothing_of_root(tmp_path):
    tmp_path.chmod(0o755)
    shared = tmp_path / "shared"
    shared.mkdir()
    os.chown(shared, NOBODY, NOBODY)
    subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", "ln", "-s", "/etc/shadow", "out"], cwd=shared, check=True)
    with Directory.open(shared) as directory, pytest.raises(UnsafeFileError):
        directory.read("out")


def test_make_private_removes_the_rights_of_others_and_follows_no_link(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("x")
    outside.chmod(0o644)
    tree = tmp_path / "tree"
    (tree / "inner").mkdir(parents=True)
    for file, mode in ((tree / "a", 0o644), (tree / "inner" / "script", 0o755)):
        file.write_text("x")
        file.chmod(mode)
    (tree / "link").symlink_to(outside)
    (tree / "directory").symlink_to(tmp_path)
    before = tmp_path.stat().st_mode
    make_private(tree)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tree, tree / "a", tree / "inner", tree / "inner" / "script")}
    assert modes == {"tree": 0o700, "a": 0o600, "inner": 0o700, "script": 0o700}
    assert outside.stat().st_mode & 0o777 == 0o644 and tmp_path.stat().st_mode == before
