import pytest

from pgherd.distributed.placing import home, placed
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.run import Cluster
from pgherd.model.trial import Trial
from pgherd.runner.loop import nothing_left

LOAD = {"scripts": [{"source": "builtin:select-only"}]}
CLUSTER = Cluster.model_validate(
    {"address": "x", "hosts": [{"name": "a", "cores": 2, "memory": 600}, {"name": "b", "cores": 1, "memory": 400}]}
)


def trial(containers=3, **host):
    made = [{"name": f"db{i}", "vcpus": 1, "servers": [{"bin": "/pg", "version": "18.6"}]} for i in range(1, containers + 1)]
    loads = {f"local/db{i}/pg/bench": LOAD for i in range(1, containers + 1)}
    return Trial.model_validate(
        {
            "point": {"databases": containers},
            "deployment": {"hosts": [{"name": "local", "cores": 3, "memory": 1000, "containers": made, **host}]},
            "phases": [{"loads": loads}],
        }
    )


def test_containers_and_their_loads_go_to_the_hosts():
    found = placed(trial(), CLUSTER)
    assert {host.name: [c.name for c in host.containers] for host in found.deployment.hosts} == {"a": ["db1", "db3"], "b": ["db2"]}
    assert set(found.phases[0].loads) == {"a/db1/pg/bench", "b/db2/pg/bench", "a/db3/pg/bench"}
    assert [(host.cores, host.memory) for host in found.deployment.hosts] == [(2, 600), (1, 400)]
    assert found.key() == trial().key(), "it is the same trial to its study"


def test_what_is_placed_already_stays():
    once = placed(trial(), CLUSTER)
    assert placed(once, CLUSTER) is once


def test_less_memory_for_all_is_less_on_every_host():
    found = placed(trial(memory=500), CLUSTER)
    assert [host.memory for host in found.deployment.hosts] == [300, 200]


def test_a_lost_host_s_containers_go_to_the_others():
    found = placed(trial(), CLUSTER, ["b"])
    assert [(host.name, len(host.containers)) for host in found.deployment.hosts] == [("b", 3)]
    listed = CLUSTER.model_copy(update={"placement": "listed:*=a"})
    assert [host.name for host in placed(trial(), listed, ["b"]).deployment.hosts] == ["b"]
    with pytest.raises(ValueError, match="no host has the label"):
        placed(trial(), CLUSTER.model_copy(update={"placement": "label:x=y"}))


def test_a_load_on_the_host_itself_is_one_on_every_host():
    asked = Trial.model_validate(
        {
            "point": {"command": "x"},
            "deployment": {"hosts": [{"name": "local"}]},
            "phases": [{"loads": {"local": {"driver": "fio", "options": {"rw": "read"}}}}],
        }
    )
    assert set(placed(asked, CLUSTER).phases[0].loads) == {"a", "b"}


def test_a_trial_that_names_its_hosts_does_without_one_that_is_lost():
    asked = Trial.model_validate(
        {
            "point": {"hosts": 2},
            "deployment": {"hosts": [{"name": "a"}, {"name": "b"}]},
            "phases": [{"loads": {"a": {"driver": "fio"}, "b": {"driver": "fio"}}}],
        }
    )
    assert placed(asked, CLUSTER, ["a", "b"]) is asked
    found = placed(asked, CLUSTER, ["b"])
    assert [host.name for host in found.deployment.hosts] == ["b"] and set(found.phases[0].loads) == {"b"}
    result = TrialResult(id="0001", trial=asked, started=0, ended=1)
    assert home(result) is result, "its study knows the hosts"


