"""`density --tenants` with real servers: two classes, from their references to the report."""

from __future__ import annotations

import json

import pytest

from pgherd.host import cgroup_parent
from pgherd.node.local import LocalNode

ANY_LOAD = ("--threshold", "max_background_cpu=1", "--threshold", "max_steal=1")
"""Thresholds with which no background load taints a trial."""

FLEET = "database,size,tps,peak hour\n" + "".join(
    [*(f"shop{i},{30 + i}MB,{60 + i},14\n" for i in range(9)), *(f"night{i},{60 + i}MB,{300 + i},2:30\n" for i in range(3))]
)
"""Nine databases with a peak by day, and three larger ones with one by night."""


@pytest.fixture(autouse=True)
def _needs_cgroups(pgherd) -> None:
    pgherd.patience = 300.0
    try:
        cgroup_parent.find(LocalNode())
    except cgroup_parent.CgroupUnavailable as error:
        pytest.skip(str(error))


def test_a_mix_from_servers_to_report(pgherd, tmp_path) -> None:
    """At most four tenants, three small ones and one big one: their rates are far below what a quarter of a core makes."""
    (tmp_path / "tenants.yaml").write_text(
        "classes:\n"
        "  - {name: small, count: 3, vcpus: 0.25, memory: 128MB, scale: 1, rate: 100, slo: p95=400ms}\n"
        "  - {name: big, count: 1, vcpus: 0.5, memory: 192MB, scale: 2, rate: 150, workload: tpcb-like, clients: 3}\n"
    )
    words = ("--duration", "2s", "--warmup", "0s", "--min-repeats", "1", "--databases", "4", "--time-budget", "3m", "--seed", "3")
    ended = pgherd("density", "--tenants", str(tmp_path / "tenants.yaml"), *words, *ANY_LOAD, "--json")
    assert ended.code in (0, 1), ended  # on a busy machine a rate may be missed
    document = json.loads(ended.out)
    assert {row["class"]: row["class_share"] for row in document["tables"]["classes_alone"]} == {"small": 0.75, "big": 0.25}
    assert len(document["answer"].split()) <= 20
    trials = list(pgherd.trials())
    alone = [trial for trial in trials if "alone" in trial["trial"]["point"]]
    assert len(alone) >= 6 and all(len(trial["trial"]["phases"][0]["loads"]) == 1 for trial in alone)
    mixes = [trial for trial in trials if trial["trial"]["point"] == {"tenants": 4} and trial["phases"]]
    _require_mixes(pgherd, mixes, document)
    for trial in mixes:
        containers = {one["name"]: one for one in trial["trial"]["deployment"]["hosts"][0]["containers"]}
        assert {name: one["vcpus"] for name, one in containers.items()} == {
            "small-01": 0.25, "small-02": 0.25, "small-03": 0.25, "big-01": 0.5
        }  # fmt: skip
        assert containers["big-01"]["memory"] == 192 * 2**20
        found = {target["target"].split("/")[1]: target for target in trial["phases"][0]["targets"]}
        assert set(found) == set(containers) and "late_p95_400ms_tx" in found["small-02"]["values"]
        assert not any(name.startswith("late_") for name in found["big-01"]["values"])
        assert all(f"container:{name}" in trial["phases"][0]["metrics"] for name in containers)
        assert all("waits.lock" in trial["phases"][0]["metrics"][f"server:{name}/pg"] for name in containers)
    rows = {row["class"]: row for row in document["tables"]["tenants"] if row["tenants"] == 4}
    assert {name: row["class_tenants"] for name, row in rows.items()} == {"small": 3, "big": 1}
    assert rows["small"]["min_max_ratio"]["value"] > 0 and rows["big"]["min_max_ratio"]["value"] is None
    assert (pgherd.run / "figures/tenants.svg").exists()
    assert "one tenant of each class alone" in (pgherd.run / "report.html").read_text()
    pgherd.ended_well(ended)


def test_a_wrong_class_is_refused_in_one_sentence(pgherd, tmp_path) -> None:
    (tmp_path / "tenants.yaml").write_text("classes:\n  - {name: a, share: 0.5, vcpus: 1}\n  - {name: b, share: 0.6, vcpus: 1}\n")
    ended = pgherd("density", "--dry-run", "--tenants", str(tmp_path / "tenants.yaml"))
    assert ended.code == 2 and "the shares of the classes sum to 1.1 and not to 1 (a 0.5, b 0.6)" in ended.message, ended


