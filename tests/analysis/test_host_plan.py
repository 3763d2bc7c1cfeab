from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgherd.analysis.demand import fold
from pgherd.analysis.host_class import HostClass, ResourceCapacity
from pgherd.analysis.host_plan import PlanOptions, Rule, as_document, make_plan
from pgherd.model.errors import UsageError


def fleet(*days, resources=("cpu_cores",)):
    values = np.array(days, np.float32)
    values = values.reshape(len(days), len(resources), -1)
    slots = values.shape[2]
    return fold([f"db{i + 1}" for i in range(len(days))], resources, values, range(slots), slots, rows=range(2, 2 + len(days)))


def host(name="big", cpu_cores=10.0, **more):
    return HostClass.model_validate({"name": name, "capacity": {"cpu_cores": cpu_cores}, **more})


def by_host(plan):
    return {row["host"]: row for row in plan.hosts}


def test_hosts_are_explained():
    plan = make_plan(fleet([6, 1], [1, 6], [2, 2]), [host()], [], PlanOptions(growth=0.05))
    (row,) = plan.hosts
    assert (row["bottleneck"], row["databases"]) == ("cpu_cores", 3) and row["slot"] in ("00:00", "12:00")
    assert row["use"].value == pytest.approx(0.9) and "no interval" in row["use"].note
    assert row["months_until_full"] == pytest.approx(np.log(1 / 0.9) / np.log(1.05))
    assert plan.complete and plan.answer == "3 databases fit on 1 host; no placement needs less than 1, and packing by peaks needs 2 hosts."
    assert plan.findings["hosts_by_peaks"].value == 2 and plan.findings["lower_bound"].value == 1


def test_headroom_stays_free():
    assert len(make_plan(fleet([5], [5]), [host()], [], PlanOptions()).hosts) == 1
    assert len(make_plan(fleet([5], [5]), [host()], [], PlanOptions(headroom=0.1)).hosts) == 2


def test_spare_hosts_carry_the_databases_of_a_lost_one():
    without = make_plan(fleet([8], [8]), [host()], [], PlanOptions())
    assert [row["unplaced_if_lost"] for row in without.hosts] == [1, 1]
    plan = make_plan(fleet([8], [8]), [host()], [], PlanOptions(lost_hosts=1))
    assert len(plan.hosts) == 3 and [row["unplaced_if_lost"] for row in plan.hosts] == [0, 0, None]
    assert "1 of them spare" in plan.answer and plan.findings["lower_bound"].value == 3


def test_interval_of_the_capacity_gives_a_probability_of_missing():
    measured = host(cpu_cores={"value": 10.0, "low": 8.04, "high": 11.96, "n": 9})
    (row,) = make_plan(fleet([9.0]), [measured], [], PlanOptions()).hosts
    # 1 core below the capacity, whose standard deviation is 1: the normal distribution below -1.
    assert row["miss_probability"].value == pytest.approx(0.1587, abs=2e-4)
    assert row["use"].low == pytest.approx(9 / 11.96, abs=1e-3) and row["use"].high == pytest.approx(9 / 8.04, abs=1e-3)


def test_notes_of_classes_are_warnings():
    measured = {"value": 10, "n": 3}
    classes = [host(name, measured, notes=["Both measured"]) for name in ("a", "b")]
    assert make_plan(fleet([5]), classes, [], PlanOptions()).warnings == [
        "Both measured",
        "The demand is of one day, so its variation from day to day is unknown",
    ]


