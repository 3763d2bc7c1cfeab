import json
from types import SimpleNamespace

import pytest

from pgherd.cli import dry_run
from pgherd.cli.main import run
from pgherd.model.deployment import Host
from pgherd.model.errors import UsageError
from pgherd.model.load import Load, Phase
from pgherd.model.run import Cluster, RunEnvironment
from pgherd.model.trial import Trial
from pgherd.study.comparison.options import CompareOptions

pytestmark = pytest.mark.usefixtures("own_directories")


WORDS = ["density", "--dry-run", "--databases", "1,2", "--seed", "5", "--vcpus", "1", "--scale", "3"]


def test_a_dry_run_says_what_would_happen_and_leaves_nothing(own_directories, tmp_path, capsys):
    assert run([*WORDS, "--runs-dir", str(tmp_path / "runs")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for word in ("Deployment: 2 containers", "select-only", "databases=2#0", "under load", "Disk:", "Host changes", "shared_buffers"):
        assert word in text
    assert not (tmp_path / "runs").exists()
    assert not list(own_directories.glob("cache/pgherd/work/*"))


def test_the_plan_as_a_document(capsys):
    assert run([*WORDS, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["schema"] == "pgherd/plan/2"
    assert {trial["point"]["databases"] for trial in plan["trials"]} == {1, 2}
    assert plan["seconds"] == pytest.approx(sum(trial["seconds"] for trial in plan["trials"]))
    assert plan["disk_bytes"] > 0 and plan["memory_bytes"] > 0 and plan["host_changes"]
    assert any(row["name"] == "shared_buffers" for row in plan["settings"])


CLUSTER = Cluster.model_validate({"address": "mine", "hosts": [{"name": "a", "cores": 2}, {"name": "b", "cores": 1}]})


def prepared(cluster, options=None):
    return SimpleNamespace(options=options, environment=RunEnvironment(runtime="cgroup", cores=3, memory=1, cluster=cluster))


def trials(**host):
    created = [{"name": f"db{i}", "vcpus": 1, "servers": [{"bin": "/pg", "version": "18.6"}]} for i in (1, 2, 3)]
    return [Trial.model_validate({"point": {"databases": 3}, "deployment": {"hosts": [{"containers": created, **host}]}, "phases": []})]


def test_the_plan_says_which_container_lies_where():
    assert dry_run.host_lines(prepared(CLUSTER), trials()) == [
        "Placement on the hosts of mine (spread):",
        "  a, 2 cores: 2 containers: db1, db3",
        "  b, 1 core: 1 container: db2",
    ]
    assert [host.name for host in dry_run.deployment(prepared(CLUSTER), trials()).hosts] == ["a", "b"]


def test_disk_space_is_that_of_the_fullest_host_where_databases_lie_on_several():
    with_servers = SimpleNamespace(**vars(prepared(CLUSTER)), installation="any")
    assert dry_run.disk_location(with_servers) == " on the host with the most data"
    assert dry_run.disk_location(SimpleNamespace(**vars(prepared(CLUSTER)), installation=None)) == "", "volumes of all hosts"
    assert dry_run.disk_location(SimpleNamespace(**vars(prepared(None)), installation="any")) == ""


def test_on_this_host_there_is_nothing_to_say():
    assert dry_run.host_lines(prepared(None), trials()) == []
    assert dry_run.deployment(prepared(None), trials()).hosts[0].name == "local"
    assert dry_run.deployment(prepared(CLUSTER), []) is None


def test_hosts_without_containers_are_named():
    bare = Trial.model_validate({"point": {"hosts": 2}, "deployment": {"hosts": [{"name": "a"}, {"name": "b"}]}, "phases": []})
    assert dry_run.host_lines(prepared(CLUSTER), [bare]) == ["On the hosts of mine: a, b."]


def test_containers_that_are_not_listed_are_told():
    cluster = CLUSTER.model_copy(update={"placement": "listed:db1=a"})
    with pytest.raises(UsageError, match="has no host for container db2"):
        dry_run.host_lines(prepared(cluster), trials())


def test_the_host_of_the_clients_is_named():
    cluster = CLUSTER.model_copy(update={"client": "b"})
    (trial,) = trials()
    loaded = trial.model_copy(update={"phases": (Phase(loads={"local/db1/pg/bench": Load()}),)})
    assert dry_run.host_lines(prepared(cluster), [loaded])[1:] == ["  a, 2 cores: 3 containers: db1, db2, db3", "  b: the clients"]


def test_blocks_that_take_turns_are_told_with_the_first_of_them():
    variants = [{"name": name, "study": "density", "options": {}} for name in ("x", "y")]
    options = CompareOptions.model_validate({"variants": variants, "baseline": "x", "hosts": ["b", "a"]})
    result = dry_run.host_lines(prepared(CLUSTER, options), trials(labels={"host": "b"}))
    assert result == [
        "Placement on the hosts of mine: each block on one host, alternating b, a. The first:",
        "  b, 1 core: 3 containers: db1, db2, db3",
    ]


def test_what_each_host_does_is_said_where_there_are_no_servers():
    loads = {"a/disk0": {"driver": "fio"}, "b/disk0": {"driver": "fio"}}
    volumes = [{"name": "disk0", "path": f"/mnt/{host}", "host": host} for host in ("a", "b")]
    hosts = [{"name": "a"}, {"name": "b"}]
    disk = Trial.model_validate({"point": {}, "deployment": {"hosts": hosts, "volumes": volumes}, "phases": [{"loads": loads}]})
    assert dry_run.host_tasks(prepared(CLUSTER), [disk, disk]) == {
        "a": ["fio on disk0 (directory /mnt/a)"],
        "b": ["fio on disk0 (directory /mnt/b)"],
    }
    three = CLUSTER.model_copy(update={"hosts": (*CLUSTER.hosts, Host(name="c"))})

    def pair(far, address):
        link = {"name": far, "kind": "hosts", "near": "a", "host": address}
        deployment = {"hosts": [{"name": "a"}, {"name": far}], "links": [link]}
        return Trial.model_validate({"point": {}, "deployment": deployment, "phases": [{"loads": {f"a/{far}": {"driver": "iperf3"}}}]})

    assert dry_run.host_lines(prepared(three), [pair("c", "10.0.0.3"), pair("b", "10.0.0.2")]) == [
        "Tasks of the hosts of mine:",
        "  a: iperf3 to b, c",
        "  b: iperf3's server at 10.0.0.2 port 5201",
        "  c: iperf3's server at 10.0.0.3 port 5201",
    ]
    assert dry_run.host_tasks(prepared(None), [disk]) == {} and dry_run.host_tasks(prepared(CLUSTER), trials()) == {"a": [], "b": []}
