import pytest
from pydantic import ValidationError

from pgherd.studies.disk.options import DEFAULT, MIX, PUBLISHED, TESTS, DiskRequest, design, propose, published_fields


def test_a_test_loads_a_volume_with_its_own_depth(make):
    options = make(iodepth=24, sequential_iodepth=6, ioengine="io_uring")
    volume = options.volumes[0]
    random, large, single = (options.load(TESTS[name], volume) for name in ("random-read", "sequential-write", "qd1-read"))
    assert (random.clients, random.options["engine"], random.options["bs"]) == (24, "io_uring", "8192")
    assert (large.clients, large.options["rw"], large.options["bs"]) == (6, "write", str(2**20))
    assert (single.clients, single.threads, single.options["engine"]) == (1, 1, "psync"), "as PostgreSQL reads a block"
    assert options.load(TESTS["random-read"], volume, 48).clients == 48


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


def test_a_synchronous_engine_has_as_many_jobs_as_the_depth(make):
    options = make(ioengine="psync", iodepth=8)
    load = options.load(TESTS["random-read"], options.volumes[0])
    assert (load.clients, load.threads) == (1, 8)
    deeper = [trial.point for trial in design(options).planned if "depth" in trial.point]
    assert {point["depth"] for point in deeper if point["test"] == "random-read"} == {16}
    most = design(make(ioengine="psync", iodepth=32))
    assert not [trial for trial in most.planned if trial.point.get("depth") == 64], "there are no more jobs"


def test_rates_are_whole_numbers_to_fio(make):
    options = make(tests=(MIX,), rate_iops=(1_000_000, 500_000))
    load = options.load(TESTS[MIX], options.volumes[0])
    assert (load.options["read_rate"], load.options["write_rate"]) == ("1000000", "500000")


def test_synchronous_jobs_share_the_rates(make):
    options = make(tests=(MIX,), rate_iops=(800, 400), ioengine="psync", iodepth=8)
    load = options.load(TESTS[MIX], options.volumes[0])
    assert (load.clients, load.threads, load.rate) == (1, 8, 1200)
    assert (load.options["read_rate"], load.options["write_rate"]) == ("100", "50")


@pytest.mark.parametrize(
    ("rates", "jobs"), [((7, 3), 1), ((1, 1), 1), ((70, 30), 10), ((9, 4000), 9), ((7001, 3001), 16), ((800, 400), 16), ((0.4, 3), 1)]
)
def test_synchronous_jobs_meet_rates_that_do_not_divide(make, rates, jobs):
    """fio limits each job to a whole number, and takes 0 for no limit."""
    options = make(tests=(MIX,), rate_iops=rates, ioengine="psync", iodepth=32)
    load = options.load(TESTS[MIX], options.volumes[0])
    per_job = [int(load.options[f"{direction}_rate"]) for direction in ("read", "write")]
    assert (load.threads, load.rate) == (jobs, sum(rates))
    assert [rate * jobs for rate in per_job] == pytest.approx([max(1, rate) for rate in rates], rel=0.005)


def test_the_depth_of_synchronous_jobs_is_their_number(make):
    options, test = make(ioengine="psync", iodepth=12), TESTS["random-read"]
    assert [options.in_flight(test, options.volumes[0], depth) for depth in (None, 24)] == [12, 16]
    assert make(numjobs=3, iodepth=32).in_flight(test, options.volumes[0]) == 30


def test_jobs_share_the_depth(make):
    options = make(numjobs=4, iodepth=32)
    load = options.load(TESTS["random-read"], options.volumes[0])
    assert (load.clients, load.threads) == (8, 4)


def test_places_are_each_volume_and_all(make):
    assert make().targets() == ("disk0",)
    assert make(2).targets() == ("disk0", "disk1", "all") and make(2, concurrent=False).targets() == ("disk0", "disk1")
    assert [item.name for item in make(2).volumes_of("all")] == ["disk0", "disk1"]