def test_latency_class_of_each_slot():
    limit = {"objective": "p95 ≤ 5 ms", "low": 4.0, "value": 5.0, "high": 6.0}
    demand = fleet([3.0, 5.5, 8.0, 4.0])
    plan = make_plan(demand, [host(latency=limit)], [], PlanOptions(headroom=0.1))
    assert plan.latency == {"big-1": ["within", "near", "beyond", "within"]} == as_document(plan, demand)["latency"]
    assert by_host(plan)["big-1"]["latency"] == "beyond"
    assert [plan.findings[f"slots_{name}"].value for name in ("within", "near", "beyond")] == [0.5, 0.25, 0.25]
    # 3 cores above the limit, whose standard deviation is 0.51
    assert by_host(plan)["big-1"]["miss_probability"].value == pytest.approx(1, abs=1e-6)
    assert "p95 ≤ 5 ms" in by_host(plan)["big-1"]["miss_probability"].method
    (row,) = make_plan(fleet([4.5]), [host(latency=limit)], [], PlanOptions()).hosts
    assert row["miss_probability"].value == pytest.approx(0.1635, abs=1e-3), "half a core below it: normal distribution below -0.98"
    assert make_plan(fleet([4.5]), [host()], [], PlanOptions()).latency == {}


def test_empty_hosts_do_not_keep_an_objective():
    limit = {"objective": "p95 ≤ 5 ms", "low": 4.0, "value": 5.0, "high": 6.0}
    plan = make_plan(fleet([8], [8]), [host(latency=limit)], [], PlanOptions(lost_hosts=1))
    assert len(plan.latency) == 3 and plan.findings["slots_beyond"].value == 1 and plan.findings["slots_within"].value == 0


def test_probability_is_unknown_without_a_measured_capacity():
    (row,) = make_plan(fleet([9.0]), [host()], [], PlanOptions()).hosts
    assert row["miss_probability"].value is None and row["miss_probability"].note


def test_unknown_values_widen_the_interval_and_warn():
    plan = make_plan(fleet([4.0, np.nan], [2.0, 2.0]), [host()], [], PlanOptions())
    assert "Unknown values: 1, of 1 of the databases" in plan.warnings[0]
    assert as_document(plan, fleet([4.0, np.nan]))["unknown"][0]["bound"] == 4.0


def test_limited_hosts_refuse_with_the_smallest_change():
    plan = make_plan(fleet([6], [6], [6]), [host(count=2)], [], PlanOptions())
    assert not plan.complete and len(plan.refusals) == 1 and "2 cores more cpu_cores at 00:00 on big-" in plan.refusals[0]["change"]
    assert plan.answer.startswith("1 of 3 databases do not fit")


def test_a_refused_database_gets_all_that_it_lacks_before_headroom():
    classes = [HostClass.model_validate({"name": "big", "count": 1, "capacity": {"cpu_cores": 10.0, "memory_mb": 100.0}})]
    days = fleet([[6.0], [60.0]], [[4.0], [40.0]], resources=("cpu_cores", "memory_mb"))
    plan = make_plan(days, classes, [], PlanOptions(headroom=0.2))
    # Of 10 cores 8 may be used, so 10 cores in use need 12.5; of 100 MB the same.
    change = plan.refusals[0]["change"]
    assert "2.5 cores more cpu_cores at 00:00 and 25 MB more memory_mb at 00:00 on big-" in change


def test_a_spare_host_is_no_place_for_a_refused_database():
    plan = make_plan(fleet([6], [6], [6]), [host(count=3)], [], PlanOptions(lost_hosts=1))
    assert len(plan.refusals) == 1 and "2 cores more cpu_cores at 00:00 on big-" in plan.refusals[0]["change"]
    assert plan.answer.startswith("1 of 3 databases do not fit on the hosts given; the others fit on 3 (1 of them spare")


def test_names_of_existing_hosts_may_be_those_that_are_never_generated():
    plan = make_plan(fleet([6], [6]), [host("db", names=("db-1", "db-3"), count=2)], [], PlanOptions())
    assert sorted(plan.placement.values()) == ["db-1", "db-3"]


def test_rules_are_kept():
    rules = [Rule("db1", 2, apart=("a",)), Rule("db2", 3, apart=("a",)), Rule("db3", 4, labels={"zone": "b"}), Rule("db4", 5, pin="old")]
    classes = [host(names=("old",)), host("far", labels={"zone": "b"})]
    plan = make_plan(fleet([1], [1], [1], [1]), classes, rules, PlanOptions())
    assert plan.placement["db1"] != plan.placement["db2"] and plan.placement["db3"] == "far-1" and plan.placement["db4"] == "old"


