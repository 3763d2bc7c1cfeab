import pytest

from pgherd.model.deployment import Host
from pgherd.model.errors import UsageError
from pgherd.model.facts import HostFacts
from pgherd.prepare import host_share
from pgherd.studies.density.options import DensityRequest

GB = 2**30
FACTS = HostFacts(hostname="h", kernel="6", cores=4, logical_cpus=4, memory=16 * GB, memory_available=10 * GB)
TWO = (Host(name="a", cores=4, memory=8 * GB), Host(name="b", cores=2, memory=4 * GB))


def test_one_host_gives_what_was_asked_for_or_most_of_what_it_has():
    assert host_share.budget(DensityRequest(), FACTS) == (4, 8 * GB)
    assert host_share.budget(DensityRequest(host_cores=1.5, host_memory="1GB"), FACTS) == (1.5, GB)
    for asked, words in (
        (DensityRequest(host_cores=5), "--host-cores 5 is more than this host"),
        (DensityRequest(host_memory="20GB"), "--host-memory 20"),
    ):
        with pytest.raises(UsageError, match=words):
            host_share.budget(asked, FACTS)
    with pytest.raises(UsageError, match="more than host b"):
        host_share.one_host(5, None, FACTS, "b")


def test_several_hosts_give_the_sum_but_no_container_more_than_one_has():
    asked = DensityRequest(over=TWO)
    assert host_share.budget(asked, FACTS) == (6, 12 * GB) and host_share.largest(asked, 6) == 4
    assert host_share.smallest(asked, 6) == 2
    assert host_share.largest(DensityRequest(), 3) == host_share.smallest(DensityRequest(), 3) == 3


def test_memory_is_given_out_host_by_host():
    asked = DensityRequest(over=TWO)
    assert host_share.holds(asked, 12 * GB, 3 * GB) == 3 and host_share.holds(DensityRequest(), 12 * GB, 3 * GB) == 4
    assert host_share.most_on_one(asked, 6, 1.0) == 4 and host_share.most_on_one(DensityRequest(), 6, 1.0) == 6
    assert host_share.share(asked, 12 * GB, 6, 1.0) == 2 * GB and host_share.share(DensityRequest(), 12 * GB, 6, 1.0) == 2 * GB
    assert host_share.share(asked, 12 * GB, 8, 1.0) == 4 * GB // 3, "six of them are on the larger host"
