import pytest

from pgherd.studies.disk.measurements import (
    DiskMeasurement,
    DiskTestGroup,
    HostDiskResult,
    bottleneck,
    concurrent_vs_sum,
    group_trials,
    is_cached,
    measure,
    rate_achieved,
)
from pgherd.studies.disk.options import TESTS, design


def one(make, bank, point, volumes=1, **host):
    options = make(volumes, rate_iops=(70, 30), tests=("random-read", "mix", "sequential-write"))
    simulated = bank(options, noise=0, **host)
    trial = next(trial for trial in design(options).planned if trial.point == point)
    return measure(options, simulated.run(trial))


def test_ios_bytes_latency_and_the_devices_share(make, bank):
    result = one(make, bank, {"test": "random-read", "volume": "disk0"}, cached=0.25)
    assert (result.iops, result.bytes) == (40_000, 40_000 * 8192)
    assert result.latency == pytest.approx({"mean": 0.2, "p50": 0.2, "p99": 0.6})
    assert result.device_io_share == pytest.approx(0.75) and result.host_cpu == pytest.approx(0.5)
    assert result.window.steady and result.rates is None and result.clean


def test_of_a_mix_reads_and_writes_are_apart(make, bank):
    result = one(make, bank, {"test": "mix", "volume": "disk0"})
    assert result.rates == (70, 30) and result.latency["read_p99"] == pytest.approx(0.6) and "p99" not in result.latency


def test_all_volumes_are_added_up(make, bank):
    result = one(make, bank, {"test": "random-read", "volume": "all"}, volumes=2)
    assert result.iops == 80_000 and result.by_volume == {"disk0": 40_000, "disk1": 40_000}
    # each simulated device reports the sum of all: a share is at most 1
    assert result.device_io_share == 1.0


def test_a_falling_trial_is_not_steady(make, bank):
    assert not one(make, bank, {"test": "random-read", "volume": "disk0"}, slope=-0.5).window.steady


def test_a_trial_without_numbers_has_none(make, bank):
    assert one(make, bank, {"test": "random-read", "volume": "disk0"}, fail=lambda trial: "disk full") is None


def test_a_device_that_is_not_seen_says_nothing(make, bank):
    options = make()
    unseen = options.model_copy(update={"volumes": tuple(v.model_copy(update={"devices": ()}) for v in options.volumes)})
    result = bank(options).all()[0]
    assert measure(unseen, result).device_io_share is None


def groups(make, bank, volumes=1, changes=None, **host):
    options = make(volumes, **(changes or {}))
    return options, {(group.test.name, group.volume): group for group in group_trials(options, bank(options, **host).all())}


def limit(options, result, test="random-read", place="disk0"):
    alone = [item for (name, at), item in result.items() if name == test and at != "all"]
    return bottleneck(options, result[test, place], alone)


def test_the_depth_is_the_limit_where_twice_as_many_make_more(make, bank):
    # 32 in flight of 2 ms each are 16,000 a second, and the volume can do 40,000
    options, result = groups(make, bank, latency=2.0)
    assert result["random-read", "disk0"].double_depth_ratio == pytest.approx(2.0, rel=0.05)
    assert limit(options, result) == "iodepth"


def test_the_device_is_the_limit_where_they_do_not(make, bank):
    options, result = groups(make, bank)
    assert result["random-read", "disk0"].double_depth_ratio == pytest.approx(1.0, rel=0.05)
    assert limit(options, result) == "device" and limit(options, result, "qd1-read") == "latency"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ({"cached": 0.5}, "cache"),
        ({"busy": 0.99}, "host-cpu"),
        ({"job_cpu": 0.97}, "fio-cpu"),
        ({"cached": 0.05}, "device"),
    ],
)
def test_other_limits_come_first(make, bank, host, expected):
    assert limit(*groups(make, bank, **host)) == expected


def test_without_the_check_the_limit_is_unknown(make, bank):
    assert limit(*groups(make, bank, changes={"double_iodepth": False})) == "unknown"


def test_a_mix_that_meets_its_rates_is_limited_by_them(make, bank):
    options, result = groups(make, bank, changes={"rate_iops": (70, 30), "tests": ("mix",)})
    assert rate_achieved(options, result["mix", "disk0"]) == pytest.approx(1.0) and limit(options, result, "mix") == "rate-limit"
    options, result = groups(make, bank, changes={"rate_iops": (70, 30), "tests": ("mix",)}, iops=50)
    assert rate_achieved(options, result["mix", "disk0"]) == pytest.approx(0.5, rel=0.05) and limit(options, result, "mix") != "rate-limit"


def test_volumes_that_hold_one_another_back(make, bank):
    options, result = groups(make, bank, 2, together=0.5)
    assert concurrent_vs_sum(result["random-read", "all"], [result["random-read", f"disk{n}"] for n in (0, 1)]) == pytest.approx(
        0.5, rel=0.05
    )
    assert limit(options, result, place="all") == "contention"
    options, result = groups(make, bank, 2)
    assert limit(options, result, place="all") == "device"


def on_hosts(iops, *hosts):
    return DiskMeasurement(
        "k", True, iops, 0.0, by_volume={"disk0": iops}, by_host={host: HostDiskResult(iops, 0.0, None, None) for host in hosts}
    )


def test_only_what_the_same_hosts_did_is_compared():
    def made(place, used, deeper=()):
        return DiskTestGroup(TESTS["random-read"], place, tuple(used), tuple(deeper), len(used), 0)

    alone = made("disk0", [on_hosts(100, "a", "b"), on_hosts(50, "a")], [on_hosts(55, "a")])
    assert alone.double_depth_ratio == pytest.approx(55 / 50)
    assert made("disk0", [on_hosts(100, "a", "b")], [on_hosts(55, "a")]).double_depth_ratio is None
    assert made("disk0", [on_hosts(100, "a", "b")]).double_depth_ratio is None
    assert concurrent_vs_sum(made("all", [on_hosts(90, "b", "a"), on_hosts(20, "a")]), [alone]) == pytest.approx(0.9), "the most hosts"
    assert concurrent_vs_sum(made("all", [on_hosts(20, "b")]), [alone]) is None


def test_memory_is_a_cache_and_what_is_not_seen_is_unknown(make, bank):
    options, result = groups(make, bank)
    of = result["random-read", "disk0"]
    memory = tuple(volume.model_copy(update={"filesystem": "tmpfs", "devices": ()}) for volume in options.volumes)
    assert is_cached(options, of) is False
    assert is_cached(options.model_copy(update={"volumes": memory}), of) is True


def test_tainted_trials_count_only_alone(make, bank):
    _, result = groups(make, bank, taint=lambda trial: trial.repeat == 0)
    of = result["random-read", "disk0"]
    assert of.clean and of.tainted == 1
    _, result = groups(make, bank, taint=lambda trial: True)
    assert not result["random-read", "disk0"].clean