def test_lowest_price_uses_the_cheaper_class():
    classes = [host(price=10.0), host("small", 5.0, price=3.0)]
    plan = make_plan(fleet([5], [5], [5]), classes, [], PlanOptions(minimize="price"))
    assert plan.findings["price"].value == 9 and {row["class"] for row in plan.hosts} == {"small"}


def test_moves_name_their_gain():
    rules = [Rule(f"db{n}", n, host=f"big-{n}") for n in (1, 2)]
    plan = make_plan(fleet([3], [3]), [host()], rules, PlanOptions(max_moves=1))
    assert len(plan.moves) == 1 and plan.moves[0]["gain"].startswith("empties big-")
    assert sum(row["databases"] > 0 for row in plan.hosts) == 1
    assert make_plan(fleet([3], [3]), [host()], rules, PlanOptions(max_moves=0)).moves == []


def test_minima_fit_into_the_memory_that_working_sets_may_exceed():
    """Working sets of 18 of 20 MB fit on a host of 10 MB whose overcommitment is 2. Minima of 4 MB fit there twice."""
    classes = [HostClass.model_validate({"name": "a", "capacity": {"memory_mb": 20, "memory_min_mb": 10}})]
    sets = fleet(*[[6.0] for _ in range(6)], resources=("memory_mb",))
    assert len(make_plan(sets, classes, [], PlanOptions()).hosts) == 2
    both = fleet(*[[[6.0], [4.0]] for _ in range(6)], resources=("memory_mb", "memory_min_mb"))
    plan = make_plan(both, classes, [], PlanOptions(risk=0.5))
    assert len(plan.hosts) == 3 and {row["bottleneck"] for row in plan.hosts} == {"memory_min_mb"}
    assert len({row["saved"] for row in plan.purchases}) == 1, "more memory is more for both"


def test_larger_hosts_help_most_where_the_bottleneck_is():
    fleet_ = fleet(*[[[1.0], [1.0]] for _ in range(22)], resources=("cpu_cores", "memory_mb"))
    plan = make_plan(
        fleet_,
        [HostClass(name="a", capacity={"cpu_cores": ResourceCapacity(value=10), "memory_mb": ResourceCapacity(value=30)})],
        [],
        PlanOptions(),
    )
    assert [(row["resource"], row["saved"]) for row in plan.purchases] == [("cpu_cores", 1.0), ("memory_mb", 0.0)]


@pytest.mark.parametrize(
    "rules, classes, message",
    [
        ([Rule("no", 7)], [host()], "row 7: database no has no demand"),
        ([Rule("db1", 2, labels={"zone": "x"})], [host()], "row 2: database db1 requires zone=x, and no class"),
        ([Rule("db1", 2, pin="zz")], [host()], "row 2: there is no host zz"),
        ([Rule("db1", 2, pin="big-3")], [host(count=2)], "row 2: there is no host big-3"),
        ([Rule("db1", 2, pin="a", labels={"k": "v"})], [host(names=("a",)), host("x", labels={"k": "v"})], "lacks a label"),
        ([Rule("db1", 2, ("g",), {}, "a"), Rule("db2", 3, ("g",), {}, "a")], [host(names=("a",))], "pinned to one host"),
        (
            [Rule("db1", 2, pin="a"), Rule("db2", 3, pin="a")],
            [host(cpu_cores=4.5, names=("a",))],
            "a cannot carry the 2 databases pinned to it",
        ),
        ([], [host(cpu_cores=3.0)], "row 2: database db1 needs 4 cores of cpu_cores at 00:00, and a host of class big"),
        ([], [HostClass(name="m", capacity={"memory_mb": ResourceCapacity(value=1)})], "class m has no capacity of cpu_cores"),
        ([], [host(), host()], "two classes of hosts are called big"),
        ([], [host(names=("a", "a"))], "two hosts are called a; give each its name"),
        ([], [host(names=("a",)), host("small", names=("a",))], "two hosts are called a"),
        ([], [host("db", names=("db-1", "db-3"))], "db-3 is also the name that a further host of class db gets; rename"),
        ([], [host("db"), host("old", names=("db-7",))], "db-7 is also the name that a further host of class db gets"),
    ],
)
def test_contradictions_are_refused(rules, classes, message):
    with pytest.raises(UsageError, match=message):
        make_plan(fleet([4.0], [1.0]), classes, rules, PlanOptions())


