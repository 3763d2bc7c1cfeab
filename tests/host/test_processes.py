from __future__ import annotations

import os
import subprocess

import psutil

from pgherd.host import processes
from pgherd.node.local import LocalNode

NODE = LocalNode()


def test_start_time_agrees_with_psutil() -> None:
    ticks = processes.start_time(NODE, os.getpid())
    assert ticks is not None
    started = psutil.boot_time() + ticks / os.sysconf("SC_CLK_TCK")
    assert abs(started - psutil.Process().create_time()) < 1.5


def test_a_process_that_only_waits_to_be_reaped_is_gone() -> None:
    process = subprocess.Popen(["true"])
    assert processes.wait_until(lambda: processes.start_time(NODE, process.pid) is None)
    process.wait()
    assert processes.stat_fields(NODE, process.pid) is None


def test_names_with_blanks_and_parentheses(tmp_path, fake) -> None:
    node = fake.FakeNode(tmp_path)
    node.add_process(7, start=4711)
    assert processes.start_time(node, 7) == 4711


def test_kill_takes_those_that_have_gone_without_complaint() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        processes.kill(NODE, [2**22 - 1, process.pid])
        assert process.wait() == -9


class Processes(LocalNode):
    """Pid → (name, parent) in place of this machine's."""

    def __init__(self, result):
        self.found = result

    def listdir(self, path):
        return ["self", "meminfo", *map(str, self.found)]

    def read(self, path):
        _, _, pid, file = path.split("/")
        name, parent = self.found[int(pid)]
        return f"{name}\n".encode() if file == "comm" else f"{pid} ({name}) S {parent} 1 1".encode()


def test_the_topmost_of_a_name_are_found() -> None:
    result = {1: ("systemd", 0), 10: ("postgres", 1), 11: ("postgres", 10), 12: ("postgres", 10), 20: ("postgres", 1), 30: ("sh", 11)}
    assert processes.topmost(Processes(result), ("postgres",)) == [10, 20]


def test_wait_until_gives_up() -> None:
    assert processes.wait_until(lambda: False, 0.01) is False
