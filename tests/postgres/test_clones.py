"""Clones and their failures. tests/it/test_golden.py starts servers on clones."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from pgherd.host import processes
from pgherd.model.errors import CapabilityError, TrialError, UsageError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command, Completed
from pgherd.postgres.clones import clone, clone_all, drop_cache, give
from pgherd.postgres.templates import Template

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for another user")


class Refusing(LocalNode):
    """Node on which one program always fails, as on a full disk."""

    def __init__(self, program: str, message: str) -> None:
        super().__init__()
        self.program, self.message = program, message
        self.ran: list[str] = []

    def run(self, command: Command, timeout: float = 60.0) -> Completed:
        self.ran.append(command.argv[0])
        if command.argv[0] == self.program:
            return Completed(1, "", self.message)
        return super().run(command, timeout)


@pytest.fixture
def copy(place: Path) -> Template:
    """Directory that resembles a template."""
    data = place / "golden/key/data"
    (data / "base").mkdir(parents=True, mode=0o700)
    (data / "PG_VERSION").write_text("15\n")
    (data / "base/1").write_bytes(os.urandom(400_000))
    return Template("key", str(place / "golden/key"), "15.18", (), False, 410_000, {}, 1.0, 1.0, parts={})


def same(left: Path, right: Path) -> bool:
    return (left / "base/1").read_bytes() == (right / "base/1").read_bytes()


def test_a_clone_is_equal_and_the_accounts(node: LocalNode, copy: Template, account: str | None, place: Path) -> None:
    seconds = clone(node, copy, str(place / "a/b"), account)
    assert 0 < seconds < 60
    assert same(Path(copy.data_dir), place / "a/b")
    if account is not None:  # created by root, cloned for the account
        assert {(place / "a/b" / name).owner() for name in (".", "PG_VERSION", "base/1")} == {account}


def test_an_older_clone_is_replaced_whole(node: LocalNode, copy: Template, place: Path) -> None:
    clone(node, copy, str(place / "a"), None)
    (place / "a/base/1").write_text("changed")
    (place / "a/base/2").write_text("grown")
    clone(node, copy, str(place / "a"), None)
    assert same(Path(copy.data_dir), place / "a")
    assert not (place / "a/base/2").exists()


def test_what_is_no_cluster_is_not_replaced(node: LocalNode, copy: Template, place: Path) -> None:
    (place / "precious").mkdir()
    (place / "precious/letter").write_text("dear")
    with pytest.raises(UsageError, match="neither empty nor a PostgreSQL cluster"):
        clone(node, copy, str(place / "precious"), None)
    assert (place / "precious/letter").exists()


def test_a_full_disk_leaves_no_half_copy(copy: Template, place: Path) -> None:
    full = Refusing("cp", "cp: error writing '/x/base/1': No space left on device\ncp: more\n")
    with pytest.raises(TrialError, match="No space left on device") as error:
        clone(full, copy, str(place / "a"), None)
    assert "more" not in str(error.value)
    assert not (place / "a").exists()


def test_clone_all(node: LocalNode, copy: Template, place: Path) -> None:
    destinations = [place / f"{number}" for number in range(5)]
    assert clone_all(node, [(copy, str(path)) for path in destinations], None) > 0
    assert all(same(Path(copy.data_dir), path) for path in destinations)
    before = sorted(place.rglob("*"))
    clone_all(node, [], None)
    assert sorted(place.rglob("*")) == before


def test_after_a_failure_nothing_more_is_begun(copy: Template, place: Path) -> None:
    full = Refusing("cp", "cp: No space left on device")
    with pytest.raises(TrialError, match="No space left"):
        clone_all(full, [(copy, str(place / f"{number}")) for number in range(50)], None, at_once=1)
    assert full.ran.count("cp") < 50


@pytest.mark.parametrize("error", [KeyboardInterrupt(), TrialError("called off by the driver")])
def test_copies_end_with_what_asked_for_them(
    node: LocalNode, copy: Template, place: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Ctrl-C and the agent's driver do not wait for copies of many gigabytes."""
    os.mkfifo(place / "never")
    (place / "programs").mkdir()
    (place / "programs/cp").write_text(f"#!/bin/sh\nread line < {place}/never\n")
    (place / "programs/cp").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}/programs:{os.environ['PATH']}")
    (place / "work").symlink_to(place)
    ended: list[float] = []

    def check_cancelled() -> None:
        if len(processes.working_in(node, str(place), ["cp"])) == 2:
            ended.append(time.monotonic())
            raise error

    with pytest.raises(type(error)):
        clone_all(node, [(copy, str(place / f"work/{number}")) for number in range(5)], None, check_cancelled=check_cancelled)
    assert time.monotonic() - ended[0] < 10
    assert not processes.working_in(node, str(place), ["cp"])
    assert not list(place.glob("[0-4]")), "of half a copy nothing stays, and no further one begins"


