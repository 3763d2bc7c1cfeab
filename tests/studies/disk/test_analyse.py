import pytest

from pgherd.studies.disk.analyse import analyse
from pgherd.studies.disk.study import STUDY


def test_known_volumes_are_found(make, bank):
    options = make()
    found = analyse(options, bank(options).all())
    assert found.grade == "A"
    assert found.findings["random_read_iops"].value == pytest.approx(40_000, rel=0.02)
    assert found.findings["sequential_write_bandwidth"].value == pytest.approx(1000 * 1.048576, rel=0.02)
    assert found.findings["single_read_latency"].value == pytest.approx(0.2)
    assert found.answer.startswith("Volume disk0: 8 kB random read 4") or "39," in found.answer
    assert not any("cache" in warning for warning in found.warnings), found.warnings
    assert list(found.tables) == ["disk", "hero", "depth", "volumes"]


def test_with_several_volumes_each_has_its_own_findings(make, bank):
    options = make(2)
    found = analyse(options, bank(options).all())
    assert {"random_read_iops.disk0", "random_read_iops.disk1", "random_read_iops.all"} <= set(found.findings)
    assert found.answer.startswith("All 2 volumes at once: ")


@pytest.mark.parametrize(
    ("changes", "host", "words"),
    [
        ({}, {"cached": 0.5}, "Came from a cache"),
        ({}, {"slope": 0.6}, "Not steady by the rule (over 5 parts a range of at most 20%"),
        ({"seconds": 2}, {}, "too short to say whether they were steady"),
        ({"memory": 2**40}, {}, "Caches below this host"),
        ({"rate": (70, 30), "tests": ("mix",)}, {"iops": 50}, "The rates were not met on disk0: 5"),
    ],
)
def test_what_must_be_known_is_said_and_costs_the_best_grade(make, bank, changes, host, words):
    options = make(**changes)
    found = analyse(options, bank(options, **host).all())
    assert any(words in warning for warning in found.warnings), found.warnings
    if words not in ("Caches below this host", "The rates were not met on disk0: 5"):
        assert found.grade == "B"


def test_a_mix_is_told_as_two_rates(make, bank):
    options = make(2, rate=(70, 30), tests=("mix", "random-read"))
    found = analyse(options, bank(options).all())
    assert "a mix of 140 reads and 60 writes a second" in found.answer
    for place, factor in (("disk0", 1), ("all", 2)):
        reads, writes = (found.findings[f"mix_{side}.{place}"] for side in ("reads", "writes"))
        assert (reads.value, writes.value) == (pytest.approx(70 * factor, rel=0.02), pytest.approx(30 * factor, rel=0.02))
        assert reads.unit == "IOPS" and reads.low <= reads.value <= reads.high
    rows = {(row["volume"], row["test"]): row for row in found.tables["disk"]}
    mix, other = rows["disk0", "8 kB random reads and writes at fixed rates"], rows["disk0", "8 kB random read"]
    assert mix["reads"].value == pytest.approx(70, rel=0.02) and "reads" not in other
    assert mix["p99"].note == "of the reads; of the writes 0.6 ms" and "of the" not in other["p99"].note


def test_loops_and_memory_are_named(make, bank):
    options = make(2)
    first, second = options.volumes
    loop = first.model_copy(update={"volume": first.volume.model_copy(update={"kind": "loop", "size": 2**30})})
    memory = second.model_copy(update={"filesystem": "tmpfs", "direct": False, "devices": ()})
    changed = options.model_copy(update={"volumes": (loop, memory)})
    found = analyse(changed, bank(options).all())
    assert any("disk0 is a loop device" in warning for warning in found.warnings)
    assert any("disk1 lies in memory (tmpfs)" in warning for warning in found.warnings) and found.grade == "B"
    direct = memory.model_copy(update={"direct": True, "size": 2**24})
    said = analyse(options.model_copy(update={"volumes": (first.model_copy(update={"size": 2**50}), direct)}), bank(options).all())
    assert not any("Caches below this host" in warning for warning in said.warnings), "memory has none below it"


def test_volumes_that_share_something_are_told(make, bank):
    options = make(2)
    found = analyse(options, bank(options, together=0.5).all())
    assert any("all volumes at once make 50%" in warning or "all volumes at once make 49%" in warning for warning in found.warnings)


def test_nothing_is_said_of_nothing(make, bank):
    options = make()
    assert analyse(options, []).grade == "C" and "no trial was run" in analyse(options, []).answer
    failed = analyse(options, bank(options, fail=lambda trial: "full").all())
    assert failed.grade == "C" and "none of them finished" in failed.answer and "full" in str(failed.warnings)


def test_only_tainted_trials_are_an_indication(make, bank):
    options = make()
    found = analyse(options, bank(options, taint=lambda trial: True).all())
    assert found.grade == "C" and found.answer.startswith("Indication only: ")


def test_the_study_is_complete(make, bank):
    options = make()
    assert STUDY.propose(options, []).trials and STUDY.analyse(options, bank(options).all()).answer


def test_tainted_figures_beyond_half_are_an_indication(make, bank):
    options = make()
    few, most = options.tests[:1], options.tests[: (len(options.tests) + 1) // 2]
    found = analyse(options, bank(options, taint=lambda trial: trial.point["test"] in few).all())
    assert found.grade == "B" and any(said.endswith("these numbers are an indication") for said in found.warnings)
    found = analyse(options, bank(options, taint=lambda trial: trial.point["test"] in most).all())
    assert found.grade == "C" and any(f"({len(most)} of {len(options.tests)} points, half" in said for said in found.warnings)


def test_each_volume_is_graded_by_itself(make, bank):
    """The answer is of all volumes at once: however clean each alone is, it is an indication where these trials are not."""
    options = make(2)
    found = analyse(options, bank(options, taint=lambda trial: trial.point["volume"] == "all").all())
    assert found.grade == "C" and found.answer.startswith("Indication only: All 2 volumes at once: ")
    count = len(options.tests)
    assert any(f" on all ({count} of {count} points, half" in said for said in found.warnings)
    found = analyse(options, bank(options, fail=lambda trial: "full" if trial.point["volume"] == "all" else None).all())
    assert found.grade == "C" and "No finished trial on all: the whole answer is an indication (grade C)" in found.warnings
    few = analyse(options, bank(options, taint=lambda trial: trial.point["test"] == options.tests[0]).all())
    assert few.grade == "B" and sum(said.startswith("Only tainted trials for ") for said in few.warnings) == len(options.places())
