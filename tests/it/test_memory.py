"""Memory on this machine's own kernel: budgets below what is in use, swap of a run's own, OOM kills, and what a killed run leaves."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pgherd.host import cgroup_parent, paths, processes
from pgherd.host import swap as host_swap
from pgherd.host.journal import clean
from pgherd.host.swap_areas import areas, zram_numbers
from pgherd.model.analysis import Thresholds
from pgherd.model.errors import PgherdError
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.node.local import LocalNode
from pgherd.runner import loop
from pgherd.runner.deploy.deployer import Deployer
from pgherd.runner.execute.local_backend import LocalBackend
from pgherd.runner.progress import RunObserver
from pgherd.store.run_directory import RunDirectory

NODE, MB = LocalNode(), 2**20
PROGRAM = Path(__file__).with_name("overcommitted.py")
SHORT = 190
"""MB: less than the shared buffers in use of both servers."""


@pytest.fixture(scope="module")
def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("overcommitted", PROGRAM)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["overcommitted"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """State and cache of these tests, in a directory that the servers' account can enter."""
    root = Path(tempfile.mkdtemp(prefix="memory-"))
    root.chmod(0o755)
    before = {name: os.environ.get(name) for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME")}
    os.environ |= {"XDG_STATE_HOME": str(root / "state"), "XDG_CACHE_HOME": str(root / "cache")}
    yield root
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def able(program: ModuleType, place: Path) -> None:
    """This host can limit memory and make swap."""
    try:
        cgroup_parent.find(NODE)
        for kind in ("zram", "file"):
            host_swap.check(NODE, program.swap(kind, place))
    except (cgroup_parent.CgroupUnavailable, PgherdError) as error:
        pytest.skip(str(error))


def play(directory: RunDirectory, fleet: Deployer, trial: Trial) -> TrialResult:
    result, _ = loop._trial(directory, directory.next_trial(), trial, LocalBackend(fleet), Thresholds(), RunObserver())
    return result


def verdicts(result: TrialResult) -> dict[str, str]:
    return {verdict.name: verdict.result for verdict in result.checks}


def swapped(result: TrialResult) -> float:
    """MB that the containers had swapped out in the last phase, by the run's own count."""
    return result.phases[-1].metrics["run-cgroup"]["memory.swap"] / MB


@pytest.mark.usefixtures("able")
def test_a_budget_below_use_swaps_is_accounted_for_and_leaves_nothing_behind(program: ModuleType, place: Path) -> None:
    devices = zram_numbers(NODE)
    with program.up("20260101-000000-memory-aa01", "zram", place) as (opened, fleet):
        directory = RunDirectory.create(place / "runs", "density")
        assert opened.swap is not None
        assert opened.swap.path in {area.path for area in areas(NODE)} and opened.swap.zram not in devices
        whole = play(directory, fleet, program.trial(program.WHOLE, 0))
        short = play(directory, fleet, program.trial(SHORT, 0))
        again = play(directory, fleet, program.trial(program.WHOLE, 1))
        locked = play(directory, fleet, program.trial(SHORT, 1, staging="mlock"))
    for result in (whole, short, again, locked):
        assert result.error is None, result.error
        for phase in result.phases:
            assert phase.memory is not None
            assert abs(phase.memory.worst) <= 0.02, phase.memory
        assert verdicts(result)["memory-accounted"] == verdicts(result)["no-oom-kill"] == "pass"
    assert short.transition == again.transition == "2 restarted"
    assert swapped(short) > 5 and swapped(locked) > 5, "the shared buffers do not fit"
    assert swapped(whole) < 5 and swapped(again) < 5, "restarted servers do not bring back what was swapped out"
    account = short.phases[0].memory
    assert account is not None and account.budget == SHORT * MB
    assert account.containers + account.unallocated == pytest.approx(account.budget, rel=0.02)
    held = locked.phases[0].metrics["container:locked-memory"]["memory.usage"]
    assert held >= (program.WHOLE - SHORT) * MB
    device = short.phases[0].metrics[f"zram:zram{opened.swap.zram}"]
    assert device["zram.mem_limit"] == 64 * MB
    assert device["zram.orig_data"] >= 0, "another run's swap may take the pages: it is one for the whole machine"
    assert opened.swap.path not in {area.path for area in areas(NODE)}
    assert not NODE.exists(f"/sys/block/zram{opened.swap.zram}")


@pytest.mark.usefixtures("able")
def test_an_oom_kill_is_a_finding_of_the_trial(program: ModuleType, place: Path) -> None:
    with program.up("20260101-000001-memory-aa02", "none", place) as (_, fleet):
        directory = RunDirectory.create(place / "runs", "density")
        result = play(directory, fleet, program.trial(100))
        assert result.error is not None
        assert result.oom_kills and {kill.container for kill in result.oom_kills} <= {"a", "b"}
        assert verdicts(result) == {"no-oom-kill": "fail"}
        (kill, *_) = result.oom_kills
        assert result.started - 2 <= kill.time <= result.ended
        if kill.names:  # the kernel's log can be read here
            assert kill.names[0].startswith("postgres") and kill.limit == "run"
        after = play(directory, fleet, program.trial(program.WHOLE))
        assert after.error is None and verdicts(after)["no-oom-kill"] == "pass", "the next trial has its memory again"


def _swapped(group: str) -> int:
    """Bytes that a group's containers have swapped out."""
    stat = Path(group, "memory.stat").read_text().split() if Path(group, "memory.stat").exists() else []
    if "total_swap" in stat:
        return int(stat[stat.index("total_swap") + 1])
    return int(Path(group, "memory.swap.current").read_text()) if Path(group, "memory.swap.current").exists() else 0


@pytest.mark.usefixtures("able")
@pytest.mark.parametrize("kind", ["zram", "file"])
def test_clean_after_kill_9_while_overcommitted(kind: str, place: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(place), f"20260101-000002-memory-{kind[:2]}03", kind, str(SHORT)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    try:
        lines: list[str] = []
        while (line := owner.stdout.readline().strip()) != "up":
            assert line, "it ended"
            lines.append(line)
        path, *groups = lines
        assert path in {area.path for area in areas(NODE)}
        assert sum(_swapped(group) for group in groups) > 0, "some of it is swapped out"
        inside = [int(pid) for group in groups for name in "ab" for pid in NODE.read(f"{group}/{name}/cgroup.procs").split()]
        assert inside
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait()

    said = clean(NODE, paths.state_dir())

    assert any(path in sentence for sentence in said), said
    assert path not in {area.path for area in areas(NODE)}
    assert not NODE.exists(f"/sys/block/{Path(path).name}" if kind == "zram" else path)
    assert [group for group in groups if NODE.exists(group)] == []
    assert [pid for pid in inside if processes.start_time(NODE, pid) is not None] == []
    assert not any(sentence.startswith("not undone") for sentence in said), said
    assert clean(NODE, paths.state_dir()) == []
