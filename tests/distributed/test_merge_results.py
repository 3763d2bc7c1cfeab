import pytest

from pgherd.cluster.interfaces import HostClockOffset
from pgherd.distributed import merge_results
from pgherd.distributed.clock_alignment import Clocks, CommonPhase
from pgherd.distributed.merge_results import device_of, merged, qualified
from pgherd.metrics.sampler import SamplingView, samplers
from pgherd.model.device_io import Checkpoint, DeviceIo, DeviceView, TraceCost
from pgherd.model.prometheus import PrometheusView
from pgherd.model.result import MemoryBalance, OomKill, PhaseResult, ServerStatements, TargetResult


def clocks(**seconds):
    found = Clocks()
    found.add({host: HostClockOffset(seconds=s, uncertainty=0.001, at=0.0, round_trip=0.002, n=16) for host, s in seconds.items()})
    return found


def result(target, first, **fields):
    one = TargetResult(target=target, driver="pgbench", transactions=100, throughput=10, first=first, last=first + 10)
    return PhaseResult(phase="steady", start=first, end=first + 10, overlap=1.0, targets=[one], **fields)


def account(worst, at):
    return MemoryBalance(seconds=9, worst=worst, worst_at=at, budget=100, containers=90, unallocated=9)


WINDOW = CommonPhase(start=1.0, end=11.0, began={"a": 1.0, "b": 1.02}, skew=0.022, overlap=0.99)


def test_targets_of_all_hosts_stand_in_one_phase_on_the_driver_s_clock():
    parts = {"a": [result("a/db1/pg/bench", 101.0)], "b": [result("b/db2/pg/bench", -48.98, skew=0.001)]}
    (found,) = merge_results.merge(parts, [WINDOW], clocks(a=100.0, b=-50.0))
    assert [(t.target, pytest.approx(t.first)) for t in found.targets] == [("a/db1/pg/bench", 1.0), ("b/db2/pg/bench", 1.02)]
    assert [t.clock_ahead for t in found.targets] == pytest.approx([100.0, -50.0]), "their files have their own hosts' clocks"
    assert (found.start, found.end, found.overlap, found.skew) == (1.0, 11.0, 0.99, pytest.approx(0.022))
    assert found.throughput == 20


def test_skew_is_over_the_targets_of_all_hosts_on_one_clock():
    """80 ms on each host, 70 ms between their first ones, and 150 ms between the first of all and the last of all."""

    def on(host, ahead, *firsts):
        targets = [target for first in firsts for target in result(f"{host}/db/pg/bench", ahead + first).targets]
        return PhaseResult(phase="w2", start=ahead + 2, end=ahead + 10, overlap=1, targets=targets, skew=0.08 if targets else None)

    def skew(**parts):
        (found,) = merge_results.merge({host: [one] for host, one in parts.items()}, [WINDOW], clocks(a=100.0, b=-50.0))
        return found.skew

    assert skew(a=on("a", 100.0, 1.0, 1.08), b=on("b", -50.0, 1.07, 1.15)) == pytest.approx(0.15 + 0.002), "and what is not known of clocks"
    assert skew(a=on("a", 100.0, 1.0), b=on("b", -50.0, 1.03)) == pytest.approx(0.03 + 0.002)
    assert skew(a=on("a", 100.0, 1.0, 1.08), b=on("b", -50.0)) == 0.08, "one host's targets are timed by one clock"
    assert skew(a=on("a", 100.0, 1.0), b=on("b", -50.0)) is None, "a single target"


def test_the_memory_account_is_that_of_the_host_with_the_largest_gap():
    parts = {"a": [result("a/x/y/z", 0, memory=account(0.001, 105.0))], "b": [result("b/x/y/z", 0, memory=account(-0.03, 5.0))]}
    (found,) = merge_results.merge(parts, [WINDOW], clocks(a=100.0, b=2.0))
    assert found.memory.worst == -0.03 and found.memory.worst_at == 3.0


def test_devices_are_kept_apart_and_histograms_added_up():
    def view(name):
        return DeviceIo(
            devices=[DeviceView(number="8:0", name="sda", roles={"data": [f"{name}/pg"]}, below=["8:16"])],
            checkpoints=[Checkpoint(server=f"{name}/pg", start=3.0 if name == "db1" else 1.0)],
            trace=TraceCost(cpu=0.1, events=5, lost=1),
            latency={"outside": {10: 1, 20: 2}},
            latency_by_second=[1.0, None, 3.0] if name == "db1" else [3.0, None],
            missing=["no flushes"] if name == "db1" else [],
        )

    parts = {"a": [result("a/db1/pg/b", 0, io=view("db1"))], "b": [result("b/db2/pg/b", 0, io=view("db2"))]}
    (found,) = merge_results.merge(parts, [WINDOW], clocks(a=0.0, b=0.0))
    assert [(d.number, d.name, d.below) for d in found.io.devices] == [("a/8:0", "a/sda", ["a/8:16"]), ("b/8:0", "b/sda", ["b/8:16"])]
    assert [c.server for c in found.io.checkpoints] == ["db2/pg", "db1/pg"]
    assert found.io.latency == {"outside": {10: 2, 20: 4}} and found.io.latency_by_second == [2.0, None, 3.0]
    assert found.io.trace == TraceCost(cpu=0.2, events=10, lost=2) and found.io.missing == ["a: no flushes"]


