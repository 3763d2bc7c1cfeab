from types import SimpleNamespace

import pytest

from pgherd.cli import plan_hosts
from pgherd.model.cluster import Cluster
from pgherd.model.errors import UsageError
from pgherd.model.run import Surroundings
from pgherd.model.trial import Trial

CLUSTER = Cluster.model_validate({"address": "mine", "hosts": [{"name": "a", "cores": 2}, {"name": "b", "cores": 1}]})


def prepared(cluster):
    return SimpleNamespace(surroundings=Surroundings(runtime="cgroup", cores=3, memory=1, cluster=cluster))


def trials():
    made = [{"name": f"db{i}", "vcpus": 1, "servers": [{"bin": "/pg", "version": "18.6"}]} for i in (1, 2, 3)]
    return [Trial.model_validate({"point": {"databases": 3}, "deployment": {"hosts": [{"containers": made}]}, "phases": []})]


def test_the_plan_says_which_container_lies_where():
    assert plan_hosts.lines(prepared(CLUSTER), trials()) == [
        "Placement on the hosts of mine (spread):",
        "  a, 2 cores: 2 containers: db1, db3",
        "  b, 1 core: 1 container: db2",
    ]
    assert [host.name for host in plan_hosts.deployment(prepared(CLUSTER), trials()).hosts] == ["a", "b"]


def test_on_this_host_there_is_nothing_to_say():
    assert plan_hosts.lines(prepared(None), trials()) == []
    assert plan_hosts.deployment(prepared(None), trials()).hosts[0].name == "local"
    assert plan_hosts.deployment(prepared(CLUSTER), []) is None


def test_hosts_without_containers_are_named():
    bare = Trial.model_validate({"point": {"hosts": 2}, "deployment": {"hosts": [{"name": "a"}, {"name": "b"}]}, "phases": []})
    assert plan_hosts.lines(prepared(CLUSTER), [bare]) == ["On the hosts of mine: a, b."]


def test_containers_that_are_not_listed_are_told():
    cluster = CLUSTER.model_copy(update={"placement": "listed:db1=a"})
    with pytest.raises(UsageError, match="says nothing of container db2"):
        plan_hosts.lines(prepared(cluster), trials())