def test_too_little_disk_for_all_is_said_before_the_first(node: LocalNode, copy: Template, place: Path) -> None:
    large = Template("key", copy.path, "15.18", (), False, 2**58, {}, 1.0, 1.0, parts={})
    with pytest.raises(CapabilityError, match="cloning 4 servers needs"):
        clone_all(node, [(large, str(place / f"{number}")) for number in range(4)], None)
    assert not (place / "0").exists()


def test_the_page_cache_can_be_emptied(node: LocalNode, copy: Template, place: Path) -> None:
    clone(node, copy, str(place / "a"), None)
    large = str(place / "a/base/1")
    if "fincore" not in node.run(Command(["fincore", "--version"])).out:
        pytest.skip("fincore (util-linux) is not here")
    if not _cached(node, large):
        pytest.skip("the file system of /tmp does not use the page cache")
    node.run(Command(["cat", large]))
    assert _cached(node, large) > 0
    drop_cache(node, [str(place / "a")])
    assert _cached(node, large) == 0
    assert same(Path(copy.data_dir), place / "a")


def test_a_file_exchanged_for_a_fifo_or_a_link_is_not_opened(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = place / "programs"
    programs.mkdir()
    (programs / "find").write_text(
        f'#!/bin/sh\n[ "$7" = dd ] || exit 0\nshift 6; for i in fifo link; do "$1" if={place}/$i "$3" "$4" "$5"; done 2>&1\n'
    )
    (programs / "find").chmod(0o755)
    os.mkfifo(place / "fifo")
    (place / "link").symlink_to("/dev/null")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    ran: list[tuple[list[str], Completed]] = []

    class Recording(LocalNode):
        def run(self, command: Command, timeout: float = 60.0) -> Completed:
            ran.append((list(command.argv), super().run(command, 5)))
            return ran[-1][1]

    drop_cache(Recording(), [str(place)])
    assert "Too many levels of symbolic links" in ran[-1][1].out


def _cached(node: LocalNode, path: str) -> int:
    return int(node.run(Command(["fincore", "--bytes", "--noheadings", "--output", "RES", path])).out.split()[0])


class Attacked(LocalNode):
    """Node on which the servers' user acts during each ``cp``."""

    def __init__(self, *attacks: str) -> None:
        super().__init__()
        self.attacks, self.codes = attacks, []

    def run(self, command: Command, timeout: float = 60.0) -> Completed:
        if command.argv[0] == "cp":
            argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c"]
            self.codes += [subprocess.run([*argv, attack], capture_output=True, timeout=30).returncode for attack in self.attacks]
        return super().run(command, timeout)


@as_root
def test_nobody_can_enter_the_copy_before_it_is_complete(copy: Template, place: Path) -> None:
    victim = place / "victim"
    victim.write_text("kept")
    node = Attacked(f"ln -s {victim} {place}/a/PG_VERSION")
    clone(node, copy, str(place / "a"), "nobody")
    assert node.codes and all(node.codes), "the servers' user could lay a link where the copy is written"
    assert victim.read_text() == "kept" and victim.owner() == "root"
    assert not (place / "a/PG_VERSION").is_symlink() and (place / "a").owner() == "nobody"


@as_root
def test_what_a_link_in_the_template_leads_to_keeps_its_owner(node: LocalNode, copy: Template, place: Path) -> None:
    victim = place / "victim"
    victim.mkdir()
    (victim / "file").write_text("kept")
    Path(copy.data_dir, "link").symlink_to(victim)
    Path(copy.data_dir, "file").symlink_to(victim / "file")
    clone(node, copy, str(place / "a"), "nobody")
    assert victim.owner() == "root" and (victim / "file").owner() == "root"
    assert os.lstat(place / "a/link").st_uid == 65534


@as_root
def test_a_wal_directory_that_lies_apart_is_given_with_its_data(node: LocalNode, copy: Template, place: Path) -> None:
    clone(node, copy, str(place / "a"), None)
    assert (place / "a").owner() == "root"
    give(node, [str(place / "a")], "nobody")
    assert {path.owner() for path in (place / "a").rglob("*")} == {"nobody"}
    with pytest.raises(TrialError, match="cannot be given to user 'nobody'"):
        give(node, [str(place / "gone")], "nobody")
