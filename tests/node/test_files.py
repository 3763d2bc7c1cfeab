import grp
import os
import pwd
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


@as_root
def test_a_link_in_a_directory_of_another_user_is_not_trusted(tmp_path):
    """Its target is root's, but the link can name another one tomorrow."""
    tmp_path.chmod(0o755)
    theirs, program = tmp_path / "theirs", tmp_path / "program"
    program.write_text("")
    theirs.mkdir()
    (theirs / "link").symlink_to(program)
    (tmp_path / "hop").symlink_to("theirs/link")
    (tmp_path / "loop").symlink_to("loop")
    assert files.trusted(theirs / "link", 0) and files.trusted(tmp_path / "hop", 0)
    os.chown(theirs, NOBODY, NOBODY)
    assert not files.trusted(theirs / "link", 0) and not files.trusted(tmp_path / "hop", 0)
    os.chown(theirs, 0, 0)
    os.chown(theirs / "link", NOBODY, NOBODY, follow_symlinks=False)
    assert not files.trusted(theirs / "link", 0) and not files.trusted(tmp_path / "loop", 0)


def test_lock_is_private_and_ends_with_a_message_that_names_its_holder(directory):
    (directory.path / "lock").write_text("")
    (directory.path / "lock").chmod(0o644)
    with directory.lock("lock"):
        assert stat.S_IMODE((directory.path / "lock").stat().st_mode) == 0o600
        message = rf"lock is locked by process {os.getpid()} \("
        with (
            Directory.open(directory.path) as other,
            pytest.raises(TimeoutError, match=message),
            other.lock("lock", timeout=0.1),
        ):
            raise AssertionError("it is held")
    with directory.lock("lock", timeout=0.1):
        pass


def test_lock_follows_no_link_and_takes_no_file_of_others(directory, tmp_path):
    (directory.path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafeFileError), directory.lock("link"):
        pass
    assert not (tmp_path / "elsewhere").exists()
    (directory.path / "open").touch()
    (directory.path / "open").chmod(0o666)
    with pytest.raises(UnsafeFileError, match="other users can write"), directory.lock("open"):
        pass


@as_root
def test_another_user_cannot_hold_a_lock(tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "locks").mkdir(mode=0o755)
    with Directory.open(tmp_path / "locks") as directory:
        with directory.lock("lock"):
            pass
        attack = ["setpriv", "--reuid=65534", "--clear-groups", "flock", "--nonblock", str(tmp_path / "locks/lock"), "true"]
        done = subprocess.run(attack, capture_output=True, text=True)
        assert done.returncode != 0 and "Permission denied" in done.stderr
        os.chown(tmp_path / "locks/lock", NOBODY, NOBODY)
        with pytest.raises(UnsafeFileError, match="belongs to uid 65534"), directory.lock("lock"):
            pass


def test_file_below_a_directory_is_read_without_links(tmp_path):
    (tmp_path / "run/a").mkdir(parents=True)
    (tmp_path / "run/a/b").write_bytes(b"1")
    (tmp_path / "secret").write_bytes(b"2")
    (tmp_path / "run/link").symlink_to(tmp_path)
    (tmp_path / "entry").symlink_to(tmp_path / "run")
    assert files.read_below(tmp_path / "entry", "a/b") == b"1"
    for name in ("link/secret", "../secret", "/etc/passwd", "a/../../secret", "a"):
        with pytest.raises(UnsafeFileError):
            files.read_below(tmp_path / "run", name)


def test_new_file_replaces_the_old_one_at_the_end_only(directory, tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    with directory.replacing("a") as number:
        os.write(number, b"new")
        assert directory.read("a") == b"old"
    assert directory.read("a") == b"new"
    with pytest.raises(ValueError, match="x"), directory.replacing("a") as number:
        os.write(number, b"half")
        raise ValueError("x")
    assert directory.read("a") == b"new" and directory.names() == ["a"]


def test_permissions_are_those_that_the_umask_leaves(tmp_path):
    before = os.umask(0o027)
    try:
        files.write_file(tmp_path / "new/a", b"1")
        with files.replacing(tmp_path / "b") as number:
            os.write(number, b"2")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new/a").stat().st_mode) == stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o640


def test_head_of_a_file(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    assert files.read_head(tmp_path / "a", 3) == b"123"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnsafeFileError):
        files.read_head(tmp_path / "pipe", 3)


def test_end_of_a_file(tmp_path):
    file = tmp_path / "log"
    file.write_bytes(b"0123456789")
    assert files.read_end(file, 4) == files.FileEnd(10, b"6789") and files.read_end(file) == files.FileEnd(10, b"0123456789")
    end = files.read_end(file, 4)
    assert [end.after(offset) for offset in (0, 6, 8, 10, 99)] == ["6789", "6789", "89", "", ""]
    os.truncate(file, 2**40)
    assert files.read_end(file).data == bytes(files.MAX_END_BYTES)
    (tmp_path / "link").symlink_to(file)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(UnsafeFileError):
            files.read_end(tmp_path / name)


def test_tree_is_copied_up_to_a_limit_and_without_links(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "a").mkdir(parents=True)
    target.mkdir()
    (source / "a/b").write_bytes(b"12345")
    (source / "c").write_bytes(b"6")
    with Directory.open(source) as old, Directory.open(target) as new:
        assert files.copy_tree(old, new, 6) == 6 and (target / "a/b").read_bytes() == b"12345"
        with pytest.raises(UnsafeFileError, match="more than"):
            files.copy_tree(old, new, 5)
        (source / "a/d").symlink_to("/etc/passwd")
        with pytest.raises(UnsafeFileError, match="d is a link"):
            files.copy_tree(old, new, 100)
        assert files.copy_tree(old, new, 100, only=["c"]) == 1


def test_caller_of_sudo_is_one_of_ours_for_root_only(monkeypatch):
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert files.ours() == {0, 1234}
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert files.ours() == {1000}


def test_group_of_one_member_is_private(monkeypatch):
    account = pwd.struct_passwd(("ann", "x", 1000, 1000, "", "/", "/bin/sh"))
    groups = {1000: grp.struct_group(("ann", "x", 1000, [])), 50: grp.struct_group(("staff", "x", 50, []))}
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: account)
    monkeypatch.setattr(grp, "getgrgid", groups.__getitem__)
    assert files._is_private_group(1000, 1000)
    assert not files._is_private_group(50, 1000) and not files._is_private_group(1000, 0) and not files._is_private_group(7, 1000)
    groups[1000] = grp.struct_group(("ann", "x", 1000, ["bob"]))
    assert not files._is_private_group(1000, 1000)


def test_hard_link_to_a_file_of_somebody_else_is_not_opened(directory, tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    os.link(tmp_path / "secret", theirs / "a")
    os.chown(theirs, NOBODY, NOBODY)
    with Directory.open(theirs) as opened, pytest.raises(UnsafeFileError, match="a is a hard link to a file of uid 0"):
        opened.read("a")
    os.link(tmp_path / "secret", tmp_path / "b")
    assert directory.read("b") == b"secret"


def test_sticky_directory_is_safe_for_what_is_created_in_it(tmp_path):
    sticky, shared = tmp_path / "sticky", tmp_path / "shared"
    for path, mode in ((sticky, 0o1777), (shared, 0o777)):
        path.mkdir()
        path.chmod(mode)
    above = files.trusted(tmp_path, os.geteuid())
    assert files.trusted(sticky, os.geteuid(), inside=True) == above
    assert not files.trusted(sticky, os.geteuid())
    assert not files.trusted(shared, os.geteuid(), inside=True)


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