def test_price_is_needed_to_minimize_it():
    with pytest.raises(UsageError, match="class big has no price"):
        make_plan(fleet([4.0]), [host()], [], PlanOptions(minimize="price"))


def test_present_placement_is_needed_for_moves():
    with pytest.raises(UsageError, match="no database has a host"):
        make_plan(fleet([4.0]), [host()], [], PlanOptions(max_moves=1))


def test_unknown_resource_of_a_class_is_refused():
    with pytest.raises(ValueError, match="cpu is no resource"):
        HostClass.model_validate({"name": "a", "capacity": {"cpu": 1}})


@st.composite
def restricted_fleets(draw):
    count = draw(st.integers(1, 14))
    days = [draw(st.lists(st.integers(0, 8), min_size=4, max_size=4)) for _ in range(count)]
    rules = []
    for n in range(count):
        labels = draw(st.sampled_from([{}, {}, {"zone": "a"}, {"zone": "b"}]))
        pin = draw(st.sampled_from(["", "", "", "first-1", "second-2"]))
        if pin and labels:
            labels = {"zone": "a" if pin == "first-1" else "b"}
        group = draw(st.sampled_from([(), (), ("x",), ("y", "z"), ("z",)]))
        rules.append(Rule(f"db{n + 1}", n + 2, () if pin else group, labels, pin, draw(st.sampled_from(["", "first-1", "second-1"]))))
    options = PlanOptions(
        minimize=draw(st.sampled_from(["hosts", "price"])),
        headroom=draw(st.sampled_from([0.0, 0.1])),
        lost_hosts=draw(st.integers(0, 2)),
        max_moves=draw(st.sampled_from([None, None, 3])),
    )
    return days, rules, options


@settings(deadline=None, max_examples=40)
@given(restricted_fleets())
def test_a_plan_keeps_every_rule(case):
    days, rules, options = case
    classes = [host("first", 10.0, price=4.0, labels={"zone": "a"}), host("second", 13.0, price=5.0, labels={"zone": "b"}, count=9)]
    if options.max_moves is not None and not any(rule.host for rule in rules):
        return
    try:
        plan = make_plan(fleet(*days), classes, rules, options)
    except UsageError as error:
        assert "pinned to it" in str(error)
        return
    rows = by_host(plan)
    assert len(plan.placement) + len(plan.refusals) == len(days) and sum(row["class"] == "second" for row in plan.hosts) <= 9
    moved = {move["database"] for move in plan.moves}
    assert len(plan.moves) <= (options.max_moves or 0)
    for rule in rules:
        name = plan.placement.get(rule.database)
        stays = options.max_moves is not None and rule.host and rule.database not in moved
        assert not stays or name == rule.host
        if name is None or stays:
            continue
        assert rule.pin in ("", name) and rule.labels.get("zone", "a" if rows[name]["class"] == "first" else "b") == (
            "a" if rows[name]["class"] == "first" else "b"
        )
        together = [other for other in rules if other is not rule and plan.placement.get(other.database) == name]
        assert not any(set(other.apart) & set(rule.apart) for other in together)
    for name, row in rows.items():
        used = np.sum([days[n] for n in range(len(days)) if plan.placement.get(f"db{n + 1}") == name] or [[0] * 4], axis=0)
        whole = (10.0 if row["class"] == "first" else 13.0) * (1 - options.headroom)
        assert row["use"].value == pytest.approx(used.max() / whole, abs=1e-4) and (row["use"].value <= 1 + 1e-4 or not plan.complete)
