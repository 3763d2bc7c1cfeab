"""The balloon's benchmarks in their quick forms: they run, and what they write is well-formed. No timing makes a test fail."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def test_balloon(quick):
    document = quick("balloon")
    assert {"inflation", "pair", "window"} <= {key for row in document["raw"] for key in row}


def test_balloon_native(quick):
    document = quick("balloon_native")
    turns = [row for row in document["raw"] if "round" in row]
    windows = [row for row in document["raw"] if "window" in row]
    assert {row["mix"] for row in turns} == {"in the pool", "a third past it"} and {row["start"] for row in turns} == {1, 2}
    assert all(row[f"{side} cpu"] > 0 for row in turns for side in ("ballooned", "native"))
    assert all(("native of the same size cpu" in row) == (row["mix"] == "in the pool") for row in turns), "it would hold all of the others"
    ratios, longest = document["figures"][:5], document["figures"][5:]
    assert [figure["n"] for figure in ratios] == [2] * 5, "an interval is that of the starts, not of their rounds"
    for side, figure in zip(("ballooned", "native"), longest, strict=True):
        assert figure["value"] == max(row[f"{side} longest ms"] for row in windows) > 0 and figure["n"] == len(windows)


def script(name: str):
    sys.path.insert(0, str(Path(__file__).parent))
    return importlib.import_module(name)


def grid():
    return script("balloon_grid")


@pytest.mark.parametrize("content", ["compressible", "random"])
def test_balloon_grid(quick, content):
    document = quick("balloon_grid", "--content", content)
    assert all(content in row["cell"] for row in document["raw"])
    assert [row["block"] for row in document["raw"]] == [1, 2] and len(document["figures"]) == 4


def test_data_that_cannot_be_made_leave_no_group_behind():
    pair = script("balloon_pair")
    from pgherd.model.errors import CapabilityError

    with pair.place_for(None) as place:
        try:
            with pytest.raises(KeyError):
                pair.Pair(place, "system", 256 * pair.MB, 64 * pair.MB, "of no kind", 1)
        except (CapabilityError, PermissionError) as error:
            pytest.skip(str(error))
    assert not list(Path("/sys/fs/cgroup").glob(f"*/pgherd-grid-{os.getpid()}"))


def test_a_pool_is_never_compared_on_the_blocks_that_chose_it():
    balloon_grid = grid()
    rows = []
    for block in range(1, 9):
        best = "10 %" if block % 2 else "75 %"  # luck: another one in each half
        rows.append({"block": block, **{f"{side} tps": 200.0 if side == best else 100.0 for side in balloon_grid.SIDES}})
    pairs = balloon_grid.compared(rows)
    assert len(pairs) == 8
    assert all(best == ("75 %" if row["block"] % 2 else "10 %") for row, best in pairs)
    assert balloon_grid.compared(rows[:1]) == []


def test_a_pool_that_is_far_behind_in_each_block_is_not_run_again():
    balloon_grid = grid()

    def block(**tps):
        return {f"{side.replace('_', '')} % tps": value for side, value in tps.items()} | {"75 % + balloon tps": 1000.0}

    one, other = block(_10=70.0, _25=89.0, _50=91.0, _75=100.0), block(_10=90.0, _25=79.0, _50=60.0, _75=20.0)
    assert balloon_grid.hopeless([one]) == (), "of one block it may have been luck"
    assert balloon_grid.hopeless([one, one]) == ("10 %", "25 %")
    assert balloon_grid.hopeless([one, other]) == (), "the best one is another in each; what the balloon made does not matter"
    two = [one, one, block(_50=100.0, _75=50.0)]
    assert balloon_grid.hopeless(two) == ("10 %", "25 %"), "who is out stays out, and the pool of 75 % is always run"
    rows = [{"block": number, **row} for number, row in enumerate([*two, two[-1]], 1)]
    assert [best for _, best in balloon_grid.compared(rows)] == ["50 %"] * 4, (
        "191 in either half against 150; of the others there is no more"
    )
    former = [row | {"former": True, "cell": "one"} for row in two]
    assert balloon_grid.hopeless(former) == ("10 %", "25 %") and balloon_grid.figures(former) == [], "it counts for this alone"


def found(value: float, low: float | None, high: float | None):
    from pgherd.analysis.intervals import Estimate

    return Estimate(value=value, low=low, high=high, confidence=0.95, n=8, method="made up")


def test_a_bound_that_is_not_reached_is_not_called_met():
    balloon_grid = grid()
    assert balloon_grid.at_least(found(1.0, 0.92, 1.1), 0.95, 0.90) is True
    assert balloon_grid.at_least(found(1.0, 0.80, 1.2), 0.95, 0.90) is None
    assert balloon_grid.at_least(found(0.8, 0.70, 0.9), 0.95, 0.90) is False


def test_after_how_many_seconds_a_phase_is_at_half_of_its_throughput():
    """A hundred per second from the third second on, and ten before."""
    half_after = script("balloon_pair").half_after
    slow, fast = [n / 10 for n in range(20)], [2 + n / 100 for n in range(800)]
    assert half_after(slow + fast, 10) == pytest.approx(2.3, abs=0.11), "the first half of a second of which more than the half is fast"
    assert half_after([n / 100 for n in range(1000)], 10) == 0.5
    assert half_after([], 10) == 10, "of nothing nothing is the half"
    assert half_after([*slow, *fast[::-1]], 10) == half_after(slow + fast, 10), "several threads log out of order"


def test_transactions_that_overlap_with_an_inflation():
    """pgbench's log: client, number, microseconds that it took, script, and when it ended in seconds and microseconds since 1970."""
    log = [
        "0 1 1000 0 100 500000",  # ended before
        "0 2 700000 0 101 200000",  # began before, ended within
        "0 3 100000 0 101 400000",
        "1 1 5000000 0 105 0 17",  # began before, ended after; with a lag behind its schedule in the last column
        "0 4 1000 0 103 0",  # began after
    ]
    assert script("balloon").overlapping(log, 101.0, 102.0) == [0.7, 0.1, 5.0]


def test_a_stall_that_the_machine_makes_too_is_nobodys():
    balloon = script("balloon")

    def said(longest: float, without: float) -> bool | None:
        row = {
            "inflating longest ms": longest, "left longest ms": without, "inflating transactions": 10.0, "left transactions": 12.0,
            "inflating GB/s": 3.0,
        }  # fmt: skip
        return balloon.stalls([row, row | {"inflating longest ms": 1.0}])[0].met

    assert [said(15, 30), said(25, 3), said(25, 30)] == [True, False, None]


def test_sizes_that_are_none_are_refused():
    native = script("balloon_native")
    from pgherd.model.errors import UsageError

    assert native.sizes_of("1024:8,8192:64") == [(1024, 8), (8192, 64)]
    for words in ("1024", "1024:x", "64:8", "1024:0", ""):
        with pytest.raises(UsageError, match="--sizes"):
            native.sizes_of(words)


def test_controller_constants_real(quick):
    document = quick("controller_constants_real", "--constant", "RAMP")
    assert {row["side"] for row in document["raw"]} == {"as shipped", "RAMP halved", "RAMP doubled"}
    assert len(document["figures"]) == 6 and all(row["tps"] > 0 for row in document["raw"])
