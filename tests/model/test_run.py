import pytest
from pydantic import ValidationError

from pgherd.model.run import Cluster, Swap


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
    cluster = Cluster.model_validate({"address": "x", "hosts": [{"name": "a"}, {"name": "b"}], "client": "a"})
    assert [host.name for host in cluster.carriers] == ["b"]
    assert [host.name for host in cluster.model_copy(update={"client": None}).carriers] == ["a", "b"]


@pytest.mark.parametrize(
    "inputs",
    [
        {"kind": "zram"},
        {"kind": "none", "size": 1},
        {"kind": "zram", "size": 1, "path": "/srv"},
        {"kind": "file", "size": 1, "algorithm": "lz4"},
        {"kind": "file", "size": 1, "memory": 1},
        {"kind": "zram", "size": 1, "algorithm": "lz4; reboot"},
        {"kind": "disk", "size": 1},
    ],
)
def test_what_contradicts_itself_is_refused(inputs) -> None:
    with pytest.raises(ValidationError):
        Swap(**inputs)


def test_each_kind() -> None:
    assert Swap(kind="none").size == 0
    assert Swap(kind="zram", size=1, algorithm="lzo-rle", memory=5).memory == 5
    assert Swap(kind="file", size=1, path="/srv").path == "/srv"
