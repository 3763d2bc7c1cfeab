"""A device is formatted only where it holds nothing. Real devices: loop devices of the test's own."""

from __future__ import annotations

import importlib.util
import struct
import subprocess
from pathlib import Path

import pytest

from pgherd.host.empty_device import insist_empty
from pgherd.model.errors import UsageError
from pgherd.node.local import LocalNode

NODE = LocalNode()
_SPEC = importlib.util.spec_from_file_location("loops", Path(__file__).with_name("loops.py"))
assert _SPEC and _SPEC.loader
loops = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(loops)


@pytest.fixture
def device(tmp_path):
    found = loops.attach(tmp_path / "disk.img")
    yield found
    loops.detach(found)


def refused(device, said):
    with pytest.raises(UsageError, match=said):
        insist_empty(NODE, device)


def test_an_empty_device_may_be_formatted(device):
    assert insist_empty(NODE, device) == 96 * 2**20


def test_one_that_is_not_there_or_is_no_device(tmp_path):
    refused("/dev/pgherd-none", "is not there; 'lsblk' lists")
    (tmp_path / "file").write_text("x")
    refused(str(tmp_path / "file"), "is no block device but a regular file")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mkfs.ext4", "-q", "-F"], "holds ext4; it is not formatted"),
        (["mkswap", "-q"], "holds swap"),
    ],
)
def test_one_with_a_known_signature(device, words, said):
    subprocess.run([*words, device], check=True, capture_output=True)
    refused(device, said)


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
        refused(device, "has 1 MB, and 64 MB are the least")
    finally:
        loops.detach(device)