def test_a_host_that_saw_no_devices_takes_nothing_from_the_others():
    parts = {"a": [result("a/db1/pg/b", 0)], "b": [result("b/db2/pg/b", 0)]}
    (found,) = merge_results.merge(parts, [WINDOW], clocks(a=0.0, b=0.0))
    assert found.io is None and found.memory is None


def test_limits_of_all_hosts_stand_in_one_phase():
    parts = {
        "a": [result("a/db1/pg/b", 0, limited_after={"db1": 1.5}, limit_wait=0.5)],
        "b": [result("b/db2/pg/b", 0, limited_after={"db2": None}, limit_wait=2.0)],
    }
    (found,) = merge_results.merge(parts, [WINDOW], clocks(a=0.0, b=0.0))
    assert found.limited_after == {"db1": 1.5, "db2": None} and found.limit_wait == 2.0, "all wait for the slowest"


def test_no_field_of_a_phase_is_forgotten():
    view = {"container": "db1", "url": "http://p", "match": "", "step": 1, "gaps": 0, "longest_gap": None, "clock_ahead": 0, "seconds": 1}
    full = PhaseResult(
        phase="steady",
        start=1.0,
        end=11.0,
        overlap=1.0,
        targets=[target for name in ("db1", "db2") for target in result(f"a/{name}/pg/b", 1.0).targets],
        skew=0.001,
        metrics={"container:db1": {"cpu.usage": 1.0}},
        memory=account(0.001, 5.0),
        limited_after={"db1": 1.5},
        limit_wait=0.5,
        waits={"db1/pg": {"IO": [1.0]}},
        statements={"db1/pg": ServerStatements(seconds=10, calls=1, time_ms=1, top=[])},
        prometheus=[PrometheusView.model_validate({**view, "series": [], "sparse": [], "missing": []})],
        io=DeviceIo(latency={"outside": {10: 1}}),
    )
    assert full.model_fields_set == set(PhaseResult.model_fields), "a new one is merged, and added here"
    (found,) = merge_results.merge({"a": [full]}, [WINDOW], clocks(a=0.0))
    defaults = {name: field.get_default(call_default_factory=True) for name, field in PhaseResult.model_fields.items()}
    assert [name for name, default in defaults.items() if getattr(found, name) == default] == []


def test_a_host_that_only_runs_the_clients_knows_of_no_checkpoint():
    servers = DeviceIo(checkpoints=[Checkpoint(server="db1/pg", start=1.0)])
    clients = DeviceIo(latency={"outside": {10: 3}}, latency_by_second=[1.0])
    parts = {
        "a": [PhaseResult(phase="steady", start=0, end=10, overlap=1.0, targets=[], io=servers)],
        "c": [result("a/db1/pg/b", 0, io=clients)],
    }
    (found,) = merge_results.merge(parts, [WINDOW], clocks(a=0.0, c=0.0))
    assert found.io.latency == {}, "not all of them between checkpoints"
    assert found.io.checkpoints == servers.checkpoints and found.io.latency_by_second == [1.0]


def test_kills_stand_in_order_of_time():
    kills = {"a": [OomKill(container="db1", processes=1, time=110.0)], "b": [OomKill(container="db2", processes=1, time=5.0)]}
    assert [(k.container, k.time) for k in merge_results.kills(kills, clocks(a=100.0))] == [("db2", 5.0), ("db1", 10.0)]


@pytest.mark.parametrize(
    ("entity", "name"),
    [
        ("host", "host:a"),
        ("run-cgroup", "run-cgroup:a"),
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
    of_hosts = {name for name, one in samplers().items() if any(source.entity == "host" for source in one.sources(SamplingView()))}
    units = {(metric.name.split(".")[0], metric.unit, metric.kind) for name in of_hosts for metric in samplers()[name].metrics}
    allowed = {"bytes", "CPUs", "tasks", "switches", "pages", "faults", "kills", "events", "processes", "s"}
    assert {unit for _, unit, _ in units} <= allowed
    assert {kind for kind, unit, _ in units if unit == "s"} == {"cpu", "psi"}


def test_whose_a_device_is():
    assert device_of("disk:c/sda", {"c"}) and device_of("zram:c/zram0", {"a", "c"})
    assert not device_of("disk:a/sda", {"c"}) and not device_of("host:c", {"c"}) and not device_of("disk:sda", {"sda"})
    assert not device_of("server:c/pg", {"c"}), "a container may have a host's name"
