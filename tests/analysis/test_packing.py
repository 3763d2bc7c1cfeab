from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgherd.analysis.packing import Hosts, Problem, flattened, host_mix, months_until_full, pack, replan


def problem(demand, capacity=((10.0,),), **more):
    demand = np.asarray(demand, np.float32)
    classes = len(capacity)
    defaults = {
        "price": np.ones(classes),
        "counts": (None,) * classes,
        "eligible": np.ones((len(demand), classes), np.bool_),
        "soft": np.ones(demand.shape[1], np.bool_),
    }
    return Problem(demand=demand, capacity=np.asarray(capacity, np.float64), **{**defaults, **more})


def fewest(demand, capacity, apart=()):
    """The fewest hosts by trying all placements, for a class of hosts without limit."""
    items = sorted(range(len(demand)), key=lambda i: -demand[i].max())
    best = len(items)

    def search(position, hosts):
        nonlocal best
        if len(hosts) >= best:
            return
        if position == len(items):
            best = len(hosts)
            return
        item = items[position]
        for members, load in hosts:
            if not any(item in group and members & set(group) for group in apart) and (load + demand[item] <= capacity + 1e-6).all():
                members.add(item)
                load += demand[item]
                search(position + 1, hosts)
                members.discard(item)
                load -= demand[item]
        search(position + 1, [*hosts, ({item}, demand[item].copy())])

    search(0, [])
    return best


@st.composite
def small_fleets(draw):
    databases, slots = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    cells = st.lists(st.integers(0, 10), min_size=2 * slots, max_size=2 * slots)
    demand = np.array([draw(cells) for _ in range(databases)], dtype=float).reshape(databases, 2, slots)
    group = tuple(draw(st.sets(st.integers(0, databases - 1), max_size=3)))
    return demand, (group,) if len(group) > 1 else ()


@settings(deadline=None, max_examples=150)
@given(small_fleets())
def test_small_fleets_need_at_most_one_host_more_than_the_fewest(fleet):
    demand, apart = fleet
    found = pack(problem(demand, ((10.0, 10.0),), apart=apart))
    truth = fewest(demand, 10.0, apart)
    hosts = sum(bool(found.hosts.members(h)) for h in range(len(found.hosts.klass)))
    assert not found.refused and sum(found.bound) <= truth <= hosts <= truth + 1
    for host in range(len(found.hosts.klass)):
        members = found.hosts.members(host)
        assert (demand[members].sum(axis=0) <= 10 + 1e-3).all()
        assert not any(len(set(group) & set(members)) > 1 for group in apart)


def test_opposite_days_share_hosts_and_peaks_do_not():
    day = np.zeros((40, 1, 24))
    day[::2, 0, :12], day[1::2, 0, 12:] = 5, 5
    case = problem(day)
    assert len(pack(case).hosts.klass) == 10 and len(pack(flattened(case, "peak")).hosts.klass) == 20


def test_same_seed_same_placement(random_fleet):
    assert (pack(random_fleet, 3).hosts.where == pack(random_fleet, 3).hosts.where).all()


@pytest.fixture
def random_fleet():
    return problem(np.random.default_rng(5).uniform(0.1, 1, (120, 3, 12)), ((10.0, 12.0, 9.0),))


def test_large_fleet_is_close_to_its_bound(random_fleet):
    found = pack(random_fleet)
    assert (found.hosts.where >= 0).all() and (found.hosts.excess() == 0).all()
    assert sum(found.bound) <= len(found.hosts.klass) <= 1.15 * sum(found.bound)


def test_cheapest_mix_of_classes():
    # Ten cores each: two large hosts at 3 carry four each, a small one at 2 carries one.
    case = problem(np.full((8, 1, 1), 10.0), ((40.0,), (10.0,)), price=np.array([3.0, 2.0]))
    assert host_mix(case) == (2, 0) and np.bincount(pack(case).hosts.klass).tolist() == [2]
    dear = replace(case, price=np.array([30.0, 2.0]))
    assert host_mix(dear) == (0, 8)


def test_bound_knows_databases_that_need_more_than_half_a_host():
    assert host_mix(problem(np.full((5, 1, 1), 6.0))) == (5,)


def test_classes_without_the_labels_carry_nothing():
    eligible = np.array([[True, False]] * 3 + [[False, True]])
    found = pack(problem(np.full((4, 1, 1), 5.0), ((10.0,), (10.0,)), eligible=eligible))
    assert found.hosts.klass[found.hosts.where].tolist() == [0, 0, 0, 1]


def test_risk_lets_soft_resources_exceed_in_some_slots():
    day = np.full((2, 1, 10), 4.0)
    day[:, :, 0] = 8.0
    assert len(pack(problem(day)).hosts.klass) == 2
    assert len(pack(problem(day, slots_over=1)).hosts.klass) == 1
    assert len(pack(problem(day, slots_over=1, soft=np.array([False]))).hosts.klass) == 2


def test_too_few_hosts_refuse_the_rest():
    found = pack(problem(np.full((5, 1, 1), 6.0), counts=(3,)))
    assert len(found.refused) == 2 and found.bound is None


def test_pinned_database_is_on_its_host():
    found = pack(problem(np.full((4, 1, 1), 5.0), pinned={2: (0, 3)}))
    assert found.hosts.where[2] == 3 and len(found.hosts.klass) == 4


def placed(case, where):
    hosts = Hosts(case, [0] * (max(where) + 1))
    for database, host in enumerate(where):
        if host >= 0:
            hosts.put(database, host)
    return hosts


def test_moves_relieve_an_overloaded_host_first_and_empty_hosts_then():
    case = problem(np.array([6.0, 5.0, 2.0, 2.0]).reshape(4, 1, 1))
    hosts, moves, refused = replan(placed(case, [0, 0, 1, 2]), 3, ["a", "b", "c"])
    assert not refused and (hosts.excess() == 0).all()
    assert [moves[0].source, moves[0].gain] == [0, "a: highest use 110% → 50%"] and "empties" in moves[1].gain
    assert len({int(h) for h in hosts.where}) == 2


def test_no_moves_leave_the_placement_alone():
    case = problem(np.array([6.0, 5.0]).reshape(2, 1, 1))
    hosts, moves, _ = replan(placed(case, [0, 0]), 0, ["a"])
    assert not moves and hosts.excess()[0] == pytest.approx(0.1, abs=1e-4)


def test_new_databases_are_placed_and_are_no_moves():
    case = problem(np.array([6.0, 4.0, 8.0]).reshape(3, 1, 1))
    hosts, moves, refused = replan(placed(case, [0, -1, -1]), 5, ["a"])
    assert not moves and refused == (2,) and hosts.where.tolist() == [0, 0, -1]


@pytest.mark.parametrize("use, growth, months", [(0.5, 1.0, 1.0), (0.25, 1.0, 2.0), (1.1, 0.5, 0.0), (0.5, 0.0, math.inf)])
def test_months_until_full(use, growth, months):
    assert months_until_full(use, growth) == pytest.approx(months)


def test_groups_that_overlap_need_more_hosts_than_the_largest_group():
    case = problem(np.full((3, 1, 1), 0.01), apart=((0, 1), (1, 2), (0, 2)))
    assert host_mix(case) == (2,) and len(pack(case).hosts.klass) == 3
