"""`pgherd isolation` with real servers and a known truth: CPU shares that a quota and a cpuset enforce."""

from __future__ import annotations

import json
import os

import pytest

from pgherd.host import cgroup_parent
from pgherd.node.local import LocalNode


@pytest.fixture(autouse=True)
def _needs_cgroups() -> None:
    try:
        base = cgroup_parent.find(LocalNode())
    except cgroup_parent.CgroupUnavailable as error:
        pytest.skip(str(error))
    if "cpuset" not in base.controllers or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs and the cpuset controller")


_LOAD = ("--aggressors", "cpu", "--workload", "select-only", "--rate", "100000", "--clients", "1", "--aggressor-clients", "7")
_SIZE = ("--scale", "1", "--memory", "600MB", "--repeats", "1", "--duration", "3s", "--warmup", "1s", "--yes")


def _per_cpu(trial) -> float:
    """Return the victim's transactions per CPU second of its container. Other programs of this machine hardly change it."""
    (phase,) = trial["phases"]
    target = next(target for target in phase["targets"] if "victim" in target["target"])
    container = target["target"].split("/")[1]
    return target["throughput"] / phase["metrics"][f"container:{container}"]["cpu.usage"]


def test_an_aggressor_takes_its_share_of_a_common_container_and_nothing_of_another_one(pgherd) -> None:
    """The victim always has work. In a common container one of eight busy processes gets an eighth of the CPU time, or more where the
    scheduler favours those who often sleep. In a container on another CPU it gets all of it.
    """
    ended = pgherd("isolation", "--schemes", "shared-container,cpuset", "--vcpus", "1", *_LOAD, *_SIZE, "--json")
    assert ended.code in (0, 1), ended
    findings = json.loads(ended.out)["findings"]
    found = {(point["scheme"], point["aggressor"]): trial for trial in pgherd.trials() if (point := trial["trial"]["point"])}
    shares = {scheme: _per_cpu(found[scheme, "cpu"]) / _per_cpu(found[scheme, "none"]) for scheme in ("shared-container", "cpuset")}
    assert 0.02 < shares["shared-container"] < 0.5, shares
    assert 0.6 < shares["cpuset"] < 1.6, shares
    for scheme in shares:
        assert findings[f"throughput_ratio{{scheme={scheme},aggressor=cpu}}"]["value"] > 0
    pgherd.judged_fairly()
