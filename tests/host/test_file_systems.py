"""File systems of a run's own: made through the journal, and gone with it, whatever happened in between."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from pgherd.host import file_systems, mounts
from pgherd.host.empty_device import insist_empty
from pgherd.host.journal import Journal, clean
from pgherd.host.undo_base import Scene
from pgherd.host.undo_mounts import WipeFileSystem
from pgherd.model.errors import CapabilityError, TrialError, UsageError
from pgherd.node.local import LocalNode

NODE = LocalNode()
_SPEC = importlib.util.spec_from_file_location("loops", Path(__file__).with_name("loops.py"))
assert _SPEC and _SPEC.loader
loops = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(loops)


@pytest.fixture
def journal(tmp_path):
    opened = Journal.open(NODE, tmp_path / "state", "run")
    yield opened
    said = opened.close()
    assert not [words for words in said if words.startswith("not undone")], said


@pytest.fixture
def home(tmp_path, journal):
    """A directory of the journal's; skips where nothing can be mounted."""
    loops.detach(loops.attach(tmp_path / "probe.img"))
    place = tmp_path / "pgherd-volume-x"
    journal.make_tree(str(place))
    return place


def test_a_loop_volume_is_mounted_and_goes_with_the_journal(journal, home):
    target = file_systems.make_loop(NODE, journal, str(home), "l", 80 * 2**20)
    mount = mounts.at(NODE, target)
    assert mount is not None and mount.kind == "ext4" and mount.source == loops.associated(home / "l.img")[0]
    (Path(target) / "x").write_bytes(os.urandom(1000))
    file_systems.still_there(NODE, target)
    said = journal.play()
    assert any(words.startswith("unmounted") for words in said) and any(words.startswith("freed /dev/loop") for words in said)
    assert mounts.at(NODE, target) is None and not home.exists() and loops.associated(home / "l.img") == []


def test_a_journal_of_the_dead_is_played_by_clean(tmp_path, home, journal, monkeypatch):
    state = tmp_path / "dead"
    pid = os.fork()
    if pid == 0:  # a run that dies with its volume mounted
        try:
            theirs = Journal.open(NODE, state, "dead")
            place = tmp_path / "pgherd-volume-dead"
            theirs.make_tree(str(place))
            file_systems.make_loop(NODE, theirs, str(place), "l", 80 * 2**20)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    place = tmp_path / "pgherd-volume-dead"
    assert mounts.at(NODE, f"{place}/l") is not None
    said = clean(NODE, state)
    assert any(f"unmounted {place}/l" in words for words in said), said
    assert not place.exists() and loops.associated(place / "l.img") == []


def test_a_device_is_formatted_and_empty_again_afterwards(tmp_path, journal, home):
    device = loops.attach(tmp_path / "disk.img")
    try:
        target = file_systems.make_on_device(NODE, journal, str(home), "d", device)
        assert mounts.at(NODE, target).source == device
        assert [undo.begun for undo in journal.pending() if isinstance(undo, WipeFileSystem)] == [False]
        with pytest.raises(UsageError, match="is mounted at"):
            insist_empty(NODE, device)
        assert f"emptied {device}" in journal.play()
        assert insist_empty(NODE, device) == 96 * 2**20
    finally:
        loops.detach(device)


def test_a_device_named_by_a_link_and_a_place_behind_one_go_too(tmp_path, journal, home):
    device, link, elsewhere = loops.attach(tmp_path / "disk.img"), Path(f"/dev/pgherd-test-{os.getpid()}"), tmp_path / "elsewhere"
    link.symlink_to(device)
    elsewhere.symlink_to(tmp_path)
    try:
        place = str(elsewhere / home.name)
        file_systems.still_there(NODE, file_systems.make_on_device(NODE, journal, place, "d", str(link)))
        file_systems.still_there(NODE, file_systems.make_loop(NODE, journal, place, "l", 80 * 2**20))
        assert f"emptied {link}" in journal.play() and not home.exists()
        assert insist_empty(NODE, device) == 96 * 2**20 and loops.associated(home / "l.img") == []
    finally:
        link.unlink()
        loops.detach(device)


def test_a_device_that_somebody_has_formatted_since_is_not_emptied(tmp_path, journal, home):
    device = loops.attach(tmp_path / "disk.img")
    try:
        target = file_systems.make_on_device(NODE, journal, str(home), "d", device)
        subprocess.run(["umount", target], check=True)
        subprocess.run(["mkfs.ext4", "-q", "-F", device], check=True)
        assert not any(words.startswith("emptied") for words in journal.play())
        with pytest.raises(UsageError, match="holds ext4"):
            insist_empty(NODE, device)
    finally:
        loops.detach(device)


