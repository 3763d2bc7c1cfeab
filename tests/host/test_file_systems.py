"""File systems of a run, created through the journal and removed with it; only empty devices are formatted. Uses real loop devices."""

from __future__ import annotations

import importlib.util
import os
import struct
import subprocess
from pathlib import Path

import pytest

from pgherd.host import file_systems, storage
from pgherd.host.file_systems import require_empty
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
    mount = storage.mount_at(NODE, target)
    assert mount is not None and mount.kind == "ext4" and mount.source == loops.associated(home / "l.img")[0]
    for option in (os.ST_NOSUID, os.ST_NODEV, os.ST_NOATIME):
        assert os.statvfs(target).f_flag & option
    (Path(target) / "x").write_bytes(os.urandom(1000))
    file_systems.still_there(NODE, target)
    said = journal.play()
    assert any(words.startswith("unmounted") for words in said) and any(words.startswith("detached /dev/loop") for words in said)
    assert storage.mount_at(NODE, target) is None and not home.exists() and loops.associated(home / "l.img") == []


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
    assert storage.mount_at(NODE, f"{place}/l") is not None
    said = clean(NODE, state)
    assert any(f"unmounted {place}/l" in words for words in said), said
    assert not place.exists() and loops.associated(place / "l.img") == []


def test_a_device_is_formatted_and_empty_again_afterwards(tmp_path, journal, home):
    device = loops.attach(tmp_path / "disk.img")
    try:
        target = file_systems.make_on_device(NODE, journal, str(home), "d", device)
        assert storage.mount_at(NODE, target).source == device
        assert os.statvfs(target).f_flag & os.ST_NOSUID and os.statvfs(target).f_flag & os.ST_NODEV
        with pytest.raises(UsageError, match="is mounted at"):
            require_empty(NODE, device)
        assert f"erased {device}" in journal.play()
        assert require_empty(NODE, device) == 96 * 2**20
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
        assert f"erased {link}" in journal.play() and not home.exists()
        assert require_empty(NODE, device) == 96 * 2**20 and loops.associated(home / "l.img") == []
    finally:
        link.unlink()
        loops.detach(device)


def test_a_device_that_somebody_has_formatted_since_is_not_erased(tmp_path, journal, home):
    import subprocess

    device = loops.attach(tmp_path / "disk.img")
    try:
        target = file_systems.make_on_device(NODE, journal, str(home), "d", device)
        subprocess.run(["umount", target], check=True)
        subprocess.run(["mkfs.ext4", "-q", "-F", device], check=True)
        assert not any(words.startswith("erased") for words in journal.play())
        with pytest.raises(UsageError, match="holds ext4"):
            require_empty(NODE, device)
    finally:
        loops.detach(device)


def test_a_mount_that_is_gone_is_noticed(tmp_path):
    with pytest.raises(TrialError, match="nothing is mounted at"):
        file_systems.still_there(NODE, str(tmp_path / "m"))


def test_a_missing_tool_is_named_with_its_package(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(CapabilityError, match="needs mkfs.none, which is not installed; install the package none"):
        file_systems.require_tools(NODE, {"mkfs.none": "none"}, "a volume")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(CapabilityError, match="needs root"):
        file_systems.require_tools(NODE, {}, "a volume")


@pytest.fixture
def device(tmp_path):
    attached = loops.attach(tmp_path / "disk.img")
    yield attached
    loops.detach(attached)


def refused(device, message):
    with pytest.raises(UsageError, match=message):
        require_empty(NODE, device)


def test_an_empty_device_may_be_formatted(device):
    assert require_empty(NODE, device) == 96 * 2**20


def test_one_that_is_not_there_or_is_no_device(tmp_path):
    refused("/dev/pgherd-none", "does not exist; 'lsblk' lists")
    (tmp_path / "file").write_text("x")
    refused(str(tmp_path / "file"), "is no block device but a regular file")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["mkfs.ext4", "-q", "-F"], "holds ext4; it is not formatted"),
        (["mkswap"], "holds swap"),
    ],
)
def test_one_with_a_known_signature(device, argv, message):
    subprocess.run([*argv, device], check=True, capture_output=True)
    refused(device, message)


def test_one_with_bytes_of_an_unknown_kind(device):
    with open(device, "r+b") as file:
        file.seek(70_000)
        file.write(b"precious")
    refused(device, "data of an unknown kind in its first megabyte")


def test_one_that_is_mounted(device, tmp_path):
    subprocess.run(["mkfs.ext4", "-q", "-F", device], check=True)
    (tmp_path / "m").mkdir()
    if subprocess.run(["mount", device, tmp_path / "m"], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        refused(device, f"is mounted at {tmp_path}/m")
    finally:
        subprocess.run(["umount", tmp_path / "m"], check=True)


def test_one_with_partitions(tmp_path):
    image = tmp_path / "parts.img"
    device = loops.attach(image, 96 * 2**20, "--partscan")
    try:
        with open(device, "r+b") as file:  # a master boot record with one Linux partition from sector 2048 on
            file.seek(446)
            file.write(struct.pack("<B3xB3xII48x2s", 0, 0x83, 2048, 40960, b"\x55\xaa"))
        subprocess.run(["partx", "--update", device], capture_output=True)
        refused(device, "has partitions|holds dos")
    finally:
        subprocess.run(["partx", "--delete", device], capture_output=True)
        loops.detach(device)


def test_one_that_is_read_only_or_too_small(tmp_path):
    device = loops.attach(tmp_path / "ro.img", 96 * 2**20, "--read-only")
    try:
        refused(device, "is read-only")
    finally:
        loops.detach(device)
    device = loops.attach(tmp_path / "small.img", 2**20)
    try:
        refused(device, "has 1 MB, and the minimum is 64 MB")
    finally:
        loops.detach(device)
