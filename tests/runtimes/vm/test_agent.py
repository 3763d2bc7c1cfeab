from __future__ import annotations

import ast
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.runtimes.vm import agent

VALUES = st.recursive(st.integers() | st.binary(max_size=60), lambda inner: st.lists(inner, max_size=5), max_leaves=20)
NASTY = st.lists(st.sampled_from([b"\xc0", b"\xdb", b"\xdc", b"\xdd", b"x", b"\0"]), max_size=30).map(b"".join)
BODIES = st.lists(NASTY | st.binary(max_size=60), min_size=1, max_size=6)


@given(VALUES)
def test_bodies_come_back(value):
    assert agent.decode(agent.encode(value)) == value


@pytest.mark.parametrize(
    "value, coded",
    [(b"spam", b"4:spam"), (3, b"i3e"), (-3, b"i-3e"), (0, b"i0e"), ([b"spam", b"eggs"], b"l4:spam4:eggse"), ([], b"le"), (b"", b"0:")],
)
def test_bodies_are_those_of_bep_3(value, coded):
    """The examples of the specification."""
    assert agent.encode(value) == coded and agent.decode(coded) == value


@given(st.binary(max_size=80) | NASTY | st.text("0123456789:ile-", max_size=30).map(str.encode))
def test_what_is_no_body_is_an_error_and_never_hangs(data):
    try:
        value = agent.decode(data)
    except ValueError:
        return
    assert agent.decode(agent.encode(value)) == value


@pytest.mark.parametrize("data", [b"", b"e", b"5:abc", b"-1:", b"i1", b"l", b"4:spamx", b"i1_0", b"x:"])
def test_what_is_refused(data):
    with pytest.raises(ValueError):
        agent.decode(data)


def test_deep_bodies_need_no_stack():
    value = agent.decode(b"l" * 50_000 + b"e" * 50_000)
    for _ in range(49_999):
        (value,) = value
    assert value == []


def test_what_has_no_place_in_a_body():
    with pytest.raises(TypeError, match="str has no place"):
        agent.encode([b"read", "/proc/stat"])


@given(BODIES, st.integers(0, 2**64 - 1), st.data())
def test_frames_survive_any_cutting(bodies, session, data):
    stream = b"".join(agent.frame(session, number, body) for number, body in enumerate(bodies))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    frames = agent.Frames()
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += frames.feed(stream[start:end])
    assert found == [(session, number, body) for number, body in enumerate(bodies)]


@given(BODIES, NASTY | st.binary(max_size=60), st.data())
def test_whatever_was_left_by_an_earlier_host_costs_no_frame(bodies, noise, data):
    """Half a frame (or anything at all), then a new host: all its frames arrive, and nothing else does."""
    torn = agent.frame(1, 7, data.draw(BODIES)[0])
    left = noise + torn[: data.draw(st.integers(0, len(torn) - 2))]
    frames = agent.Frames()
    frames.feed(left)
    found = []
    for number, body in enumerate(bodies):
        found += frames.feed(agent.frame(2, number, body))
    assert found == [(2, number, body) for number, body in enumerate(bodies)]


@given(st.binary(min_size=1, max_size=40), st.data())
def test_a_changed_byte_never_makes_another_frame(body, data):
    whole = bytearray(agent.frame(5, 6, body))
    at = data.draw(st.integers(1, len(whole) - 2))
    whole[at] ^= data.draw(st.integers(1, 255))
    assert [found for found in agent.Frames().feed(bytes(whole)) if found != (5, 6, body)] == []


def test_endless_noise_is_thrown_away(monkeypatch):
    monkeypatch.setattr(agent, "_LONGEST", 1000)
    frames = agent.Frames()
    for _ in range(10):
        assert frames.feed(b"x" * 300) == []
        assert len(frames._rest) <= 1300
    assert frames.feed(agent.frame(1, 2, b"after")) == [(1, 2, b"after")]


def test_it_imports_nothing_of_pgherd_and_little_else():
    """What it imports at its start costs each guest's boot: half a second per ten milliseconds, where a processor is emulated."""
    tree = ast.parse(Path(agent.__file__).read_text())
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {name for name in imported if name.startswith("pgherd")}
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); before = set(sys.modules); import agent; print(*sorted(set(sys.modules) - before))"
    )
    argv = [sys.executable, "-I", "-S", "-B", "-c", script, str(Path(agent.__file__).parent)]
    loaded = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert not {"json", "re", "enum", "subprocess", "threading", "socket", "ctypes", "typing", "collections"} & set(loaded.split()), loaded


