import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.analysis.io_pattern import MAX_SIZES, adjacent_share, burstiness, label, patterns, sizes, window_share
from pgherd.model.device_io import BlockRequest, Direction

KB = 1024


def stream(offsets: list[int], size: int = 8 * KB, direction: Direction = "write") -> list[BlockRequest]:
    return [
        BlockRequest("7:0", direction, offset, size, 0.001 * position, 0.001 * position + 0.0005) for position, offset in enumerate(offsets)
    ]


def test_one_after_the_other_is_sequential_by_both_rules() -> None:
    requests = stream([position * 8 * KB for position in range(200)])
    assert (adjacent_share(requests), window_share(requests)) == (1.0, 1.0)


def test_anywhere_on_a_large_device_is_random(seed: int) -> None:
    rng = random.Random(seed)
    requests = stream([rng.randrange(2**27) * 8 * KB for _ in range(500)])
    assert (adjacent_share(requests) or 0) < 0.01 and (window_share(requests) or 0) < 0.01


def test_streams_that_take_turns_are_sequential_by_the_window_only() -> None:
    requests = stream([turn * 8 * KB + position * 2**30 for turn in range(100) for position in range(8)])
    assert adjacent_share(requests) == 0.0
    assert (window_share(requests) or 0) > 0.95


def test_writing_the_last_page_again_is_near_but_not_adjacent() -> None:
    """What WAL does: each commit writes its last page once more."""
    requests = stream([position * 4 * KB for position in range(100)], size=8 * KB)
    assert (adjacent_share(requests), window_share(requests)) == (0.0, 1.0)


@given(st.floats(0, 1))
def test_labels(share: float) -> None:
    assert label(share, 1000) == ("sequential" if share >= 0.7 else "random" if share <= 0.3 else "mixed")
    assert label(share, 49) == label(None, 1000) == "too few requests"


def test_many_sizes_are_counted_together() -> None:
    requests = [BlockRequest("7:0", "read", 0, 512 * (1 + position % 100), 0.0, None) for position in range(1000)]
    result = sizes(requests)
    assert len(result) == MAX_SIZES + 1 and sum(result.values()) == 1000 and result[0] == 600


def test_patterns_by_direction_and_of_reads_and_writes_together() -> None:
    reads, writes = stream([0, 8 * KB], direction="read"), stream([2**20] * 3)
    result = patterns([*writes, *reads, BlockRequest("7:0", "flush", 0, 0, 1.0, 1.1)])
    assert {kind: item.requests for kind, item in result.items()} == {"read": 2, "write": 3, "flush": 1, "all": 5}
    assert result["write"].bytes == 3 * 8 * KB and sum(result["flush"].latency.values()) == 1


def test_a_square_wave_has_the_bursts_that_it_was_made_of() -> None:
    result = burstiness(([1.0] * 8 + [21.0] * 2) * 3)
    assert result is not None
    assert (result.mean, len(result.bursts), result.burst_rate) == (pytest.approx(5.0), 3, pytest.approx(21.0))
    assert result.peak_to_mean == pytest.approx(4.2)
    assert [(burst.first, burst.last, burst.amount) for burst in result.bursts[:1]] == [(8, 9, pytest.approx(42.0))]


def test_a_steady_stream_has_none() -> None:
    result = burstiness([5.0] * 10)
    assert result is not None
    assert (result.bursts, result.rate_cv, result.peak_to_mean, result.burst_rate) == ((), 0.0, 1.0, None)
    assert burstiness([1.0, 2.0]) is None and burstiness([0.0] * 5) is None


@given(st.lists(st.floats(0, 1e9), min_size=3, max_size=50).filter(lambda rates: sum(rates) > 1e-6))
def test_peak_is_at_least_the_mean_and_bursts_do_not_overlap(rates: list[float]) -> None:
    result = burstiness(rates)
    assert result is not None and result.peak_to_mean >= 1 - 1e-9
    ends = [location for burst in result.bursts for location in (burst.first, burst.last)]
    assert ends == sorted(ends)
