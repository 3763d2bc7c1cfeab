import contextlib
import json
import resource
import socket
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from pgherd.node import sampling
from pgherd.node.local import LocalNode
from pgherd.node.protocol import SampleSource


def _lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _sampled(tmp_path, sources, seconds=0.35, period=0.1, later=()):
    spool = tmp_path / "spool"
    sampling = LocalNode().sample(sources, str(spool), period)
    if later:
        time.sleep(period * 1.5)
        sampling.add(later)
    time.sleep(seconds)
    sampling.stop()
    return _lines(spool)


def test_a_file_is_read_again_from_its_start_on_each_tick(tmp_path):
    lines = _sampled(tmp_path, [SampleSource("cpu", "host", "file", "/proc/uptime")])
    assert lines[0] == {"sources": [["cpu", "host", "file", "/proc/uptime", ""]], "first": 0}
    values = [float(line["raw"].split()[0]) for line in lines[1:]]
    assert len(values) >= 2 and values == sorted(values)
    times = [line["t"] for line in lines[1:]]
    assert times == sorted(times)


def test_hundreds_of_open_files_do_not_end_it(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1200:
        pytest.skip(f"no process may have more than {hard} files open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    try:
        with contextlib.ExitStack() as stack:
            while stack.enter_context(open("/dev/null")).fileno() < 1100:  # select(2) takes no descriptor from 1,024 on
                pass
            lines = _sampled(tmp_path, [SampleSource("cpu", "host", "file", "/proc/uptime")])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert sum("raw" in line for line in lines) > 2


def test_every_nth_tick_and_always_the_first_and_last(tmp_path):
    rare = SampleSource("x", "host", "file", "/proc/loadavg", every=1000)
    often = SampleSource("x", "host", "file", "/proc/uptime")
    lines = _sampled(tmp_path, [rare, often])
    assert sum(line.get("i") == 0 for line in lines) == 2
    assert sum(line.get("i") == 1 for line in lines) > 2


def test_sources_can_be_added_while_it_runs(tmp_path):
    lines = _sampled(tmp_path, [], later=[SampleSource("x", "host", "file", "/proc/uptime")])
    assert {"sources": [["x", "host", "file", "/proc/uptime", ""]], "first": 0} in lines
    assert any(line.get("raw") for line in lines)


def test_a_process_tree_has_a_line_for_each_child_and_ends_with_it(tmp_path):
    parent = subprocess.Popen(["sh", "-c", "sleep 60 & echo ready; wait"], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    parent.stdout.readline()
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    while not all(Path(f"/proc/{pid}/comm").read_text() == "sleep\n" for pid in children.read_text().split()):
        time.sleep(0.01)  # forked, but still the shell
    try:
        lines = _sampled(tmp_path, [SampleSource("p", "driver:x", "tree", str(parent.pid))])
    finally:
        for pid in children.read_text().split():
            subprocess.run(["kill", pid], check=True)
        parent.wait()
        parent.stdout.close()
    raw = [line["raw"] for line in lines if line.get("i") == 0]
    assert raw and all([entry.split()[1] for entry in text.splitlines()] == ["(sh)", "(sleep)"] for text in raw)
    gone = _sampled(tmp_path, [SampleSource("p", "driver:x", "tree", str(parent.pid))])
    assert [line["raw"] for line in gone if "i" in line][-1] is None


def test_what_cannot_be_read_is_said_and_does_not_stop_the_rest(tmp_path):
    missing = SampleSource("x", "host", "file", str(tmp_path / "missing"))
    nobody = SampleSource("db", "server:a/b", "sql", f"host={tmp_path} port=1 dbname=x", "select 1")
    lines = _sampled(tmp_path, [missing, nobody, SampleSource("x", "host", "file", "/proc/uptime")])
    assert any(line.get("i") == 0 and line["raw"] is None and "No such file" in line["error"] for line in lines)
    assert any(line.get("i") == 1 and line["raw"] is None for line in lines)
    assert any(line.get("i") == 2 and line["raw"] for line in lines)


class Silent:
    """A connection to a server that does not answer."""

    def __init__(self):
        self.ends = socket.socketpair()
        self.connection = SimpleNamespace(socket=self.ends[0].fileno())
        self.busy, self.waiting = None, []

    def send(self, statement):
        """It is sent."""

    def close(self):
        for end in self.ends:
            end.close()


def test_a_connection_with_an_unanswered_statement_is_not_one_of_the_next_loop(tmp_path, monkeypatch):
    monkeypatch.setattr(sampling, "_LAST_ANSWERS_TIMEOUT_S", 0.05)
    node, silent = LocalNode(), Silent()
    node._probes["host=x"] = silent
    sources = [SampleSource("x", f"server:{name}", "sql", "host=x", "select 1") for name in "ab"]
    node.sample(sources, str(tmp_path / "spool"), 3600.0).stop()
    assert (silent.busy, silent.waiting) == (0, [1]), "numbers of sources that the next loop does not have"
    assert node._probes == {} and silent.ends[0].fileno() == -1


def test_a_full_disk_is_told_when_it_stops():
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    sampling = LocalNode().sample([SampleSource("x", "host", "file", "/proc/uptime")], "/dev/full", 0.05)
    time.sleep(0.2)
    with pytest.raises(OSError, match="No space left"):
        sampling.stop()


def test_adding_nothing_reads_everything_at_once_beside_the_ticks(tmp_path):
    spool = tmp_path / "spool"
    rare = SampleSource("x", "host", "file", "/proc/loadavg", every=2)
    sampling = LocalNode().sample([SampleSource("x", "host", "file", "/proc/uptime"), rare], str(spool), 3600.0)
    marks = []
    for _ in range(3):
        time.sleep(0.05)
        marks.append(time.time())
        sampling.add(())
    time.sleep(0.05)
    sampling.stop()
    lines = _lines(spool)
    times = [line["t"] for line in lines if line.get("i") == 0]
    assert len(times) == 5, "the first tick, three marks, the last"
    assert all(mark <= t for mark, t in zip(marks, times[1:4], strict=True))
    assert sum(line.get("i") == 1 for line in lines) == 2, "what is not read on each tick is left out"


def test_files_that_the_kernel_gives_by_the_page_are_read_whole(tmp_path):
    long = tmp_path / "long"
    long.write_text("0123456789" * 30_000)
    lines = _sampled(
        tmp_path, [SampleSource("x", "host", "file", "/proc/vmstat"), SampleSource("x", "host", "file", str(long))], seconds=0.0
    )
    names = [line.split()[0] for line in Path("/proc/vmstat").read_text().splitlines()]
    for line in lines[1:]:
        if line["i"] == 0:
            assert [item.split()[0] for item in line["raw"].splitlines()] == names
        else:
            assert line["raw"] == long.read_text()
