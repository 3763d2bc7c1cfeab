"""`pgherd place --verify` with real servers: a plan of two hosts, one of which is overloaded in one slot."""

from __future__ import annotations

import json

import pytest

from pgherd.host import cgroup_parent
from pgherd.node.local import LocalNode


@pytest.fixture(autouse=True)
def _needs_cgroups() -> None:
    try:
        cgroup_parent.find(LocalNode())
    except cgroup_parent.CgroupUnavailable as error:
        pytest.skip(str(error))


def test_a_plan_is_verified(pgherd, tmp_path) -> None:
    """CPU per transaction is the same whatever else runs here, so the slots' ratio of CPU to rate is known, if not their CPU."""
    (tmp_path / "hosts.yaml").write_text("classes:\n  - name: big\n    capacity: {cpu_cores: 4, memory_mb: 4000}\n")
    rows = ["database,time,cpu_cores,memory_mb", "a,0,1.2,90", "a,1,0.6,80", "b,0,1.2,", "b,1,0.6,60", "c,0,1.0,10", "c,1,6.0,20"]
    (tmp_path / "demand.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "now.csv").write_text("database,host\na,big-1\nb,big-1\nc,big-2\n")
    inputs = (str(tmp_path / "demand.csv"), "--hosts", str(tmp_path / "hosts.yaml"), "--constraints", str(tmp_path / "now.csv"))
    plan = ("--risk-percent", "60", "--max-moves", "0", "--slo", "p50=30ms")
    ended = pgherd("place", *inputs, *plan, "--verify", "2", "--verify-duration", "1500ms", "--verify-cores", "0.6", "--json")
    assert ended.code in (0, 1), ended
    document = json.loads(ended.out)
    assert document["study"] == "place-verify"
    trials = {(trial["trial"]["point"]["stage"], trial["trial"]["repeat"]): trial for trial in pgherd.trials()}
    capacity, verification = trials["capacity", 0], trials["verification", 0]
    assert len(trials["calibration", 0]["phases"]) == 6 and len(trials) == 3
    reference = "local/reference/db001/bench"
    phases = [phase for stage in ("calibration", "verification") for phase in trials[stage, 0]["trial"]["phases"]]
    assert len({phase["loads"][reference]["rate"] for phase in phases}) == 1, "the reference database has one rate"
    assert [phase["phase"] for phase in verification["phases"]] == ["slot1", "slot2"]
    cost = document["findings"]["cpu_per_transaction"]["value"] / 1000
    for phase in verification["phases"]:
        for host in ("host1", "host2"):
            rate = sum(target["throughput"] for target in phase["targets"] if target["target"].split("/")[1] == host)
            assert 0.4 < phase["metrics"][f"container:{host}"]["cpu.usage"] / (cost * rate) < 2.5, (host, phase["phase"])
    slots = {(row["planned_host"], row["slot"]): row for row in document["tables"]["slots"]}
    assert {key for key, row in slots.items() if row["overload_predicted"] == "yes"} == {("big-2", "12:00")}
    assert all(0.3 < row["slowness"] < 3 for row in slots.values())
    # Unknown memory counts as the largest known one, and servers with data of scales 4 and 2, or 1, differ as predicted.
    containers = verification["trial"]["deployment"]["hosts"][0]["containers"]
    scales = [[database["scale"] for server in one["servers"] for database in server["databases"]] for one in containers]
    assert scales == [[1], [4, 2], [1]], "of the fullest host, the other one and the reference database"
    assert document["findings"]["memory_error"]["value"] < 0.15, document["tables"]["slots"]
    assert all(60 < row["predicted_memory"] < 400 for row in slots.values() if row["planned_host"] == "big-1")
    assert slots["big-2", "12:00"]["latency_class"] == "beyond" and slots["big-2", "12:00"]["host_late_share"]["value"] > 0.5
    assert document["findings"]["latency_class_right"]["n"] >= 1
    assert document["findings"]["cpu_error"]["n"] == 4 and "cores of this host" in document["details"][0]
    assert all(trial["trial"]["deployment"]["hosts"][0]["containers"][0]["cpu_mode"] == "quota" for trial in (capacity, verification))
    pgherd.ended_well(ended)
