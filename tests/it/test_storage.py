"""The storage study with a real server; in the long check: stalls where a slowed device makes them, and none where it is not slowed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pgherd.host import block_trace
from pgherd.node.local import LocalNode

THROTTLE = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device")
"""Of the root group: it holds for writeback, which cgroup v1 charges to nobody else. Servers write WAL in groups of their container."""
BYTES_PER_SECOND = 2_000_000
BRISK = (
    *("io-profile", "--scale", "4", "--clients", "2", "--rate", "150", "--repeats", "1", "--duration", "40s", "--warmup", "2s"),
    *("--set", "max_wal_size=32MB", "--set", "min_wal_size=32MB", "--set", "checkpoint_completion_target=0.5", "--time-budget", "1s"),
)


def on_block_device(path: Path) -> bool:
    """Whether its file system is on a device that this host shows."""
    number = path.stat().st_dev
    return Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").exists()


def test_a_short_look_at_the_devices(pgherd: Any) -> None:
    """The view, PostgreSQL's own numbers and the answer are there; what is too short is said to be."""
    arguments = ("--scale", "1", "--clients", "2", "--repeats", "1", "--duration", "4s", "--warmup", "1s", "--time-budget", "1s")
    traced = not block_trace.refused(LocalNode())
    ended = pgherd("io-profile", *arguments, *["--trace-io"] * traced, "--json")
    assert ended.code in (0, 1), ended
    document = json.loads(ended.out)
    assert document["schema"] == "pgherd/io-profile/2" and document["trials"][0]["error"] is None
    (row,) = document["tables"]["io_profile"]
    assert row["wal_rate_postgres"]["value"] > 0 and row["stalls"]["value"] is None, "four seconds are too few for stalls"
    devices = document["tables"].get("io", [])
    visible = on_block_device(pgherd.cache)
    assert any("data" in device["roles"] for device in devices) == visible, (devices, document["warnings"])
    assert any("no block device" in warning for warning in document["warnings"]) != visible, document["warnings"]
    if traced and visible:
        (phase,) = pgherd.trials()[0]["phases"]
        patterns = [device["trace"]["write"] for device in phase["io"]["devices"] if "data" in device["roles"]]
        assert patterns and all(sum(pattern["latency"].values()) > 0 for pattern in patterns), phase["io"]
    assert any("checkpoint" in message for message in document["warnings"])
    assert (pgherd.run / "report.html").is_file()
    pgherd.ended_well(ended)


def test_values_of_a_setting_are_held_against_each_other(pgherd: Any) -> None:
    """Known truth: without the images of whole pages there is much less WAL, as soon as after a checkpoint each page is written once."""
    arguments = ("--scale", "1", "--clients", "2", "--duration", "4s", "--warmup", "1s", "--max-blocks", "1", "--time-budget", "1s")
    ended = pgherd("io-profile", *arguments, "--compare-setting", "full_page_writes=on,off", "--json")
    assert ended.code in (0, 1), ended
    document = json.loads(ended.out)
    assert document["schema"] == "pgherd/io-profile/2" and [trial["error"] for trial in document["trials"]] == [None] * 3
    assert [row["server"] for row in document["tables"]["io_profile"]] == ["on", "off"]
    (wal,) = [row for row in document["tables"]["comparison"] if row["metric"] == "wal_per_tx"]
    assert wal["variant"] == "off" and wal["ratio_to_baseline"]["value"] < 0.8
    assert [row["option"] for row in document["tables"]["differences"]] == ["full_page_writes"]
    stems = {path.stem for path in (pgherd.run / "figures").iterdir()}
    assert {"pairs", "latency"} <= stems, stems


def test_bad_input_is_one_message(pgherd: Any) -> None:
    for arguments, expected in (
        (("--compare-setting", "max_wal_size=1GB"), "a comparison needs two or more values"),
        (("--compare-setting", "wal_sync_method=fsync,never"), "wal_sync_method"),
        (("--compare-setting", "full_page_writes=on,on"), "'on' is used twice"),
        (("--wal-volume", "/nowhere/at/all"), "does not exist"),
    ):
        ended = pgherd("io-profile", *arguments)
        assert ended.code == 2 and expected in ended.message, ended


