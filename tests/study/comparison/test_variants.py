from collections import Counter
from itertools import pairwise

import pytest

from pgherd.study.comparison import variants


def test_an_arm_measures_each_of_its_points_once(options, server):
    made = options({"a": server(databases=(1, 2, 4), repeats=3), "b": server(databases=(1, 2, 4), protocol="simple")})
    assert [trial.point["databases"] for trial in sorted(variants.planned_trials(made.variant("a")), key=lambda t: t.key())] == [1, 2, 4]


def test_a_block_has_every_side_once_in_a_shuffled_order_of_its_own(options):
    made = options(seed=3)
    blocks = [variants.block_trials(made, number) for number in range(30)]
    orders = Counter(tuple(trial.point["variant"] for trial in block) for block in blocks)
    assert all(sorted(order) == ["base", "base (A/A)", "other"] for order in orders)
    assert len(orders) == 6, "30 blocks of three see every order"
    assert blocks == [variants.block_trials(made, number) for number in range(30)]
    assert [variants.block_trials(options(seed=4), number) for number in range(30)] != blocks
    keys = [trial.key() for block in blocks for trial in block]
    assert len(set(keys)) == len(keys)


def test_sides_take_turns_at_each_point(options, server):
    made = options({"a": server(databases=(1, 2, 4)), "b": server(databases=(1, 2, 4), protocol="simple")})
    block = variants.block_trials(made, 0)
    assert len(block) == 9
    for place in range(0, 9, 3):
        turn = block[place : place + 3]
        assert {trial.point["variant"] for trial in turn} == {"a", "a (A/A)", "b"}
        assert len({trial.point["databases"] for trial in turn}) == 1


def test_arms_of_different_points_are_measured_one_after_the_other(options, server):
    made = options({"a": server(databases=(1, 2)), "b": server(databases=(1, 3))})
    order = [trial.point["variant"] for trial in variants.block_trials(made, 0)]
    assert sum(one != other for one, other in pairwise(order)) == 2


def test_all_sides_deploy_under_the_same_names(options):
    names = {
        name for trial in variants.block_trials(options(), 0) for _, container in trial.deployment.containers() for name in [container.name]
    }
    assert names == {"db01"}


def test_of_the_intents_only_that_of_the_load_generator_stays(options):
    assert {trial.validity_checks for trial in variants.block_trials(options(), 0)} == {("not-client-bound",)}


def test_results_go_back_to_the_study_as_its_own(options, server, simulate):
    made = options({"a": server(databases=(1, 2)), "b": server(databases=(1, 2), protocol="simple")})
    results = simulate(made).all(variants.block_trials(made, 7))
    own = variants.as_study_results(made.variant("b"), [result for result in results if result.trial.point["variant"] == "b"])
    assert sorted(result.trial.key() for result in own) == ["databases=1#0", "databases=2#0"]
    single = options()
    own = variants.as_study_results(single.variant("base"), simulate(single).all(variants.block_trials(single, 2))[:1])
    assert [result.trial.point for result in own] == [{"databases": 1}]


def test_side_by_side_all_are_up_and_take_turns(options, server):
    made = options({"Base.1": server(), "base-1": server(protocol="simple"), "small": server(vcpus=0.5)}, interleave="slices")
    names = variants.container_names(made)
    assert set(names) == {"Base.1", "Base.1 (A/A)", "base-1", "small"} and len(set(names.values())) == 4
    for number in range(4):
        (trial,) = variants.block_trials(made, number)
        assert trial.state == "restarted", "all get new places in memory, for all alike"
        assert trial.key() == f"variant=all-interleaved#{number}"
        up = {container.name: container for _, container in trial.deployment.containers()}
        assert set(up) == set(names.values())
        assert [up[names[side]].vcpus for side in names] == [0.5 if side == "small" else 1 for side in names]
        (phase,) = trial.phases
        assert phase.slices is not None and phase.slices.of == names
        assert {target.split("/")[1]: load.protocol for target, load in phase.loads.items()} == {
            names[side]: "simple" if side == "base-1" else "prepared" for side in names
        }
        assert phase.seconds == 4 * 5.0 and phase.slices.seconds == pytest.approx(0.063, rel=0.02), "each side for as long as by itself"
        assert phase.slices.counted == pytest.approx(0.03), "three periods of the CPU quota, wherever they begin"
        assert {container.cpu_period for container in up.values()} == {0.01}
    seeds = {trial.phases[0].slices.seed for number in range(4) for trial in variants.block_trials(made, number)}
    assert len(seeds) == 4, "the turns' order is another in each block"


def test_side_by_side_each_point_is_a_trial(options, server):
    made = options({"a": server(databases=(1, 2)), "b": server(databases=(1, 2), protocol="simple")}, interleave="slices")
    two = variants.block_trials(made, 1)
    assert sorted(trial.key() for trial in two) == ["databases=1,variant=all-interleaved#1", "databases=2,variant=all-interleaved#1"]
    assert [trial.state for trial in two] == ["restarted", "warm"]


def test_a_pair_of_its_own_has_a_server_of_its_own(options):
    made = options(interleave="slices")
    (trial,) = variants.block_trials(made, 1)
    of = trial.phases[0].slices.of
    assert of["base"] != of["base (A/A)"] and len(trial.phases[0].loads) == 3


def test_whole_blocks_take_turns_on_the_hosts(options):
    made = options(hosts=("b", "a"))
    names = [
        {host.labels["host"] for trial in variants.block_trials(made, number) for host in trial.deployment.hosts} for number in range(3)
    ]
    assert names == [{"b"}, {"a"}, {"b"}]
    assert [trial.key() for trial in variants.block_trials(made, 1)] == [trial.key() for trial in variants.block_trials(options(), 1)]
    assert all(not host.labels for trial in variants.block_trials(options(), 0) for host in trial.deployment.hosts)
