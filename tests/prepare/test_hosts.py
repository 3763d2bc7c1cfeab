import pytest

from pgherd.model.deployment import Host
from pgherd.model.errors import UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.prepare.hosts import HostShare, choose_share, one_host

GB = 2**30
FACTS = HostFacts(hostname="h", kernel="6", cores=4, logical_cpus=4, memory=16 * GB, memory_available=10 * GB)
TWO = (Host(name="a", cores=4, memory=8 * GB), Host(name="b", cores=2, memory=4 * GB))


def test_one_host_gives_what_was_asked_for_or_most_of_what_it_has():
    assert choose_share(FACTS) == HostShare(4, 8 * GB)
    assert choose_share(FACTS, 1.5, GB) == HostShare(1.5, GB)
    for asked, words in (
        ({"cores": 5}, "--host-cores 5 is more than this host"),
        ({"memory": 20 * GB}, "--host-memory 20"),
    ):
        with pytest.raises(UsageError, match=words):
            choose_share(FACTS, **asked)
    with pytest.raises(UsageError, match="more than host b"):
        one_host(5, None, FACTS, "b")


def test_several_hosts_give_the_sum_but_no_container_more_than_one_has():
    share, alone = choose_share(FACTS, over=TWO), HostShare(3, GB)
    assert (share.cores, share.memory) == (6, 12 * GB) and share.largest == 4
    assert share.smallest == 2
    assert alone.largest == alone.smallest == 3


def test_memory_is_given_out_host_by_host():
    share, alone = choose_share(FACTS, over=TWO), HostShare(6, 12 * GB)
    assert share.holds(3 * GB) == 3 and alone.holds(3 * GB) == 4
    assert share.most_on_one(6, 1.0) == 4 and alone.most_on_one(6, 1.0) == 6
    assert share.memory_of_each(6, 1.0) == 2 * GB and alone.memory_of_each(6, 1.0) == 2 * GB
    assert share.memory_of_each(8, 1.0) == 4 * GB // 3, "six of them are on the larger host"
