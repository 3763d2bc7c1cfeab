import pytest
from pydantic import ValidationError

from pgherd.model.cluster import Cluster


def test_a_cluster_has_an_address_and_hosts_by_name():
    cluster = Cluster.model_validate({"address": "tcp://a:8786", "hosts": [{"name": "a", "cores": 4}, {"name": "b", "cores": 2}]})
    assert cluster.host("b").cores == 2 and (cluster.placement, cluster.on_lost_host) == ("spread", "continue")
    with pytest.raises(KeyError):
        cluster.host("c")


@pytest.mark.parametrize("wrong", [{"address": "", "hosts": [{"name": "a"}]}, {"address": "x", "hosts": []}])
def test_one_without_an_address_or_a_host_is_none(wrong):
    with pytest.raises(ValidationError):
        Cluster.model_validate(wrong)


def test_the_host_of_the_clients_carries_no_servers():
    found = Cluster.model_validate({"address": "x", "hosts": [{"name": "a"}, {"name": "b"}], "client": "a"})
    assert [host.name for host in found.carriers] == ["b"]
    assert [host.name for host in found.model_copy(update={"client": None}).carriers] == ["a", "b"]
