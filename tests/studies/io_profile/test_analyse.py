import pytest

from pgherd.model.finding import Verdict
from pgherd.studies.io_profile.study import STUDY


def test_a_server_without_stalls(build, run):
    options = build()
    found = STUDY.analyse(options, run(options))
    (row,) = found.tables["storage"]
    assert (row["stalls"].value, row["stalled"].value, row["checkpoints"].value) == (0, 0, 2)
    assert row["throughput"].value == pytest.approx(500) and row["throughput"].n == 3
    assert row["wal_size"].value == pytest.approx(16) and "16–32 kB" in row["wal_size"].published
    assert row["burst_ratio"].value == pytest.approx(10) and row["burst_ratio"].experiment == "E11"
    assert "no stall of WAL writing was seen" in found.answer and "10.0 × the WAL's rate" in found.answer
    assert found.grade == "A" and found.tables["stalls"] == [] and len(found.tables["checkpoints"]) == 6


def test_stalls_are_counted_and_tied_to_checkpoints(build, run, simulated):
    options = build()
    # 15 and 16 lie in the first checkpoint (8 to 20 s), 25 and 26 in none.
    found = STUDY.analyse(options, run(options, lambda trial, number: simulated(trial, number, stalled=(15, 16, 25, 26))))
    (row,) = found.tables["storage"]
    assert (row["stalls"].value, row["stalls_in_checkpoints"].value) == (2, 1)
    assert row["stalled"].value == pytest.approx(100 * 4 / 60) and row["stalled"].unit == "%"
    assert [bool(stall["checkpoint"]) for stall in found.tables["stalls"][:2]] == [True, False]
    assert "below 50 % of their medians" in row["stalls"].method


def test_latency_inside_and_outside_of_checkpoints(build, run):
    options = build()
    found = STUDY.analyse(options, run(options)).findings
    assert found["p95_inside"].value == pytest.approx(4.0, rel=1 / 32) and found["p95_outside"].value == pytest.approx(2.0, rel=1 / 32)
    assert found["p95_ratio"].value == pytest.approx(2.0, rel=0.07) and found["p95_ratio"].low is not None
    assert found["p95_inside"].n == 6000 and "not independent" in found["p95_inside"].note


def test_where_the_views_disagree_is_said(build, run, simulated):
    options = build()
    found = STUDY.analyse(options, run(options))
    assert any("1.00 MB/s of WAL (pg_stat_wal), its device wrote 2.00 MB/s" in warning for warning in found.warnings)
    agreeing = run(options, lambda trial, number: simulated(trial, number, metrics={"wal.bytes": 2.0 * 2**20}))
    assert not any("of WAL (pg_stat_wal)" in warning for warning in STUDY.analyse(options, agreeing).warnings)


def test_data_and_wal_on_one_device_cannot_be_told_apart(build, run, simulated):
    options = build()
    found = STUDY.analyse(options, run(options, lambda trial, number: simulated(trial, number, apart=False)))
    (row,) = found.tables["storage"]
    assert row["wal_size"].value is None and row["burst_ratio"].value is None and "one device" in row["wal_device"].note
    assert row["stalls"].value == 0, "flushes tell of commits"
    assert any("no device is the WAL's alone" in warning for warning in found.warnings)


def test_too_few_checkpoints_are_said(build, run, simulated):
    options = build()
    found = STUDY.analyse(options, run(options, lambda trial, number: simulated(trial, number, checkpoints=1)))
    assert any("held 1 checkpoint," in warning for warning in found.warnings)


def test_io_bound_tells_the_share_under_1_ms(build, run, simulated):
    options = build(io_bound=4.0)
    traced = STUDY.analyse(options, run(options, lambda trial, number: simulated(trial, number, traced=True)))
    assert traced.findings["under_1ms"].published.startswith("more than 500,000 IOPS under 1 ms")
    assert traced.findings["under_1ms"].value == pytest.approx(90, abs=1) and traced.findings["under_1ms"].experiment == "E13"
    assert "in under 1 ms" in traced.answer
    untraced = build(io_bound=4.0, untraced="perf is not installed")
    blind = STUDY.analyse(untraced, run(untraced))
    assert blind.findings["under_1ms"].value is None and "perf is not installed" in blind.findings["under_1ms"].note
    assert "unknown" in blind.answer and any("perf is not installed" in warning for warning in blind.warnings)


