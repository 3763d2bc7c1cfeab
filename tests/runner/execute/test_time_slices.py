"""Loads that take turns: real processes that are stopped and go on."""

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from pgherd.model.errors import TrialError
from pgherd.model.load import TimeSlicing
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command
from pgherd.runner.execute import time_slices

WORK = "import time\nwhile True: print(time.time(), flush=True); time.sleep(0.001)"
TURNS = TimeSlicing(of={"a": "one", "b": "two"}, seconds=0.1, counted=0.05, seed="7")


class Process:
    """What ``turns`` wants of a running driver's process."""

    def __init__(self, output) -> None:
        self.popen = subprocess.Popen([sys.executable, "-c", WORK], stdout=output)

    def signal(self, number: int) -> None:
        self.popen.send_signal(number)


class Running:
    """A driver on a database of a container."""

    def __init__(self, container: str, directory) -> None:
        self.target, self.file = f"local/{container}/pg/bench", directory / container
        with open(self.file, "wb") as output:
            self.process = Process(output)

    def said(self) -> list[float]:
        return [float(line) for line in self.file.read_text().splitlines()[:-1]]


@pytest.fixture
def both(tmp_path):
    made = [Running("one", tmp_path), Running("two", tmp_path)]
    until = time.monotonic() + 30
    while not all(one.file.exists() and one.said() for one in made) and time.monotonic() < until:
        time.sleep(0.01)
    yield made
    for one in made:
        one.process.popen.kill()
        one.process.popen.wait()


def test_each_goes_on_in_its_own_turns_alone(both):
    node = LocalNode()
    time_slices.stop(both)
    time.sleep(0.05)
    start = node.now()
    found = time_slices.run(node, TURNS, start, 1.2, both, lambda: None)
    assert [len(found[one.target]) for one in both] == [6, 6]
    for one in both:
        for at in one.said():
            # A print that was under way when it was stopped is told when it goes on: its time is that of before.
            assert at < start or any(turn.begun - 0.01 <= at <= turn.ended + 0.01 for turn in found[one.target]), at - start
        long = [turn for turn in found[one.target] if turn.ended - turn.begun > 0.08]  # a busy host may wake us late
        assert all(any(turn.begun <= at <= turn.ended for at in one.said()) for turn in long), "it did go on"
    every = sorted((turn.begun, turn.ended) for own in found.values() for turn in own)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(every)), "no two at once"
    assert all(turn.switches > 0 for own in found.values() for turn in own)
    assert all(one.process.popen.poll() is None for one in both)
    time_slices.go_on(both)
    for one in both:
        one.process.popen.send_signal(signal.SIGTERM)
        assert one.process.popen.wait(30) == -signal.SIGTERM, "what went on hears it"


def test_nothing_is_stopped_before_it_is_its_program(tmp_path):
    node, gate, looks = LocalNode(), tmp_path / "gate", []
    os.mkfifo(gate)  # stands for a group that takes its time: who joins it waits until somebody reads
    process = node.spawn(Command(["sleep", "60"], join=(str(gate),)))

    def watch() -> None:
        looks.append(process.poll())
        if len(looks) == 3:
            gate.read_bytes()

    try:
        time_slices.await_programs(node, [SimpleNamespace(process=process, program="sleep")], watch)
        assert len(looks) >= 3 and looks[-1] is None
        assert (Path("/proc") / str(process.pid) / "comm").read_text() == "sleep\n"
    finally:
        process.signal(signal.SIGKILL)
        process.wait(30)


def test_what_ends_before_it_is_its_program_is_told(tmp_path):
    node = LocalNode()
    process = node.spawn(Command(["sleep", "60"], join=(str(tmp_path / "none" / "cgroup.procs"),)))

    def watch() -> None:
        if (code := process.poll()) is not None:
            raise TrialError(f"ended early with {code}")

    with pytest.raises(TrialError, match="ended early with"):
        time_slices.await_programs(node, [SimpleNamespace(process=process, program="sleep")], watch)


def test_what_is_amiss_ends_the_turns(both):
    def watch():
        raise TrialError("a server died")

    time_slices.stop(both)
    with pytest.raises(TrialError, match="a server died"):
        time_slices.run(LocalNode(), TURNS, time.time(), 1.0, both, watch)


def test_rounds_hold_each_name_once_in_an_order_of_the_seed_s():
    wide = TimeSlicing(of={"a": "one", "b": "two", "c": "three"}, seconds=0.1, counted=0.1, seed="x")
    found = list(time_slices.order(wide, 3.0))
    assert len(found) == 30 and all(sorted(found[i : i + 3]) == ["a", "b", "c"] for i in range(0, 30, 3))
    assert found == list(time_slices.order(wide, 3.0)) != list(time_slices.order(wide.model_copy(update={"seed": "y"}), 3.0))
    assert len({tuple(found[i : i + 3]) for i in range(0, 30, 3)}) > 1
    assert len(list(time_slices.order(wide, 0.01))) == 3, "a whole round at least"
