import pytest

from pgherd.model.analysis import Check, Finding
from pgherd.studies.io_profile import analyse
from pgherd.studies.io_profile.options import trial as planned_trial
from pgherd.studies.io_profile.study import STUDY
from pgherd.studies.io_profile.trial_profile import profile_of


def test_a_server_without_stalls(build, run):
    options = build()
    analysis = STUDY.analyse(options, run(options))
    (row,) = analysis.tables["io_profile"]
    assert (row["stalls"].value, row["stall_time_share"].value, row["checkpoints"].value) == (0, 0, 2)
    assert row["throughput"].value == pytest.approx(500) and row["throughput"].n == 3
    assert row["wal_request_size"].value == pytest.approx(16) and "16–32 kB" in row["wal_request_size"].published
    assert row["data_burst_to_wal_ratio"].value == pytest.approx(10) and row["data_burst_to_wal_ratio"].experiment == "E11"
    assert "WAL writes did not stall" in analysis.answer and "10.0 × the WAL's rate" in analysis.answer
    assert analysis.grade == "A" and analysis.tables["stalls"] == [] and len(analysis.tables["checkpoints"]) == 6


def test_stalls_are_counted_and_tied_to_checkpoints(build, run, simulated):
    options = build()
    # Seconds 15 and 16 are in the first checkpoint (8 to 20 s), 25 and 26 in none.
    analysis = STUDY.analyse(options, run(options, lambda trial, number: simulated(trial, number, stalled=(15, 16, 25, 26))))
    (row,) = analysis.tables["io_profile"]
    assert (row["stalls"].value, row["stalls_in_checkpoints"].value) == (2, 1)
    assert row["stall_time_share"].value == pytest.approx(100 * 4 / 60) and row["stall_time_share"].unit == "%"
    assert [bool(stall["checkpoint"]) for stall in analysis.tables["stalls"][:2]] == [True, False]
    assert "below 50 % of their medians" in row["stalls"].method


def test_latency_inside_and_outside_of_checkpoints(build, run):
    options = build()
    analysis = STUDY.analyse(options, run(options)).findings
    assert analysis["p95_during_checkpoint"].value == pytest.approx(4.0, rel=1 / 32) and analysis[
        "p95_between_checkpoints"
    ].value == pytest.approx(2.0, rel=1 / 32)
    assert analysis["p95_checkpoint_ratio"].value == pytest.approx(2.0, rel=0.07) and analysis["p95_checkpoint_ratio"].low is not None
    assert analysis["p95_during_checkpoint"].n == 6000 and "not independent" in analysis["p95_during_checkpoint"].note


def test_disagreement_of_the_views_is_a_warning(build, run, simulated):
    options = build()
    analysis = STUDY.analyse(options, run(options))
    assert any("1.00 MB/s of WAL (pg_stat_wal), its device wrote 2.00 MB/s" in warning for warning in analysis.warnings)
    agreeing = run(options, lambda trial, number: simulated(trial, number, metrics={"wal.bytes": 2e6}))
    assert not any("of WAL (pg_stat_wal)" in warning for warning in STUDY.analyse(options, agreeing).warnings)


def test_data_and_wal_on_one_device_cannot_be_separated(build, run, simulated):
    options = build()
    analysis = STUDY.analyse(options, run(options, lambda trial, number: simulated(trial, number, apart=False)))
    (row,) = analysis.tables["io_profile"]
    assert (
        row["wal_request_size"].value is None
        and row["data_burst_to_wal_ratio"].value is None
        and "share a device" in row["wal_rate_device"].note
    )
    assert row["stalls"].value == 0, "flushes show commits"
    assert any("the WAL has no device to itself" in warning for warning in analysis.warnings)


