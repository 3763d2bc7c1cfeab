"""Loop devices of a test's own, where this host lets us make them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest


def attach(image: Path, size: int = 96 * 2**20, *options: str) -> str:
    """A loop device on a new file; skips the test where there is none to be had."""
    if os.geteuid() != 0:
        pytest.skip("loop devices need root")
    with open(image, "wb") as file:
        file.truncate(size)
    finished = subprocess.run(["losetup", "--find", "--show", *options, str(image)], capture_output=True, text=True)
    if finished.returncode:
        pytest.skip(f"no loop device can be had here: {finished.stderr.strip()}")
    return finished.stdout.strip()


def detach(device: str) -> None:
    """Free it again."""
    subprocess.run(["losetup", "--detach", device], capture_output=True)


def associated(image: Path | str) -> list[str]:
    """The loop devices on a file."""
    return subprocess.run(["losetup", "-n", "-O", "NAME", "-j", str(image)], capture_output=True, text=True).stdout.split()