def test_the_deployment_has_no_server(make):
    deployment = make(2).deployment()
    assert list(deployment.servers()) == [] and [volume.name for volume in deployment.volumes] == ["disk0", "disk1"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tests": ("nonsense",)}, "no test 'nonsense'"),
        ({"tests": (MIX,)}, "two rates"),
        ({"volumes": []}, "at least 1"),
    ],
)
def test_what_makes_no_run(make, changes, message):
    with pytest.raises(ValidationError, match=message):
        make(**changes)


def test_two_volumes_of_one_name_are_refused(make):
    volume = make().volumes[0]
    with pytest.raises(ValidationError, match="must be different"):
        make(volumes=[volume, volume])


def test_everything_has_a_default():
    assert DiskRequest().volume == () and DiskRequest().concurrent and DiskRequest().rate_iops is None


@pytest.mark.parametrize("wrong", [{"iodepth": 0}, {"ioengine": "nonsense"}, {"repeats": 0}, {"colour": "red"}])
def test_what_it_cannot_be(wrong):
    with pytest.raises(ValidationError):
        DiskRequest.model_validate(wrong)


def test_every_test_on_every_place_in_every_repeat(make):
    planned = design(make(2, repeats=3)).planned
    counted = [(trial.point["test"], trial.point["volume"]) for trial in planned if "depth" not in trial.point]
    assert len(counted) == 6 * 3 * 3 and len(set(counted)) == 18
    keys = [trial.key() for trial in planned]
    assert len(set(keys)) == len(keys)


def test_the_depth_is_checked_last_and_on_each_volume_alone(make):
    planned = design(make(2)).planned
    deeper = [trial for trial in planned if "depth" in trial.point]
    assert list(planned[-len(deeper) :]) == deeper
    assert {(trial.point["test"], trial.point["depth"]) for trial in deeper} == {
        ("random-read", 64),
        ("random-write", 64),
        ("sequential-read", 16),
        ("sequential-write", 16),
    }
    assert {trial.point["volume"] for trial in deeper} == {"disk0", "disk1"}
    assert not any("depth" in trial.point for trial in design(make(2, double_iodepth=False)).planned)


def test_the_order_is_shuffled_by_the_seed_alone(make):
    def order(seed):
        return [trial.key() for trial in design(make(seed=seed)).planned]

    assert order(3) == order(3) != order(4)


def test_all_at_once_loads_all_volumes_in_one_phase(make):
    trial = next(trial for trial in design(make(3)).planned if trial.point["volume"] == "all")
    assert set(trial.phases[0].loads) == {"disk0", "disk1", "disk2"}


def test_a_run_ends_when_all_is_measured_and_tainted_trials_come_again(make, bank):
    host = bank(make(), taint=lambda trial: trial.repeat == 0 and trial.point["test"] == "qd1-read")
    results = host.all()
    reruns = [result.trial for result in results if result.trial.reason.startswith("rerun")]
    assert len(reruns) == 1 and reruns[0].point["test"] == "qd1-read"
    assert propose(host.options, results).stop == "all planned trials are done; 1 trials are tainted"


def test_the_tests_are_those_of_e12_and_the_mix():
    assert MIX in TESTS and set(DEFAULT) == set(TESTS) - {MIX}
    assert {(test.rw, test.bytes) for name, test in TESTS.items() if name.startswith("random")} == {("randread", 8192), ("randwrite", 8192)}
    assert {test.bytes for name, test in TESTS.items() if name.startswith("sequential")} == {2**20}
    assert all((test.quantity == "latency") == (not test.deep) for test in TESTS.values())


def test_every_test_but_the_mix_has_its_figure_with_the_source():
    assert set(PUBLISHED) == set(DEFAULT)
    assert published_fields("random-read") == {
        "experiment": "E12",
        "published": "1,160,551 IOPS, partly from a cache "
        "(Gary Little, n0derunner.com: a cluster of 4 nodes with shared storage, not one disk)",
    }
    assert published_fields("mix") == {}
