import pytest

from pgherd.studies.disk.access import TESTS
from pgherd.studies.disk.measure import HostShare, Measured
from pgherd.studies.disk.points import Group, cached, group, limited_by, reached, shared


def groups(make, bank, volumes=1, changes=None, **host):
    options = make(volumes, **(changes or {}))
    return options, {(one.test.name, one.place): one for one in group(options, bank(options, **host).all())}


def limit(options, found, test="random-read", place="disk0"):
    alone = [one for (name, at), one in found.items() if name == test and at != "all"]
    return limited_by(options, found[test, place], alone)


def test_the_depth_is_the_limit_where_twice_as_many_make_more(make, bank):
    # 32 in flight of 2 ms each are 16,000 a second, and the volume can do 40,000
    options, found = groups(make, bank, latency=2.0)
    assert found["random-read", "disk0"].deeper_ratio == pytest.approx(2.0, rel=0.05)
    assert limit(options, found) == "queue depth"


def test_the_device_is_the_limit_where_they_do_not(make, bank):
    options, found = groups(make, bank)
    assert found["random-read", "disk0"].deeper_ratio == pytest.approx(1.0, rel=0.05)
    assert limit(options, found) == "device" and limit(options, found, "single-read") == "latency"


@pytest.mark.parametrize(
    ("host", "wanted"),
    [
        ({"cached": 0.5}, "cache"),
        ({"busy": 0.99}, "host CPU"),
        ({"job_cpu": 0.97}, "fio's CPU"),
        ({"cached": 0.05}, "device"),
    ],
)
def test_other_limits_come_first(make, bank, host, wanted):
    assert limit(*groups(make, bank, **host)) == wanted


def test_without_the_check_the_limit_is_unknown(make, bank):
    assert limit(*groups(make, bank, changes={"check_depth": False})) == "unknown"


def test_a_mix_that_meets_its_rates_is_limited_by_them(make, bank):
    options, found = groups(make, bank, changes={"rate": (70, 30), "tests": ("mix",)})
    assert reached(options, found["mix", "disk0"]) == pytest.approx(1.0) and limit(options, found, "mix") == "rate"
    options, found = groups(make, bank, changes={"rate": (70, 30), "tests": ("mix",)}, iops=50)
    assert reached(options, found["mix", "disk0"]) == pytest.approx(0.5, rel=0.05) and limit(options, found, "mix") != "rate"


def test_volumes_that_hold_one_another_back(make, bank):
    options, found = groups(make, bank, 2, together=0.5)
    assert shared(found["random-read", "all"], [found["random-read", f"disk{n}"] for n in (0, 1)]) == pytest.approx(0.5, rel=0.05)
    assert limit(options, found, place="all") == "sharing"
    options, found = groups(make, bank, 2)
    assert limit(options, found, place="all") == "device"


def on_hosts(iops, *hosts):
    return Measured("k", True, iops, 0.0, by_volume={"disk0": iops}, by_host={host: HostShare(iops, 0.0, None, None) for host in hosts})


def test_only_what_the_same_hosts_did_is_compared():
    def made(place, used, deeper=()):
        return Group(TESTS["random-read"], place, tuple(used), tuple(deeper), len(used), 0)

    alone = made("disk0", [on_hosts(100, "a", "b"), on_hosts(50, "a")], [on_hosts(55, "a")])
    assert alone.deeper_ratio == pytest.approx(55 / 50)
    assert made("disk0", [on_hosts(100, "a", "b")], [on_hosts(55, "a")]).deeper_ratio is None
    assert made("disk0", [on_hosts(100, "a", "b")]).deeper_ratio is None
    assert shared(made("all", [on_hosts(90, "b", "a"), on_hosts(20, "a")]), [alone]) == pytest.approx(0.9), "the most hosts"
    assert shared(made("all", [on_hosts(20, "b")]), [alone]) is None


def test_memory_is_a_cache_and_what_is_not_seen_is_unknown(make, bank):
    options, found = groups(make, bank)
    of = found["random-read", "disk0"]
    memory = tuple(one.model_copy(update={"filesystem": "tmpfs", "devices": ()}) for one in options.volumes)
    assert cached(options, of) is False
    assert cached(options.model_copy(update={"volumes": memory}), of) is True


def test_tainted_trials_count_only_alone(make, bank):
    _, found = groups(make, bank, taint=lambda trial: trial.repeat == 0)
    of = found["random-read", "disk0"]
    assert of.clean and of.tainted == 1
    _, found = groups(make, bank, taint=lambda trial: True)
    assert not found["random-read", "disk0"].clean
