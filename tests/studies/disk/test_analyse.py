import re

import pytest

from pgherd.model.analysis import Check
from pgherd.studies.disk.analyse import analyse, depth_rows, disk_rows, headline_finding, summary_rows, volume_rows
from pgherd.studies.disk.measurements import group_trials
from pgherd.studies.disk.options import design
from pgherd.studies.disk.study import STUDY


def test_known_volumes_are_found(make, bank):
    options = make()
    analysis = analyse(options, bank(options).all())
    assert analysis.grade == "A"
    assert analysis.findings["random_read_iops"].value == pytest.approx(40_000, rel=0.02)
    assert analysis.findings["sequential_write_bandwidth"].value == pytest.approx(1000 * 1.048576, rel=0.02)
    assert analysis.findings["qd1_read_latency"].value == pytest.approx(0.2)
    assert re.match(r"Volume disk0: 8 kB random read (39|40),\d{3}\b", analysis.answer), analysis.answer
    assert not any("cache" in warning for warning in analysis.warnings), analysis.warnings
    assert list(analysis.tables) == ["disk", "summary", "depth", "volumes"]


def test_with_several_volumes_each_has_its_own_findings(make, bank):
    options = make(2)
    analysis = analyse(options, bank(options).all())
    assert {"random_read_iops.disk0", "random_read_iops.disk1", "random_read_iops.all"} <= set(analysis.findings)
    assert analysis.answer.startswith("All 2 volumes together: ")


@pytest.mark.parametrize(
    ("changes", "host", "text"),
    [
        ({}, {"cached": 0.5}, "Results from a cache"),
        ({}, {"slope": 0.6}, "Over 5 parts of a trial, the range must be at most 20%"),
        ({"duration": 2}, {}, "too short to judge steadiness"),
        ({"memory": 2**40}, {}, "Caches below this host"),
        ({"rate_iops": (70, 30), "tests": ("mix",)}, {"iops": 50}, "Rates not met on disk0: 5"),
    ],
)
def test_what_must_be_known_is_said_and_costs_the_best_grade(make, bank, changes, host, text):
    options = make(**changes)
    analysis = analyse(options, bank(options, **host).all())
    assert any(text in warning for warning in analysis.warnings), analysis.warnings
    if text not in ("Caches below this host", "Rates not met on disk0: 5"):
        assert analysis.grade == "B"


def test_a_mix_is_told_as_two_rates(make, bank):
    options = make(2, rate_iops=(70, 30), tests=("mix", "random-read"))
    analysis = analyse(options, bank(options).all())
    assert "a mix of 140 reads and 60 writes per second" in analysis.answer
    for location, factor in (("disk0", 1), ("all", 2)):
        reads, writes = (analysis.findings[f"mixed_{direction}_iops.{location}"] for direction in ("read", "write"))
        assert (reads.value, writes.value) == (pytest.approx(70 * factor, rel=0.02), pytest.approx(30 * factor, rel=0.02))
        assert reads.unit == "IOPS" and reads.low <= reads.value <= reads.high
    rows = {(row["volume"], row["test"]): row for row in analysis.tables["disk"]}
    mix, other = rows["disk0", "8 kB random reads and writes at fixed rates"], rows["disk0", "8 kB random read"]
    assert mix["reads"].value == pytest.approx(70, rel=0.02) and "reads" not in other
    assert mix["p99"].note == "of the reads; of the writes 0.6 ms" and "of the" not in other["p99"].note


def test_loops_and_memory_are_named(make, bank):
    options = make(2)
    first, second = options.volumes
    loop = first.model_copy(update={"volume": first.volume.model_copy(update={"kind": "loop", "size": 2**30})})
    memory = second.model_copy(update={"filesystem": "tmpfs", "direct": False, "devices": ()})
    changed = options.model_copy(update={"volumes": (loop, memory)})
    analysis = analyse(changed, bank(options).all())
    assert any("disk0 is a loop device" in warning for warning in analysis.warnings)
    assert any("disk1 is in memory (tmpfs)" in warning for warning in analysis.warnings) and analysis.grade == "B"
    direct = memory.model_copy(update={"direct": True, "size": 2**24})
    text = analyse(options.model_copy(update={"volumes": (first.model_copy(update={"size": 2**50}), direct)}), bank(options).all())
    assert not any("Caches below this host" in warning for warning in text.warnings), "memory has none below it"


def test_volumes_that_share_something_are_told(make, bank):
    options = make(2)
    analysis = analyse(options, bank(options, together=0.5).all())
    assert any("all volumes together reach 50%" in warning or "all volumes together reach 49%" in warning for warning in analysis.warnings)


