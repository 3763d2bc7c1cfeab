import pytest

from pgherd.model.deployment import Host
from pgherd.model.errors import UsageError
from pgherd.prepare.hosts import choose_roles, describe_roles
from pgherd.studies.density.options import DensityRequest
from pgherd.studies.network.options import NetworkRequest
from pgherd.studies.scaling.options import ScalingRequest

HOSTS = [
    Host(name="a", cores=2, labels={"host": "a"}),
    Host(name="b", cores=4, labels={"host": "b", "disk": "nvme"}),
    Host(name="c", cores=4, labels={"host": "c", "disk": "nvme"}),
]


def carry(use, **requested):
    return [host.name for host in choose_roles(use, ScalingRequest(cluster="x", **requested), HOSTS).carry]


def test_a_study_of_one_host_takes_the_largest_among_those_that_the_rule_allows():
    assert carry("one") == ["b"]
    assert carry("one", placement="pack") == ["a"]
    assert carry("one", placement="label:disk=nvme") == ["b"]
    assert carry("one", placement="label:host=c") == ["c"]
    assert carry("one", placement="listed:*=a") == ["a"]
    with pytest.raises(UsageError, match="names 2 hosts, but the study runs on one; name one, such as listed:\\*=c"):
        carry("one", placement="listed:x=c,*=a")


def test_blocks_take_turns_on_all_that_the_rule_allows():
    assert carry("in turn") == ["a", "b", "c"]
    assert carry("in turn", placement="label:disk=nvme") == ["b", "c"]
    assert carry("in turn", placement="listed:x=c,*=a") == ["c", "a"], "in the order in which they are listed"
    assert carry("in turn", placement="pack") == ["a"]


def test_together_all_carry_that_the_rule_allows():
    """Cores of a host on which nothing may lie are no room for databases, and no share of what the hosts hold."""
    assert carry("together") == carry("together", placement="pack") == ["a", "b", "c"]
    assert carry("together", placement="label:disk=nvme") == ["b", "c"]
    assert carry("together", placement="listed:x=c,*=a") == ["a", "c"]
    with pytest.raises(UsageError, match="no host has the label disk=hdd"):
        carry("together", placement="label:disk=hdd")
    with pytest.raises(UsageError, match="unknown placement 'scatter'"):
        carry("one", placement="scatter")


def test_what_is_between_some_hosts_needs_no_others():
    assert [host.name for host in choose_roles("together", NetworkRequest(cluster="x", hosts=("c", "a")), HOSTS).carry] == ["a", "c"]
    assert [host.name for host in choose_roles("together", NetworkRequest(cluster="x"), HOSTS).carry] == ["a", "b", "c"]
    with pytest.raises(UsageError, match="--hosts names y, z, but the cluster has a, b, c"):
        choose_roles("together", NetworkRequest(cluster="x", hosts=("z", "a", "y")), HOSTS)


def test_the_host_of_the_clients_carries_nothing():
    roles = choose_roles("one", ScalingRequest(cluster="x", client_host="b"), HOSTS)
    assert ([host.name for host in roles.carry], roles.client.name) == (["c"], "b")
    assert [host.name for host in choose_roles("together", DensityRequest(cluster="x", client_host="a"), HOSTS).carry] == ["b", "c"]
    with pytest.raises(UsageError, match="--client-host d is not one of a, b, c"):
        choose_roles("one", ScalingRequest(cluster="x", client_host="d"), HOSTS)
    with pytest.raises(UsageError, match="a is the cluster's only host"):
        choose_roles("one", ScalingRequest(cluster="x", client_host="a"), HOSTS[:1])
    with pytest.raises(UsageError, match="unknown host a; hosts: b, c"):
        choose_roles("one", ScalingRequest(cluster="x", client_host="a", placement="listed:*=a"), HOSTS)
    with pytest.raises(UsageError, match="--client-placement inside runs clients next to the server"):
        choose_roles("one", ScalingRequest(cluster="x", client_host="a", client_placement="inside"), HOSTS)
    variants = ("base", "near:client-placement=inside")
    with pytest.raises(UsageError, match="variant 'near': client-placement cannot differ between variants, .* on --client-host a"):
        choose_roles("one", ScalingRequest(cluster="x", client_host="a", variant=variants), HOSTS)
    assert choose_roles("one", ScalingRequest(cluster="x", variant=variants), HOSTS).client is None


def test_the_plan_says_what_was_chosen():
    roles = choose_roles("one", ScalingRequest(cluster="x", client_host="a", placement="label:host=c"), HOSTS)
    assert describe_roles("one", roles, HOSTS) == [
        "Host c runs the servers; b is not used. If it is lost, the run stops, and 'pgherd resume' continues it.",
        "Clients run on host a, which runs no server. They connect over TCP, with scram-sha-256 and TLS.",
    ]
    turns = choose_roles("in turn", ScalingRequest(cluster="x"), HOSTS)
    assert describe_roles("in turn", turns, HOSTS) == [
        "Blocks take turns on a, b, c: each runs on one host from its first trial to its last."
    ]
    assert describe_roles("together", choose_roles("together", DensityRequest(cluster="x"), HOSTS), HOSTS) == []
    some = choose_roles("together", DensityRequest(cluster="x", placement="label:host=b"), HOSTS)
    assert describe_roles("together", some, HOSTS) == ["a, c are not used."]