def test_loads_change_at_phase_borders(pgherd, tmp_path) -> None:
    """Two tenants that are on at the same time for half of a cycle, and a pair whose sum is constant."""
    (tmp_path / "tenants.yaml").write_text(
        "classes:\n"
        "  - {name: shop, count: 2, rate: 40, activity: {kind: on-off, duty: 0.5, start: aligned}}\n"
        "  - {name: pair, count: 2, rate: 68, slo: p95=900ms, activity: elastic}\n"
    )
    words = (
        "--vcpus",
        "0.25",
        "--memory",
        "128MB",
        "--scale",
        "1",
        "--duration",
        "1s",
        "--warmup",
        "200ms",
        "--repeats",
        "1",
        "--seed",
        "1",
    )
    ended = pgherd(
        "density", "--tenants", str(tmp_path / "tenants.yaml"), *words, *ANY_LOAD, "--databases", "4", "--time-budget", "3m", "--json"
    )
    assert ended.code in (0, 1), ended
    mixes = [trial for trial in pgherd.trials() if trial["trial"]["point"] == {"tenants": 4} and trial["phases"]]
    for trial in mixes:
        assert [phase["phase"] for phase in trial["phases"]] == [f"phase{number:02d}" for number in range(1, 9)]
        for number, (plan, phase) in enumerate(zip(trial["trial"]["phases"], trial["phases"], strict=True)):
            rates = {target.split("/")[1]: load["rate"] for target, load in plan["loads"].items()}
            assert {target["target"].split("/")[1] for target in phase["targets"]} == set(rates)
            assert sum(name.startswith("shop") for name in rates) == (2 if number < 4 else 0)
            assert rates["pair-01"] + rates["pair-02"] == pytest.approx(136)
        assert {round(max(a, b) / min(a, b)) for a, b in [_pair(plan) for plan in trial["trial"]["phases"]]} >= {16}
    document = json.loads(ended.out)
    _require_mixes(pgherd, mixes, document)
    assert {row["phase"] for row in document["tables"]["phases"]} == set(range(1, 9))


def _require_mixes(pgherd, mixes: list, document: dict) -> None:
    """A class that misses its rate alone ends the run without a mix. Only a busy host is a reason for that."""
    if not mixes:
        busy = pgherd.judged_fairly()
        assert busy and ("even alone" in document["answer"] or "Not even" in document["answer"]), document["answer"]
        pytest.skip(f"a class alone missed its rate: {', '.join(sorted(busy))}")


def _pair(plan: dict) -> tuple[float, float]:
    one, other = (load["rate"] for target, load in plan["loads"].items() if "/pair-" in target)
    return one, other


def test_a_table_of_databases_becomes_a_run_and_a_file_of_classes(pgherd, tmp_path) -> None:
    """The run measures both classes of the table, and its stored file makes the same mix."""
    (tmp_path / "fleet.csv").write_text(FLEET)
    words = (
        *("--vcpus", "0.25", "--duration", "1s", "--warmup", "200ms", "--repeats", "1", "--databases", "4"),
        *("--time-budget", "100s", "--seed", "1"),
    )
    ended = pgherd("density", "--tenants-from", str(tmp_path / "fleet.csv"), *words, *ANY_LOAD, "--json")
    assert ended.code in (0, 1), ended
    document = json.loads(ended.out)
    table = {row["class"]: row for row in document["tables"]["tenant_table"]}
    assert {name: row["databases"] for name, row in table.items()} == {"a-37mb-64tps-14h": 9, "b-67mb-301tps-2h": 3}
    assert all(0.5 < row["size_kept"] < 1.5 and row["tps_kept"] == pytest.approx(1, rel=0.01) for row in table.values())
    assert "12 databases of fleet.csv are 2 classes of tenants" in " ".join(document["details"])
    plans = [trial["trial"]["phases"] for trial in pgherd.trials() if trial["trial"]["point"] == {"tenants": 4} and trial["phases"]]
    _require_mixes(pgherd, plans, document)
    for phases in plans:
        rates = [{target.split("/")[1]: load["rate"] for target, load in phase["loads"].items()} for phase in phases]
        assert len(rates) == 24
        assert rates[14]["a-37mb-64tps-14h-01"] == 64 > 60 > rates[14]["b-67mb-301tps-2h-01"]
        assert rates[2]["a-37mb-64tps-14h-01"] == pytest.approx(6.4) and rates[2]["b-67mb-301tps-2h-01"] > 290
    stored = pgherd.run / "inputs/tenants.yaml"
    again = pgherd("density", "--tenants", str(stored), *words, "--dry-run", "--json")
    options = json.loads((pgherd.run / "run.json").read_text())["options"]
    assert again.code == 0, again
    assert [one["activity"] for one in json.loads(again.out)["options"]["tenants"]] == [one["activity"] for one in options["tenants"]]


def test_a_wrong_table_is_refused_with_line_and_value(pgherd, tmp_path) -> None:
    (tmp_path / "fleet.csv").write_text("database,size,tps,peak hour\nshop,12GB,40,25\n")
    ended = pgherd("density", "--dry-run", "--tenants-from", str(tmp_path / "fleet.csv"))
    assert ended.code == 2 and "line 2, database shop: '25' under peak hour is not an hour of the day; write 0 to 23" in ended.message, (
        ended
    )
