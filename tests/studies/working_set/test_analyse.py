"""Results of a working-set run, and its tables."""

from __future__ import annotations

import math

import pytest
from pytest import approx

from pgherd.model.analysis import Finding
from pgherd.studies.consolidation.options import ConsolidationRequest
from pgherd.studies.working_set.analyse import analyse, answer, extra_memory_rows, summary_rows, sweep_rows
from pgherd.studies.working_set.curves import SweepTrials
from pgherd.studies.working_set.findings import headroom, headroom_findings
from pgherd.studies.working_set.study import memory_needed
from pgherd.study.option import declared
from pgherd.workloads import random_block


def test_headroom_is_that_of_e7():
    """2 × 4096 MB configured, working sets of 1376 and 1152 MB."""
    room, rate = headroom(2 * 4096, [1376, 1152])
    assert room == 5664
    assert round(100 * rate) == 69


def test_headroom_below_zero_allows_no_overcommitment():
    room, rate = headroom(1000, [600, 700])
    assert room == -300
    assert rate == 0


def test_working_sets_above_the_configured_memory_leave_no_headroom(analysed):
    text = analysed(configured_memory=200).answer
    assert "2 databases of 200 MB would need " in text and "so that no overcommitment is safe" in text and "of headroom" not in text


@pytest.fixture
def analysed(server, options):
    def run(**extra):
        fields = {
            name: extra.pop(name) for name in list(extra) if name in type(options()).model_fields and name not in ("memory", "buffers")
        }
        study_options = options(**{"time_budget": 900.0, **fields})
        results, _ = server(study_options, **extra).until_stop()
        return analyse(study_options, results)

    return run


def test_working_sets(analysed):
    analysis = analysed()
    assert analysis.grade == "A"
    for name, truth in (
        ("working_set.30", 250),
        ("working_set.2", 200),
        ("shared_buffers_needed.30", 100),
        ("shared_buffers_needed.2", 60),
    ):
        finding = analysis.findings[name]
        assert finding.value == approx(truth, rel=0.06)
        assert finding.low <= truth * 1.01 and finding.high >= truth * 0.99
        assert finding.confidence == 0.95 and finding.unit == "MB" and finding.n >= 6 and "plateau" in finding.method
    assert "another machine" in analysis.findings["working_set.30"].published
    assert analysis.findings["working_set.30"].published.startswith("1376 MB")
    assert analysis.findings["shared_buffers_needed.2"].published.startswith("524 MB")
    assert analysis.answer.startswith("The container's working set is 2")


def consolidation(analysis):
    return [step for step in analysis.next_steps if "pgherd consolidation" in step]


def test_the_next_step_is_of_the_same_databases(analysed):
    """consolidation would choose another workload, a scale by its memory, other clients, and no overcommitment."""
    analysis = analysed()
    busy, quiet = (math.ceil(analysis.findings[f"working_set.{clients}"].high) for clients in (30, 2))
    safe = math.floor(100 - 100 * (busy + quiet) / (2 * 400))
    (step,) = consolidation(analysis)
    command, _, rest = step.partition(" with ")
    assert command == (
        "pgherd consolidation --workload select-only --scale 10 --memory 400MB --busy-clients 30 --quiet-clients 2 "
        f"--working-set-size {busy}MB,{quiet}MB --overcommit 0,{safe // 2 / 100:g},{safe / 100:g}"
    )
    assert rest == "this run's other options of the workload: measure overcommitment"
    known = {option.flag for option in declared(ConsolidationRequest)}
    assert {word for word in command.split() if word.startswith("--")} <= known


@pytest.mark.parametrize("updates", [0, 40])
def test_the_next_step_updates_as_often(analysed, updates):
    (step,) = consolidation(analysed(vary=("memory",), workload="random-block", scripts=random_block.mix(updates)[0]))
    assert f" --workload random-block --update-percent {updates} --scale " in step


@pytest.mark.parametrize("changes", [{"configured_memory": 200}, {"workload": "script", "init": "fill.sql"}])
def test_what_consolidation_cannot_measure_is_no_next_step(analysed, changes):
    assert not consolidation(analysed(vary=("memory",), **changes))


def test_the_low_end_of_the_overcommitment_is_safe(analysed):
    analysis = analysed()
    safe = analysis.findings["max_safe_overcommit"]
    assert math.floor(100 * safe.low) < round(100 * safe.value)
    assert analysis.answer.endswith(f"MB of headroom, and up to {math.floor(100 * safe.low)} % overcommitment is safe.")


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (None, None, "leave 350 MB of headroom, about 44 % (no interval)."),
        (190.0, 401.0, "leave 350 MB of headroom, but no overcommitment is certainly safe."),
    ],
)
def test_overcommitment_that_may_not_be_safe_is_not_called_safe(options, low, high, text):
    study_options = options(vary=("memory",))
    sets = {clients: Finding(value=size, unit="MB", low=low, high=high) for clients, size in ((30, 250.0), (2, 200.0))}
    findings = {f"working_set.{clients}": size for clients, size in sets.items()} | headroom_findings(study_options, sets)
    assert answer(study_options, findings).endswith(text)