def records(data: bytes) -> list[tuple[int, bytes]]:
    found, at = [], 0
    while at < len(data):
        _, index, size = struct.unpack_from("<QiI", data, at)
        at += agent.RECORD.size
        found.append((index, data[at : at + size]))
        at += size
    return found


def test_files_longer_than_a_page_are_read_whole(tmp_path):
    """The kernel gives /proc/vmstat by the page."""
    long = tmp_path / "long"
    long.write_bytes(bytes(range(256)) * 1000)
    names = {line.split()[0] for line in Path("/proc/vmstat").read_text().splitlines()}
    sampling = agent.Sampling(10**9)
    sampling.add([(b"file", os.fsencode(long), 1), (b"file", b"/proc/vmstat", 1)])
    sampling.tick()
    (_, first), (_, second) = records(sampling.fetch()[2])
    sampling.close()
    assert first == long.read_bytes()
    assert {line.split()[0].decode() for line in second.splitlines()} == names and second.endswith(b"\n")


def test_what_cannot_be_read_is_said_and_tried_again_unless_it_is_a_process(tmp_path):
    missing = tmp_path / "missing"
    sampling = agent.Sampling(10**9)
    sampling.add([(b"file", os.fsencode(missing), 1), (b"file", b"/proc/0/stat", 1), (b"tree", b"0", 1), (b"file", b"/proc/uptime", 1)])
    sampling.tick()
    missing.write_bytes(b"there")
    sampling.tick()
    found = records(sampling.fetch()[2])
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
        sampling = agent.Sampling(10**9)
        sampling.add([(b"tree", str(parent.pid).encode(), 1)])
        sampling.tick()
        subprocess.run(["kill", child], check=True)
        while children.read_text():
            time.sleep(0.01)
        sampling.tick()
        parent.kill()
        parent.wait()
        sampling.tick()
        found = records(sampling.fetch()[2])
        sampling.close()
    assert [line.split()[1] for line in found[0][1].splitlines()] == [b"(sh)", b"(sleep)"]
    assert len(found[1][1].splitlines()) == 1
    assert found[2][0] == -1 and b"No such process" in found[2][1]


def test_readings_that_nobody_fetches_do_not_fill_the_guest(monkeypatch):
    monkeypatch.setattr(agent, "MOST_WAITING", 100)
    sampling = agent.Sampling(10**9)
    sampling.add([(b"file", b"/proc/self/stat", 1)])
    for _ in range(5):
        sampling.tick()
    more, lost, data = sampling.fetch()
    assert not more and lost >= 3 and len(records(data)) == 5 - lost
    sampling.tick()
    assert len(records(sampling.fetch()[2])) == 1
    sampling.close()


def test_readings_are_fetched_in_pieces():
    sampling = agent.Sampling(10**9)
    sampling.add([(b"file", b"/proc/uptime", 1)])
    for _ in range(10):
        sampling.tick()
    pieces = []
    while not pieces or pieces[-1][0]:
        pieces.append(sampling.fetch(100))
    sampling.close()
    assert len(pieces) > 2 and len(records(b"".join(piece[2] for piece in pieces))) == 10


def test_the_next_tick_is_a_period_after_the_last_was_due_but_never_in_the_past():
    sampling = agent.Sampling(10**12)
    due = sampling.due
    sampling.tick()
    assert sampling.due == due + 10**12
    sampling.due = 0
    before = time.monotonic_ns()
    sampling.tick()
    assert sampling.due >= before


def test_rare_sources_are_read_first_and_at_the_end():
    sampling = agent.Sampling(10**9)
    sampling.add([(b"file", b"/proc/uptime", 3), (b"file", b"/proc/loadavg", 1)])
    for _ in range(5):
        sampling.tick()
    sampling.read()
    sampling.read(everything=True)
    indices = [index for index, _ in records(sampling.fetch()[2])]
    sampling.close()
    assert indices == [0, 1, 1, 1, 0, 1, 1, 1, 0, 1]


def test_a_program_is_found_as_a_shell_finds_it(tmp_path):
    program = tmp_path / "tool"
    program.write_text("")
    program.chmod(0o755)
    path = b"/nonexistent:" + os.fsencode(tmp_path)
    assert agent._found(b"tool", path) == os.fsencode(program)
    assert agent._found(b"./tool", path) == b"./tool"
    assert agent._found(b"missing", path) == b"missing"
