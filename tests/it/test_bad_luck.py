"""Bad luck while a run is measured: servers and drivers that are killed, memory and disks that run out, two runs at once."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgherd.host import cgroup_parent
from pgherd.node.local import LocalNode

FINE = (0, 1)
"""Exit codes of a run that came to its end: 1 says only that its numbers are tainted."""
GB = 2**30


def _kill_in_first_trial(pgherd, name: str, after: float):
    """Run three short trials and kill a program in the first; (how pgherd ended, whether the trial was still on)."""
    process = pgherd.start_density("--databases", "1", "--duration", "3s", "--repeats", "3", "--time-budget", "60s")
    pgherd.wait_until(lambda: pgherd.in_trial(1) or process.poll() is not None)
    time.sleep(after)
    for pid in pgherd.programs(name):
        os.kill(pid, signal.SIGKILL)
    on = bool(list(pgherd.runs.glob("*/trials/0001.partial")))
    return pgherd.end(process), on


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("postgres", r"server db01/pg was ended by signal SIGKILL during the trial; the server's log ends with:\n2"),
        ("pgbench", r"pgbench on local/db01/pg/bench ended (early )?with signal SIGKILL: .*; the server's log ends with:"),
    ],
    ids=["server", "driver"],
)
def test_a_program_killed_in_a_trial(pgherd, chance, name, message):
    ended, on = _kill_in_first_trial(pgherd, name, after=chance.uniform(0, 2))
    if not on:
        pytest.skip("the first trial was over before its program was killed")
    assert ended.code in FINE, ended
    record, trials = pgherd.record(), pgherd.trials()
    assert record["state"] == "finished" and record["error"] is None
    assert re.search(message, trials[0]["error"], re.DOTALL), trials[0]["error"]
    assert trials[0]["error"].splitlines()[0] in ended.err, "it is said as it happens"
    assert all(trial["error"] is None and trial["phases"] for trial in trials[1:]) and len(trials) >= 3
    assert trials[1]["transition"] == "1 restored", "whatever it left of the server is not measured"
    assert trials[2]["transition"] == "1 kept"
    pgherd.nothing_left()
    shown = pgherd("show", str(pgherd.run), "1")
    assert shown.code == 0 and "Not finished:" in shown.out


def test_a_container_with_too_little_memory(pgherd):
    """The kernel ends processes in it: the trials say so, with what to do, and the run's answer is that there is none."""
    try:
        cgroup_parent.find(LocalNode())
    except cgroup_parent.CgroupUnavailable as error:
        pytest.skip(str(error))
    ended = pgherd.density(
        "--databases", "1", "--memory", "40MB", "--set", "shared_buffers=256MB", "--set", "huge_pages=off", "--scale", "10"
    )
    assert ended.code == 1, ended
    trials = pgherd.trials()
    assert trials and all("exceeded its memory limit, and the kernel killed" in trial["error"] for trial in trials)
    assert all("raise --memory, or lower --scale" in trial["error"] for trial in trials)
    assert all(("no-oom-kill", "fail") in {(v["name"], v["result"]) for v in trial["checks"]} for trial in trials)
    assert pgherd.record()["analysis"]["answer"] == "No result: the only trial did not finish."
    pgherd.nothing_left()


# ---- a disk that is full: a memory file system of limited size, in a mount namespace of its own


