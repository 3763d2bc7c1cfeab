import fcntl
import os
import resource
import shutil
import signal
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.host import block_trace
from pgherd.host.block_trace import parse_trace
from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Completed, Process

CAPTURED = Path(__file__).parent.parent / "fixtures" / "host"


class Node(LocalNode):
    def __init__(self, code, said="", files=None):
        super().__init__()
        self.answer, self.files = Completed(code, "", said), files or {}

    def read(self, path):
        return self.files[path].encode() if path in self.files else super().read(path)

    def run(self, command, timeout=60.0):
        return self.answer


_LIMITED = "Error:\nAccess to performance monitoring and observability operations is limited."


@pytest.mark.parametrize(
    ("code", "said", "uid", "wanted"),
    [
        (127, "", 0, "apt install linux-perf"),
        (255, _LIMITED, 1000, "run pgherd as root"),
        (255, _LIMITED, 0, "run --privileged"),
        (255, "event syntax error: unknown tracepoint", 0, "mount -t tracefs"),
        (255, "event syntax error: unknown tracepoint", 1000, "run pgherd as root"),
        (1, "something else", 0, "something else"),
    ],
)
def test_why_not_is_one_sentence_that_says_what_helps(code, said, uid, wanted):
    there = {"/proc/self/status": f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n", "/proc/1/environ": "container=docker\0"}
    with pytest.raises(CapabilityError, match="--trace-io: ") as caught:
        block_trace.require_tracing(Node(code, said, there))
    assert wanted in str(caught.value) and caught.value.exit_code == 3


def test_where_it_can():
    assert block_trace.refused(Node(0)) == ""


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("perf") is None, reason="needs root and perf, which mounts tracefs")
def test_perf_leaves_no_tracefs():
    before = Path("/proc/self/mountinfo").read_text()
    if " - tracefs " in before:
        pytest.skip("tracefs is mounted already")
    block_trace.refused(LocalNode())
    assert Path("/proc/self/mountinfo").read_text() == before


def test_a_missing_perf_is_said_too():
    class Without(LocalNode):
        def run(self, command, timeout=60.0):
            raise FileNotFoundError("perf")

    assert "not installed" in block_trace.refused(Without())


def test_the_filter_is_the_kernels_device_number():
    assert block_trace._filter(["7:0", "254:16"]) == f"dev == {7 << 20} || dev == {(254 << 20) | 16}"


def test_whatever_goes_wrong_while_perf_begins_it_does_not_stay(tmp_path, monkeypatch):
    class Running(Process):
        signals: ClassVar[list[int]] = []
        pid, cpu_seconds = 1, None

        def poll(self):
            return 0 if self.signals else None

        def signal(self, number):
            self.signals.append(number)

        def wait(self, timeout=None):
            return 0

    monkeypatch.setattr(LocalNode, "spawn", lambda *_: Running())
    monkeypatch.setattr(block_trace.BlockTrace, "_enable", lambda self: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        block_trace.BlockTrace(LocalNode(), ["7:0"], tmp_path)
    assert Running.signals == [signal.SIGINT] and list(tmp_path.iterdir()) == []


def test_perf_is_heard_on_any_number_of_descriptor(tmp_path, monkeypatch):
    """select(2) takes none from 1024 on."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] != resource.RLIM_INFINITY and limits[1] < 1100:
        pytest.skip(f"no more than {limits[1]} files may be open here")

    class Answering(Process):
        pid, cpu_seconds = 1, None

        def poll(self):
            return None

        def signal(self, number):
            """It runs on."""

        def wait(self, timeout=None):
            return 0

    real = os.open

    def high(path, flags, *mode):
        low = real(path, flags, *mode)
        number = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 1024)
        os.close(low)
        if str(path).endswith("answer"):
            os.write(number, b"ack\n\0")
        return number

    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 1100), limits[1]))
    monkeypatch.setattr(LocalNode, "spawn", lambda *_: Answering())
    monkeypatch.setattr(block_trace.os, "open", high)
    try:
        block_trace.BlockTrace(LocalNode(), ["7:0"], tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_perf_that_ends_at_once_is_an_error_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(block_trace, "EVENTS", "block:there_is_no_such_event")
    with pytest.raises(CapabilityError, match="did not begin to trace"):
        block_trace.BlockTrace(LocalNode(), ["7:0"], tmp_path)
    assert list(tmp_path.iterdir()) == []


# ---- requests in the text of perf script


def line(event: str, sector: int, sectors: int = 16, *, at: float = 1.0, rwbs: str = "WS", device: str = "7,0") -> str:
    size = f"{sectors * 512} " if event == "issue" else ""
    return f"{at:.9f}: block:block_rq_{event}: {device} {rwbs} {size}() {sector} + {sectors} 0x2,0,4 [fio]"


def test_reads_what_perf_wrote() -> None:
    trace = parse_trace((CAPTURED / "perf-script-block.txt").read_text().splitlines())
    assert (trace.events, trace.foreign, trace.lost, trace.requeued, trace.unmatched) == (253, 0, 0, 55, 1)
    wal = [request for request in trace.requests if request.device == "7:1"]
    assert [(request.direction, request.completed is not None) for request in wal] == [("flush", True), ("write", True)] or sorted(
        request.direction for request in wal
    ) == ["flush", "write"]
    assert all(request.size == 0 and request.completed is not None for request in wal if request.direction == "flush")


def test_counts_lost_events() -> None:
    trace = parse_trace((CAPTURED / "perf-script-lost.txt").read_text().splitlines())
    assert (trace.lost, trace.events, trace.foreign) == (54, 1, 0)


def test_a_request_that_is_handed_back_is_one_from_its_first_issue_on() -> None:
    trace = parse_trace([line("issue", 8, at=1.0), line("requeue", 8, at=1.1), line("issue", 8, at=1.2), line("complete", 8, at=1.5)])
    (request,) = trace.requests
    assert (request.issued, request.completed, trace.requeued) == (1.0, 1.5, 1)


def test_the_last_part_completes_a_request() -> None:
    trace = parse_trace([line("issue", 8, 16), line("complete", 8, 8, at=2.0), line("complete", 16, 8, at=3.0)])
    assert [request.completed for request in trace.requests] == [3.0]
    assert trace.unmatched == 0


def test_a_lost_completion_does_not_shift_those_that_follow() -> None:
    lines = [line("issue", 8, at=float(place)) for place in range(3)] + [line("complete", 8, at=2.5)]
    trace = parse_trace(lines)
    assert [request.completed for request in trace.requests] == [None, None, 2.5]
    assert trace.incomplete == 2


def test_a_flush_has_no_size_and_its_write_without_sectors_is_not_counted() -> None:
    trace = parse_trace([line("issue", 0, 0, rwbs="FF"), line("complete", 2**64 - 1, 0, rwbs="FF", at=1.5), line("complete", 0, 0, at=1.6)])
    assert [(request.direction, request.size, request.completed) for request in trace.requests] == [("flush", 0, 1.5)]
    assert trace.unmatched == 0


@given(st.sampled_from(["R", "RA", "RSM"]), st.sampled_from(["W", "WS", "WFS", "FWS", "WSM"]))
def test_directions(read: str, write: str) -> None:
    trace = parse_trace([line("issue", 8, rwbs=read), line("issue", 800, rwbs=write), line("issue", 8000, rwbs="DS")])
    assert [request.direction for request in trace.requests] == ["read", "write", "discard"]


@given(st.text(max_size=80))
def test_other_lines_are_counted_and_nothing_else(text: str) -> None:
    trace = parse_trace(text.splitlines())
    assert not trace.requests
