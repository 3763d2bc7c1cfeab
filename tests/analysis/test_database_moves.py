from __future__ import annotations

import numpy as np
import pytest

from pgherd.analysis.database_moves import PlacedFleet, broken_constraints, effect, placed_hosts
from pgherd.analysis.demand import fold
from pgherd.analysis.host_class import HostClass
from pgherd.analysis.host_plan import PlanOptions, Rule, make_plan
from pgherd.model.errors import UsageError

APART = Rule("db3", 4, apart=("x",)), Rule("db4", 5, apart=("x",))


def demand(*days, resources=("cpu_cores",)):
    values = np.array(days, np.float32).reshape(len(days), len(resources), -1)
    return fold([f"db{i + 1}" for i in range(len(days))], resources, values, range(values.shape[2]), values.shape[2])


def host(name="big", capacity=None, **more):
    return HostClass.model_validate({"name": name, "capacity": capacity or {"cpu_cores": 10.0}, **more})


def planned(needs, classes, options):
    plan = make_plan(needs, classes, [], options)
    return plan, PlacedFleet.of(plan, needs, classes, [], options)


@pytest.fixture
def mixed():
    """Four databases on two hosts of different classes, with a constraint of each kind."""
    classes = (host("small", labels={"zone": "a"}), host("large", {"cpu_cores": 20.0}, labels={"zone": "b"}))
    rules = (Rule("db1", 2, labels={"zone": "a"}), Rule("db2", 3, pin="small-1"), *APART)
    placement = {"db1": "small-1", "db2": "small-1", "db3": "small-1", "db4": "large-1"}
    hosts = {"small-1": "small", "large-1": "large"}
    return PlacedFleet(demand([2], [2], [2], [9]), classes, rules, PlanOptions(), hosts, placement)


def test_the_hosts_of_a_plan_are_those_of_its_input():
    plan, fleet = planned(demand([6, 1], [1, 6], [2, 2], [8, 8]), [host()], PlanOptions(headroom=0.1, lost_hosts=1))
    hosts = placed_hosts(fleet)
    assert hosts.used == pytest.approx(plan.use) and broken_constraints(fleet, hosts) == []


def test_use_before_and_after_a_move():
    plan, fleet = planned(demand([6, 1], [1, 6], [2, 2]), [host()], PlanOptions(lost_hosts=1))
    hosts = placed_hosts(fleet)
    found = effect(fleet, hosts, [("db3", "big-2")])
    rows = [(row["host"], row["placement"], row["databases"], round(row["use"].value, 4)) for row in found.rows]
    assert rows == [("big-1", "before", 3, 0.9), ("big-1", "after", 2, 0.7), ("big-2", "before", 0, 0), ("big-2", "after", 1, 0.2)]
    assert found.after == pytest.approx(np.array([[0.7, 0.7], [0.2, 0.2]])) and found.before[0] == pytest.approx([0.9, 0.9])
    assert found.moves == [("db3", "big-1", "big-2")] and found.broken == ["big-2 is a spare host for the loss of another"]
    assert [row["unplaced_if_lost"] for row in found.rows] == [0, 0, None, 0]
    assert hosts.used == pytest.approx(plan.use), "the plan is unchanged"


def test_moves_add_up(mixed):
    hosts = placed_hosts(mixed)
    found = effect(mixed, hosts, [("db3", "large-1"), ("db4", "small-1"), ("db3", "small-1")])
    assert found.moves == [("db3", "small-1", "large-1"), ("db4", "large-1", "small-1"), ("db3", "large-1", "small-1")]
    assert [row["databases"] for row in found.rows] == [3, 4, 1, 0] and found.rows[-1]["bottleneck"] == ""


@pytest.mark.parametrize(
    "database, target, broken",
    [
        ("db1", "large-1", ["database db1 requires zone=a, which large-1 lacks"]),
        ("db2", "large-1", ["database db2 is pinned to small-1"]),
        ("db3", "large-1", ["databases db3, db4 must be apart (x), and share large-1"]),
        (
            "db4",
            "small-1",
            ["databases db3, db4 must be apart (x), and share small-1", "small-1 exceeds its capacity: 150% of cpu_cores at 00:00"],
        ),
    ],
)
def test_broken_constraints(mixed, database, target, broken):
    hosts = placed_hosts(mixed)
    assert broken_constraints(mixed, hosts) == [] and effect(mixed, hosts, [(database, target)]).broken == broken


def test_a_risk_permits_cpu_but_no_memory_above_the_capacity():
    resources, day = ("cpu_cores", "memory_mb"), [8, 1, 60, 60]
    small, large = host(capacity={"cpu_cores": 10, "memory_mb": 100}), host(capacity={"cpu_cores": 10, "memory_mb": 200})
    for klass, broken in ((large, []), (small, ["big-1 exceeds its capacity: 120% of memory_mb at 00:00"])):
        needs, hosts = demand(day, day, resources=resources), {"big-1": "big", "big-2": "big"}
        fleet = PlacedFleet(needs, (klass,), (), PlanOptions(risk=0.5), hosts, {"db1": "big-1", "db2": "big-2"})
        assert effect(fleet, placed_hosts(fleet), [("db2", "big-1")]).broken == broken


def test_a_refused_database_can_be_placed():
    plan, fleet = planned(demand([6], [6]), [host(count=1)], PlanOptions())
    (refused,) = {"db1", "db2"} - set(plan.placement)
    found = effect(fleet, placed_hosts(fleet), [(refused, "big-1")])
    assert found.moves == [(refused, "", "big-1")] and found.broken == ["big-1 exceeds its capacity: 120% of cpu_cores at 00:00"]


@pytest.mark.parametrize(
    "move, message", [(("x", "large-1"), "no database of"), (("db1", "x"), "no host of"), (("db1", "small-1"), "is on small-1 already")]
)
def test_bad_moves_are_refused(mixed, move, message):
    with pytest.raises(UsageError, match=message):
        effect(mixed, placed_hosts(mixed), [move])


@pytest.mark.parametrize(
    "hosts, placement, message",
    [({"big-1": "other"}, {}, "has a class"), ({"x": "big"}, {}, "other names"), ({"big-1": "big"}, {"db1": "x"}, "a database or a host")],
)
def test_a_placement_of_other_hosts_is_refused(hosts, placement, message):
    with pytest.raises(UsageError, match=message):
        placed_hosts(PlacedFleet(demand([1]), (host(),), (), PlanOptions(), hosts, placement))