def _over(options, *spaces):
    volumes = [{"name": name, "path": f"/mnt/{name}"} for name in "ab"]
    given = [{"volumes": volumes, "tablespaces": names} for names in spaces]
    arms = [one.model_copy(update={"options": {**one.options, **own}}) for one, own in zip(options.arms, given, strict=True)]
    return options.model_copy(update={"arms": tuple(arms)})


@pytest.mark.parametrize(
    ("spaces", "noted"), [(((), ()), False), (((), ("a",)), False), ((("a", "b"),) * 2, False), (((), ("a", "b")), True)]
)
def test_what_many_disks_made_is_said_where_their_number_differs(build, run, spaces, noted):
    options = _over(build("x", "y", io_bound=4.0), *spaces)
    rows = STUDY.analyse(options, run(options)).tables["storage"]
    assert ["several disks" in (row["iops"].published or "") for row in rows] == [noted, noted]


def test_beyond_the_memory_variants_are_told_by_what_the_devices_served(build, run, simulated):
    """One database over two disks: the data's device and a tablespace's count together."""
    options = _over(build("one", "many", io_bound=4.0), ("a",), ("a", "b"))

    def play(trial, number):
        result = simulated(trial, number, traced=True)
        if not str(trial.point["variant"]).startswith("many"):
            return result
        (phase,) = result.phases
        data = phase.io.devices[0]
        space = data.model_copy(update={"number": "8:32", "name": "sdc", "roles": {"tablespace": ["db01/pg"]}})
        seen = phase.model_copy(update={"io": phase.io.model_copy(update={"devices": [*phase.io.devices, space]})})
        return result.model_copy(update={"phases": [seen]})

    found = STUDY.analyse(options, run(options, play))
    rows = {row["server"]: row for row in found.tables["storage"]}
    assert rows["many"]["iops"].value == pytest.approx(2 * rows["one"]["iops"].value) and "2 ×" in rows["one"]["iops"].published
    assert f"the data's devices served {rows['one']['iops'].value:,.0f} IOPS with one, 90." in found.answer
    assert "stall" not in found.answer and rows["many"]["under_1ms"].value == pytest.approx(90, abs=1)


def test_a_comparison_tells_the_stalls_of_each_side(build, run, simulated):
    options = build("0.5", "0.9")

    def play(trial, number):
        return simulated(trial, number, stalled=(15, 16) if str(trial.point["variant"]).startswith("0.5") else ())

    found = STUDY.analyse(options, run(options, play))
    rows = {row["server"]: row for row in found.tables["storage"]}
    assert rows["0.5"]["stalls"].value == 1 and rows["0.9"]["stalls"].value == 0
    assert "0.9 had no stall" in found.answer and "0.5 had" in found.answer
    assert found.findings["stalls:0.5"].value == 1 and "comparison" in found.tables


def test_without_a_finished_trial_nothing_is_said(build, run, simulated):
    options = build()
    failed = run(options, lambda trial, number: simulated(trial, number).model_copy(update={"error": "it broke", "phases": []}))
    found = STUDY.analyse(options, failed)
    assert found.grade == "C" and found.answer.startswith("Nothing can be said") and any("it broke" in w for w in found.warnings)


def test_one_server_is_graded_as_any_study(build, run, simulated):
    options = build()

    def graded(result_of):
        def play(trial, number):
            verdict = Verdict(check="steal", kind="noise", result=result_of(number), observed="seen", wanted="wanted")
            return simulated(trial, number).model_copy(update={"verdicts": [verdict]})

        return STUDY.analyse(options, run(options, play))

    assert graded(lambda number: "pass").grade == "A"
    unseen = graded(lambda number: "unknown")
    assert unseen.grade == "B" and "Could not be checked here, and so did not pass: steal" in unseen.warnings
    tainted = graded(lambda number: "fail")
    assert tainted.grade == "C" and tainted.answer.startswith("Indication only: ")
    assert "Only tainted trials: the whole answer is an indication (grade C)" in tainted.warnings
    short = build(repeats=2)
    assert STUDY.analyse(short, run(short)).grade == "B", "two trials have no interval"
