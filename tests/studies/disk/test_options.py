import pytest
from pydantic import ValidationError

from pgherd.studies.disk.access_patterns import MIX, TESTS
from pgherd.studies.disk.options import DiskRequest


def test_a_test_loads_a_volume_with_its_own_depth(make):
    options = make(iodepth=24, sequential_iodepth=6, ioengine="io_uring")
    one = options.volumes[0]
    random, large, single = (options.load(TESTS[name], one) for name in ("random-read", "sequential-write", "qd1-read"))
    assert (random.clients, random.options["engine"], random.options["bs"]) == (24, "io_uring", "8192")
    assert (large.clients, large.options["rw"], large.options["bs"]) == (6, "write", str(2**20))
    assert (single.clients, single.threads, single.options["engine"]) == (1, 1, "psync"), "as PostgreSQL reads a block"
    assert options.load(TESTS["random-read"], one, 48).clients == 48


def test_a_mix_is_of_two_rates(make):
    options = make(tests=(MIX,), rate_iops=(70, 30))
    load = options.load(TESTS[MIX], options.volumes[0])
    assert load.rate == 100 and (load.options["read_rate"], load.options["write_rate"]) == ("70", "30")
    assert "rwmixread" not in load.options


def test_without_direct_io_many_jobs_keep_one_in_flight_each(make):
    options = make()
    buffered = options.volumes[0].model_copy(update={"direct": False})
    load = options.load(TESTS["random-write"], buffered)
    assert (load.clients, load.threads, load.options["engine"], load.options["direct"]) == (1, 16, "psync", "0")


def test_jobs_share_the_depth(make):
    options = make(numjobs=4, iodepth=32)
    load = options.load(TESTS["random-read"], options.volumes[0])
    assert (load.clients, load.threads) == (8, 4)


def test_places_are_each_volume_and_all(make):
    assert make().targets() == ("disk0",)
    assert make(2).targets() == ("disk0", "disk1", "all") and make(2, concurrent=False).targets() == ("disk0", "disk1")
    assert [one.name for one in make(2).volumes_of("all")] == ["disk0", "disk1"]


def test_the_deployment_has_no_server(make):
    deployment = make(2).deployment()
    assert list(deployment.servers()) == [] and [volume.name for volume in deployment.volumes] == ["disk0", "disk1"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tests": ("nonsense",)}, "no test 'nonsense'"),
        ({"tests": (MIX,)}, "two rates"),
        ({"volumes": []}, "at least 1"),
    ],
)
def test_what_makes_no_run(make, changes, said):
    with pytest.raises(ValidationError, match=said):
        make(**changes)


def test_two_volumes_of_one_name_are_refused(make):
    one = make().volumes[0]
    with pytest.raises(ValidationError, match="must be different"):
        make(volumes=[one, one])


def test_everything_has_a_default():
    assert DiskRequest().volume == () and DiskRequest().concurrent and DiskRequest().rate_iops is None


@pytest.mark.parametrize("wrong", [{"iodepth": 0}, {"ioengine": "nonsense"}, {"repeats": 0}, {"colour": "red"}])
def test_what_it_cannot_be(wrong):
    with pytest.raises(ValidationError):
        DiskRequest.model_validate(wrong)
