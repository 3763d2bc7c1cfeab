from datetime import UTC, datetime

import pytest

from pgherd.metrics.checkpoint_log import checkpoints

AT = datetime(2026, 1, 2, 3, 4, 0, tzinfo=UTC).timestamp()


def log(second: float, text: str, zone: str = "UTC") -> str:
    return f"2026-01-02 03:04:{second:06.3f} {zone} [77] LOG:  {text}"


START = "checkpoint starting: time"
DONE = (
    "checkpoint complete: wrote 930 buffers (0.7%); 0 WAL file(s) added, 1 removed, 2 recycled; write=5.200 s, sync=0.800 s, "
    "total=6.010 s; sync files=30, longest=0.500 s, average=0.027 s; distance=32768 kB, estimate=40000 kB"
)


def test_reads_a_real_log(text) -> None:
    found = checkpoints(text("checkpoint-15.log").splitlines(), "db01/pg", 0.0, 4e9)
    assert [(one.cause, one.buffers, one.write_seconds, one.sync_seconds) for one in found] == [
        ("immediate force wait", 468, 0.021, 0.062),
        ("shutdown immediate", 0, 0.008, 0.001),
    ]
    assert all(one.end is not None and one.end > one.start for one in found)


def test_reads_what_18_adds() -> None:
    told = DONE.replace("wrote 930 buffers (0.7%);", "wrote 930 buffers (0.7%), wrote 3 SLRU buffers;")
    (found,) = checkpoints([log(1, START), log(7.01, told)], "a/pg", AT, AT + 30)
    assert (found.buffers, found.sync_seconds) == (930, 0.8)


def test_takes_those_of_the_window_with_times_from_its_start() -> None:
    lines = [log(1, START), log(7.01, DONE), log(31, START), log(37.01, DONE)]
    (found,) = checkpoints(lines, "a/pg", AT + 5, AT + 30)
    assert (found.start, found.end) == (pytest.approx(-4), pytest.approx(2.01))
    assert (found.buffers, found.write_seconds, found.sync_seconds, found.distance_bytes) == (930, 5.2, 0.8, 32768 * 1024)


def test_one_that_has_not_ended_is_open() -> None:
    (found,) = checkpoints([log(10, START)], "a/pg", AT, AT + 30)
    assert found.end is None and found.cause == "time"


def test_one_whose_start_is_not_in_the_log_began_as_long_before_as_it_says() -> None:
    (found,) = checkpoints([log(7.01, DONE)], "a/pg", AT, AT + 30)
    assert found.start == pytest.approx(1.0)


def test_lines_in_another_time_zone_are_left_out() -> None:
    assert checkpoints([log(1, START, "CET"), log(7, DONE, "CET")], "a/pg", AT, AT + 30) == []
