import pytest

from pgherd.drivers.driver import Endpoint
from pgherd.drivers.fio import FioDriver
from pgherd.model.deployment import VmOptions
from pgherd.studies.isolation.options import ALONE, FIO_BYTES, SCHEMES
from pgherd.studies.isolation.propose import addresses, deploy, planned, points, propose


def test_a_block_holds_a_scheme_alone_and_with_each_aggressor(make_options):
    options = make_options(repeats=2)
    trials = planned(options)
    assert len(trials) == 2 * len(points(options)) == 12
    for begin in range(0, len(trials), 3):
        block = trials[begin : begin + 3]
        assert len({(trial.point["scheme"], trial.repeat) for trial in block}) == 1
        assert {trial.point["aggressor"] for trial in block} == {ALONE, "cpu", "wal"}
        assert len({trial.deployment.model_dump_json() for trial in block}) == 1, "nothing restarts within a block"
    orders = {tuple(t.point["aggressor"] for t in planned(make_options(seed=seed))) for seed in range(5)}
    assert len(orders) > 1
    assert propose(options, []).trials == trials


def test_only_the_aggressor_comes_and_goes(make_options):
    options = make_options()
    for trial in planned(options):
        victim, neighbour = addresses(trial.point["scheme"])
        (phase,) = trial.phases
        assert (phase.loads[victim].rate, phase.loads[victim].clients, phase.loads[victim].sampling) == (100, 8, 1.0)
        if trial.point["aggressor"] == ALONE:
            assert set(phase.loads) == {victim} and trial.validity_checks == ("rate-achieved",)
        else:
            load = phase.loads[neighbour]
            assert load.rate is None and load.scripts[0].source == f"/x/{trial.point['aggressor']}.sql"
            assert trial.validity_checks == (), "a victim that misses its rate is a result"


@pytest.mark.parametrize("clients", [1, 3, 4, 2000])
def test_fio_runs_in_the_container_of_the_aggressor(make_options, clients):
    options = make_options(aggressors=("fio",), scripts_of={}, aggressor_clients=clients, repeats=1)
    trials = [trial for trial in planned(options) if trial.point["aggressor"] != ALONE]
    for trial in trials:
        load = trial.phases[0].loads[addresses(trial.point["scheme"])[1]]
        assert (load.driver, load.client_placement, load.threads, load.options["direct"]) == ("fio", "inside", clients, "1")
        argv = FioDriver().argv(load, Endpoint("t", "", "", 0, "", "", "/out", directory="/files"), 18.0)
        parts = {name: int(value) for name, _, value in (word[2:].partition("=") for word in argv) if name in ("size", "offset_increment")}
        assert parts["size"] == parts.get("offset_increment", parts["size"]) and parts["size"] % 2**20 == 0
        assert clients * parts["size"] <= FIO_BYTES or parts["size"] == 2**20
    assert len(trials) == 2


def test_all_schemes_have_the_same_resources(make_options):
    options = make_options(iops=500, cpu_weight=300)
    for scheme in SCHEMES:
        deployment = deploy(options, scheme)
        containers = [container for _, container in deployment.containers()]
        assert sum(container.vcpus for container in containers) == 2
        assert sum(container.memory for container in containers) == 2 * 2**30
        buffers = [int(server.settings["shared_buffers"].removesuffix("MB")) for _, _, server in deployment.servers()]
        assert sum(buffers) == 256
        assert set(deployment.addresses()) == set(addresses(scheme))


def test_buffers_without_a_unit_are_pages(make_options):
    """To PostgreSQL, shared_buffers = 16384 are 128 MB."""
    options = make_options(settings={"shared_buffers": "16384"})
    ((_, _, server),) = deploy(options, "shared-server").servers()
    assert server.settings["shared_buffers"] == "256MB"


def test_limits_by_scheme(make_options):
    options = make_options(iops=500, cpu_weight=300)
    found = {scheme: [(c.name, c.cpu_mode, c.weight, c.iops) for _, c in deploy(options, scheme).containers()] for scheme in SCHEMES}
    assert found["shared-container"] == [("all", "quota", None, None)]
    assert found["quota"] == [("victim", "quota", None, None), ("aggressor", "quota", None, None)]
    assert found["weights"] == [("victim", "none", 300, None), ("aggressor", "none", 100, None)]
    assert found["cpuset"] == [("victim", "cpuset", None, None), ("aggressor", "cpuset", None, None)]
    assert found["io"] == [("victim", "quota", None, 500), ("aggressor", "quota", None, 500)]
    machine = VmOptions(pinned=True)
    guests = make_options(runtime="vm", cpu_mode="none", vm=machine)
    assert [(c.runtime, c.vcpus, c.cpu_mode, c.vm) for _, c in deploy(guests, "shared-server").containers()] == [("vm", 2, "none", machine)]
    assert [(c.name, c.vcpus, c.cpu_mode) for _, c in deploy(guests, "vm").containers()] == [
        ("victim", 1, "none"),
        ("aggressor", 1, "none"),
    ]
