from __future__ import annotations

import os
import struct
import subprocess
import time
from pathlib import Path

import pytest

from pgherd.runtimes.vm import agent_tasks

MOST = 1 << 20


def records(data: bytes) -> list[tuple[int, bytes]]:
    found, at = [], 0
    while at < len(data):
        _, index, size = struct.unpack_from("<QiI", data, at)
        at += agent_tasks.RECORD.size
        found.append((index, data[at : at + size]))
        at += size
    return found


def test_files_longer_than_a_page_are_read_whole(tmp_path):
    """The kernel gives /proc/vmstat by the page."""
    long = tmp_path / "long"
    long.write_bytes(bytes(range(256)) * 1000)
    names = {line.split()[0] for line in Path("/proc/vmstat").read_text().splitlines()}
    sampling = agent_tasks.AgentSamplingLoop(10**9)
    sampling.add([(b"file", os.fsencode(long), 1), (b"file", b"/proc/vmstat", 1)])
    sampling.tick()
    (_, first), (_, second) = records(sampling.fetch(MOST)[2])
    sampling.close()
    assert first == long.read_bytes()
    assert {line.split()[0].decode() for line in second.splitlines()} == names and second.endswith(b"\n")


def test_what_cannot_be_read_is_said_and_tried_again_unless_it_is_a_process(tmp_path):
    missing = tmp_path / "missing"
    sampling = agent_tasks.AgentSamplingLoop(10**9)
    sampling.add([(b"file", os.fsencode(missing), 1), (b"file", b"/proc/0/stat", 1), (b"tree", b"0", 1), (b"file", b"/proc/uptime", 1)])
    sampling.tick()
    missing.write_bytes(b"there")
    sampling.tick()
    found = records(sampling.fetch(MOST)[2])
    sampling.close()
    assert [index for index, _ in found] == [-1, -2, -3, 3, 0, 3]
    assert b"No such file" in found[0][1] and found[4][1] == b"there"


def test_a_tree_has_a_line_for_each_child_and_forgets_the_dead():
    with subprocess.Popen(["sh", "-c", "sleep 60 & echo; wait; exec sleep 60"], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        (child,) = children.read_text().split()
        while Path(f"/proc/{child}/comm").read_text() != "sleep\n":
            time.sleep(0.01)
        sampling = agent_tasks.AgentSamplingLoop(10**9)
        sampling.add([(b"tree", str(parent.pid).encode(), 1)])
        sampling.tick()
        subprocess.run(["kill", child], check=True)
        while children.read_text():
            time.sleep(0.01)
        sampling.tick()
        parent.kill()
        parent.wait()
        sampling.tick()
        found = records(sampling.fetch(MOST)[2])
        sampling.close()
    assert [line.split()[1] for line in found[0][1].splitlines()] == [b"(sh)", b"(sleep)"]
    assert len(found[1][1].splitlines()) == 1
    assert found[2][0] == -1 and b"No such process" in found[2][1]


def test_readings_that_nobody_fetches_do_not_fill_the_guest(monkeypatch):
    monkeypatch.setattr(agent_tasks, "MAX_WAITING_BYTES", 100)
    sampling = agent_tasks.AgentSamplingLoop(10**9)
    sampling.add([(b"file", b"/proc/self/stat", 1)])
    for _ in range(5):
        sampling.tick()
    more, lost, data = sampling.fetch(MOST)
    assert not more and lost >= 3 and len(records(data)) == 5 - lost
    sampling.tick()
    assert len(records(sampling.fetch(MOST)[2])) == 1
    sampling.close()


def test_readings_are_fetched_in_pieces():
    sampling = agent_tasks.AgentSamplingLoop(10**9)
    sampling.add([(b"file", b"/proc/uptime", 1)])
    for _ in range(10):
        sampling.tick()
    pieces = []
    while not pieces or pieces[-1][0]:
        pieces.append(sampling.fetch(100))
    sampling.close()
    assert len(pieces) > 2 and len(records(b"".join(piece[2] for piece in pieces))) == 10


def test_the_next_tick_is_a_period_after_the_last_was_due_but_never_in_the_past():
    sampling = agent_tasks.AgentSamplingLoop(10**12)
    due = sampling.due
    sampling.tick()
    assert sampling.due == due + 10**12
    sampling.due = 0
    before = time.monotonic_ns()
    sampling.tick()
    assert sampling.due >= before


def test_rare_sources_are_read_first_and_at_the_end():
    sampling = agent_tasks.AgentSamplingLoop(10**9)
    sampling.add([(b"file", b"/proc/uptime", 3), (b"file", b"/proc/loadavg", 1)])
    for _ in range(5):
        sampling.tick()
    sampling.read()
    sampling.read(everything=True)
    indices = [index for index, _ in records(sampling.fetch(MOST)[2])]
    sampling.close()
    assert indices == [0, 1, 1, 1, 0, 1, 1, 1, 0, 1]


def asked(*argv: bytes, environment=(), directory=b"", user=b"", death=b"KILL", output=b"", batch=0, at=0):
    return [list(argv), list(environment), directory, [], [], user, death, b"", output, output, batch, at]


def ended(child: agent_tasks.AgentChild) -> int:
    code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
    os.close(child.handle)
    return code


def test_a_program_is_started_with_what_was_asked_and_nothing_of_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("MINE", "1")
    output = tmp_path / "out"
    words = asked(
        b"sh", b"-c", b"pwd; echo $GIVEN $MINE", environment=[b"GIVEN=a=b"], directory=os.fsencode(tmp_path), output=os.fsencode(output)
    )
    child = agent_tasks.start(7, words)
    assert (child.serial, ended(child)) == (7, 0)
    assert output.read_text().split() == [str(tmp_path), "a=b"]


def test_what_it_says_is_caught_in_the_files_that_are_given():
    out, errors = os.memfd_create("out"), os.memfd_create("errors")
    child = agent_tasks.start(1, asked(b"sh", b"-c", b"echo said; echo wrong >&2; exit 3"), (out, errors))
    assert ended(child) == 3
    assert (os.pread(out, 100, 0), os.pread(errors, 100, 0)) == (b"said\n", b"wrong\n")
    agent_tasks.close_all((out, errors))


def test_what_cannot_be_started_is_said_before_there_is_a_process(tmp_path, monkeypatch):
    """A program that is not there is, by its exit code."""
    assert ended(agent_tasks.start(1, asked(b"no-such-program"))) == 127
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked"))
    for wrong, error in (
        ({"user": b"no-such-account"}, KeyError),
        ({"death": b"NOSUCH"}, AttributeError),
        ({"output": os.fsencode(tmp_path / "no/such/file")}, FileNotFoundError),
    ):
        with pytest.raises(error):
            agent_tasks.start(1, asked(b"true", **wrong))


def test_a_program_is_found_as_a_shell_finds_it(tmp_path):
    program = tmp_path / "tool"
    program.write_text("")
    program.chmod(0o755)
    path = b"/nonexistent:" + os.fsencode(tmp_path)
    assert agent_tasks._program_path(b"tool", path) == os.fsencode(program)
    assert agent_tasks._program_path(b"./tool", path) == b"./tool"
    assert agent_tasks._program_path(b"missing", path) == b"missing"
