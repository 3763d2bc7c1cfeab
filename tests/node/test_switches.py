"""Voluntary context switches of a process and its children."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from pgherd.node.switches import Switches


def proc(root: Path, counts: dict[int, int]) -> None:
    """Write /proc of a process 10 with children, by pid and number of switches."""
    children = root / "10/task/10"
    children.mkdir(parents=True, exist_ok=True)
    (children / "children").write_text(" ".join(str(pid) for pid in counts if pid != 10))
    for pid, count in counts.items():
        (root / str(pid)).mkdir(exist_ok=True)
        (root / str(pid) / "status").write_text(f"Name:\tpostgres\nvoluntary_ctxt_switches:\t{count}\nnonvoluntary_ctxt_switches:\t99\n")


def test_new_children_count_completely_and_ended_ones_keep_their_count(tmp_path):
    read = Switches("10", str(tmp_path)).read
    proc(tmp_path, {10: 100, 11: 50})
    assert read() == "0", "what was before the first reading is no increase"
    proc(tmp_path, {10: 103, 11: 57, 12: 4})
    assert read() == "14"
    proc(tmp_path, {10: 103, 12: 5})
    assert read() == "15"


def test_a_process_that_sleeps_and_is_woken_up_is_counted():
    """Each line wakes cat up, unless it was so late with the one before that it never slept in between."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cat:
        assert cat.stdin is not None and cat.stdout is not None
        switches = Switches(str(cat.pid))
        switches.read()
        for _ in range(20):
            cat.stdin.write(b"x\n")
            cat.stdin.flush()
            assert cat.stdout.readline() == b"x\n"
            time.sleep(0.02)
        assert 5 <= int(switches.read()) <= 60
        cat.stdin.close()


def test_an_ended_process_is_an_error():
    ended = subprocess.Popen(["true"])
    ended.wait()
    with pytest.raises(OSError, match=str(ended.pid)):
        Switches(str(ended.pid)).read()
    assert int(Switches(str(os.getpid())).read()) == 0
