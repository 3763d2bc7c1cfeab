"""``--track``: a busy process of known CPU use shows up as a named part, by its name and by its control group."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgherd.host.cgroup_parent import read_layout
from pgherd.node.local import LocalNode
from pgherd.store.run_directory import RunDirectory
from pgherd.store.samples import read_samples

NAME = f"busybee{os.getpid()}"
# Busy for 30 ms of every 100, and its own account of it: (wall clock, CPU seconds), ten times a second.
LOOP = """
import os, sys, time
with open(sys.argv[1], "w", buffering=1) as file:
    while True:
        end = time.monotonic() + 0.03
        while time.monotonic() < end:
            pass
        used = os.times()
        file.write(f"{time.time()} {used.user + used.system}\\n")
        time.sleep(0.07)
"""


def own_account(file: Path, start: float, end: float) -> float:
    """The CPU in cores that the process says it used between two instants."""
    lines = [tuple(map(float, line.split())) for line in file.read_text().splitlines()[:-1]]
    first = max((line for line in lines if line[0] <= start), default=lines[0])
    last = min((line for line in lines if line[0] >= end), default=lines[-1])
    return (last[1] - first[1]) / (last[0] - first[0])


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    account = tmp_path / "account"
    process = subprocess.Popen([NAME, "-S", "-c", LOOP, str(account)], executable=sys.executable)
    yield process, account
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.fixture
def group(busy) -> Iterator[str]:
    """A control group with a CPU counter that holds the busy process."""
    layout = read_layout(LocalNode())
    mount = layout.v1["cpuacct"].mount if "cpuacct" in layout.v1 else layout.v2.mount if layout.v2 else None
    if mount is None:
        pytest.skip("no control groups are mounted")
    path = Path(mount) / f"test-{NAME}"
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    process, _ = busy
    try:
        (path / "cgroup.procs").write_text(str(process.pid))
        yield f"/test-{NAME}"
    finally:
        process.kill()
        process.wait()
        path.rmdir()


def compared(pgherd, account: Path, name: str) -> None:
    """Each trial's figure for the part, from its metrics, against the process' own over the same window."""
    directory = RunDirectory(pgherd.run)
    results = [result for result in directory.results() if result.error is None]
    assert results
    for result in results:
        (phase,) = result.phases
        observed = phase.metrics[f"platform:{name}"]["cpu.usage"]
        # Both are cut at instants up to a second apart: over 3 s that is well within a fifth.
        assert observed == pytest.approx(own_account(account, phase.start, phase.end), rel=0.2)
    row = next(row for row in directory.record().analysis.tables["cpu"] if row["databases"] == 1)
    part = row[f"platform_cpu.{name}"]
    assert part.unit == "cores" and 0.02 < part.value < 0.6
    complete = row["platform_cpu"].value  # not seen where the runtime does not count its containers' CPU
    assert complete is None or part.value <= complete * 1.2


def test_a_process_by_its_name(pgherd, busy):
    process, account = busy
    ended = pgherd.density("--databases", "1", "--duration", "3s", "--time-budget", "1s", "--track", f"process={NAME}")
    assert ended.code in (0, 1), ended
    compared(pgherd, account, NAME)
    (trial, *_) = sorted(pgherd.run.glob("trials/*"))
    assert {entity for _, entity, _ in read_samples(trial, "processes", "cpu.usage")} > {f"platform:{NAME}"}
    assert process.poll() is None
    assert json.loads((pgherd.run / "run.json").read_text())["environment"]["track"] == [f"process={NAME}"]


def test_a_control_group(pgherd, busy, group):
    _, account = busy
    ended = pgherd.density(
        "--databases", "1", "--duration", "3s", "--time-budget", "1s", "--track", f"cgroup={group}", "--track", f"process={NAME}x"
    )
    assert ended.code == 2 and "no process outside pgherd has this name now" in ended.message
    ended = pgherd.density("--databases", "1", "--duration", "3s", "--time-budget", "1s", "--track", f"cgroup={group}")
    assert ended.code in (0, 1), ended
    compared(pgherd, account, group.strip("/"))