def test_a_knee_that_is_less_precise_than_requested_lowers_the_grade(analysed):
    assert analysed(vary=("memory",), refine=False).grade == "A"
    analysis = analysed(vary=("memory",), refine=False, precision=0.01)
    assert analysis.grade == "B" and "only, not to ±1 %" in analysis.grade_reason
    assert f"{analysis.grade_reason}: give sizes closer to the knee" in analysis.warnings


def test_headroom_and_rate(analysed):
    analysis = analysed().findings
    assert analysis["configured"].value == 800
    assert analysis["headroom"].value == approx(800 - analysis["working_set.30"].value - analysis["working_set.2"].value)
    assert analysis["max_safe_overcommit"].value == approx(analysis["headroom"].value / 800, abs=0.01)
    assert analysis["max_safe_overcommit"].low < analysis["max_safe_overcommit"].value < analysis["max_safe_overcommit"].high
    assert analysis["max_safe_overcommit"].published.startswith("69 %")


def test_indirect_estimates(analysed):
    analysis = analysed().findings
    assert analysis["working_set_from_misses.30"].low <= 250 <= analysis["working_set_from_misses.30"].high + 10
    assert analysis["working_set_from_memory_in_use.30"].note.startswith("at ")
    assert analysis["shared_buffers_needed_from_misses.2"].low < 90 <= analysis["shared_buffers_needed_from_misses.2"].value
    assert analysis["shared_buffers_needed_from_memory_in_use.2"].value == approx(70)
    assert 230 <= analysis["working_set_from_psi.30"].value <= 300


def test_no_indirect_estimates_without_metrics(analysed):
    analysis = analysed(metrics=False)
    assert analysis.findings["working_set.30"].value is not None
    for name in (
        "working_set_from_misses.30",
        "working_set_from_memory_in_use.30",
        "working_set_from_psi.30",
        "shared_buffers_needed_from_memory_in_use.2",
    ):
        assert analysis.findings[name].value is None
        assert analysis.findings[name].note


def test_a_dip_is_found_where_there_is_one(analysed):
    with_dip = analysed(dip=0.2, repeats=2, memory_sizes=(100, 120, 128, 132, 160, 200, 250, 300, 350), refine=False)
    finding = with_dip.findings["double_buffering_dip.memory"]
    assert finding.value < 0.9
    assert finding.high < 1
    assert finding.note.startswith("a dip")


def test_no_dip_is_reported_only_if_the_data_show_it(analysed):
    without = analysed(repeats=2, memory_sizes=(100, 120, 128, 132, 160, 200, 250, 300, 350), refine=False, noise=0.003)
    assert without.findings["double_buffering_dip.memory"].note.startswith("no dip of 3 %")
    nothing = analysed(memory_sizes=(150, 180, 200, 250, 300, 350), refine=False)
    assert nothing.findings["double_buffering_dip.memory"].value is None
    assert "no trial with shared buffers at 45–55 %" in nothing.findings["double_buffering_dip.memory"].note


def test_flat_curves_have_no_working_set(analysed):
    analysis = analysed(vary=("memory",), memory={30: 1.0, 2: 1.0}, max_container=360, refine=False)
    assert analysis.findings["working_set.30"].value is None
    assert "the knee, if any, is below" in analysis.findings["working_set.30"].note
    assert analysis.findings["headroom"].value is None
    assert analysis.grade == "C"
    assert analysis.answer.startswith("Indication only")


def test_a_size_out_of_memory_is_a_point_and_no_failure(analysed):
    analysis = analysed(vary=("memory",), lives=140.0)
    rows = {(row["clients"], row["memory"]): row for row in analysis.tables["sweep"]}
    assert rows[30, 100]["state"] == "out-of-memory"
    assert rows[30, 100]["throughput"] is None
    assert isinstance(rows[30, 350]["throughput"], Finding)
    assert any("out of memory at " in warning and "OOM kills" in warning for warning in analysis.warnings)
    assert not any("did not finish" in warning for warning in analysis.warnings)


def test_a_cliff(analysed):
    analysis = analysed(vary=("memory",), memory={30: 1.0, 2: 1.0}, lives=163.0)
    finding = analysis.findings["working_set.2"]
    assert finding.low < 163 <= finding.value == finding.high
    assert finding.confidence is None
    assert analysis.tables["working-set"][0]["shape"] == "cliff"


def test_tainted_trials_make_an_indication(analysed):
    analysis = analysed(vary=("memory",), taint=lambda trial: True)
    assert analysis.grade == "C"
    assert "only tainted trials" in analysis.findings["working_set.30"].note


