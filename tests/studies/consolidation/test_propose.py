from collections import Counter

import pytest

from pgherd.model.deployment import Volume
from pgherd.studies.consolidation.options import LAYOUTS
from pgherd.studies.consolidation.propose import deploy, planned, points, propose, shared_buffers, targets, trial

GB = 2**30


def keys(trials):
    return [trial.key() for trial in trials]


def test_a_block_holds_every_combination_once(make_options):
    options = make_options(overcommit=(0.0, 0.3, 0.55), repeats=3)
    counts = Counter(
        (trial.point["layout"], trial.point["shared_buffers_percent"], trial.point["overcommit"], trial.repeat)
        for trial in planned(options)
    )
    assert len(counts) == 4 * 2 * 3 * 3 and set(counts.values()) == {1}


def test_blocks_are_mixed_by_the_recorded_seed(make_options):
    first, again, other = (keys(planned(make_options(seed=seed, repeats=2))) for seed in (7, 7, 8))
    assert first == again and first != other
    assert sorted(first) == sorted(other)
    blocks = [[key.partition("#")[0] for key in first if key.endswith(f"#{block}")] for block in (0, 1)]
    assert blocks[0] != blocks[1], "the order differs between blocks"
    assert blocks[0] != [
        f"layout={p['layout']},overcommit={p['overcommit']},shared_buffers_percent={p['shared_buffers_percent']}"
        for p in points(make_options())
    ]


def test_unavailable_layouts_are_left_out(make_options):
    options = make_options(unavailable={"dedicated-balloon": "no compiler"})
    assert {trial.point["layout"] for trial in planned(options)} == {"shared-server", "shared-container", "dedicated"}
    proposal = propose(make_options(schemes=("dedicated-balloon",), unavailable={"dedicated-balloon": "no compiler"}), [])
    assert proposal.stop == "none of the requested layouts is available on this host"


def test_resume_proposes_what_is_missing(make_options, simulate):
    simulator = simulate(make_options())
    planned_trials = propose(simulator.options, []).trials
    finished = [simulator.run(trial) for trial in planned_trials[:3]]
    assert keys(propose(simulator.options, finished).trials) == keys(planned_trials[3:])


def test_a_tainted_trial_is_rerun(make_options, simulate):
    first = []

    def taint(trial):
        if not first:
            first.append(trial.key())
        return "steal" if trial.key() == first[0] else None

    results = simulate(make_options(), taint=taint).all()
    again = [result.trial for result in results if result.trial.reason.startswith("rerun")]
    assert [trial.point for trial in again] == [results[0].trial.point]
    assert again[0].repeat == 1, "after the planned ones"


def test_killed_trials_are_not_rerun(make_options, simulate):
    options = make_options(overcommit=(0.0, 0.5))
    results = simulate(options, kill=lambda trial: "db1" if trial.point["overcommit"] else None).all()
    assert len(results) == len(planned(options))


def test_a_time_budget_ends_the_study_without_repeats_outside_a_block(make_options, simulate):
    options = make_options(schemes=("shared-server", "dedicated"), shared_buffers_percent=(25,), time_budget=1000)
    results = simulate(options).all()
    assert len(results) == 2, "further repeats of one layout would have no pair"


# ---- deployments and trials


def shape(deployment):
    """(containers, servers, databases)."""
    return (
        len(list(deployment.containers())),
        len(list(deployment.servers())),
        len(list(deployment.databases())),
    )


@pytest.mark.parametrize(("layout", "expected"), list(zip(LAYOUTS, [(1, 1, 2), (1, 2, 2), (2, 2, 2), (2, 2, 2), (1, 1, 2)], strict=True)))
def test_shapes_are_e4s_and_that_of_one_database(make_options, layout, expected):
    assert shape(deploy(make_options(), layout, 25, 0)) == expected