class SmallDisk:
    """``path`` as the program sees it, ``seen`` as we do; ``through`` starts a command that sees it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        script = f"mount -t tmpfs -o size=8g,mode=755 none {path} && echo mounted && exec sleep infinity"
        self.holder = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.through = ("nsenter", "--mount", "--target", str(self.holder.pid), "--")
        self.seen = Path(f"/proc/{self.holder.pid}/root{path}")

    def resize(self, size: int) -> None:
        subprocess.run([*self.through, "mount", "-o", f"remount,size={size}", str(self.path)], check=True, capture_output=True)

    def fill(self) -> None:
        """Leave no room: the size becomes what is in use, as far as that does not grow meanwhile."""
        while (space := os.statvfs(self.seen)).f_bavail:
            with contextlib.suppress(subprocess.CalledProcessError):
                self.resize((space.f_blocks - space.f_bavail) * space.f_frsize)

    def close(self) -> None:
        self.holder.kill()
        self.holder.communicate()
        self.path.rmdir()


@pytest.fixture
def small_disk(pgherd) -> Iterator[SmallDisk]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    disk = SmallDisk(pgherd.root / "disk")
    try:
        assert disk.holder.stdout is not None and disk.holder.stderr is not None
        if disk.holder.stdout.readline() != "mounted\n":
            pytest.skip(f"no disk can be mounted: {disk.holder.stderr.read()}")
        yield disk
    finally:
        disk.close()


def _same(before, after) -> bool:
    return bool(before) and {name: after.get(name) for name in before} == before


def test_the_disk_of_the_runs_fills_up(pgherd, chance, small_disk):
    runs = ("--runs-dir", str(small_disk.path / "runs"))
    pgherd.runs = small_disk.seen / "runs"
    words = ("--databases", "1", "--duration", "2s", "--repeats", "4", "--time-budget", "1m")
    process = pgherd.start_density(*words, *runs, through=small_disk.through)
    pgherd.wait_until(lambda: pgherd.in_trial(2) or process.poll() is not None)
    retained = pgherd.digests()
    time.sleep(chance.uniform(0, 2))
    small_disk.fill()
    ended = pgherd.end(process)
    if ended.code in FINE and pgherd.record()["state"] == "finished":
        pytest.skip("the run was over before the disk was full")
    assert ended.code == 1, ended
    assert "the disk is full" in ended.message and "free some space, then 'pgherd resume" in ended.message
    assert _same(retained, pgherd.digests()), "finished trials stay as they are"
    assert not list(small_disk.seen.glob("runs/*/trials/*.partial"))
    pgherd.nothing_left()
    small_disk.resize(8 * GB)
    assert pgherd("resume", "last", *runs, "--no-report", through=small_disk.through).code in FINE
    assert pgherd.record()["state"] == "finished" and len(pgherd.trials()) >= 3
    assert _same(retained, pgherd.digests())


def test_the_disk_of_the_servers_fills_up(pgherd, small_disk):
    """Servers that can't write fail their trials, in their own words; finished trials stay."""
    through = (*small_disk.through, "env", f"XDG_CACHE_HOME={small_disk.path}")
    arguments = ("--databases", "1", "--workload", "tpcb-like", "--duration", "2s", "--repeats", "2", "--time-budget", "1m")
    small_disk.resize(GB)
    ended = pgherd.density(*arguments, through=through)
    assert ended.code == 2, ended
    assert re.search("need .* below .*disk/pgherd, which has .* free; lower --scale, or set XDG_CACHE_HOME", ended.message), ended
    assert not list(pgherd.runs.glob("*")), "too little disk is found before anything starts"
    small_disk.resize(8 * GB)
    process = pgherd.start_density(*arguments, through=through)
    pgherd.wait_until(lambda: pgherd.in_trial(2) or process.poll() is not None)
    retained = pgherd.digests()
    small_disk.fill()
    ended = pgherd.end(process)
    assert _same(retained, pgherd.digests())
    assert not list((small_disk.seen / "pgherd/work").iterdir())
    if ended.code in FINE and len(pgherd.trials()) == 2 and pgherd.trials()[1]["error"] is None:
        pytest.skip("the second trial was over before the disk was full")
    # There is no room for a fresh server either, so that the run ends here, and can be resumed.
    assert ended.code == 3 and re.search("needs .* but .* are free; make room", ended.message), ended
    assert pgherd.record()["state"] == "failed"
    assert "No space left on device" in pgherd.trials()[1]["error"]


# ---- two runs at once


def test_two_runs_that_do_not_fit_together(pgherd):
    first = pgherd.start_density("--databases", "1", "--duration", "300s", "--time-budget", "1h")
    held = pgherd.wait_until(lambda: list(pgherd.state.glob("reservations/*.json")) or first.poll() is not None)
    assert first.poll() is None, pgherd.end(first)
    name = json.loads(held[0].read_text())["run"]
    pgherd.wait_until(lambda: pgherd.run)
    second = pgherd.density("--databases", "1", "--runs-dir", f"{pgherd.runs}-second")
    assert second.code == 3, second
    assert f"run {name} (pid {first.pid}) holds" in second.message and "are not available" in second.message
    assert "limit the cores and memory of both runs" in second.message, "what would make both possible"
    assert not list(Path(f"{pgherd.runs}-second").glob("*")), "a run that never began leaves no directory"
    assert first.poll() is None, "the first goes on"
    first.send_signal(signal.SIGTERM)
    assert pgherd.end(first).code == 130


def test_two_runs_that_fit_together(pgherd):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two runs of one core each need two cores")
    budget = ("--databases", "1", "--host-cores", "1", "--host-memory", f"{4 * GB}")
    if LocalNode().read("/proc/meminfo") and os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") < 9 * GB:
        pytest.skip("two budgets of 4 GB need more memory")
    first = pgherd.start_density(*budget, "--duration", "300s", "--time-budget", "1h")
    pgherd.wait_until(lambda: pgherd.in_trial(1) or first.poll() is not None)
    assert first.poll() is None, pgherd.end(first)
    second = pgherd.density(*budget, "--runs-dir", f"{pgherd.runs}-second")
    assert second.code in FINE, second
    assert first.poll() is None
    first.send_signal(signal.SIGINT)
    assert pgherd.end(first).code == 130
