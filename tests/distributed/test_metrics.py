import pytest

from pgherd.distributed.metrics import device_of, merged, qualified
from pgherd.metrics.registry import samplers
from pgherd.metrics.sampler import View


@pytest.mark.parametrize(
    ("entity", "name"),
    [
        ("host", "host:a"),
        ("budget", "budget:a"),
        ("pgherd", "pgherd:a"),
        ("container:db1", "container:db1"),
        ("server:db1/pg", "server:db1/pg"),
        ("backend:db1/pg", "backend:db1/pg"),
        ("driver:a/db1/pg/bench", "driver:a/db1/pg/bench"),
        ("container:locked-memory", "container:locked-memory:a"),
        ("disk:nvme0n1", "disk:a/nvme0n1"),
        ("swap:ours", "swap:a/ours"),
        ("platform:kubelet", "platform:a/kubelet"),
    ],
)
def test_names_say_which_host_where_two_could_have_the_same(entity, name):
    assert qualified(entity, "a") == name


def test_amounts_are_added_up_and_shares_of_time_are_averaged_by_cpus():
    found = merged(
        {
            "a": {
                "host": {"cpu.user": 1.0, "cpu.online": 1.0, "memory.total": 10.0, "psi.cpu.some": 0.9, "memory.zswap": 1.0},
                "pgherd": {"cpu.usage": 0.1},
                "disk:sda": {"reads": 5.0},
                "platform:kubelet": {"cpu.usage": 0.2},
                "container:db1": {"cpu.usage": 0.5},
            },
            "b": {
                "host": {"cpu.user": 2.0, "cpu.online": 3.0, "memory.total": 30.0, "psi.cpu.some": 0.1},
                "pgherd": {"cpu.usage": 0.3},
                "disk:sda": {"reads": 7.0},
                "container:db2": {"cpu.usage": 0.7},
            },
        }
    )
    assert found["host"] == pytest.approx({"cpu.user": 3.0, "cpu.online": 4.0, "memory.total": 40.0, "psi.cpu.some": 0.3})
    assert found["host:a"]["memory.zswap"] == 1.0, "what one host alone has is no sum of all"
    assert found["host:b"]["cpu.online"] == 3.0
    assert found["pgherd"] == pytest.approx({"cpu.usage": 0.4}) and found["pgherd:b"] == {"cpu.usage": 0.3}
    assert found["disk:a/sda"] == {"reads": 5.0} and found["disk:b/sda"] == {"reads": 7.0}
    assert found["platform:kubelet"] == {"cpu.usage": 0.2} and "platform:a/kubelet" not in found
    assert found["container:db1"] == {"cpu.usage": 0.5}


def test_nothing_that_is_read_of_a_host_is_a_share_but_pressure():
    """Else a sum over hosts would be nonsense."""
    of_hosts = {name for name, one in samplers().items() if any(source.entity == "host" for source in one.sources(View()))}
    units = {(metric.name.split(".")[0], metric.unit, metric.kind) for name in of_hosts for metric in samplers()[name].metrics}
    allowed = {"bytes", "CPUs", "tasks", "switches", "pages", "faults", "kills", "events", "processes", "s"}
    assert {unit for _, unit, _ in units} <= allowed
    assert {kind for kind, unit, _ in units if unit == "s"} == {"cpu", "psi"}


def test_whose_a_device_is():
    assert device_of("disk:c/sda", {"c"}) and device_of("zram:c/zram0", {"a", "c"})
    assert not device_of("disk:a/sda", {"c"}) and not device_of("host:c", {"c"}) and not device_of("disk:sda", {"sda"})
    assert not device_of("server:c/pg", {"c"}), "a container may have a host's name"