def test_nothing_is_said_of_nothing(make, bank):
    options = make()
    assert analyse(options, []).grade == "C" and "no trial was run" in analyse(options, []).answer
    failed = analyse(options, bank(options, fail=lambda trial: "full").all())
    assert failed.grade == "C" and " trials finished" in failed.answer and "full" in str(failed.warnings)


def test_only_tainted_trials_are_an_indication(make, bank):
    options = make()
    analysis = analyse(options, bank(options, taint=lambda trial: True).all())
    assert analysis.grade == "C" and analysis.answer.startswith("Indication only: ")


def test_the_study_is_complete(make, bank):
    options = make()
    assert STUDY.propose(options, []).trials and STUDY.analyse(options, bank(options).all()).answer


def test_tainted_figures_beyond_half_are_an_indication(make, bank):
    options = make()
    few, maximum = options.tests[:1], options.tests[: (len(options.tests) + 1) // 2]
    analysis = analyse(options, bank(options, taint=lambda trial: trial.point["test"] in few).all())
    assert analysis.grade == "B" and any(warning.endswith("these numbers are an indication") for warning in analysis.warnings)
    analysis = analyse(options, bank(options, taint=lambda trial: trial.point["test"] in maximum).all())
    assert analysis.grade == "C" and any(
        f"({len(maximum)} of {len(options.tests)} points, half" in message for message in analysis.warnings
    )


def test_each_volume_is_graded_by_itself(make, bank):
    """The answer is of all volumes at once: however clean each alone is, it is an indication where these trials are not."""
    options = make(2)
    analysis = analyse(options, bank(options, taint=lambda trial: trial.point["volume"] == "all").all())
    assert analysis.grade == "C" and analysis.answer.startswith("Indication only: All 2 volumes together: ")
    count = len(options.tests)
    assert any(f" on all ({count} of {count} points, half" in warning for warning in analysis.warnings)
    analysis = analyse(options, bank(options, fail=lambda trial: "full" if trial.point["volume"] == "all" else None).all())
    assert analysis.grade == "C" and "No finished trial on all: the whole answer is an indication (grade C)" in analysis.warnings
    few = analyse(options, bank(options, taint=lambda trial: trial.point["test"] == options.tests[0]).all())
    assert few.grade == "B" and sum(message.startswith("Only tainted trials for ") for message in few.warnings) == len(options.targets())


@pytest.fixture
def measured(make, bank):
    def run(volumes=1, **host):
        options = make(volumes)
        return options, group_trials(options, bank(options, **host).all())

    return run


def test_one_row_for_each_test_with_units_intervals_and_what_limited_it(measured):
    options, groups = measured()
    rows = {row["test"]: row for row in disk_rows(options, groups)}
    read = rows["8 kB random read"]
    assert read["iops"].value == pytest.approx(40_000, rel=0.02) and read["iops"].low < read["iops"].value < read["iops"].high
    assert read["bandwidth"].unit == "MB/s" and read["bandwidth"].value == pytest.approx(read["iops"].value * 8192 / 1e6)
    assert (read["bottleneck"], read["from_cache"], read["steady_state"], read["trials"]) == ("device", "no", "3 of 3", 3)
    assert read["p99_9"].value is None and "fewer than ten" in read["p99_9"].note


def test_e12_stands_beside_with_its_source(measured):
    options, groups = measured()
    rows = {row["test"]: row for row in summary_rows(options, groups)}
    finding = rows["8 kB random write"]["result"]
    assert finding.experiment == "E12" and "618,775" in finding.published and "4 nodes" in finding.published
    assert rows["one 8 kB read at a time"]["result"].unit == "ms"


def test_the_hero_table_is_of_all_volumes_at_once(measured):
    options, groups = measured(2)
    rows = {row["test"]: row for row in summary_rows(options, groups)}
    assert rows["8 kB random read"]["result"].value == pytest.approx(80_000, rel=0.02)
    assert next(row for row in disk_rows(options, groups) if row["volume"] == "all")["concurrent_vs_sum"] == pytest.approx(1, rel=0.02)


def test_a_cached_figure_says_so_wherever_it_stands(measured):
    options, groups = measured(cached=0.8)
    assert "from a cache" in headline_finding(options, groups[0], groups).note
    assert {row["from_cache"] for row in summary_rows(options, groups)} == {"yes"}


def test_what_twice_the_depth_makes(measured):
    options, groups = measured(latency=2.0)
    row = depth_rows(options, groups)[0]
    assert (row["depth"], row["double_depth"]) == (32, 64) and row["ratio"].value == pytest.approx(2, rel=0.05)


def test_what_each_volume_is(make):
    row = volume_rows(make())[0]
    assert (row["kind"], row["direct_io"], row["loopback"], row["devices"]) == ("directory", "yes", "no", "sd0")


HOSTS = ("a", "b", "c", "d")


def slow_c(make, bank, **changes):
    options = make(hosts=HOSTS, tests=("random-read", "sequential-write", "mix"), rate_iops=(70, 30), **changes)
    return options, bank(options, speed={"c": 0.8}).all()


def test_all_hosts_do_the_same_in_every_trial(make):
    options = make(2, hosts=HOSTS)
    trials = design(options).planned
    assert options.hosts == HOSTS and options.volume_names() == ("disk0", "disk1") and options.targets() == ("disk0", "disk1", "all")
    item = next(trial for trial in trials if trial.point == {"test": "random-read", "volume": "disk1"})
    assert list(item.phases[0].loads) == ["a/disk1", "b/disk1", "c/disk1", "d/disk1"]
    assert [host.name for host in item.deployment.hosts] == list(HOSTS)
    everything = next(trial for trial in trials if trial.point == {"test": "random-read", "volume": "all"})
    assert len(everything.phases[0].loads) == 8
    deeper = [trial for trial in trials if "depth" in trial.point]
    assert len({trial.key() for trial in deeper}) == len(deeper) == 8, "once for each test and volume, not for each host"


def test_a_slow_host_is_found_and_named(make, bank):
    options, results = slow_c(make, bank)
    analysis = analyse(options, results)
    random_read_iops, own = analysis.findings["random_read_iops"], {host: analysis.findings[f"random_read_iops.{host}"] for host in HOSTS}
    assert random_read_iops.value == pytest.approx(sum(item.value for item in own.values())) and random_read_iops.value == pytest.approx(
        3.8 * 40_000, rel=0.02
    )
    assert own["c"].value == pytest.approx(0.8 * 40_000, rel=0.02) and own["c"].note.startswith("host c")
    assert analysis.findings["host_imbalance"].value == pytest.approx(0.2, abs=0.03)
    slowest = analysis.findings["slowest_host"]
    assert slowest.value == pytest.approx(0.8 / 0.95, abs=0.02) and slowest.high < 1 and slowest.note.startswith("host c")
    assert "4 hosts together" in analysis.answer and analysis.answer.endswith("host c is the slowest, at 84% of the hosts' mean.")
    rows = {(row["test"], row["host"]): row for row in analysis.tables["hosts"]}
    assert rows["8 kB random read", "c"]["relative_to_mean"].value == pytest.approx(0.8 / 0.95, abs=0.02)
    assert rows["8 kB random read", "a"]["cpu_share"].value == pytest.approx(0.5)
    mix = next(row for row in analysis.tables["disk"] if row["test"].endswith("fixed rates"))
    assert mix["imbalance"].value is None and "fixed" in mix["imbalance"].note
    assert {row["host"] for row in analysis.tables["volumes"]} == set(HOSTS)


def test_hosts_that_are_alike_are_not_told_apart(make, bank):
    options = make(hosts=HOSTS, tests=("random-read",))
    analysis = analyse(options, bank(options).all())
    assert "not shown to be slower" in analysis.findings["slowest_host"].note or analysis.findings["slowest_host"].value > 0.98
    assert "slowest" not in analysis.answer


def test_a_trial_without_a_host_says_nothing_of_how_they_stand(make, bank):
    options, results = slow_c(make, bank)
    gone = Check(name="all-hosts-present", kind="noise", result="fail", observed="3 of 4; missing c", expected="every host")
    cut = []
    for result in results:
        (phase,) = result.phases
        remaining = [target for target in phase.targets if not target.target.startswith("c/")]
        phases = [phase.model_copy(update={"targets": remaining})]
        cut.append(result.model_copy(update={"phases": phases, "checks": [gone]}))
    analysis = analyse(options, cut)
    assert (
        analysis.grade == "C" and analysis.findings["slowest_host"].value is None and analysis.findings["random_read_iops.c"].value is None
    )


def test_what_holds_for_a_volume_on_several_hosts_is_said_once(make, bank):
    options = make(hosts=("a", "b"), tests=("random-read",))
    memory = options.model_copy(update={"volumes": tuple(v.model_copy(update={"filesystem": "tmpfs"}) for v in options.volumes)})
    warnings = analyse(memory, bank(memory).all()).warnings
    assert [warning for warning in warnings if "tmpfs" in warning] == [
        "disk0 on a, b is in memory (tmpfs): its figures do not describe a disk"
    ]


def test_without_a_cluster_there_are_no_hosts(make, bank):
    options = make(tests=("random-read",))
    analysis = analyse(options, bank(options).all())
    assert "hosts" not in analysis.tables and "slowest_host" not in analysis.findings and "imbalance" not in analysis.tables["disk"][0]
