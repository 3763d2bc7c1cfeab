"""`pgherd isolation` with real servers and a known truth: CPU shares that a quota and a cpuset enforce."""

from __future__ import annotations

import json
import os
import shutil
from typing import Any

import pytest

from pgherd.host import cgroup_parent
from pgherd.node.local import LocalNode
from pgherd.studies.isolation.options import AGGRESSORS, ALONE, FIO


@pytest.fixture(autouse=True)
def _needs_cgroups() -> None:
    try:
        base = cgroup_parent.find(LocalNode())
    except cgroup_parent.CgroupUnavailable as error:
        pytest.skip(str(error))
    if "cpuset" not in base.controllers or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs and the cpuset controller")


def test_fio_runs_in_the_container_of_the_aggressor(pgherd) -> None:
    """Reads and writes are limited to 100 per second each. fio outside the container would not be."""
    if not cgroup_parent.find(LocalNode()).limits_io:
        pytest.skip("no io or blkio controller")
    load = ("--schemes", "io", "--iops", "100", "--aggressors", "fio", "--workload", "select-only", "--rate", "500", "--vcpus", "0.5")
    ended = pgherd("isolation", *load, *_SIZE, "--json")
    if "file system without a block device" in ended.err or "needs direct I/O" in ended.err:
        pytest.skip(ended.err)
    assert ended.code in (0, 1), ended
    found = {trial["trial"]["point"]["aggressor"]: trial for trial in pgherd.trials()}
    (fio,) = [target for target in found["fio"]["phases"][0]["targets"] if target["driver"] == "fio"]
    assert fio["target"] == "local/aggressor/pg/bench" and 20 < fio["throughput"] < 300, fio
    (row,) = json.loads(ended.out)["tables"]["isolation"]
    assert row["aggressor_throughput"]["unit"] == "IOPS" and row["throughput_ratio"]["value"] > 0
    pgherd.judged_fairly()


def test_each_aggressor_has_its_effect_on_its_server(pgherd) -> None:
    """Each is compared with the trial alone, in which its server is idle."""
    names = [name for name in AGGRESSORS if name != FIO or shutil.which("fio")]
    load = ("--schemes", "quota", "--aggressors", ",".join(names), "--workload", "select-only", "--rate", "300", "--vcpus", "0.5")
    pgherd.patience = 300.0
    ended = pgherd("isolation", *load, *_SIZE, "--duration", "5s", "--json")
    if "file system without a block device" in ended.err or "needs direct I/O" in ended.err:
        pytest.skip(ended.err)
    assert ended.code in (0, 1), ended
    found = {trial["trial"]["point"]["aggressor"]: trial for trial in pgherd.trials()}
    assert set(found) == {ALONE, *names}
    grown = {name: _growth(found[name], found[ALONE]) for name in names}
    assert grown["cpu"]["cpu.usage"] > 0.05 and grown["cpu"]["db.temp_bytes"] < 1000, grown["cpu"]
    assert grown["memory"]["memory.anon"] > 16 * 2**20, grown["memory"]
    assert grown["buffers"]["db.blks_hit"] + grown["buffers"]["db.blks_read"] > 1000, grown["buffers"]
    assert grown["wal"]["wal.bytes"] > 2**20, grown["wal"]
    assert grown["temp"]["db.temp_bytes"] > 2**20, grown["temp"]
    assert grown["checkpoint"]["checkpoint.requested"] > 0.1, grown["checkpoint"]
    assert grown["vacuum"]["db.tup_updated"] > 1000, grown["vacuum"]
    assert "average connection time" in _output(pgherd, found["connections"]) and "average connection" not in _output(pgherd, found["cpu"])
    assert FIO not in found or _aggressor(found[FIO])["throughput"] > 1
    assert all(_aggressor(found[name])["transactions"] > 0 for name in names if name != FIO)
    pgherd.judged_fairly()


def _growth(trial, alone) -> dict[str, float]:
    """Return what the aggressor's container and server have more of than alone."""
    found: dict[str, float] = {}
    for entity in ("container:aggressor", "server:aggressor/pg"):
        (metrics,), (before,) = ([phase["metrics"][entity] for phase in one["phases"]] for one in (trial, alone))
        found |= {name: value - before.get(name, 0.0) for name, value in metrics.items()}
    return found


def _aggressor(trial) -> dict[str, Any]:
    return next(target for target in trial["phases"][0]["targets"] if "aggressor" in target["target"])


def _output(pgherd, trial) -> str:
    (name,) = [name for name in _aggressor(trial)["raw"] if name.endswith("/stdout")]
    return (pgherd.run / "trials" / trial["id"] / name).read_text()


def test_schemes_limit_the_cpu_as_they_are_named(pgherd) -> None:
    """Only ``quota`` has quota periods. In ``shared-server`` both loads are in one container."""
    load = ("--aggressors", "wal", "--workload", "select-only", "--rate", "500", "--vcpus", "0.5", "--host-cores", "1")
    ended = pgherd("isolation", "--schemes", "shared-server,quota,weights", "--cpu-weight", "300", *load, *_SIZE, "--json")
    assert ended.code in (0, 1), ended
    tables = json.loads(ended.out)["tables"]
    rows = {row["scheme"]: row for row in tables["isolation"]}
    assert ("shared-server", "wal") in {(row["scheme"], row["aggressor"]) for row in tables["wait_events"]}
    assert set(rows) == {"shared-server", "quota", "weights"}
    assert all(row["throughput_ratio"]["value"] > 0 and row["aggressor_throughput"]["value"] > 0 for row in rows.values())
    for trial in pgherd.trials():
        scheme, metrics = trial["trial"]["point"]["scheme"], trial["phases"][0]["metrics"]
        periods = {name.partition(":")[2]: values["cpu.periods"] for name, values in metrics.items() if name.startswith("container:")}
        assert set(periods) == ({"all"} if scheme == "shared-server" else {"victim", "aggressor"})
        assert all(value == 0 for value in periods.values()) if scheme == "weights" else any(periods.values()), (scheme, periods)
        weights = [one["weight"] for one in trial["trial"]["deployment"]["hosts"][0]["containers"]]
        assert weights == ([300, 100] if scheme == "weights" else [None] * len(periods))
    pgherd.judged_fairly()


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


@pytest.mark.long  # its grade needs a host without other tests
def test_a_victim_on_a_cpu_of_its_own_keeps_a_rate_that_it_can_reach(pgherd) -> None:
    load = ("--aggressors", "cpu", "--workload", "select-only", "--rate", "600", "--clients", "1", "--aggressor-clients", "1")
    ended = pgherd("isolation", "--schemes", "cpuset", "--vcpus", "1", *load, *_SIZE, "--json")
    assert ended.code in (0, 1), ended
    ratio = json.loads(ended.out)["findings"]["throughput_ratio{scheme=cpuset,aggressor=cpu}"]
    assert ratio["value"] == pytest.approx(1, abs=0.2), "1800 random arrivals in each trial"
    pgherd.ended_well(ended)
