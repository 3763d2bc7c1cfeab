import pytest

from pgherd.model.deployment import Host
from pgherd.model.run import Cluster, Surroundings
from pgherd.report.live_status import cpu_in_use, host_usage
from pgherd.store.live import LiveTrial

TRIAL = LiveTrial(number=1, point={}, repeat=0, reason="planned", begun=0.0, hosts=("a", "b"))


class Readings:
    """(entity, metric) → its series."""

    def __init__(self, series):
        self._series = series

    def series(self, entity, name):
        return self._series.get((entity, name), [])

    def latest(self, entity, name):
        return self._series[entity, name][-1][1] if (entity, name) in self._series else None


@pytest.fixture
def record(synthetic):
    return synthetic.density_run(8, seconds=3)[0]


@pytest.fixture
def clustered(record):
    (facts,) = record.hosts.values()
    hosts = {name: facts.model_copy(update={"logical_cpus": cpus}) for name, cpus in (("a", 2), ("b", 4))}
    over = Cluster(address="default", hosts=tuple(Host(name=name) for name in hosts))
    return record.model_copy(update={"hosts": hosts, "surroundings": Surroundings(runtime="cgroup", cores=6, memory=2**30, cluster=over)})


def test_of_one_host_there_is_one(record):
    seen = Readings(
        {
            ("host", "cpu.user"): [(1.0, 1.0), (2.0, 1.5)],
            ("host", "cpu.system"): [(1.0, 0.25), (2.0, 0.25)],
            ("host", "memory.total"): [(1.0, 100.0)],
            ("host", "memory.available"): [(1.0, 40.0)],
        }
    )
    host, each = host_usage(seen, record, TRIAL)
    (facts,) = record.hosts.values()
    assert (host.name, host.cpu, host.vcpus, host.memory, host.limit, each) == ("host", 1.75, facts.logical_cpus, 60.0, 100.0, [])
    assert cpu_in_use(seen, record, TRIAL) == [(1.0, 1.25), (2.0, 1.75)]


def test_several_are_shown_each_and_together(clustered):
    series = {}
    for name, cpu in (("a", 1.0), ("b", 2.5)):
        series |= {(f"host:{name}", "cpu.user"): [(1.0, 0.0), (2.0 if name == "a" else 2.4, cpu)]}
        series |= {(f"host:{name}", "memory.total"): [(1.0, 100.0)], (f"host:{name}", "memory.available"): [(1.0, 40.0)]}
    host, each = host_usage(Readings(series), clustered, TRIAL)
    assert (host.name, host.cpu, host.vcpus, host.memory, host.limit) == ("all hosts", 3.5, 6.0, 120.0, 200.0)
    assert [(one.name, one.cpu, one.vcpus) for one in each] == [("a", 1.0, 2), ("b", 2.5, 4)]
    assert cpu_in_use(Readings(series), clustered, TRIAL) == [(1.0, 0.0), (2.0, 1.0), (2.4, 3.5)], "what each said last"


def test_a_sum_over_some_hosts_is_none_over_all(clustered):
    one = Readings({("host:a", "cpu.user"): [(1.0, 1.0)]})
    host, each = host_usage(one, clustered, TRIAL)
    assert host.cpu is None and host.memory is None and each[0].cpu == 1.0 and each[1].cpu is None
    assert cpu_in_use(one, clustered, TRIAL) == []


def test_only_hosts_that_take_part_are_shown(clustered):
    one, alone = Readings({("host:a", "cpu.user"): [(1.0, 1.0)]}), TRIAL.model_copy(update={"hosts": ("a",)})
    host, each = host_usage(one, clustered, alone)
    assert (host.cpu, host.vcpus) == (1.0, 2) and [use.name for use in each] == ["a"]
    assert cpu_in_use(one, clustered, alone) == [(1.0, 1.0)]
