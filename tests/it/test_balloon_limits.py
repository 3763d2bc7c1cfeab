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


def test_the_balloon_gives_back_what_a_smaller_limit_swaps(pgherd) -> None:
    """The database fills the pool of 144 MB. Below a limit of 128 MB a native pool swaps, or the kernel kills it."""
    pgherd.patience = 400.0
    words = ("--pools", "large,balloon", "--swap", "zram", "--memory", "256MB", "--limits", "100,50,100", "--scale", "12")
    times = ("--repeats", "1", "--duration", "10s", "--warmup", "3s", "--time-budget", "1s")
    ended = pgherd("balloon", "limits", *words, *times, "--yes", "--json")
    assert ended.code in (0, 1), ended
    trials = {trial["trial"]["point"]["pool"]: trial for trial in pgherd.trials()}
    large, balloon = trials["large"], trials["balloon"]
    assert balloon["error"] is None and not balloon["oom_kills"]
    started, halved, restored = balloon["phases"]
    assert started["limited_after"] == {} and halved["limited_after"]["server"] > 0
    assert halved["metrics"]["server:server/pg"]["balloon.bytes"] > 0
    usage = {name: phase["metrics"]["container:server"]["memory.usage"] for name, phase in (("halved", halved), ("restored", restored))}
    assert usage["halved"] < 180 * MB < usage["restored"], usage  # means of the phases, of which the first second may be above the limit
    assert large["oom_kills"] if large["error"] else large["phases"][1]["metrics"]["container:server"]["memory.swap"] > 0
    rows = {(row["pool"], row["number"]): row for row in json.loads(ended.out)["tables"]["balloon-limits"]}
    assert rows["balloon", 1]["refused"] == "0 of 1" and rows["balloon", 1]["limited_after"]["value"] > 0
