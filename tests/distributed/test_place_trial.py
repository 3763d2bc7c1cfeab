import pytest

from pgherd.distributed.merge_results import loaded
from pgherd.distributed.place_trial import (
    ClusterStudy,
    files_of,
    home,
    own_surroundings,
    part,
    placed,
    served,
    with_addresses,
    with_files,
)
from pgherd.model.analysis import Analysis, Proposal
from pgherd.model.base import Model
from pgherd.model.deployment import Host
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.run import Cluster, RunEnvironment
from pgherd.model.trial import Trial
from pgherd.runner.loop import has_no_load

LOAD = {"scripts": [{"source": "builtin:select-only"}]}
CLUSTER = Cluster.model_validate(
    {"address": "x", "hosts": [{"name": "a", "cores": 2, "memory": 600}, {"name": "b", "cores": 1, "memory": 400}]}
)


def trial(containers=3, **host):
    created = [{"name": f"db{i}", "vcpus": 1, "servers": [{"bin": "/pg", "version": "18.6"}]} for i in range(1, containers + 1)]
    loads = {f"local/db{i}/pg/bench": LOAD for i in range(1, containers + 1)}
    return Trial.model_validate(
        {
            "point": {"databases": containers},
            "deployment": {"hosts": [{"name": "local", "cores": 3, "memory": 1000, "containers": created, **host}]},
            "phases": [{"loads": loads}],
        }
    )


def test_containers_and_their_loads_go_to_the_hosts():
    placement = placed(trial(), CLUSTER)
    assert {host.name: [c.name for c in host.containers] for host in placement.deployment.hosts} == {"a": ["db1", "db3"], "b": ["db2"]}
    assert set(placement.phases[0].loads) == {"a/db1/pg/bench", "b/db2/pg/bench", "a/db3/pg/bench"}
    assert [(host.cores, host.memory) for host in placement.deployment.hosts] == [(2, 600), (1, 400)]
    assert placement.key() == trial().key(), "it is the same trial to its study"


def test_what_is_placed_already_stays():
    once = placed(trial(), CLUSTER)
    assert placed(once, CLUSTER) is once


def test_less_memory_for_all_is_less_on_every_host():
    placement = placed(trial(memory=500), CLUSTER)
    assert [host.memory for host in placement.deployment.hosts] == [300, 200]


def test_a_lost_host_s_containers_go_to_the_others():
    placement = placed(trial(), CLUSTER, ["b"])
    assert [(host.name, len(host.containers)) for host in placement.deployment.hosts] == [("b", 3)]
    listed = CLUSTER.model_copy(update={"placement": "listed:*=a"})
    assert [host.name for host in placed(trial(), listed, ["b"]).deployment.hosts] == ["b"]
    with pytest.raises(ValueError, match="no host has the label"):
        placed(trial(), CLUSTER.model_copy(update={"placement": "label:x=y"}))


def test_a_load_on_the_host_itself_is_one_on_every_host():
    trial = Trial.model_validate(
        {
            "point": {"command": "x"},
            "deployment": {"hosts": [{"name": "local"}]},
            "phases": [{"loads": {"local": {"driver": "fio", "options": {"rw": "read"}}}}],
        }
    )
    assert set(placed(trial, CLUSTER).phases[0].loads) == {"a", "b"}


def test_a_trial_that_names_its_hosts_does_without_one_that_is_lost():
    request = Trial.model_validate(
        {
            "point": {"hosts": 2},
            "deployment": {"hosts": [{"name": "a"}, {"name": "b"}]},
            "phases": [{"loads": {"a": {"driver": "fio"}, "b": {"driver": "fio"}}}],
        }
    )
    assert placed(request, CLUSTER, ["a", "b"]) is request
    placement = placed(request, CLUSTER, ["b"])
    assert [host.name for host in placement.deployment.hosts] == ["b"] and set(placement.phases[0].loads) == {"b"}
    result = TrialResult(id="0001", trial=request, started=0, ended=1)
    assert home(result) is result, "its study knows the hosts"


