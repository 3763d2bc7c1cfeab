from pgherd.studies.disk.propose import design, propose


def test_every_test_on_every_place_in_every_repeat(make):
    planned = design(make(2, repeats=3)).planned
    counted = [(t.point["test"], t.point["volume"]) for t in planned if "depth" not in t.point]
    assert len(counted) == 6 * 3 * 3 and len(set(counted)) == 18
    keys = [trial.key() for trial in planned]
    assert len(set(keys)) == len(keys)


def test_the_depth_is_checked_last_and_on_each_volume_alone(make):
    planned = design(make(2)).planned
    deeper = [trial for trial in planned if "depth" in trial.point]
    assert list(planned[-len(deeper) :]) == deeper
    assert {(t.point["test"], t.point["depth"]) for t in deeper} == {
        ("random-read", 64),
        ("random-write", 64),
        ("sequential-read", 16),
        ("sequential-write", 16),
    }
    assert {t.point["volume"] for t in deeper} == {"disk0", "disk1"}
    assert not any("depth" in trial.point for trial in design(make(2, double_iodepth=False)).planned)


def test_the_order_is_shuffled_by_the_seed_alone(make):
    def order(seed):
        return [trial.key() for trial in design(make(seed=seed)).planned]

    assert order(3) == order(3) != order(4)


def test_all_at_once_loads_all_volumes_in_one_phase(make):
    trial = next(t for t in design(make(3)).planned if t.point["volume"] == "all")
    assert set(trial.phases[0].loads) == {"disk0", "disk1", "disk2"}


def test_a_run_ends_when_all_is_measured_and_tainted_trials_come_again(make, bank):
    host = bank(make(), taint=lambda trial: trial.repeat == 0 and trial.point["test"] == "qd1-read")
    results = host.all()
    reruns = [result.trial for result in results if result.trial.reason.startswith("rerun")]
    assert len(reruns) == 1 and reruns[0].point["test"] == "qd1-read"
    assert propose(host.options, results).stop == "all planned trials are done; 1 trials are tainted"