def test_its_study_knows_the_result_again():
    found = placed(trial(), CLUSTER)
    targets = [TargetResult(target=t, driver="pgbench", transactions=1, throughput=1, first=0, last=1) for t in found.phases[0].loads]
    metrics = {"driver:b/db2/pg/bench": {"cpu.usage": 0.1}, "container:db2": {"cpu.usage": 1.0}}
    phase = PhaseResult(phase="steady", start=0, end=1, overlap=1, targets=targets, metrics=metrics)
    result = home(TrialResult(id="0001", trial=found, started=0, ended=1, phases=[phase]))
    whole = result.trial.deployment.hosts[0]
    assert (whole.name, whole.cores, whole.memory) == ("local", 3, 1000)
    assert [c.name for c in whole.containers] == ["db1", "db2", "db3"]
    assert set(result.trial.phases[0].loads) == set(trial().phases[0].loads) == {t.target for t in result.phases[0].targets}
    assert set(result.phases[0].metrics) == {"driver:local/db2/pg/bench", "container:db2"}
    assert home(result) is result


def test_clients_on_a_host_of_their_own_are_driven_from_there():
    cluster = Cluster.model_validate({**CLUSTER.model_dump(), "client": "b"})
    found = placed(trial(), cluster)
    assert {host.name: len(host.containers) for host in found.deployment.hosts} == {"a": 3, "b": 0}
    assert {load.host for load in found.phases[0].loads.values()} == {"b"} and found.phases[0].loads["a/db1/pg/bench"].place == "outside"
    assert found.deployment.hosts[0].memory == 600, "all the memory of the hosts that carry servers is not less than that"
    with pytest.raises(ValueError, match="host b, on which the clients run, is lost"):
        placed(trial(), cluster, ["a"])
    with pytest.raises(ValueError, match="none of the hosts that carry servers is left"):
        placed(trial(), cluster, ["b"])
    metrics = {"host": {"cpu.user": 3.0}, "host:a": {"cpu.user": 1.0}, "host:b": {"cpu.user": 2.0}, "budget": {"cpu.usage": 3.0}}
    phase = PhaseResult(phase="steady", start=0, end=1, overlap=1, targets=[], metrics=metrics)
    result = home(TrialResult(id="0001", trial=found, started=0, ended=1, phases=[phase]))
    assert result.phases[0].metrics["host"] == {"cpu.user": 1.0}, "what limits a server is its own host"
    assert "budget" not in result.phases[0].metrics
    whole = result.trial.deployment.hosts[0]
    assert (whole.name, whole.cores, whole.memory) == ("local", 2, 600)
    assert [host.name for host in result.trial.deployment.hosts] == ["local", "a", "b"]


def test_a_trial_that_is_pinned_runs_on_that_host_or_on_another_that_is_there():
    asked = trial(labels={"host": "b"})
    assert {host.name: len(host.containers) for host in placed(asked, CLUSTER).deployment.hosts} == {"b": 3}
    assert placed(trial(labels={"host": "b"}, memory=400), CLUSTER).deployment.hosts[0].memory == 400, "its own, not a share of it"
    assert [host.name for host in placed(asked, CLUSTER, ["a"]).deployment.hosts] == ["a"]


def test_links_and_volumes_of_a_lost_host_go_with_it():
    asked = Trial.model_validate(
        {
            "point": {},
            "deployment": {
                "hosts": [{"name": name} for name in ("a", "b", "c")],
                "volumes": [{"name": "disk0", "path": "/d", "host": name} for name in ("a", "b")],
                "links": [{"name": far, "kind": "hosts", "near": "a", "host": far} for far in ("b", "c")],
            },
            "phases": [
                {"loads": {"a/disk0": {"driver": "fio"}, "b/disk0": {"driver": "fio"}}},
                {"loads": {"a/b": {"driver": "iperf3"}, "a/c": {"driver": "iperf3"}}},
            ],
        }
    )
    found = placed(asked, CLUSTER, ["a", "c"])
    assert [sorted(phase.loads) for phase in found.phases] == [["a/disk0"], ["a/c"]]
    assert [link.target for link in found.deployment.links] == ["a/c"] and [v.target for v in found.deployment.volumes] == ["a/disk0"]
    assert not nothing_left(found)
    assert nothing_left(placed(asked.model_copy(update={"phases": asked.phases[1:]}), CLUSTER, ["b", "c"]))
    assert not nothing_left(asked.model_copy(update={"phases": (), "probe": "database-size"}))