def test_its_study_knows_the_result_again():
    placement = placed(trial(), CLUSTER)
    targets = [TargetResult(target=t, driver="pgbench", transactions=1, throughput=1, first=0, last=1) for t in placement.phases[0].loads]
    metrics = {"driver:b/db2/pg/bench": {"cpu.usage": 0.1}, "container:db2": {"cpu.usage": 1.0}}
    phase = PhaseResult(phase="steady", start=0, end=1, overlap=1, targets=targets, metrics=metrics)
    result = home(TrialResult(id="0001", trial=placement, started=0, ended=1, phases=[phase]))
    host = result.trial.deployment.hosts[0]
    assert (host.name, host.cores, host.memory) == ("local", 3, 1000)
    assert [c.name for c in host.containers] == ["db1", "db2", "db3"]
    assert set(result.trial.phases[0].loads) == set(trial().phases[0].loads) == {t.target for t in result.phases[0].targets}
    assert set(result.phases[0].metrics) == {"driver:local/db2/pg/bench", "container:db2"}
    assert home(result) is result


def test_clients_on_a_host_of_their_own_are_driven_from_there():
    cluster = Cluster.model_validate({**CLUSTER.model_dump(), "client": "b"})
    placement = placed(trial(), cluster)
    assert {host.name: len(host.containers) for host in placement.deployment.hosts} == {"a": 3, "b": 0}
    assert {load.host for load in placement.phases[0].loads.values()} == {"b"} and placement.phases[0].loads[
        "a/db1/pg/bench"
    ].client_placement == "outside"
    assert placement.deployment.hosts[0].memory == 600, "all the memory of the hosts that carry servers is not less than that"
    with pytest.raises(ValueError, match="host b, on which the clients run, is lost"):
        placed(trial(), cluster, ["a"])
    with pytest.raises(ValueError, match="no host for servers remains"):
        placed(trial(), cluster, ["b"])
    metrics = {"host": {"cpu.user": 3.0}, "host:a": {"cpu.user": 1.0}, "host:b": {"cpu.user": 2.0}, "run-cgroup": {"cpu.usage": 3.0}}
    phase = PhaseResult(phase="steady", start=0, end=1, overlap=1, targets=[], metrics=metrics)
    result = home(TrialResult(id="0001", trial=placement, started=0, ended=1, phases=[phase]))
    assert result.phases[0].metrics["host"] == {"cpu.user": 1.0}, "what limits a server is its own host"
    assert "run-cgroup" not in result.phases[0].metrics
    complete = result.trial.deployment.hosts[0]
    assert (complete.name, complete.cores, complete.memory) == ("local", 2, 600)
    assert [host.name for host in result.trial.deployment.hosts] == ["local", "a", "b"]


def test_a_trial_that_is_pinned_runs_on_that_host_or_on_another_that_is_there():
    request = trial(labels={"host": "b"})
    assert {host.name: len(host.containers) for host in placed(request, CLUSTER).deployment.hosts} == {"b": 3}
    assert placed(trial(labels={"host": "b"}, memory=400), CLUSTER).deployment.hosts[0].memory == 400, "its own, not a share of it"
    assert [host.name for host in placed(request, CLUSTER, ["a"]).deployment.hosts] == ["a"]


