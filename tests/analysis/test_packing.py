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


CLASS_10 = (
    "35,50 49,47 33,48 47,34 39,47 27,46 21,46 46,40 28,45 45,28 30,44 44,30 44,22 28,44 19,44 30,43 43,11 43,32 43,41 35,43 36,43 29,42 "
    "42,39 26,42 42,42 31,40 40,28 40,37 30,40 39,26 38,20 37,6 37,12 36,25 32,36 36,27 34,36 36,28 35,33 33,26 28,33 33,31 31,31 30,28 "
    "26,28 26,27 25,27 25,26 18,23 15,20 5,13",
    "35,50 49,47 48,46 48,28 44,47 27,46 28,46 28,45 45,28 28,44 44,40 43,26 43,32 43,41 35,43 43,26 26,43 42,40 40,42 42,28 37,42 42,36 "
    "30,40 29,39 39,26 39,30 39,19 27,39 37,31 33,37 32,36 34,36 33,36 35,33 33,28 28,33 22,32 31,21 31,31 30,28 30,28 28,29 18,29 27,28 "
    "23,27 26,27 25,27 25,26 24,17 21,10 11,11",
)


@pytest.mark.parametrize("instance", CLASS_10)
def test_published_instances_need_at_most_one_host_more_than_their_optimum(instance):
    """51 items that fill 17 bins without a gap, three in each.

    Class 10 of A. Caprara and P. Toth, "Lower bounds and algorithms for the 2-dimensional vector packing problem", Discrete Applied
    Mathematics 111, 2001. Its items are made by dividing full bins, so the optimum is known. The numbers are the first four of the 20
    dimensions of examples/instance.vbp of VPSolver, github.com/fdabrandao/vpsolver.
    """
    items = np.array([item.split(",") for item in instance.split()], dtype=float)
    assert items.sum(axis=0).tolist() == [1700, 1700]
    found = pack(problem(items[:, :, None], ((100.0, 100.0),)))
    assert found.bound == (17,) and not found.refused and (found.hosts.excess() == 0).all()
    assert 17 <= len(found.hosts.klass) <= 18


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


def test_a_host_with_a_steep_growth_takes_what_the_others_cannot():
    """More hosts than are compared at once: those with the least growth are full in a slot that is not among the busiest."""
    full, busy, database = np.zeros((3, 1, 48), np.float32)
    full[0, 47], busy[0, :32], database[0, :32], database[0, 47] = 10, 9, 0.5, 1
    hosts = Hosts(problem([full] * 20 + [busy] * 60 + [database]), [0] * 80)
    for number in range(80):
        hosts.put(number, number)
    assert hosts.place(80) and hosts.where[80] == 20


def test_of_equal_hosts_the_first_is_taken():
    hosts = Hosts(problem([[[1.0]], [[1.0]]]), [0] * 100)
    assert hosts.place(0) and hosts.where[0] == 0


def test_hosts_of_two_classes_are_compared_by_their_shares():
    hosts = Hosts(problem([[[8.0]], [[8.0]], [[1.0]]], ((10.0,), (100.0,))), [0] * 90 + [1] * 10)
    hosts.put(0, 0)
    hosts.put(1, 95)
    assert hosts.place(2, list(range(1, 95)) + list(range(96, 100))) and hosts.where[2] == 95
