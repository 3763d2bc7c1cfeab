"""`pgherd balloon limits` with real servers: a limit that the kernel enforces, and a balloon that makes room for it."""

from __future__ import annotations

import json

import pytest

from pgherd.host import cgroup_parent
from pgherd.node.local import LocalNode

MB = 2**20


@pytest.fixture(autouse=True)
def _needs_cgroups() -> None:
    try:
        cgroup_parent.find(LocalNode())
    except cgroup_parent.CgroupUnavailable as error:
        pytest.skip(str(error))


def test_the_balloon_makes_room_for_a_smaller_limit(pgherd) -> None:
    """The database fills the pool of 144 MB. A limit of 128 MB is below it: without a balloon it cannot be taken without swap."""
    words = ("--pools", "large,balloon", "--memory", "256MB", "--limits", "100,50,100", "--scale", "12", "--swap", "none")
    pgherd.patience = 400.0
    times = ("--repeats", "1", "--duration", "8s", "--warmup", "3s", "--time-budget", "1s")
    ended = pgherd("balloon", "limits", *words, *times, "--yes", "--json")
    assert ended.code in (0, 1), ended
    document = json.loads(ended.out)
    used = {trial["trial"]["point"]["pool"]: trial for trial in pgherd.trials() if not trial["error"]}
    assert "balloon" in used
    started, halved, restored = used["balloon"]["phases"]
    assert started["limited_after"] == {} and halved["limited_after"]["server"] is not None
    assert restored["metrics"]["container:server"]["memory.limit"] == pytest.approx(256 * MB)
    assert halved["metrics"]["server:server/pg"]["balloon.bytes"] > 0
    if "large" in used:
        assert used["large"]["phases"][1]["limited_after"]["server"] is None, "nothing gives the memory back"
    rows = {(row["pool"], row["number"]): row for row in document["tables"]["balloon-limits"]}
    assert rows["balloon", 1]["refused"] == "0 of 1" and rows["balloon", 1]["limited_after"]["value"] > 0
