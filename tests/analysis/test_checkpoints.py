import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.analysis.checkpoints import aligned, inside, latency_fields, stalls
from pgherd.model.device_io import Checkpoint


def test_a_transaction_is_inside_when_a_part_of_it_is() -> None:
    checkpoints = [Checkpoint(server="a/pg", start=2.0, end=4.0)]
    # Ends at second 1, 3 (within), 4.5 after 600 ms (overlaps), 4.5 after 100 ms, and outside of the window.
    result = latency_fields([(101.0, 1.0), (103.0, 1.0), (104.5, 600.0), (104.5, 100.0), (99.0, 1.0)], 100.0, 110.0, checkpoints)
    assert {key: sum(counts.values()) for key, counts in result["latency"].items()} == {"inside": 2, "outside": 2}
    assert result["latency_by_second"][4] == pytest.approx(350.0)
    assert result["latency_by_second"][5] is None and len(result["latency_by_second"]) == 10


def test_overlapping_checkpoints_of_several_servers() -> None:
    checkpoints = [Checkpoint(server="a/pg", start=0.0, end=8.0), Checkpoint(server="b/pg", start=2.0, end=3.0)]
    result = latency_fields([(105.0, 1.0)], 100.0, 110.0, checkpoints)
    assert sum(result["latency"]["inside"].values()) == 1


def test_without_transactions_there_is_nothing() -> None:
    assert latency_fields([], 0.0, 5.0, []) == {"latency": {}, "latency_by_second": []}


LONG = 30
AT = [float(second + 1) for second in range(LONG)]
EACH = [1.0] * LONG
CHECKPOINT = Checkpoint(server="a/pg", start=8.0, end=15.0, cause="time")


def dented(*places: int, to: float = 0.1) -> list[float]:
    return [100.0 * (to if position in places else 1.0) for position in range(LONG)]


def test_a_drop_of_both_in_a_checkpoint_is_its_stall() -> None:
    (result,) = stalls(AT, EACH, dented(10, 11), dented(10, 11), [CHECKPOINT]) or []
    assert (result.start, result.end, result.checkpoint) == (10.0, 12.0, CHECKPOINT)
    assert (result.wal, result.transactions) == (pytest.approx(0.1), pytest.approx(0.1))


@pytest.mark.parametrize(("second", "tied"), [(2, False), (5, False), (16, True), (18, False), (25, False)])
def test_what_a_stall_belongs_to(second: int, tied: bool) -> None:
    (result,) = stalls(AT, EACH, dented(second, second + 1), dented(second, second + 1), [CHECKPOINT]) or []
    assert (result.checkpoint is not None) == tied


def test_one_of_them_alone_is_no_stall() -> None:
    assert stalls(AT, EACH, dented(10, 11), dented(), [CHECKPOINT]) == []
    assert stalls(AT, EACH, dented(), dented(10, 11), [CHECKPOINT]) == []


def test_noise_is_no_stall() -> None:
    assert stalls(AT, EACH, dented(3, 9, 20), dented(3, 9, 20), [CHECKPOINT]) == [], "single seconds"
    assert stalls(AT, EACH, dented(9, 10, 11, to=0.6), dented(9, 10, 11, to=0.6), [CHECKPOINT]) == [], "not low enough"


def test_a_checkpoint_that_is_slow_throughout_is_held_against_what_lies_outside() -> None:
    long = Checkpoint(server="a/pg", start=5.0, end=25.0)
    slow = range(5, 25)
    (result,) = stalls(AT, EACH, dented(*slow, to=0.4), dented(*slow, to=0.4), [long]) or []
    assert (result.start, result.end, result.checkpoint) == (5.0, 25.0, long)


def test_nothing_is_said_of_what_is_too_short_or_does_not_write() -> None:
    assert stalls(AT[:9], EACH[:9], dented()[:9], dented()[:9], []) is None
    assert stalls(AT, EACH, [0.0] * LONG, dented(), []) is None
    assert stalls(AT, EACH, dented(), [None] * LONG, []) is None


def test_an_open_checkpoint_lasts_to_the_end() -> None:
    open_ = Checkpoint(server="a/pg", start=20.0)
    (result,) = stalls(AT, EACH, dented(28, 29), dented(28, 29), [open_]) or []
    assert result.checkpoint == open_
    assert inside(25.0, 1.0, [open_]) and not inside(20.0, 1.0, [open_])


@given(st.lists(st.floats(0, 1000), min_size=2, max_size=40))
def test_aligned_over_the_whole_is_the_mean(per_second: list[float]) -> None:
    length = float(len(per_second))
    (result,) = aligned([length], [length], per_second)
    assert result == pytest.approx(sum(per_second) / length)


def test_aligned_takes_parts_of_seconds() -> None:
    assert aligned([1.5, 2.5, 9.0], [1.0, 1.0, 1.0], [10.0, 20.0, 40.0]) == [pytest.approx(15.0), pytest.approx(30.0), None]