@pytest.mark.parametrize(
    ("layout", "memory", "quarter", "maximum"),
    [
        ("shared-server", 8, 2, 6),
        ("shared-container", 8, 1, 3),
        ("dedicated", 4, 1, 3),
        ("dedicated-balloon", 4, 1, 3),
        ("shared-database", 8, 2, 6),
    ],
)
def test_memory_and_buffers_are_those_of_e4s_table(make_options, layout, memory, quarter, maximum):
    options = make_options()
    for _, container in deploy(options, layout, 25, 0).containers():
        assert (container.memory, container.vcpus) == (memory * GB, 3)
    assert shared_buffers(options, layout, 25) == quarter * GB
    assert shared_buffers(options, layout, 75) == maximum * GB
    for _, _, server in deploy(options, layout, 75, 0).servers():
        assert server.settings["shared_buffers"] == f"{maximum * 1024}MB"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_containers_of_each_layout_have_the_same_memory_and_io_together(make_options, layout):
    options = make_options(databases=3, plan=((3,),) * 3, iops=100, io_bandwidth=2**20)
    limits = [(each.memory, each.iops, each.io_bandwidth) for _, each in deploy(options, layout, 25, 0).containers()]
    assert [sum(limit) for limit in zip(*limits, strict=True)] == [3 * 4 * GB, 300, 3 * 2**20]


def test_any_number_of_databases(make_options):
    options = make_options(databases=5, plan=((3,),) * 5)
    assert [shape(deploy(options, layout, 25, 0)) for layout in LAYOUTS[:3]] == [(1, 1, 5), (1, 5, 5), (5, 5, 5)]
    assert next(deploy(options, "shared-container", 25, 0).containers())[1].memory == 5 * 4 * GB


def test_overcommitment_shrinks_the_host_and_not_the_containers(make_options):
    options = make_options(overcommit_by="mlock")
    plain, tight = deploy(options, "dedicated", 25, 0.0), deploy(options, "dedicated", 25, 0.5)
    assert (plain.hosts[0].memory, tight.hosts[0].memory) == (12 * GB, 4 * GB)
    assert tight.hosts[0].overcommit_by == "mlock"
    assert plain.hosts[0].containers == tight.hosts[0].containers


def test_only_dedicated_balloon_has_the_balloon(make_options):
    options = make_options(balloon={"shared_preload_libraries": "pg_balloon"}, settings={"max_wal_senders": "0"})
    with_balloon = {
        layout: ["shared_preload_libraries" in server.settings for _, _, server in deploy(options, layout, 25, 0).servers()]
        for layout in LAYOUTS
    }
    assert with_balloon == dict(zip(LAYOUTS, ([False], [False, False], [False, False], [True, True], [False]), strict=True))


def test_only_shared_database_has_schemas(make_options):
    dbnames = {layout: [one.dbname for *_, one in deploy(make_options(), layout, 25, 0).databases()] for layout in LAYOUTS}
    assert dbnames.pop("shared-database") == ["bench", "bench"]
    assert dbnames == {
        "shared-server": ["db1", "db2"],
        **dict.fromkeys(("shared-container", "dedicated", "dedicated-balloon"), ["bench"] * 2),
    }
    assert targets(make_options(), "shared-database") == ["local/all/pg/db1", "local/all/pg/db2"]


def test_without_limits_containers_have_no_memory(make_options):
    options = make_options(container_memory=None, runtime="process")
    ((_, container),) = deploy(options, "shared-server", 25, 0).containers()
    assert (container.memory, container.iops, container.io_bandwidth) == (None, None, None)
    assert shared_buffers(options, "shared-server", 25) == 2 * GB


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_trial_loads_every_database_as_the_plan_says(make_options, layout):
    options = make_options()
    planned_trial = trial(options, {"layout": layout, "shared_buffers_percent": 25, "overcommit": 0.0}, 0, "planned")
    clients = [[phase.loads[target].clients for target in targets(options, layout)] for phase in planned_trial.phases]
    assert clients == [[30, 2], [2, 30], [30, 2], [2, 30]]
    assert {load.client_placement for phase in planned_trial.phases for load in phase.loads.values()} == {"outside"}
    assert planned_trial.state == "fresh", "orders grow, so every trial starts from the data directory template"


def test_failure_with_less_memory_is_expected(make_options):
    trials = [
        trial(make_options(), {"layout": "dedicated", "shared_buffers_percent": 25, "overcommit": rate}, 0, "planned")
        for rate in (0.0, 0.55)
    ]
    assert [planned_trial.failure_expected for planned_trial in trials] == [False, True]


def test_wal_can_be_on_another_volume(make_options):
    deployment = deploy(make_options(volumes=(Volume(name="wal", path="/mnt/wal"),), roles={"wal": "wal"}), "dedicated", 25, 0)
    assert [server.volumes for _, _, server in deployment.servers()] == [{"wal": "wal"}] * 2
