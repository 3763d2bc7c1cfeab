import pytest

from pgherd.analysis.checkpoint_latency import split
from pgherd.model.io_view import Checkpoint


def test_a_transaction_is_inside_when_a_part_of_it_is() -> None:
    checkpoints = [Checkpoint(server="a/pg", start=2.0, end=4.0)]
    # Ends at second 1, 3 (within), 4.5 after 600 ms (overlaps), 4.5 after 100 ms, and outside of the window.
    found = split([(101.0, 1.0), (103.0, 1.0), (104.5, 600.0), (104.5, 100.0), (99.0, 1.0)], 100.0, 110.0, checkpoints)
    assert {key: sum(counts.values()) for key, counts in found["latency"].items()} == {"inside": 2, "outside": 2}
    assert found["latency_by_second"][4] == pytest.approx(350.0)
    assert found["latency_by_second"][5] is None and len(found["latency_by_second"]) == 10


def test_overlapping_checkpoints_of_several_servers() -> None:
    checkpoints = [Checkpoint(server="a/pg", start=0.0, end=8.0), Checkpoint(server="b/pg", start=2.0, end=3.0)]
    found = split([(105.0, 1.0)], 100.0, 110.0, checkpoints)
    assert sum(found["latency"]["inside"].values()) == 1


def test_without_transactions_there_is_nothing() -> None:
    assert split([], 0.0, 5.0, []) == {"latency": {}, "latency_by_second": []}
