"""The I/O view against known truth: fio jobs of known pattern on a loop device, direct I/O, through the view that trials use."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgherd.analysis.histogram import bounds
from pgherd.analysis.io_pattern import burstiness, label
from pgherd.host import block_trace, storage
from pgherd.metrics import sampler
from pgherd.metrics.sampler import SamplingView
from pgherd.metrics.spool import Spool
from pgherd.model.device_io import DeviceIo, DeviceView
from pgherd.model.result import PhaseResult
from pgherd.node.local import LocalNode
from pgherd.runner.execute.device_io import DeviceIoRecorder, DeviceLayout
from pgherd.study.device_io import series_numbers

SIZE = 256 * 2**20
KB = 1024


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A loop device of our own over a file, direct I/O, merging off; its name."""
    for tool in ("fio", "losetup", "perf"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    if os.getuid() != 0:
        pytest.skip("loop devices and block tracepoints need root")
    node, root = LocalNode(), tmp_path_factory.mktemp("io")
    if why := block_trace.refused(node):
        pytest.skip(why)
    file = root / "backing"
    with open(file, "wb") as empty:
        empty.truncate(SIZE)
        os.posix_fallocate(empty.fileno(), 0, SIZE)
    made = subprocess.run(["losetup", "--find", "--show", "--direct-io=on", str(file)], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"no loop device can be made here: {made.stderr.strip()}")
    path = made.stdout.strip()
    knob = f"/sys/block/{os.path.basename(path)}/queue/nomerges"
    before = node.read(knob)
    try:
        # Ordinary blocks first: reads of holes are no I/O, and the first write of a block costs the file system more.
        subprocess.run(["dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={SIZE >> 20}", "oflag=direct", "status=none"], check=True)
        node.write(knob, b"2")
        yield os.path.basename(path)
    finally:
        node.write(knob, before)
        after = node.read(knob)
        subprocess.run(["losetup", "--detach", path], check=False)
    assert after == before, "merging is as it was"


def watch(loop: str, root: Path, *jobs: str, seconds: float = 0.0) -> tuple[DeviceView, DeviceIo, dict[str, float]]:
    """Run fio jobs with the view around them; the device's part, the whole view, and fio's requests and their latencies in all."""
    node = LocalNode()
    number = node.read(f"/sys/block/{loop}/dev").decode().strip()
    device = storage.device(node, number)
    assert device is not None and device.name == loop
    spool = root / "spool.jsonl"
    sampling = node.sample(sampler.samplers()["diskstats"].sources(SamplingView()), str(spool))
    watching = DeviceIoRecorder(node, SamplingView(trace=True), root, known=DeviceLayout({number: (device, {})}))
    time.sleep(0.3)
    start = time.time()
    base = ["fio", "--output-format=json", f"--filename=/dev/{loop}", "--direct=1", "--ioengine=libaio", "--randrepeat=1", "--thread"]
    done = subprocess.run([*base, *jobs], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if seconds:
        time.sleep(max(0.0, start + seconds - time.time()))
    end = time.time()
    watching.stop()
    sampling.stop()
    with open(spool) as lines:
        readings = list(Spool(lines))
    phase = PhaseResult(phase="fio", start=start, end=end, overlap=1.0, targets=[])
    (seen,) = watching.onto([phase], readings)
    told = json.loads(done.stdout)["jobs"]
    counts = {kind: sum(job[kind]["total_ios"] for job in told) for kind in ("read", "write")}
    counts |= {f"{kind} us": sum(job[kind]["total_ios"] * job[kind]["lat_ns"]["mean"] for job in told) / 1000 for kind in ("read", "write")}
    assert seen.io is not None
    (view,) = seen.io.devices
    return view, seen.io, counts


REQUESTS = 1200
COVERED = 0.9
"""The kernel lets some events of a busy machine go without telling: pgherd says how many requests of those counted were traced."""


def seen(traced: int, made: float) -> None:
    """A trace has nearly all requests, and never one that was not made."""
    assert COVERED * made <= traced <= made


JOB = ("--name=job", f"--size={SIZE}", "--iodepth=4", "--rate_iops=1000")


@pytest.mark.parametrize(
    ("words", "sequential", "called"),
    [
        (("--rw=write", "--bs=8k"), 100.0, "sequential"),
        (("--rw=randwrite", "--bs=8k"), 0.0, "random"),
        (("--rw=randwrite", "--bs=16k", "--percentage_random=30"), 70.0, "sequential or mixed"),
        (("--rw=randread", "--bs=8k"), 0.0, "random"),
    ],
)
def test_shares_and_sizes_are_those_of_the_job(loop: str, tmp_path: Path, words: tuple[str, ...], sequential: float, called: str) -> None:
    view, io, counts = watch(loop, tmp_path, *JOB, *words, f"--number_ios={REQUESTS}")
    assert io.trace is not None and io.trace.lost == 0 and view.trace is not None
    direction = "read" if "randread" in words[0] else "write"
    pattern = view.trace[direction]
    assert counts[direction] == REQUESTS
    seen(pattern.requests, REQUESTS)
    size = int(words[1].removeprefix("--bs=").removesuffix("k")) * KB
    assert set(pattern.sizes) == {size}, "with merging off every size is exact"
    for share in (pattern.adjacent_share, pattern.window_share):
        assert share is not None and abs(100 * share - sequential) <= 5
    assert label(pattern.window_share, pattern.requests) in called.split(" or ")
    # Some kernels tell nothing of a request that completes on an idle CPU: such a one has no latency, and is counted as incomplete.
    timed, told = sum(pattern.latency.values()), counts[f"{direction} us"]
    least = sum(bounds(index)[0] * count for index, count in pattern.latency.items())
    assert 0 < least <= told, "the device has a part of the time that fio waits"
    assert least / timed > 0.01 * told / REQUESTS, "and not in other units"
    assert COVERED * REQUESTS <= timed + io.trace.incomplete <= 1.05 * REQUESTS, "a request that is not paired would count twice"


def test_reads_and_writes_are_told_apart(loop: str, tmp_path: Path) -> None:
    unhurried = [word for word in JOB if "rate" not in word]  # at a given rate fio does not keep to the mix
    view, _, counts = watch(loop, tmp_path, *unhurried, "--rw=randrw", "--rwmixread=70", "--bs=8k", "--number_ios=1500")
    assert view.trace is not None
    reads, writes = view.trace["read"].requests, view.trace["write"].requests
    seen(reads, counts["read"])
    seen(writes, counts["write"])
    assert abs(100 * reads / (reads + writes) - 70) <= 5


def test_two_streams_that_take_turns_are_sequential_by_the_window_rule_only(loop: str, tmp_path: Path) -> None:
    half = SIZE // 2
    jobs = [
        word
        for place in (0, 1)
        for word in (
            f"--name=stream{place}",
            f"--offset={place * half}",
            f"--size={half}",
            "--rw=write",
            "--bs=16k",
            "--iodepth=1",
            "--rate_iops=500",
            "--number_ios=500",
        )
    ]
    view, _, _ = watch(loop, tmp_path, *jobs)
    assert view.trace is not None
    pattern = view.trace["write"]
    assert pattern.window_share is not None and pattern.window_share > 0.95
    assert pattern.adjacent_share is not None and pattern.adjacent_share < 0.7


def test_counts_sizes_and_flushes_by_second_agree_with_fio(loop: str, tmp_path: Path) -> None:
    """The counters see what the trace sees; a flush is no write."""
    words = ("--name=job", f"--size={SIZE}", "--iodepth=1", "--rw=write", "--bs=32k", "--rate_iops=200", "--fdatasync=1")
    # It begins after the first sample of the window, and ends well before the last.
    view, _, counts = watch(loop, tmp_path, *words, "--startdelay=1", "--runtime=2", "--time_based", seconds=6)
    assert view.trace is not None
    found = series_numbers(view.series)
    flushes = view.trace["flush"].requests
    assert 0.9 * counts["write"] <= flushes <= 1.05 * counts["write"] + 2
    # All of it, however long a busy device takes for it.
    written, flushed = (
        sum(n * s for n, s in zip(rates, view.series.seconds, strict=True)) for rates in (view.series.writes, view.series.flushes)
    )
    assert written == pytest.approx(counts["write"], rel=0.05)
    assert flushed == pytest.approx(written, rel=0.05, abs=2)
    assert found["write_request_size"] == pytest.approx(32, rel=0.05)


def test_bursts_have_the_height_that_they_were_made_with(loop: str, tmp_path: Path) -> None:
    """A steady stream of 1 MB/s for 14 s, and two bursts of 2 s at 20 MB/s in it: the mean is near 7, the peak 21."""
    steady = ("--name=steady", "--rw=write", "--bs=64k", "--rate_iops=16", "--runtime=14", "--time_based", f"--size={SIZE // 4}")
    bursts = [
        word
        for place, delay in enumerate((2, 9))
        for word in (
            f"--name=burst{place}",
            "--rw=randwrite",
            "--bs=64k",
            "--rate_iops=320",
            "--runtime=2",
            "--time_based",
            f"--startdelay={delay}",
            f"--size={SIZE // 2}",
            f"--offset={SIZE // 2}",
        )
    ]
    view, _, counts = watch(loop, tmp_path, *steady, *bursts, seconds=14)
    planned = 16 * 14 + 2 * 2 * 320
    if counts["write"] < 0.95 * planned:
        pytest.skip(f"this machine is too busy for the bursts: fio made {counts['write']} of {planned} requests in its time")
    found = burstiness(view.series.write_bytes, view.series.seconds)
    assert found is not None
    expected = (1 + 20) / (counts["write"] / 16 / 14)
    assert found.peak_to_mean == pytest.approx(expected, rel=0.2)
    assert len(found.bursts) == 2
