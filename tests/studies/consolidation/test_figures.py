import json

import pytest

from pgherd.model.analysis import Analysis, Check, Finding
from pgherd.model.deployment import Container, Database, Deployment, Host, Server
from pgherd.model.load import Load, Phase
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.run import RunRecord
from pgherd.model.trial import Trial
from pgherd.report.drawing import FigureInputs, FigureUnavailable, builders, specification
from pgherd.report.html_model import main_table
from pgherd.report.terminal import compact_table
from pgherd.store.samples import write_samples
from pgherd.studies.consolidation.figures import (
    cpu_over_time,
    cpu_rates,
    layouts,
    number,
    overcommitment,
    undercommitted_trials,
)


def cell(value, spread=0.0, unit="new orders/min"):
    if value is None:
        return Finding(value=None, unit=unit, note="why")
    return Finding(value=value, unit=unit, low=value - spread if spread else None, high=value + spread if spread else None)


def row(layout, value, corrected=None, percent=25, spread=0.0):
    return {
        "shared_buffers_percent": percent,
        "overcommit": 0.0,
        "layout": layout,
        "throughput": cell(value, spread),
        "vcpu_corrected": cell(corrected),
        "ratio": cell(None, unit="ratio"),
        "cv": cell(3.0, unit="%"),
        "cpu_percent": cell(140.0, unit="%"),
        "throughput_per_core": cell(3000.0),
        "trials": 3,
        "tainted_trials": 0,
        "trials_with_oom_kill": 0,
    }


ROWS = [row("shared-server", 4000.0, 4400.0, spread=100.0), row("dedicated", 5000.0, spread=100.0)]
PERIODS = [
    {
        "shared_buffers_percent": 25,
        "overcommit": 0.0,
        "layout": layout,
        "period": period,
        "database": f"DB_{database}",
        "clients": 30 if (period + database) % 2 == 0 else 2,
        "throughput": cell((1000.0 if layout == "shared-server" else 3000.0) + 100.0 * database),
        "cpu_percent": None,
    }
    for layout in ("shared-server", "dedicated")
    for period in (1, 2)
    for database in (1, 2)
]


def inputs(rows=ROWS, periods=PERIODS):
    tables = {name: table for name, table in {"consolidation": rows, "periods": periods}.items() if table}
    analysis = Analysis(answer="…", grade="A", tables=tables)
    record = RunRecord(run="r", study="consolidation", options={"runtime": "cgroup"}, started=0.0, pgherd="0", analysis=analysis)
    return FigureInputs(record=record, analysis=analysis, results=[])


def marks(figure):
    """Return the rows behind all layers."""
    datasets = specification(figure, validate=True)["datasets"].values()
    return [mark for rows in datasets for mark in (json.loads(rows) if isinstance(rows, str) else rows)]


def test_databases_are_stacked_period_by_period():
    bars = marks(layouts(inputs()))
    third = [(bar["database"], bar["low"], bar["high"]) for bar in bars if bar["layout"] == "dedicated" and bar["period"] == 1]
    assert sorted(third) == [("DB_1", 0, 3100), ("DB_2", 3100, 6300)]


def test_the_subtitle_has_the_clients_of_each_period():
    subtitle = " ".join(specification(layouts(inputs()))["title"]["subtitle"])
    assert "DB_1 30, 2; DB_2 2, 30" in subtitle.replace("\N{NO-BREAK SPACE}", " ")


def test_many_databases_are_drawn_with_the_last_ones_together():
    many = [item | {"database": f"DB_{n}"} for n in range(1, 13) for item in PERIODS[:1]]
    names = {bar["database"] for bar in marks(layouts(inputs(periods=many)))}
    assert "the others" in names and len(names) <= 7


def test_the_correction_is_drawn_with_the_measured_value():
    points = [(mark["layout"], mark["kind"], mark["x"], mark["low"]) for mark in marks(number(inputs())) if "kind" in mark]
    assert ("shared-server", "measured", 4000, 3900) in points
    assert ("shared-server", "with E4's correction", 4400, None) in points
    assert not any(layout == "dedicated" and "correction" in kind for layout, kind, *_ in points)


def test_the_title_is_the_finding():
    assert number(inputs()).title == "New orders/min: with 25 % buffers dedicated 5,000, shared-server 4,000"
    assert layouts(inputs()).title == "Highest throughput: dedicated with 25 % buffers, 5,000 new orders/min"


def test_layouts_of_different_vcpus_have_the_correction_in_the_caption():
    uneven = [item | {"vcpu_corrected_ratio": cell(1.1, unit="ratio")} for item in ROWS]
    assert "E4's correction" in layouts(inputs(uneven)).caption and "E4's correction" not in layouts(inputs()).caption


def test_databases_with_different_loads_have_no_fairness_figure():
    with pytest.raises(FigureUnavailable) as caught:
        builders("consolidation")["fairness"](inputs())
    assert str(caught.value) == ""


