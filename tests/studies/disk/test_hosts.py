import pytest

from pgherd.model.finding import Verdict
from pgherd.studies.disk.analyse import analyse
from pgherd.studies.disk.propose import design

HOSTS = ("a", "b", "c", "d")


def slow_c(make, bank, **changes):
    options = make(hosts=HOSTS, tests=("random-read", "sequential-write", "mix"), rate=(70, 30), **changes)
    return options, bank(options, speed={"c": 0.8}).all()


def test_all_hosts_do_the_same_in_every_trial(make):
    options = make(2, hosts=HOSTS)
    trials = design(options).planned
    assert options.hosts == HOSTS and options.names() == ("disk0", "disk1") and options.places() == ("disk0", "disk1", "all")
    one = next(trial for trial in trials if trial.point == {"test": "random-read", "volume": "disk1"})
    assert list(one.phases[0].loads) == ["a/disk1", "b/disk1", "c/disk1", "d/disk1"]
    assert [host.name for host in one.deployment.hosts] == list(HOSTS)
    everything = next(trial for trial in trials if trial.point == {"test": "random-read", "volume": "all"})
    assert len(everything.phases[0].loads) == 8
    deeper = [trial for trial in trials if "depth" in trial.point]
    assert len({trial.key() for trial in deeper}) == len(deeper) == 8, "once for each test and volume, not for each host"


def test_a_slow_host_is_found_and_named(make, bank):
    options, results = slow_c(make, bank)
    found = analyse(options, results)
    whole, own = found.findings["random_read_iops"], {host: found.findings[f"random_read_iops.{host}"] for host in HOSTS}
    assert whole.value == pytest.approx(sum(one.value for one in own.values())) and whole.value == pytest.approx(3.8 * 40_000, rel=0.02)
    assert own["c"].value == pytest.approx(0.8 * 40_000, rel=0.02) and own["c"].note.startswith("host c")
    assert found.findings["host_imbalance"].value == pytest.approx(0.2, abs=0.03)
    slowest = found.findings["host_slowest"]
    assert slowest.value == pytest.approx(0.8 / 0.95, abs=0.02) and slowest.high < 1 and slowest.note.startswith("host c")
    assert "4 hosts together" in found.answer and found.answer.endswith("host c is the slowest, at 84% of the hosts' mean.")
    rows = {(row["test"], row["host"]): row for row in found.tables["hosts"]}
    assert rows["8 kB random read", "c"]["relative"].value == pytest.approx(0.8 / 0.95, abs=0.02)
    assert rows["8 kB random read", "a"]["cpu_share"].value == pytest.approx(0.5)
    mix = next(row for row in found.tables["disk"] if row["test"].endswith("fixed rates"))
    assert mix["imbalance"].value is None and "fixed" in mix["imbalance"].note
    assert {row["host"] for row in found.tables["volumes"]} == set(HOSTS)


def test_hosts_that_are_alike_are_not_told_apart(make, bank):
    options = make(hosts=HOSTS, tests=("random-read",))
    found = analyse(options, bank(options).all())
    assert "not shown to be slower" in found.findings["host_slowest"].note or found.findings["host_slowest"].value > 0.98
    assert "slowest" not in found.answer


def test_a_trial_without_a_host_says_nothing_of_how_they_stand(make, bank):
    options, results = slow_c(make, bank)
    gone = Verdict(check="all-hosts", kind="noise", result="fail", observed="3 of 4; missing c", wanted="every host")
    cut = []
    for result in results:
        (phase,) = result.phases
        left = [target for target in phase.targets if not target.target.startswith("c/")]
        phases = [phase.model_copy(update={"targets": left})]
        cut.append(result.model_copy(update={"phases": phases, "verdicts": [gone]}))
    found = analyse(options, cut)
    assert found.grade == "C" and found.findings["host_slowest"].value is None and found.findings["random_read_iops.c"].value is None


def test_what_holds_for_a_volume_on_several_hosts_is_said_once(make, bank):
    options = make(hosts=("a", "b"), tests=("random-read",))
    memory = options.model_copy(update={"volumes": tuple(v.model_copy(update={"filesystem": "tmpfs"}) for v in options.volumes)})
    warnings = analyse(memory, bank(memory).all()).warnings
    assert [warning for warning in warnings if "tmpfs" in warning] == [
        "disk0 on a, b lies in memory (tmpfs): its figures say nothing of a disk"
    ]


def test_without_a_cluster_there_are_no_hosts(make, bank):
    options = make(tests=("random-read",))
    found = analyse(options, bank(options).all())
    assert "hosts" not in found.tables and "host_slowest" not in found.findings and "imbalance" not in found.tables["disk"][0]