class Disk:
    """A file system of our own on a loop device, below a program's cache, which can be slowed."""

    def __init__(self, number: str) -> None:
        self.number = number

    def slow(self, limit: int) -> None:
        """Let at most so many bytes a second be written; 0: as many as there are."""
        for file in (THROTTLE, *THROTTLE.parent.glob(f"pgherd-*/**/{THROTTLE.name}")):
            with contextlib.suppress(FileNotFoundError):  # the run has just removed the group
                file.write_text(f"{self.number} {limit}\n")


@pytest.fixture
def disk(elsewhere: Any) -> Iterator[Disk]:
    for tool in ("losetup", "mkfs.ext4", "mount"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    if os.getuid() != 0 or not os.access(THROTTLE, os.W_OK):
        pytest.skip("slowing a device needs root and the blkio controller of cgroup v1")
    # In memory, so that what else goes on on this machine's disks is no stall of ours.
    memory, directory = Path(tempfile.mkdtemp(prefix="it-pgherd-", dir="/dev/shm")), elsewhere.root / "cache"
    image = memory / "disk"
    directory.mkdir(mode=0o755)
    with open(image, "wb") as file:
        file.truncate(6 * 2**30)
    subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(image)], check=True)
    finished = subprocess.run(["losetup", "--find", "--show", str(image)], capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        shutil.rmtree(memory)
        pytest.skip(f"no loop device can be made here: {finished.stderr.strip()}")
    device = finished.stdout.strip()
    result = Disk(Path(f"/sys/block/{os.path.basename(device)}/dev").read_text().strip())
    try:
        subprocess.run(["mount", device, str(directory)], check=True)
        directory.chmod(0o755)
        yield result
    finally:
        result.slow(0)
        subprocess.run(["umount", str(directory)], check=False)
        subprocess.run(["losetup", "--detach", device], check=False)
        shutil.rmtree(memory)


def stalls(elsewhere: Any, disk: Disk, limit: int) -> list[dict[str, Any]]:
    """Run the brisk trial, slowed from its drivers' start on; the stalls that were found."""
    elsewhere.patience = 300.0  # what is dirty at the end is written at the slow rate too
    process = elsewhere.start(*BRISK, "--json", "--no-report")
    ended = threading.Event()

    def slow() -> None:
        while not ended.is_set() and not elsewhere.in_trial(1):
            time.sleep(0.05)
        if limit:
            disk.slow(limit)

    slowing = threading.Thread(target=slow)
    slowing.start()
    with contextlib.ExitStack() as stack:
        stack.callback(disk.slow, 0)
        stack.callback(slowing.join)
        stack.callback(ended.set)
        finished = elsewhere.end(process)
    document = json.loads(finished.out)
    assert document["trials"][0]["error"] is None, finished
    (row,) = document["tables"]["io_profile"]
    assert row["checkpoints"]["value"] >= 1, document["tables"]["checkpoints"]
    result: list[dict[str, Any]] = document["tables"]["stalls"]
    return result


@pytest.mark.long
@pytest.mark.parametrize("once", range(5))
def test_a_slowed_device_stalls_the_wal_in_checkpoints(
    elsewhere: Any, disk: Disk, once: int, record_property: Callable[[str, object], None]
) -> None:
    record_property("nth", once)  # benchmarks/long_check.py counts the tries by it
    result = stalls(elsewhere, disk, BYTES_PER_SECOND)
    assert any(stall["checkpoint"] for stall in result), result


@pytest.mark.long
@pytest.mark.parametrize("once", range(5))
def test_a_device_that_is_not_slowed_does_not(
    elsewhere: Any, disk: Disk, once: int, record_property: Callable[[str, object], None]
) -> None:
    record_property("nth", once)
    assert stalls(elsewhere, disk, 0) == []