@pytest.mark.parametrize("figure", [layouts, number])
def test_without_a_baseline_nothing_is_drawn(figure):
    with pytest.raises(FigureUnavailable, match="no undercommitted trial finished"):
        figure(inputs(rows=[], periods=[]))


def test_the_studys_own_figures_come_before_those_of_every_study():
    assert set(list(builders("consolidation"))[:5]) == {"layouts", "fairness", "number", "cpu_over_time", "overcommitment"}


def test_the_terminal_table_has_the_retained_throughput_only_if_overcommitted():
    plain, _ = compact_table("consolidation", ROWS, 200)
    assert not any("under-" in str(column.header) for column in plain.columns)
    over, _ = compact_table(
        "consolidation",
        [*ROWS, row("shared-server", 2000.0) | {"overcommit": 0.5, "relative_to_undercommitted": cell(0.5, unit="ratio")}],
        200,
    )
    assert any("under-" in str(column.header) for column in over.columns)


def test_the_curves_of_overcommitment_have_room_on_a_terminal_with_their_intervals():
    finding = Finding(value=0.55, unit="ratio", low=0.51, high=0.59)
    wide = [
        item
        | {
            "overcommit": 0.5,
            "layout": "dedicated-balloon",
            "relative_to_undercommitted": finding,
            "ratio": finding,
            "vcpu_corrected_ratio": finding,
        }
        for item in ROWS
    ]
    table, _ = compact_table("consolidation", wide)
    heads = [str(column.header).replace("\n", " ") for column in table.columns]
    assert heads[:6] == ["shared buffers %", "over- commit", "layout", "throughput", "vs. under- committed", "vs. first"]


def test_the_pages_first_table_is_short():
    assert "trials" not in main_table("consolidation", ROWS).heads


# ---- CPU over time


TARGET = "local/all/pg/bench"


def result(number, layout, rate=0.0, cores=(1.0, 0.5), tainted=False):
    server = Server(bin="/pg", version="18", databases=(Database(),))
    deployment = Deployment(hosts=(Host(containers=(Container(name="all", servers=(server,)),)),))
    phases = tuple(Phase(name=f"period-{n}", warmup=1, seconds=4, loads={TARGET: Load()}) for n in (1, 2))
    trial = Trial(
        point={"layout": layout, "shared_buffers_percent": 25, "overcommit": rate}, repeat=number, deployment=deployment, phases=phases
    )
    target = TargetResult(target=TARGET, driver="pgbench", transactions=1, throughput=1, first=100, last=110)
    phase_results = [
        PhaseResult(
            phase=phase.name,
            start=100 + 5 * index,
            end=104 + 5 * index,
            overlap=1,
            targets=[target],
            metrics={"container:all": {"cpu.usage": used}} if used is not None else {},
        )
        for index, (phase, used) in enumerate(zip(phases, cores, strict=True))
    ]
    verdicts = [Check(name="steal", kind="noise", result="fail", observed="", expected="")] if tainted else []
    return TrialResult(id=f"{number:04d}", trial=trial, started=number, ended=number + 1, phases=phase_results, checks=verdicts)


def cpu_inputs(results, directory=None):
    analysis = Analysis(answer="…", grade="A")
    record = RunRecord(run="r", study="consolidation", options={}, started=0.0, pgherd="0", analysis=analysis)
    return FigureInputs(record=record, analysis=analysis, results=results, directory=directory)


def lines(figure):
    return [(mark["x"], mark["y"]) for mark in marks(figure) if "line" in mark]


def test_containers_are_added_up_second_by_second():
    counters = {"container:a": [(0.0, 5.0), (1.0, 5.5), (2.0, 6.5)], "container:b": [(0.0, 1.0), (1.0, 1.25), (2.0, 1.25)]}
    assert cpu_rates(counters) == [(0.5, pytest.approx(75)), (1.5, pytest.approx(100))]


def test_a_late_reading_does_not_count_twice():
    """Half a core throughout, read at 0, 1.6 and 2.0 s."""
    result = cpu_rates({"container:a": [(0.0, 0.0), (1.6, 0.8), (2.0, 1.0)]})
    assert [value for _, value in result] == pytest.approx([50] * len(result))


def test_samples_are_drawn_if_present(tmp_path):
    readings = [(100.0 + second, "cgroup_cpu", "container:all", {"cpu.usage": 0.25 * second}) for second in range(10)]
    (tmp_path / "trials/0001").mkdir(parents=True)
    write_samples(tmp_path / "trials/0001", readings)
    outcome = lines(cpu_over_time(cpu_inputs([result(1, "shared-server")], tmp_path)))
    assert len(outcome) == 9 and {y for _, y in outcome} == {25}