def test_a_curve_of_which_half_is_tainted_is_an_indication(analysed):
    """Of two curves' sizes together fewer than half are tainted; of one curve's more."""

    def noisy(least):
        return analysed(
            vary=("memory",), refine=False, max_reruns=0, taint=lambda t: t.point["clients"] == 2 and t.point["memory"] >= least
        )

    some = noisy(340)
    assert some.grade == "B" and any("2 clients: only tainted trials for " in warning for warning in some.warnings)
    maximum = noisy(0)
    assert maximum.grade == "C" and any(
        "2 clients: only tainted trials for " in message and "(grade C)" in message for message in maximum.warnings
    )
    assert not any("30 clients: only tainted" in text for text in maximum.warnings)


def test_a_deviation_from_e7_is_reported(analysed):
    analysis = analysed(memory={30: 80.0, 2: 80.0}, memory_sizes=(72, 100, 150, 200, 250), time_budget=500.0)
    assert any("deviation" in warning for warning in analysis.warnings)
    assert any("deviation" in str(row["from"]) for row in analysis.tables["extra_memory"])


def test_the_memory_needed_is_that_of_the_containers(analysed):
    analysis = analysed()
    assert memory_needed(analysis) == [analysis.findings["working_set.30"], analysis.findings["working_set.2"]]
    assert memory_needed(analysed(vary=("shared-buffers",))) == []


@pytest.mark.parametrize(
    ("memory", "needed"), [({30: 250.0, 2: 1.0}, ["30"]), ({30: 900.0, 2: 200.0}, ["30", "2"]), ({30: 1.0, 2: 1.0}, ["30", "2"])]
)
def test_a_flat_curve_needs_no_more_memory_than_another(analysed, memory, needed):
    analysis = analysed(vary=("memory",), memory=memory, noise=0.0, max_container=360, refine=False)
    assert memory_needed(analysis) == [analysis.findings[f"working_set.{clients}"] for clients in needed]


def test_planned_sizes_that_do_not_fit_are_reported(analysed):
    sizes = (100, 150, 200, 250, 280, 300, 320)
    analysis = analysed(memory_sizes=sizes, max_container=330, noise=0.0)
    (warning,) = [text for text in analysis.warnings if "are not measured" in text]
    assert warning.startswith("shared buffers, 30 clients: 160 MB are not measured, because containers have 18")
    assert warning.endswith("MB more than these, and only 1 to 330 MB are possible")
    assert not any("are not measured" in text for text in analysed(memory_sizes=sizes, noise=0.0).warnings)


def test_no_trials(options):
    analysis = analyse(options(), [])
    assert analysis.grade == "C"
    assert analysis.answer == "No result: no trial was run."


def test_a_time_budget_too_short_for_a_trial(server, options):
    study_options = options(time_budget=5.0)
    results, stop = server(study_options).until_stop()
    analysis = analyse(study_options, results)
    assert results == [] and analysis.grade == "C" and not analysis.warnings and not analysis.tables
    assert analysis.answer.startswith("No result: no trial was run, since the time budget of 5 s is too short for one trial, which")
    assert analysis.answer.endswith("; raise --time-budget.") and stop.startswith("the time budget of 5 s is too short")


def test_no_trial_finished(server, options):
    study_options = options()
    results, _ = server(study_options, lives=10_000.0).until_stop()
    analysis = analyse(study_options, results)
    assert analysis.grade == "C"
    assert "none of them finished" in analysis.answer


@pytest.fixture
def curves(server, options):
    study_options = options(time_budget=600.0)
    results, _ = server(study_options, lives=130.0).until_stop()
    return study_options, [SweepTrials(curve, results) for sweep in study_options.vary for curve in study_options.curves(sweep)]


def test_one_row_for_each_curve(curves):
    rows = summary_rows(*curves)
    assert [(row["varied"], row["clients"]) for row in rows] == [
        ("container memory", 30),
        ("container memory", 2),
        ("shared buffers", 30),
        ("shared buffers", 2),
    ]
    assert rows[0]["shape"] == "knee" and rows[0]["out_of_memory_sizes"] == "100" and rows[0]["tainted_trials"] == 0
    assert rows[2]["from_psi"] is None and rows[0]["from_psi"].value


def test_one_row_for_each_size(curves):
    own, measured = curves
    rows = sweep_rows(own, measured)
    assert len(rows) == sum(len(each.sizes) for each in measured)
    first = rows[0]
    assert (first["memory"], first["state"], first["throughput"]) == (100, "out-of-memory", None)
    measured_sizes = next(row for row in rows if row["state"] == "ok")
    assert measured_sizes["throughput"].value > 0 and measured_sizes["fitted"] > 0 and measured_sizes["swapped"] == 0
    assert 0 < measured_sizes["shared_buffers_share"] < 1 and measured_sizes["hot_buffers"] == pytest.approx(70)
    assert {row["memory"] - row["shared_buffers"] for row in rows if row["varied"] == "shared buffers" and row["clients"] == 2} == {
        extra_memory_rows(own, measured)[1]["extra_memory"]
    }


def test_no_difference_without_the_second_sweep(server, options):
    study_options = options(vary=("memory",))
    assert extra_memory_rows(study_options, []) == []
