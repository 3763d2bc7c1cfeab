import pytest

from pgherd.studies.consolidation.schemes import deploy, shared_buffers, targets, trial

GB = 2**30


def shape(deployment):
    """(containers, servers, databases)."""
    return (
        len(list(deployment.containers())),
        len(list(deployment.servers())),
        len(list(deployment.databases())),
    )


@pytest.mark.parametrize(("scheme", "expected"), [(1, (1, 1, 2)), (2, (1, 2, 2)), (3, (2, 2, 2)), (4, (2, 2, 2))])
def test_shapes_are_e4s(make_options, scheme, expected):
    assert shape(deploy(make_options(), scheme, 25, 0)) == expected


@pytest.mark.parametrize(("scheme", "memory", "quarter", "most"), [(1, 8, 2, 6), (2, 8, 1, 3), (3, 4, 1, 3), (4, 4, 1, 3)])
def test_memory_and_buffers_are_those_of_e4s_table(make_options, scheme, memory, quarter, most):
    options = make_options()
    for _, container in deploy(options, scheme, 25, 0).containers():
        assert (container.memory, container.vcpus) == (memory * GB, 3)
    assert shared_buffers(options, scheme, 25) == quarter * GB
    assert shared_buffers(options, scheme, 75) == most * GB
    for _, _, server in deploy(options, scheme, 75, 0).servers():
        assert server.settings["shared_buffers"] == f"{most * 1024}MB"


def test_any_number_of_databases(make_options):
    options = make_options(databases=5, plan=((3,),) * 5)
    assert [shape(deploy(options, scheme, 25, 0)) for scheme in (1, 2, 3)] == [(1, 1, 5), (1, 5, 5), (5, 5, 5)]
    assert next(deploy(options, 2, 25, 0).containers())[1].memory == 5 * 4 * GB


def test_overcommitment_shrinks_the_host_and_not_the_containers(make_options):
    options = make_options(staging="locked")
    plain, tight = deploy(options, 3, 25, 0.0), deploy(options, 3, 25, 0.5)
    assert (plain.hosts[0].memory, tight.hosts[0].memory) == (12 * GB, 4 * GB)
    assert tight.hosts[0].staging == "locked"
    assert plain.hosts[0].containers == tight.hosts[0].containers


def test_only_scheme_4_has_the_balloon(make_options):
    options = make_options(balloon={"shared_preload_libraries": "pg_balloon"}, settings={"max_wal_senders": "0"})
    having = {
        scheme: ["shared_preload_libraries" in server.settings for _, _, server in deploy(options, scheme, 25, 0).servers()]
        for scheme in (1, 2, 3, 4)
    }
    assert having == {1: [False], 2: [False, False], 3: [False, False], 4: [True, True]}


def test_without_limits_containers_have_no_memory(make_options):
    options = make_options(container_memory=None, runtime="process")
    assert [container.memory for _, container in deploy(options, 1, 25, 0).containers()] == [None]
    assert shared_buffers(options, 1, 25) == 2 * GB


@pytest.mark.parametrize("scheme", [1, 2, 3, 4])
def test_a_trial_loads_every_database_as_the_plan_says(make_options, scheme):
    options = make_options()
    made = trial(options, {"scheme": scheme, "buffers": 25, "rate": 0.0}, 0, "planned")
    clients = [[phase.loads[target].clients for target in targets(options, scheme)] for phase in made.phases]
    assert clients == [[30, 2], [2, 30], [30, 2], [2, 30]]
    assert {load.place for phase in made.phases for load in phase.loads.values()} == {"outside"}
    assert made.state == "fresh", "orders grow: every trial begins with the golden copy"


def test_that_servers_do_not_live_with_less_memory_is_an_outcome(make_options):
    made = [trial(make_options(), {"scheme": 3, "buffers": 25, "rate": rate}, 0, "planned") for rate in (0.0, 0.55)]
    assert [one.may_die for one in made] == [False, True]


def test_wal_may_lie_elsewhere(make_options):
    made = deploy(make_options(wal_dir="/mnt/wal"), 3, 25, 0)
    assert [server.volumes for _, _, server in made.servers()] == [{"wal": "wal"}] * 2