def test_too_few_checkpoints_are_a_warning(build, run, simulated):
    options = build()
    analysis = STUDY.analyse(options, run(options, lambda trial, number: simulated(trial, number, checkpoints=1)))
    few = "too few checkpoints for conclusions on them: 1 per trial, at least 2 are needed"
    assert f"{few}. Use a longer --duration or a shorter --checkpoint-timeout" in analysis.warnings
    assert (analysis.grade, analysis.grade_reason) == ("B", few)
    assert analysis.answer.startswith(f"At 500 tps WAL writes did not stall; {few}; p95 latency")
    beyond = build(memory_ratio=4.0)
    assert STUDY.analyse(beyond, run(beyond, lambda trial, number: simulated(trial, number, checkpoints=1))).grade == "A"


def test_io_bound_reports_the_share_under_1_ms(build, run, simulated):
    options = build(memory_ratio=4.0)
    traced = STUDY.analyse(options, run(options, lambda trial, number: simulated(trial, number, traced=True)))
    assert traced.findings["share_under_1ms"].published.startswith("more than 500,000 IOPS under 1 ms")
    assert traced.findings["share_under_1ms"].value == pytest.approx(90, abs=1) and traced.findings["share_under_1ms"].experiment == "E13"
    assert "in under 1 ms" in traced.answer
    untraced = build(memory_ratio=4.0, trace_unavailable="perf is not installed")
    blind = STUDY.analyse(untraced, run(untraced))
    assert blind.findings["share_under_1ms"].value is None and "perf is not installed" in blind.findings["share_under_1ms"].note
    assert "unknown" in blind.answer and any("perf is not installed" in warning for warning in blind.warnings)


def _with_tablespaces(options, *spaces):
    volumes = [{"name": name, "path": f"/mnt/{name}"} for name in "ab"]
    variants = [{"volumes": volumes, "tablespaces": names} for names in spaces]
    variants = [
        variant.model_copy(update={"options": {**variant.options, **storage}})
        for variant, storage in zip(options.variants, variants, strict=True)
    ]
    return options.model_copy(update={"variants": tuple(variants)})


@pytest.mark.parametrize(
    ("spaces", "noted"), [(((), ()), False), (((), ("a",)), False), ((("a", "b"),) * 2, False), (((), ("a", "b")), True)]
)
def test_many_disks_have_a_reference_if_their_number_differs(build, run, spaces, noted):
    options = _with_tablespaces(build("x", "y", memory_ratio=4.0), *spaces)
    rows = STUDY.analyse(options, run(options)).tables["io_profile"]
    assert ["several disks" in (row["iops"].published or "") for row in rows] == [noted, noted]


def test_io_bound_variants_are_reported_with_their_iops(build, run, simulated):
    """One database over two disks: the data's device and a tablespace's count together."""
    options = _with_tablespaces(build("one", "many", memory_ratio=4.0), ("a",), ("a", "b"))

    def play(trial, number):
        result = simulated(trial, number, traced=True)
        if not str(trial.point["variant"]).startswith("many"):
            return result
        (phase,) = result.phases
        data = phase.io.devices[0]
        space = data.model_copy(update={"number": "8:32", "name": "sdc", "roles": {"tablespace": ["db01/pg"]}})
        observed = phase.model_copy(update={"io": phase.io.model_copy(update={"devices": [*phase.io.devices, space]})})
        return result.model_copy(update={"phases": [observed]})

    analysis = STUDY.analyse(options, run(options, play))
    rows = {row["server"]: row for row in analysis.tables["io_profile"]}
    assert rows["many"]["iops"].value == pytest.approx(2 * rows["one"]["iops"].value) and "2 ×" in rows["one"]["iops"].published
    assert f"the data's devices served {rows['one']['iops'].value:,.0f} IOPS with one, 90." in analysis.answer
    assert "stall" not in analysis.answer and rows["many"]["share_under_1ms"].value == pytest.approx(90, abs=1)


def test_a_comparison_reports_the_stalls_of_each_variant(build, run, simulated):
    options = build("0.5", "0.9")

    def play(trial, number):
        return simulated(trial, number, stalled=(15, 16) if str(trial.point["variant"]).startswith("0.5") else ())

    analysis = STUDY.analyse(options, run(options, play))
    rows = {row["server"]: row for row in analysis.tables["io_profile"]}
    assert rows["0.5"]["stalls"].value == 1 and rows["0.9"]["stalls"].value == 0
    assert "0.9 had no stall" in analysis.answer and "0.5 had" in analysis.answer
    assert analysis.findings["stalls:0.5"].value == 1 and "comparison" in analysis.tables


