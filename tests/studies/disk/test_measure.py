import pytest

from pgherd.studies.disk.measure import measure
from pgherd.studies.disk.propose import design


def one(make, bank, point, volumes=1, **host):
    options = make(volumes, rate=(70, 30), tests=("random-read", "mix", "sequential-write"))
    simulated = bank(options, noise=0, **host)
    trial = next(t for t in design(options).planned if t.point == point)
    return measure(options, simulated.run(trial))


def test_ios_bytes_latency_and_the_devices_share(make, bank):
    found = one(make, bank, {"test": "random-read", "volume": "disk0"}, cached=0.25)
    assert (found.iops, found.bytes) == (40_000, 40_000 * 8192)
    assert found.latency == pytest.approx({"mean": 0.2, "p50": 0.2, "p99": 0.6})
    assert found.device_share == pytest.approx(0.75) and found.host == pytest.approx(0.5)
    assert found.steady.steady and found.rates is None and found.clean


def test_of_a_mix_reads_and_writes_are_apart(make, bank):
    found = one(make, bank, {"test": "mix", "volume": "disk0"})
    assert found.rates == (70, 30) and found.latency["read_p99"] == pytest.approx(0.6) and "p99" not in found.latency


def test_all_volumes_are_added_up(make, bank):
    found = one(make, bank, {"test": "random-read", "volume": "all"}, volumes=2)
    assert found.iops == 80_000 and found.by_volume == {"disk0": 40_000, "disk1": 40_000}
    # each simulated device reports the sum of all: a share is at most 1
    assert found.device_share == 1.0


def test_a_falling_trial_is_not_steady(make, bank):
    assert not one(make, bank, {"test": "random-read", "volume": "disk0"}, slope=-0.5).steady.steady


def test_a_trial_without_numbers_has_none(make, bank):
    assert one(make, bank, {"test": "random-read", "volume": "disk0"}, fail=lambda trial: "disk full") is None


def test_a_device_that_is_not_seen_says_nothing(make, bank):
    options = make()
    unseen = options.model_copy(update={"volumes": tuple(v.model_copy(update={"devices": ()}) for v in options.volumes)})
    result = bank(options).all()[0]
    assert measure(unseen, result).device_share is None
