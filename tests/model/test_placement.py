from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.model import placement
from pgherd.model.deployment import Container, Host
from pgherd.runtimes.runtime import CpuAssignment

GB = 2**30


def hosts(*cores, memory=None, labels=()):
    return [Host(name=f"h{i}", cores=c, memory=memory, labels=dict([labels[i]]) if i < len(labels) else {}) for i, c in enumerate(cores)]


def containers(count, vcpus=1.0, memory=None):
    return [Container(name=f"db{i:02d}", vcpus=vcpus, memory=memory) for i in range(1, count + 1)]


def by_host(where):
    return dict(sorted(Counter(where.values()).items()))


def test_equal_hosts_take_turns():
    where = placement.place(containers(8), hosts(4, 4, 4, 4))
    assert list(where.values()) == ["h0", "h1", "h2", "h3"] * 2


def test_a_larger_host_gets_more():
    assert by_host(placement.place(containers(9), hosts(2, 4))) == {"h0": 3, "h1": 6}


def test_pack_fills_one_host_and_then_the_next():
    assert by_host(placement.place(containers(6), hosts(4, 4), "pack")) == {"h0": 4, "h1": 2}
    assert by_host(placement.place(containers(10), hosts(4, 4), "pack")) == {"h0": 5, "h1": 5}, "beyond all cores they are shared out"


def test_a_host_without_memory_is_passed_over():
    small = [Host(name="small", cores=8, memory=2 * GB), Host(name="large", cores=2, memory=8 * GB)]
    assert by_host(placement.place(containers(6, memory=GB), small)) == {"large": 4, "small": 2}
    assert by_host(placement.place(containers(6, memory=GB), small, "pack")) == {"large": 4, "small": 2}


def test_by_label_only_hosts_that_have_it_are_used():
    found = placement.place(containers(4), hosts(4, 4, 4, labels=[("disk", "ssd"), ("disk", "hdd"), ("disk", "ssd")]), "label:disk=ssd")
    assert by_host(found) == {"h0": 2, "h2": 2}


def test_listed_takes_the_first_pattern_that_fits():
    found = placement.place(containers(3), hosts(4, 4), "listed:db02=h1,*=h0")
    assert found == {"db01": "h0", "db02": "h1", "db03": "h0"}


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("scatter", "unknown placement 'scatter'; use spread, pack"),
        ("label:disk", "unknown placement"),
        ("label:disk=nvme", "no host has the label disk=nvme; existing labels: disk=ssd"),
        ("listed:db01=h9", "names unknown host h9; hosts: h0, h1"),
        ("listed:db01", "is not a comma-separated list of CONTAINER=HOST"),
        ("listed:db01=h0", "has no host for container db02"),
    ],
)
def test_what_cannot_be_placed_says_why(rule, words):
    with pytest.raises(ValueError, match=words):
        placement.place(containers(2), hosts(4, 4, labels=[("disk", "ssd")]), rule)


def test_counts_says_how_many_each_host_gets():
    assert placement.counts(5, hosts(4, 4, 4), Container(name="c", vcpus=1)) == {"h0": 2, "h1": 2, "h2": 1}
    assert placement.counts(5, hosts(4, 4), Container(name="c", vcpus=1), "listed:db05=h1,*=h0") == {"h0": 4, "h1": 1}


@given(st.lists(st.floats(0.5, 64), min_size=1, max_size=8), st.integers(0, 60), st.sampled_from(["spread", "pack"]))
def test_every_container_is_placed_once_and_no_host_is_far_beyond_its_share(cores, count, rule):
    machines = hosts(*cores)
    where = placement.place(containers(count, vcpus=0.5), machines, rule)
    assert list(where) == [f"db{i:02d}" for i in range(1, count + 1)]
    if rule == "spread" and count:
        taken = {host.name: list(where.values()).count(host.name) for host in machines}
        for host in (one for one in machines if taken[one.name]):  # no other host would have been better off with its last one
            share = taken[host.name] / host.cores
            assert all(share <= (taken[other.name] + 1) / other.cores + 1e-9 for other in machines)