def test_without_a_finished_trial_there_is_no_result(build, run, simulated):
    options = build()
    failed = run(options, lambda trial, number: simulated(trial, number).model_copy(update={"error": "it broke", "phases": []}))
    analysis = STUDY.analyse(options, failed)
    assert analysis.grade == "C" and analysis.answer.startswith("No result") and any("it broke" in w for w in analysis.warnings)


def test_one_server_is_graded_like_any_study(build, run, simulated):
    options = build()

    def graded(result_of):
        def play(trial, number):
            verdict = Check(name="steal", kind="noise", result=result_of(number), observed="seen", expected="wanted")
            return simulated(trial, number).model_copy(update={"checks": [verdict]})

        return STUDY.analyse(options, run(options, play))

    assert graded(lambda number: "pass").grade == "A"
    unseen = graded(lambda number: "unknown")
    assert unseen.grade == "B" and "Could not be checked here, and so did not pass: steal" in unseen.warnings
    tainted = graded(lambda number: "fail")
    assert tainted.grade == "C" and tainted.answer.startswith("Indication only: ")
    assert "Only tainted trials: the whole answer is an indication (grade C)" in tainted.warnings
    short = build(repeats=2)
    analysis = STUDY.analyse(short, run(short))
    assert analysis.grade == "B" and "No interval: fewer than 3 usable trials" in analysis.warnings


def test_the_answer_reports_unknown_stalls(build):
    answer = analyse.answer_of(build(), {"throughput": Finding(value=1234.0, unit="tps")})
    assert answer == "At 1,234 tps stalls of WAL writes are unknown."


def test_stalls_of_each_variant(build, simulated):
    plain, stalled = (profile_of(simulated(planned_trial(build(), 0), stalled=seconds)) for seconds in ((), (15, 16)))
    assert analyse.stalls_text({"a": [stalled, plain], "b": [plain]}) == (
        "WAL writes: a had 1 stall (1 in checkpoints) in 2 trials, b had no stall in 1 trial"
    )
    assert analyse.stalls_text({"a": []}) == ""


def test_small_disagreements_are_no_warning(build, simulated):
    near = profile_of(simulated(planned_trial(build(), 0), metrics={"wal.bytes": 1.8e6, "io.write_bytes": 1.5e6}))
    assert analyse.disagreements([near]) == []
    far = profile_of(simulated(planned_trial(build(), 0), metrics={"wal.bytes": 2e6, "io.write_bytes": 9e6}))
    (warning,) = analyse.disagreements([far])
    assert "9.00 MB/s of relations (pg_stat_io)" in warning and "page cache" in warning


def test_a_warning_of_all_variants_is_reported_once(build, simulated):
    near, far = (
        profile_of(simulated(planned_trial(build(), 0), metrics={"wal.bytes": 2e6, "io.write_bytes": mb * 1e6})) for mb in (1.5, 9.0)
    )
    both = analyse.warnings_of(build(), {"a": [far], "b": [far]})
    item = analyse.warnings_of(build(), {"a": [near], "b": [far]})
    assert len(both) == len(set(both)) and not any(text.startswith(("a", "b:")) and ": " in text[:5] for text in both)
    (differs,) = set(item) - set(both)
    assert differs.startswith("b: PostgreSQL wrote 9.00 MB/s")
    assert analyse.warnings_of(build(), {"a": [], "b": [near]})[0] == "a: no trial finished with an I/O view"


def test_every_reference_names_its_source():
    references = [analyse.BURST_RATIO, analyse.WAL_SIZE, analyse.WRITE_AWAIT, analyse.STALLS, analyse.IOPS, analyse.MANY_DISKS]
    assert all(text.endswith("(Gary Little, n0derunner.com)") for text in references)
    assert "10 ×" in analyse.BURST_RATIO and "0.9" in analyse.STALLS
