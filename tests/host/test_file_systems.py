"""File systems of a run's own: made through the journal, and gone with it, whatever happened in between."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from pgherd.host import file_systems, mounts
from pgherd.host.empty_device import insist_empty
from pgherd.host.journal import Journal, clean
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
    import subprocess

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
