"""`pgherd balloon limits` with real servers: a limit that the kernel enforces, and a balloon that makes room for it."""

from __future__ import annotations

import json

import pytest

from pgherd.host import cgroup_parent
from pgherd.host import swap as host_swap
from pgherd.model.errors import CapabilityError
from pgherd.model.run import Swap
from pgherd.node.local import LocalNode

MB = 2**20


@pytest.fixture(autouse=True)
def _needs_cgroups_and_swap() -> None:
    try:
        cgroup_parent.find(LocalNode())
        host_swap.check(LocalNode(), Swap(kind="zram", size=256 * MB))
    except (cgroup_parent.CgroupUnavailable, CapabilityError) as error:
        pytest.skip(str(error))


def test_a_pool_keeps_to_a_smaller_limit_or_is_killed(pgherd) -> None:
    """The database fills the pool of 144 MB. Below a limit of 128 MB a native pool swaps, or the kernel kills it."""
    pgherd.patience = 400.0
    words = ("--pools", "large,balloon", "--swap", "zram", "--memory", "256MB", "--limits", "100,50,100", "--scale", "12")
    times = ("--repeats", "1", "--duration", "10s", "--warmup", "3s", "--time-budget", "1s")
    ended = pgherd("balloon", "limits", *words, *times, "--yes", "--json")
    assert ended.code in (0, 1), ended
    trials = {trial["trial"]["point"]["pool"]: trial for trial in pgherd.trials()}
    document = json.loads(ended.out)
    rows = {(row["pool"], row["number"]): row for row in document["tables"]["balloon-limits"]}
    pools = {row["pool"]: row for row in document["tables"]["pools"]}
    assert set(trials) == set(pools) == {"large", "balloon"}
    for pool, trial in trials.items():
        if trial["error"]:  # more likely without a balloon, and on a busy host
            assert trial["oom_kills"] and pools[pool]["killed"] == "1 of 1", trial["error"]
            assert "an OOM kill ended 1 of 1 trials" in rows[pool, 1]["throughput"]["note"]
            continue
        started, halved, restored = trial["phases"]
        counts, latency = started["targets"][0], halved["targets"][0]["latency"]
        assert counts["latency"]["sampled"] >= 0.9 * counts["transactions"], "every transaction is logged"
        assert rows[pool, 1]["slowest"]["value"] == latency["maximum"] >= rows[pool, 1]["slowest_added"]["value"]
        after = halved["limited_after"]["server"]
        in_time = after is not None and after <= (halved["end"] - halved["start"]) / 2  # on a busy host the kernel may reclaim for longer
        assert started["limited_after"] == {} and rows[pool, 1]["refused"] == f"{1 - in_time} of 1"
        if not in_time:
            assert rows[pool, 1]["limited_after"]["value"] is None
            continue
        assert rows[pool, 1]["limited_after"]["value"] > 0
        usage, metrics = ([phase["metrics"]["container:server"]["memory.usage"] for phase in (halved, restored)], halved["metrics"])
        assert usage[0] < 180 * MB < usage[1], "means of the phases"
        if pool == "balloon":
            assert metrics["server:server/pg"]["balloon.bytes"] > 8 * MB
        else:
            assert metrics["container:server"]["memory.swap"] > 0 and "balloon.bytes" not in metrics["server:server/pg"]


@pytest.mark.long  # a busy host makes it repeat its trials for ten minutes, for no grade
@pytest.mark.timeout(900)
def test_three_repeats_have_intervals_and_a_grade(pgherd) -> None:
    """The data of 30 MB fit into every limit, so nothing but the host can spoil a trial."""
    pgherd.patience = 850.0
    words = ("--pools", "small,balloon", "--swap", "none", "--memory", "256MB", "--limits", "100,50,100", "--scale", "2")
    times = ("--repeats", "3", "--duration", "5s", "--warmup", "2s")
    ended = pgherd("balloon", "limits", *words, *times, "--yes", "--json")
    assert ended.code in (0, 1), ended
    rows = json.loads(ended.out)["tables"]["balloon-limits"]
    assert {(row["pool"], row["number"]) for row in rows} == {(pool, number) for pool in ("small", "balloon") for number in (1, 2)}
    for row in rows:
        found = row["throughput"]
        assert found["n"] == 3 and 0 < found["low"] < found["value"] < found["high"], row
    for pool in ("small", "balloon"):
        phases = [trial["phases"][1] for trial in pgherd.trials() if trial["trial"]["point"]["pool"] == pool]
        assert any(phase["limited_after"]["server"] is not None for phase in phases), "the kernel took the limit"
    pgherd.ended_well(ended)