def test_without_samples_the_periods_means_are_drawn():
    figure = cpu_over_time(cpu_inputs([result(1, "shared-server")]))
    assert lines(figure) == [(0, 100), (4, 100), (5, 50), (9, 50)]
    assert figure.title.startswith("shared-server used the most CPU, 75 % of a core")


def test_one_clean_undercommitted_trial_of_each_layout_is_shown():
    chosen = undercommitted_trials(
        [result(1, "shared-server", tainted=True), result(2, "shared-server"), result(3, "dedicated"), result(4, "dedicated", rate=0.5)]
    )
    assert {key: trial.id for key, trial in chosen.items()} == {(25, "shared-server"): "0002", (25, "dedicated"): "0003"}


def test_without_cpu_nothing_is_drawn():
    with pytest.raises(FigureUnavailable, match="no undercommitted trial"):
        cpu_over_time(cpu_inputs([result(1, "shared-server", rate=0.5)]))
    with pytest.raises(FigureUnavailable, match="CPU was not measured"):
        cpu_over_time(cpu_inputs([result(1, "shared-server", cores=(None, None))]))


# ---- overcommitment


def rate_row(layout, rate, retained=None, killed=0, percent=75):
    value = None if retained is None else Finding(value=1000 * retained, unit="tps")
    return {
        "shared_buffers_percent": percent,
        "overcommit": rate,
        "layout": layout,
        "throughput": Finding(value=1000.0, unit="tps") if rate == 0 else value,
        "relative_to_undercommitted": Finding(value=None, unit="ratio", note="why")
        if rate == 0 or retained is None
        else Finding(value=retained, unit="ratio", low=retained - 0.05, high=retained + 0.05),
        "trials_with_oom_kill": killed,
    }


RATE_ROWS = [
    *(rate_row("shared-server", 0.0), rate_row("dedicated", 0.0), rate_row("shared-server", 0.3, 0.8)),
    *(rate_row("dedicated", 0.3, 0.95), rate_row("shared-server", 0.55, killed=1), rate_row("dedicated", 0.55, 0.6)),
]


def rate_inputs(rows, runtime="cgroup", safe_rate=None):
    findings = {} if safe_rate is None else {"max_safe_overcommit": Finding(value=safe_rate, unit="share")}
    analysis = Analysis(answer="…", grade="A", tables={"consolidation": rows}, findings=findings)
    record = RunRecord(run="r", study="consolidation", options={"runtime": runtime}, started=0.0, pgherd="0", analysis=analysis)
    return FigureInputs(record=record, analysis=analysis, results=[])


def test_curves_start_undercommitted_and_have_intervals():
    points = [mark for mark in marks(overcommitment(rate_inputs(RATE_ROWS))) if "low" in mark]
    assert {point["y"] for point in points if point["x"] == 0} == {100}
    assert any(item["y"] == pytest.approx(95) and item["low"] == pytest.approx(90) for item in points)


def test_oom_kills_are_a_cross():
    figure = overcommitment(rate_inputs(RATE_ROWS))
    assert "A cross: OOM kills" in " ".join(specification(figure)["title"]["subtitle"])
    without = overcommitment(rate_inputs([row for row in RATE_ROWS if not row["trials_with_oom_kill"]]))
    assert "cross" not in " ".join(specification(without)["title"]["subtitle"])


def test_the_title_has_the_retained_throughput():
    assert overcommitment(rate_inputs(RATE_ROWS)).title == (
        "Throughput relative to undercommitted: at 55 % overcommitment with 75 % buffers dedicated 60 % (OOM kills: shared-server at 55 %)"
    )
    killed = [rate_row("shared-server", 0.0), rate_row("shared-server", 0.55, killed=1)]
    assert overcommitment(rate_inputs(killed)).title == (
        "Throughput relative to undercommitted: with 75 % buffers OOM kills: shared-server at 55 %"
    )


def test_containers_of_one_kernel_are_not_judged_against_the_published_curve():
    assert "not judged against E5" in overcommitment(rate_inputs(RATE_ROWS)).caption
    assert overcommitment(rate_inputs(RATE_ROWS, runtime="vm")).caption == ""


def test_the_safe_rate_is_marked():
    texts = [mark.get("text", "") for mark in marks(overcommitment(rate_inputs(RATE_ROWS, safe_rate=0.4)))]
    assert "working sets fit up to here" in texts
    assert "working sets fit up to here" not in [
        item.get("text", "") for item in marks(overcommitment(rate_inputs(RATE_ROWS, safe_rate=0.69)))
    ]


def test_undercommitted_runs_do_not_expect_the_curves():
    with pytest.raises(FigureUnavailable) as caught:
        overcommitment(rate_inputs(RATE_ROWS[:2]))
    assert str(caught.value) == ""


def test_without_any_value_the_curves_are_omitted():
    with pytest.raises(FigureUnavailable, match="no overcommitted trial"):
        overcommitment(rate_inputs([rate_row("shared-server", 0.0), rate_row("shared-server", 0.3)]))