ALL_BUT_THE_SUPERBLOCK = """#!/bin/sh
for file; do :; done
{mkfs} "$@" && dd if=/dev/zero of="$file" bs=1024 seek=1 count=1 conv=notrunc,fsync status=none && touch {reached} && exec sleep 600
"""
"""What a device holds before mkfs.ext4 writes the superblock, last of all; it is written in no time, but on a large device not soon."""


@pytest.mark.parametrize("kind", ["device", "loop"])
def test_one_that_is_killed_while_it_formats_leaves_nothing_behind(tmp_path, home, monkeypatch, kind):
    size, state, place = 96 * 2**20, tmp_path / "dead", tmp_path / "pgherd-volume-dead"
    device, reached, programs = loops.attach(tmp_path / "disk.img"), tmp_path / "reached", tmp_path / "bin"
    programs.mkdir()
    (programs / "mkfs.ext4").write_text(ALL_BUT_THE_SUPERBLOCK.format(mkfs=shutil.which("mkfs.ext4"), reached=reached))
    (programs / "mkfs.ext4").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    try:
        pid = os.fork()
        if pid == 0:
            try:
                theirs = Journal.open(NODE, state, "dead")
                theirs.make_tree(str(place))
                if kind == "device":
                    file_systems.make_on_device(NODE, theirs, str(place), "v", device)
                else:
                    file_systems.make_loop(NODE, theirs, str(place), "v", size)
            finally:
                os._exit(1)
        deadline = time.monotonic() + 60
        while not reached.exists():
            assert time.monotonic() < deadline and os.waitpid(pid, os.WNOHANG) == (0, 0)
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        said = clean(NODE, state)
        assert not [words for words in said if words.startswith("not undone")], said
        assert insist_empty(NODE, device) == size
        assert not place.exists() and loops.associated(place / "v.img") == [] and not list(state.glob("journal/*.jsonl"))
    finally:
        loops.detach(device)


def test_the_beginning_of_a_file_system_is_ours_only_while_we_format(tmp_path, home):
    """As mkfs.ext4 leaves a device that has written all but the superblock, which it writes last."""
    device, mark = loops.attach(tmp_path / "disk.img"), "01234567-89ab-cdef-0123-456789abcdef"
    try:
        subprocess.run(["mkfs.ext4", "-q", "-F", "-U", mark, device], check=True)
        with open(device, "r+b") as file:
            file.seek(1024)
            file.write(bytes(1024))
        formatted, formatting = WipeFileSystem(device=device, mark=mark), WipeFileSystem(device=device, mark=mark, begun=True)
        assert formatted.play(Scene(NODE, "id")) is None
        with pytest.raises(OSError, match="since a boot another device may bear that name"):
            formatting.play(Scene(NODE, "id", same_boot=False))
        with pytest.raises(UsageError, match="data of an unknown kind"):
            insist_empty(NODE, device)
        assert formatting.play(Scene(NODE, "id")) == f"emptied {device}"
        assert insist_empty(NODE, device) == 96 * 2**20 and formatting.play(Scene(NODE, "id", same_boot=False)) is None
    finally:
        loops.detach(device)


def test_data_of_another_kind_are_left_alone_even_while_we_format(tmp_path, home):
    device = loops.attach(tmp_path / "disk.img")
    try:
        Path(device).write_bytes(b"precious")
        assert WipeFileSystem(device=device, mark="01234567-89ab-cdef-0123-456789abcdef", begun=True).play(Scene(NODE, "id")) is None
        assert Path(device).read_bytes().startswith(b"precious")
    finally:
        loops.detach(device)


def test_a_mount_that_is_gone_is_noticed(tmp_path):
    with pytest.raises(TrialError, match="nothing is mounted at"):
        file_systems.still_there(NODE, str(tmp_path / "m"))


def test_a_missing_tool_is_named_with_its_package(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(CapabilityError, match="needs mkfs.none, which is not installed; install the package none"):
        file_systems.insist_tools(NODE, {"mkfs.none": "none"}, "a volume")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(CapabilityError, match="needs root"):
        file_systems.insist_tools(NODE, {}, "a volume")