def test_links_and_volumes_of_a_lost_host_go_with_it():
    trial = Trial.model_validate(
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
    placement = placed(trial, CLUSTER, ["a", "c"])
    assert [sorted(phase.loads) for phase in placement.phases] == [["a/disk0"], ["a/c"]]
    assert [link.target for link in placement.deployment.links] == ["a/c"] and [v.target for v in placement.deployment.volumes] == [
        "a/disk0"
    ]
    assert not has_no_load(placement)
    assert has_no_load(placed(trial.model_copy(update={"phases": trial.phases[1:]}), CLUSTER, ["b", "c"]))
    assert not has_no_load(trial.model_copy(update={"phases": (), "probe": "sizes"}))


LOADED = {"scripts": [{"source": "/mine/new.sql"}, {"source": "builtin:select-only"}]}


def parts_trial():
    server = {"bin": "/pg", "version": "18.6", "databases": [{"name": "bench", "init": "/mine/fill.sql"}]}
    return Trial.model_validate(
        {
            "point": {"databases": 2},
            "deployment": {
                "hosts": [
                    {"name": "a", "containers": [{"name": "db1", "servers": [server]}]},
                    {"name": "b", "containers": [{"name": "db2", "servers": [server]}]},
                ],
                "volumes": [{"name": "disk0", "path": "/d"}],
            },
            "phases": [
                {"name": "one", "loads": {"a/db1/pg/bench": LOADED}},
                {
                    "name": "both",
                    "loads": {
                        "a/db1/pg/bench": LOADED,
                        "b/db2/pg/bench": LOADED,
                        "a": {"driver": "fio"},
                        "disk0": {"driver": "fio"},
                    },
                },
            ],
        }
    )


def test_a_part_has_the_host_s_own_containers_and_loads_and_all_phases():
    own = part(parts_trial(), "b")
    assert [host.name for host in own.deployment.hosts] == ["b"]
    assert [(phase.name, sorted(phase.loads)) for phase in own.phases] == [("one", []), ("both", ["b/db2/pg/bench", "disk0"])]
    assert loaded(own) == [1] and loaded(part(parts_trial(), "a")) == [0, 1]
    assert own.seconds() == parts_trial().seconds()
    assert sorted(part(parts_trial(), "a").phases[1].loads) == ["a", "a/db1/pg/bench", "disk0"]


def test_a_phase_limits_the_memory_of_the_containers_of_that_host_only():
    (phase,) = trial().phases
    limited = phase.model_copy(update={"name": "limited", "memory": {"db1": 100, "db2": 200}})
    request = trial().model_copy(update={"phases": (phase, limited)})
    placement = placed(request, CLUSTER)
    assert [part(placement, host).phases[1].memory for host in "ab"] == [{"db1": 100}, {"db2": 200}]
    placement = placed(request, Cluster.model_validate({**CLUSTER.model_dump(), "client": "b"}))
    assert [part(placement, host).phases[1].memory for host in "ab"] == [{"db1": 100, "db2": 200}, {}]


def test_files_are_named_and_replaced_by_their_copies():
    assert files_of([parts_trial()]) == {"/mine/new.sql", "/mine/fill.sql"}
    files = with_files(part(parts_trial(), "a"), {"/mine/new.sql": "/there/0.sql", "/mine/fill.sql": "/there/1.sql"})
    assert [script.source for script in files.phases[0].loads["a/db1/pg/bench"].scripts] == ["/there/0.sql", "builtin:select-only"]
    assert [database.init for *_, database in files.deployment.databases()] == ["/there/1.sql"]
    assert with_files(files, {}) is files


def test_each_host_reserves_its_own_budget():
    environment = RunEnvironment(runtime="cgroup", cores=6, memory=600)
    own = own_surroundings(environment, Host(name="a", cores=2, memory=200))
    assert (own.cores, own.memory, own.cluster) == (2, 200, None)


def test_what_is_driven_from_another_host_is_part_of_that_one_but_served_at_home():
    complete = parts_trial()
    loads = {target: load.model_copy(update={"host": "b"}) if "/" in target else load for target, load in complete.phases[1].loads.items()}
    complete = complete.model_copy(update={"phases": (complete.phases[0], complete.phases[1].model_copy(update={"loads": loads}))})
    assert sorted(part(complete, "b").phases[1].loads) == ["a/db1/pg/bench", "b/db2/pg/bench", "disk0"]
    assert sorted(part(complete, "a").phases[1].loads) == ["a", "disk0"]
    own = served(complete, "a").phases[1].loads
    assert sorted(own) == ["a", "a/db1/pg/bench", "disk0"] and own["a/db1/pg/bench"].host is None
    assert sorted(served(complete, "b").phases[1].loads) == ["b/db2/pg/bench", "disk0"]


def test_links_lead_to_where_the_hosts_are_now():
    links = [{"name": far, "kind": "hosts", "near": "a", "host": f"10.0.0.{far}"} for far in ("b", "c")] + [{"name": "d", "host": "d"}]
    trial = Trial.model_validate({"point": {}, "deployment": {"hosts": [{"name": "a"}], "links": links}, "phases": [{"loads": {}}]})
    moved = with_addresses(trial, {"a": "10.9.0.1", "b": "10.9.0.2", "d": "10.9.0.4"})
    assert [link.host for link in moved.deployment.links] == ["10.9.0.2", "10.0.0.c", "d"]
    assert with_addresses(parts_trial(), {"a": "10.9.0.1"}) == parts_trial()


def test_each_host_has_its_own_volumes_and_every_link():
    link = {"name": "b", "kind": "hosts", "near": "a", "host": "10.0.0.2"}
    trial = Trial.model_validate(
        {
            "point": {},
            "deployment": {
                "hosts": [{"name": "a"}, {"name": "b"}],
                "volumes": [{"name": "disk0", "path": "/d", "host": host} for host in ("a", "b")],
                "links": [link],
            },
            "phases": [{"loads": {"a/disk0": {"driver": "fio"}, "b/disk0": {"driver": "fio"}, "a/b": {"driver": "iperf3"}}}],
        }
    )
    near, far = part(trial, "a"), part(trial, "b")
    assert sorted(near.phases[0].loads) == ["a/b", "a/disk0"] and sorted(far.phases[0].loads) == ["b/disk0"]
    assert [volume.host for volume in far.deployment.volumes] == ["b"]
    assert [item.target for item in far.deployment.links] == ["a/b"], "its far end is here"


TWO_HOSTS = Cluster.model_validate({"address": "x", "hosts": [{"name": "a", "cores": 1}, {"name": "b", "cores": 1}]})


class Study:
    """Remembers which targets it saw."""

    name, options = "density", Model

    def __init__(self):
        self.seen = []

    def propose(self, options, results):
        self.seen.append([sorted(result.trial.phases[0].loads) for result in results])
        return Proposal(stop="enough")

    def analyse(self, options, results):
        return Analysis(answer=f"{len(results)} on {results[0].trial.deployment.hosts[0].name}", grade="A")


def test_a_study_knows_nothing_of_the_hosts():
    created = [{"name": f"db{i}", "servers": [{"bin": "/pg", "version": "18.6"}]} for i in (1, 2)]
    trial = Trial.model_validate(
        {"point": {"databases": 2}, "deployment": {"hosts": [{"containers": created}]}, "phases": [{"loads": {"local/db2/pg/bench": {}}}]}
    )
    results = [TrialResult(id="0001", trial=placed(trial, TWO_HOSTS), started=0, ended=1)]
    inner = Study()
    study = ClusterStudy(inner, TWO_HOSTS)
    assert study.propose(Model(), results).stop == "enough" and inner.seen == [[["local/db2/pg/bench"]]]
    analysis = study.analyse(Model(), results)
    assert analysis.answer == "1 on local" and [row["host"] for row in analysis.tables["hosts"]] == ["a", "b"]
    assert (study.name, study.options) == ("density", Model)
    served = TWO_HOSTS.model_copy(update={"hosts": (*TWO_HOSTS.hosts, Host(name="c")), "client": "c"})
    analysis = ClusterStudy(inner, served).analyse(Model(), results)
    assert "host_imbalance" in analysis.findings and [row["host"] for row in analysis.tables["hosts"]] == ["a", "b", "c"]
