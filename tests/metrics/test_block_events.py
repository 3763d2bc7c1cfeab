from hypothesis import given
from hypothesis import strategies as st

from pgherd.metrics.block_events import parse


def line(event: str, sector: int, sectors: int = 16, *, at: float = 1.0, rwbs: str = "WS", device: str = "7,0") -> str:
    size = f"{sectors * 512} " if event == "issue" else ""
    return f"{at:.9f}: block:block_rq_{event}: {device} {rwbs} {size}() {sector} + {sectors} 0x2,0,4 [fio]"


def test_reads_what_perf_wrote(text) -> None:
    trace = parse(text("perf-script-block.txt").splitlines())
    assert (trace.events, trace.foreign, trace.lost, trace.requeued, trace.unmatched) == (253, 0, 0, 55, 1)
    wal = [request for request in trace.requests if request.device == "7:1"]
    assert [(request.direction, request.completed is not None) for request in wal] == [("flush", True), ("write", True)] or sorted(
        request.direction for request in wal
    ) == ["flush", "write"]
    assert all(request.size == 0 and request.completed is not None for request in wal if request.direction == "flush")


def test_counts_lost_events(text) -> None:
    trace = parse(text("perf-script-lost.txt").splitlines())
    assert (trace.lost, trace.events, trace.foreign) == (54, 1, 0)


def test_a_request_that_is_handed_back_is_one_from_its_first_issue_on() -> None:
    trace = parse([line("issue", 8, at=1.0), line("requeue", 8, at=1.1), line("issue", 8, at=1.2), line("complete", 8, at=1.5)])
    (request,) = trace.requests
    assert (request.issued, request.completed, trace.requeued) == (1.0, 1.5, 1)


def test_the_last_part_completes_a_request() -> None:
    trace = parse([line("issue", 8, 16), line("complete", 8, 8, at=2.0), line("complete", 16, 8, at=3.0)])
    assert [request.completed for request in trace.requests] == [3.0]
    assert trace.unmatched == 0


def test_a_lost_completion_does_not_shift_those_that_follow() -> None:
    lines = [line("issue", 8, at=float(place)) for place in range(3)] + [line("complete", 8, at=2.5)]
    trace = parse(lines)
    assert [request.completed for request in trace.requests] == [None, None, 2.5]
    assert trace.incomplete == 2


def test_a_flush_has_no_size_and_its_write_without_sectors_is_not_counted() -> None:
    trace = parse([line("issue", 0, 0, rwbs="FF"), line("complete", 2**64 - 1, 0, rwbs="FF", at=1.5), line("complete", 0, 0, at=1.6)])
    assert [(request.direction, request.size, request.completed) for request in trace.requests] == [("flush", 0, 1.5)]
    assert trace.unmatched == 0


@given(st.sampled_from(["R", "RA", "RSM"]), st.sampled_from(["W", "WS", "WFS", "FWS", "WSM"]))
def test_directions(read: str, write: str) -> None:
    trace = parse([line("issue", 8, rwbs=read), line("issue", 800, rwbs=write), line("issue", 8000, rwbs="DS")])
    assert [request.direction for request in trace.requests] == ["read", "write", "discard"]


@given(st.text(max_size=80))
def test_other_lines_are_counted_and_nothing_else(text: str) -> None:
    trace = parse(text.splitlines())
    assert not trace.requests
