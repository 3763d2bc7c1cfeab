import pytest

from pgherd.model.analysis import Proposal
from pgherd.studies.place_verify.options import PlaceVerifyRequest
from pgherd.studies.place_verify.propose import LEVELS, REFERENCE_ADDRESS, deploy, line_of, offered_rate, propose

IDLE, COST = 0.002, 0.0005


def test_the_stages_follow_each_other_and_end(simulate):
    options, results = simulate()
    assert [result.trial.key() for result in results] == [
        "stage=capacity#0",
        "stage=calibration#0",
        "stage=verification#0",
        "stage=verification#1",
    ]
    assert propose(options, results).stop == "all planned trials are done"
    for done in range(len(results)):
        proposal = propose(options, results[:done])
        assert isinstance(proposal, Proposal) and proposal.trials == (results[done].trial,), "resume repeats the plan"


def test_the_line_has_the_cpu_of_servers_and_transactions(simulate):
    options, results = simulate(noise=0.0)
    line = line_of(options, results[1])
    assert line.cost == pytest.approx(COST) and line.idle == pytest.approx(IDLE) and line.n == 2 * len(LEVELS)
    assert line.deviation == pytest.approx(0, abs=1e-9)
    assert results[1].phases != sorted(results[1].phases, key=lambda phase: phase.phase), "levels are in random order"


def test_the_reference_database_has_the_same_rate_in_all_phases_after_the_capacity(simulate):
    options, results = simulate(noise=0.0)
    assert REFERENCE_ADDRESS not in results[0].trial.phases[0].loads
    (rate,) = {phase.loads[REFERENCE_ADDRESS].rate for result in results[1:] for phase in result.trial.phases}
    full = 2 - IDLE * 5  # cores for transactions of both containers in the trial of the capacity
    assert rate == pytest.approx(0.1 / 2 * full / COST)
    assert line_of(options, results[1]).reference == pytest.approx(COST + IDLE / rate)
    host = deploy(options.model_copy(update={"host_cores": 1.0})).hosts[0]
    assert host.containers[-1].name == "reference" and host.containers[-1].vcpus == pytest.approx(4 * 0.05)


def test_loads_of_a_slot_need_its_planned_cpu(simulate):
    options, results = simulate(noise=0.0)
    for slot, phase in enumerate(results[2].trial.phases):
        for number, host in enumerate(options.planned):
            mine = {name: load.rate for name, load in phase.loads.items() if f"/host{number + 1}/" in name}
            cpu = IDLE * len(host.databases) + COST * sum(mine.values())
            assert offered_rate(phase, f"host{number + 1}") == pytest.approx(sum(mine.values()))
            assert cpu == pytest.approx(host.demand(slot) * options.factor)
    rates = {name: load.rate for name, load in results[2].trial.phases[1].loads.items()}
    assert rates["local/host1/db001/bench"] == pytest.approx(2 * rates["local/host1/db002/bench"])
    assert "local/host2/db001/bench" not in results[2].trial.phases[3].loads, "a database without demand is idle"


def test_a_slot_below_the_idle_servers_has_no_load(simulate):
    planned = [{"name": "h", "cores": 8, "databases": ["a"], "cpu": [[0.001, 2]]}]
    _, results = simulate({"planned": planned, "slots": ["0", "1"]}, noise=0.0)
    assert [offered_rate(phase, "host1") > 0 for phase in results[2].trial.phases] == [False, True]


def test_containers_have_the_scaled_quota(simulate):
    _, results = simulate()
    containers = results[0].trial.deployment.hosts[0].containers
    assert [(c.vcpus, c.cpu_mode, len(c.servers)) for c in containers] == [(1, "quota", 2), (1, "quota", 3), (0.4, "quota", 1)]


def test_a_failed_stage_or_a_missing_observation_stops_the_run(simulator, make_options):
    options = make_options()
    _, stop = simulator(options, error=lambda trial: "broken" if trial.point["stage"] == "calibration" else None).until_stop()
    assert stop == "the trial of the calibration did not finish"
    _, stop = simulator(options, observed=False).until_stop()
    assert stop == "the calibration gives no CPU per transaction"
    results, stop = simulator(make_options(time_budget=80)).until_stop()
    assert len(results) == 3 and stop == "the budget of 80 s is used up"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"planned": [{"name": "h", "cores": 1, "databases": ["a"], "cpu": [[1], [2]]}], "slots": ["0"]}, "a row for each database"),
        ({"planned": [{"name": "h", "cores": 1, "databases": ["a"], "cpu": [[1, 2]]}], "slots": ["0"]}, "has 2 slots of CPU"),
        ({"rate": 5}, "the load is the planned CPU"),
        ({"vcpus": 2}, "the containers are the planned hosts"),
    ],
)
def test_what_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        PlaceVerifyRequest.model_validate(given)