_SIZES = st.sampled_from([0.25, 0.5, 1.0, 2.0, None])
_MEMORY = st.sampled_from([1, 2, 4, None])


@given(
    st.lists(st.tuples(st.sampled_from([1.0, 2.0, 8.0, None]), _MEMORY), min_size=1, max_size=8),
    st.lists(st.tuples(_SIZES, _MEMORY), max_size=40),
)
def test_spread_gives_what_looking_at_every_host_would(machines, wanted):
    made = [Host(name=f"h{i}", cores=cores, memory=memory and memory * GB) for i, (cores, memory) in enumerate(machines)]
    many = [Container(name=f"c{i}", vcpus=vcpus, memory=memory and memory * GB) for i, (vcpus, memory) in enumerate(wanted)]
    cores, memory, expected = [0.0] * len(made), [0] * len(made), {}
    for one in many:
        able = [i for i, host in enumerate(made) if not host.memory or not one.memory or memory[i] + one.memory <= host.memory]
        size = one.vcpus or 1.0
        best = min(
            able or range(len(made)), key=lambda i, size=size: ((cores[i] + size) / (made[i].cores or 1), cores[i] / (made[i].cores or 1))
        )
        cores[best], memory[best] = cores[best] + size, memory[best] + (one.memory or 0)
        expected[one.name] = made[best].name
    assert placement.place(many, made) == expected


@given(st.integers(1, 6), st.integers(1, 40), st.randoms())
def test_any_number_of_containers_is_spread(machines, count, rng):
    names = [host.name for host in hosts(*[1] * machines)]
    where = {f"db{i}": names[i % machines] for i in range(count)}
    order = list(where)
    rng.shuffle(order)
    for few in range(1, count + 1):
        chosen = placement.balanced(order, {name: (host,) for name, host in where.items()}, dict.fromkeys(names, 1.0), few)
        assert len(set(chosen)) == few
        each = Counter(where[name] for name in chosen)
        full = [name for name in names if each[name] < list(where.values()).count(name)]
        assert not full or max(each.values()) - min(each[name] for name in full) <= 1


def test_more_is_chosen_from_a_larger_host():
    resources = {f"db{i}": ("large" if i % 2 else "small",) for i in range(12)}
    chosen = placement.balanced(list(resources), resources, {"large": 8.0, "small": 4.0}, 6)
    assert Counter(resources[name][0] for name in chosen) == {"large": 4, "small": 2}


@given(st.permutations(["alpha", "beta", "gamma"]))
def test_both_hosts_are_loaded_before_one_of_them_is_full(order):
    resources = {"alpha": ("rack1",), "beta": ("rack1",), "gamma": ("rack2",)}
    assert "gamma" in placement.balanced(order, resources, {"rack1": 2.0, "rack2": 1.0}, 2)


def test_cpus_are_assigned_as_at_the_start_of_the_containers():
    given = CpuAssignment(range(5))
    assert [given.place(Container(name=f"c{n}", vcpus=2, cpu_mode="cpuset")) for n in range(6)] == placement.pinned_cpus([2] * 6, 5)


def test_the_hosts_that_a_rule_speaks_of():
    hosts = [Host(name="a", labels={"disk": "ssd"}), Host(name="b"), Host(name="c", labels={"disk": "ssd"})]
    assert [host.name for host in placement.named("spread", hosts)] == ["a", "b", "c"]
    assert [host.name for host in placement.named("label:disk=ssd", hosts)] == ["a", "c"]
    assert [host.name for host in placement.named("listed:x=c,y=a,*=c", hosts)] == ["c", "a"]
    with pytest.raises(ValueError, match="hosts: a, b, c"):
        placement.named("listed:*=d", hosts)
