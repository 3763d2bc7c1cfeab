"""Proposals: order, budget, reruns, and that resume is replay."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgherd.model.placement import pinned_cpus
from pgherd.model.trial import Trial
from pgherd.studies.density.options import DensityOptions, container_names
from pgherd.studies.density.propose import planned, propose
from pgherd.studies.density.study import STUDY

Build = Callable[..., DensityOptions]


def databases(trial: Trial) -> int:
    return int(trial.point["databases"])


def test_the_plan_has_every_repeat(options: Build) -> None:
    proposal = propose(options(), [])
    counts = Counter(databases(trial) for trial in proposal.trials)
    assert counts == {1: 3, 2: 3, 3: 3, 5: 3, 6: 3, 8: 3, 10: 3}
    assert proposal.max_trials == len(proposal.trials) + 6
    assert len({trial.key() for trial in proposal.trials}) == len(proposal.trials)


@given(st.integers(0, 10_000), st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_every_block_holds_every_point(seed: int, repeats: int) -> None:
    given = DensityOptions(
        host_cores=2,
        host_memory=1,
        vcpus=0.25,
        pg_bin="/b",
        pg_version="18",
        databases=(1, 2, 5, 8),
        seed=seed,
        repeats=repeats,
    )
    trials = list(planned(given))
    counts = Counter(databases(trial) for trial in trials)
    assert counts == {1: repeats, 2: repeats, 5: repeats, 8: repeats}
    for point in (2, 5, 8):
        # each repeat of a point comes after the previous repeat of every other: drift meets all points alike
        for k in range(1, repeats):
            at = next(i for i, t in enumerate(trials) if databases(t) == point and t.repeat == k)
            assert all(any(databases(t) == other and t.repeat == k - 1 for t in trials[:at]) for other in (2, 5, 8))


FLEET = tuple(
    {"name": f"s{number:02d}", "dsn": f"host=s{number}", "version": "18.1", "host": f"h{number % 4}", "scale": number + 1}
    for number in range(10)
)


def test_listed_servers_are_loaded_evenly_over_their_hosts(options: Build) -> None:
    given = options(fleet=FLEET, databases=tuple(range(1, 11)))
    host_of = {server.name: server.host for server in given.fleet}
    size = Counter(host_of.values())
    seen: set[str] = set()
    for trial in planned(given):
        names = {target.split("/")[1] for target in trial.phases[0].loads}
        assert len(names) == databases(trial) and names <= set(host_of)
        loaded = Counter(host_of[name] for name in names)
        shares = [loaded[host] / size[host] for host in size]
        assert max(shares) - min(shares) <= 0.5 + 1e-9, "at most one server more, of the two or three on each host"
        seen |= names
    assert seen == set(host_of)


def test_each_listed_server_has_its_own_address_and_scale(options: Build) -> None:
    given = options(fleet=FLEET, databases=(1, 2), read_only=True, query_timeout=60)
    servers = {container.name: server for _, container, server in planned(given)[0].deployment.servers()}
    assert list(servers) == [str(server["name"]) for server in FLEET]
    assert (servers["s03"].dsn, servers["s03"].databases[0].scale, servers["s03"].query_timeout) == ("host=s3", 4, 60)
    assert all(load.kept_from_writing for load in planned(given)[0].phases[0].loads.values())


def test_each_listed_server_is_observed_by_its_cgroup_or_by_prometheus(options: Build) -> None:
    source = {"url": "http://prom:9090", "values": "h1"}
    own = FLEET[0] | {"container": "/pods/a"}
    given = options(fleet=(own, FLEET[1] | {"container": "/pods/b", "prometheus": source}, FLEET[2]), databases=(1,))
    seen = {container.name: container for _, container in planned(given)[0].deployment.containers()}
    assert [seen[name].cgroup for name in ("s00", "s01", "s02")] == ["/pods/a", None, None]
    assert seen["s01"].prometheus is not None and seen["s01"].prometheus.values == "h1" and seen["s02"].prometheus is None


def test_another_seed_is_another_order(options: Build) -> None:
    one, other = ([databases(t) for t in planned(options(databases=tuple(range(1, 12)), seed=seed))] for seed in (1, 2))
    assert one != other


def test_repeats_load_other_containers_in_turn(options: Build) -> None:
    given = options(databases=(1, 5, 10), repeats=10)
    loaded = {n: Counter[str]() for n in given.databases}
    for trial in planned(given):
        (phase,) = trial.phases
        assert len(phase.loads) == databases(trial)
        loaded[databases(trial)].update(list(phase.loads))
    assert set(loaded[1].values()) == {1}
    assert len(loaded[1]) == 10
    assert set(loaded[5].values()) == {5}


def test_the_load_is_as_asked(options: Build) -> None:
    trial = planned(options(clients=3, threads=2, protocol="simple", client_placement="outside", sampling=0.1, rate=100))[0]
    load = next(iter(trial.phases[0].loads.values()))
    assert (load.clients, load.threads, load.protocol, load.client_placement, load.sampling, load.rate) == (
        3,
        2,
        "simple",
        "outside",
        0.1,
        100,
    )


@pytest.mark.parametrize(
    ("more", "intents"),
    [
        ({}, ("cpu-bound", "cached", "not-client-bound")),
        ({"rate": 50}, ("rate-achieved", "cached", "not-client-bound")),
        ({"bound_by": "io"}, ("io-bound", "not-client-bound")),
        ({"bound_by": "io", "rate": 50}, ("io-bound", "rate-achieved", "not-client-bound")),
    ],
)
def test_intents(options: Build, more: dict[str, Any], intents: tuple[str, ...]) -> None:
    assert {trial.validity_checks for trial in planned(options(**more))} == {intents}


def test_clean_results_end_the_run(options: Build, simulate: Any) -> None:
    results, stop = simulate(options()).until_stop()
    assert len(results) == 21
    assert stop == "all planned trials are done"


def test_tainted_trials_are_run_again_under_new_numbers(options: Build, simulate: Any) -> None:
    given = options()
    host = simulate(given, taint=lambda t: "steal" if t.key() in ("databases=5#1", "databases=1#0") else None)
    results, _ = host.until_stop()
    reruns = [result.trial for result in results if result.trial.reason.startswith("rerun")]
    assert {trial.reason for trial in reruns} == {
        "rerun of tainted databases=5#1: failed steal",
        "rerun of tainted databases=1#0: failed steal",
    }
    assert {trial.key() for trial in reruns} == {"databases=5#3", "databases=1#3"}
    assert len(results) == 23


def test_a_failed_trial_is_run_again(options: Build, simulate: Any) -> None:
    results, _ = simulate(options(), fail=lambda t: "the server died" if t.key() == "databases=8#0" else None).until_stop()
    assert [r.trial.reason for r in results if r.trial.reason != "planned"] == ["rerun of tainted databases=8#0: it did not finish"]


def test_reruns_are_bounded(options: Build, simulate: Any) -> None:
    results, stop = simulate(options(max_reruns=4), taint=lambda t: "steal").until_stop()
    assert len(results) == 21 + 4
    assert "25 trials are tainted" in stop
    assert len(simulate(options(max_reruns=0), taint=lambda t: "steal").until_stop()[0]) == 21


def test_a_point_that_stays_tainted_is_given_up(options: Build, simulate: Any) -> None:
    host = simulate(options(max_reruns=50), taint=lambda t: "steal" if databases(t) == 3 else None)
    results, _ = host.until_stop()
    assert len(results) == 21 + 2


def test_an_intent_that_fails_every_time_is_not_repeated(options: Build, simulate: Any) -> None:
    results, _ = simulate(options(), taint=lambda t: "not-client-bound" if databases(t) <= 2 else None).until_stop()
    assert len(results) == 21


def test_a_small_budget_still_measures_every_point(options: Build, simulate: Any) -> None:
    given = options(time_budget=20)
    results, stop = simulate(given).until_stop()
    assert {databases(result.trial) for result in results} == set(given.databases)
    assert len(results) == len(given.databases)
    assert "budget of 20 s is used up; 7 of 21 planned" in stop


@given(st.floats(60, 900), st.floats(2, 30))
@settings(max_examples=25, deadline=None)
def test_a_budget_is_kept(budget: float, seconds: float) -> None:
    simulator = _simulator(time_budget=budget, duration=seconds, warmup=1)
    results, _ = simulator.until_stop()
    used = sum(result.ended - result.started for result in results)
    first = sum(1 + seconds + 0.5 for _ in range(8))
    assert used <= max(budget, first) + 1e-6


def test_a_budget_that_surely_holds_the_plan_shows_all_of_it(options: Build) -> None:
    assert len(propose(options(time_budget=21 * 10.0), []).trials) == 21
    assert len(propose(options(time_budget=21 * 9.5), []).trials) == 7
    assert len(propose(options(time_budget=21 * 10.0, start_state="fresh"), []).trials) == 7


def test_what_is_left_of_the_budget_goes_to_the_points_at_the_crossing(options: Build, simulate: Any) -> None:
    results, stop = simulate(options(time_budget=260), noise=0.1).until_stop()
    extra = [databases(result.trial) for result in results if result.trial.reason.startswith("adaptive")]
    assert len(extra) > 4
    assert set(extra) <= {8, 10}
    assert "used up" in stop


def test_the_crossing_of_the_answer_gets_them(options: Build, simulate: Any) -> None:
    """By CPU it is between 8 and 10. A transaction that costs twice as much from 8 on moves that by throughput only."""

    class Dear(simulate):
        def truth(self, n: int) -> float:
            return super().truth(n) / (2 if n >= 8 else 1)

    for crossing, cpu_known in (({8, 10}, True), ({6, 8}, False)):
        results, _ = Dear(options(time_budget=260), noise=0.1, metrics=cpu_known).until_stop()
        extra = {databases(result.trial) for result in results if result.trial.reason.startswith("adaptive")}
        assert extra and extra <= crossing
        assert max(crossing) in extra or not cpu_known


@pytest.mark.parametrize(("cores", "count"), [(2, 3), (2, 4), (8, 12), (64, 96), (64, 65)])
def test_pinned_databases_share_no_cpu_while_one_is_idle(options: Build, cores: int, count: int) -> None:
    given = options(host_cores=cores, vcpus=1, cpu_mode="cpuset", databases=tuple(sorted({1, 2, cores // 2, cores, count})), repeats=5)
    cpu = {name: number % cores for number, name in enumerate(container_names(given))}
    for trial in planned(given):
        loads = Counter(cpu[target.split("/")[1]] for target in trial.phases[0].loads)
        assert sum(loads.values()) == databases(trial)
        assert max(loads.values()) - min(loads.get(n, 0) for n in range(cores)) <= 1


@pytest.mark.parametrize("cores", [8, 64])
def test_pinned_databases_load_numa_nodes_evenly(options: Build, cores: int) -> None:
    """Neighbouring CPUs are on one node, so that CPUs alone do not show the imbalance."""
    nodes = [0] * (cores // 2) + [1] * (cores // 2)
    sizes = tuple(sorted({2, cores // 4, cores // 2, cores, 3 * cores // 2}))
    given = options(host_cores=cores, vcpus=1, cpu_mode="cpuset", cpu_nodes=nodes, databases=sizes, repeats=5)
    names = container_names(given)
    cpus = dict(zip(names, (cpu for (cpu,) in pinned_cpus([1] * len(names), cores)), strict=True))
    for trial in planned(given):
        loaded = [cpus[target.split("/")[1]] for target in trial.phases[0].loads]
        if databases(trial) <= cores:
            assert Counter(nodes[cpu] for cpu in loaded) == {0: databases(trial) // 2, 1: databases(trial) // 2}
            assert len(set(loaded)) == databases(trial)


def test_hosts_of_a_cluster_have_numa_nodes_of_their_own(options: Build) -> None:
    over = [{"name": name, "cores": 8, "cpu_nodes": [0, 0, 0, 0, 1, 1, 1, 1]} for name in ("alpha", "beta")]
    given = options(host_cores=16, vcpus=1, cpu_mode="cpuset", over=over, databases=(4, 16), repeats=10)
    node_of = {name: (number % 2, number // 2 % 8 // 4) for number, name in enumerate(container_names(given))}
    for trial in planned(given):
        loaded = Counter(node_of[target.split("/")[1]] for target in trial.phases[0].loads)
        assert set(loaded.values()) == {databases(trial) // 4}


def test_databases_of_several_cpus_are_balanced(options: Build) -> None:
    given = options(host_cores=8, vcpus=3, cpu_mode="cpuset", databases=(1, 2, 4), repeats=20)
    cpus = dict(zip(container_names(given), pinned_cpus([3] * 4, 8), strict=True))
    assert list(cpus.values()) == [(0, 1, 2), (3, 4, 5), (0, 6, 7), (1, 2, 3)]
    for trial in planned(given):
        if databases(trial) == 2:
            first, second = (set(cpus[target.split("/")[1]]) for target in trial.phases[0].loads)
            assert not first & second


def test_certain_points_leave_the_rest_of_the_budget_unused(options: Build, simulate: Any) -> None:
    results, stop = simulate(options(time_budget=3600), noise=0.001).until_stop()
    assert len(results) == 21
    assert stop == "all planned trials are done"


def test_worst_case_holds(options: Build, simulate: Any) -> None:
    for more in ({}, {"time_budget": 400.0}, {"time_budget": 5.0}):
        given = options(**more)
        worst = propose(given, []).max_trials
        results, _ = simulate(given, noise=0.2, taint=lambda t: "steal" if t.repeat == 0 else None).until_stop()
        assert worst is not None
        assert len(results) <= worst


def test_a_soak_is_trials_of_ten_windows_that_go_on_from_each_other(options: Build, simulate: Any) -> None:
    given = options(soak_seconds=3900, warmup=5, start_state="fresh")
    trials = propose(given, []).trials
    assert {databases(trial) for trial in trials} == {8}
    phases = [phase for trial in trials for phase in trial.phases]
    assert [len(trial.phases) for trial in trials] == [10, 10, 10, 10, 10, 10, 5]
    assert [phase.name for phase in phases] == [f"w{i:04d}" for i in range(65)]
    assert {phase.seconds for phase in phases} == {60}
    assert [phase.warmup for phase in phases] == [5 if i % 10 == 0 else 1 for i in range(65)], "after an interruption servers are cold"
    assert len({frozenset(phase.loads) for phase in phases}) == 1
    assert [(trial.continues_previous, trial.state) for trial in trials] == [(False, "fresh"), *([(True, "warm")] * 6)]
    results, stop = simulate(given).until_stop()
    assert len(results) == 7
    assert "soak" in stop


def test_a_soak_that_was_interrupted_goes_on_with_the_windows_that_are_left(options: Build, simulate: Any) -> None:
    given = options(soak_seconds=3600)
    trials = propose(given, []).trials
    host = simulate(given, fail=lambda trial: "killed" if trial.repeat == 1 else None)
    assert propose(given, host.all(trials[:3])).trials == trials[3:]
    assert propose(given, host.all(trials)).stop == "the soak is over"


def test_a_short_soak_is_one_window(options: Build) -> None:
    (trial,) = propose(options(soak_seconds=20), []).trials
    assert [phase.seconds for phase in trial.phases] == [20]


def _simulator(**more: Any) -> Any:
    """Hypothesis gives one fixture to all its examples; these need a fresh simulator each."""
    return _BUILD["simulate"](_BUILD["options"](**more))


_BUILD: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def _builders(options: Build, simulate: Any) -> None:
    _BUILD.update(options=options, simulate=simulate)


@given(
    st.integers(0, 2**16),
    st.one_of(st.none(), st.floats(30, 500)),
    st.sampled_from([0.0, 0.2, 0.6, 1.0]),
    st.integers(1, 3),
)
@settings(max_examples=15, deadline=None)
def test_resume_is_replay(seed: int, budget: float | None, tainted: float, repeats: int) -> None:
    """Interrupted after any prefix and gone on with, the run is the same as if it had never been interrupted."""
    given = _BUILD["options"](databases=(1, 3, 8, 10), seed=seed, time_budget=budget, repeats=repeats)

    def taint(trial: Trial) -> str | None:
        return "steal" if random.Random(f"{seed} {trial.key()}").random() < tainted else None

    whole, stop = _BUILD["simulate"](given, taint=taint, noise=0.05).until_stop()
    keys = [result.trial.key() for result in whole]
    assert len(set(keys)) == len(keys)
    for cut in range(len(whole) + 1):
        proposal = propose(given, whole[:cut])
        assert proposal == STUDY.propose(given, whole[:cut])
        if cut == len(whole):
            assert proposal.stop == stop
        else:
            assert [trial.key() for trial in proposal.trials] == keys[cut : cut + len(proposal.trials)]
