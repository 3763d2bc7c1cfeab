"""A mix of tenants on a simulated queue of known truth: plan, judgement and analysis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest

from pgherd.model.load import LatencyObjective
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.report import drawing
from pgherd.report.drawing import FigureInputs, FigureUnavailable
from pgherd.report.terminal import compact_table
from pgherd.studies.density import figures_tenants
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.propose import planned, propose
from pgherd.studies.density.study import STUDY
from pgherd.studies.density.tenant_mix import TenantClass, class_of, tenant_names
from pgherd.studies.density.tenant_table import MB, Loadable, TableDatabase, TenantTable, classes_of
from pgherd.studies.density.tenants import REFERENCES, fault_alone, misses, mix_phases, needs, part_of, smallest_complete
from pgherd.studies.density.tenants_analyse import first_to_fail
from pgherd.study.objectives import late_shares
from simulated_queue import Queue

P99 = LatencyObjective(percentile=99, limit_ms=10)
SMALL, BIG = {"name": "small", "weight": 4, "rate": 100.0, "objectives": (P99,)}, {"name": "big", "weight": 1}


@pytest.fixture
def mixed() -> Callable[..., DensityOptions]:
    base = {"host_cores": 2, "host_memory": 2**32, "cpu_mode": "quota", "pg_bin": "/pg/bin", "pg_version": "18.6", "clients": 2}

    def build(*classes: dict[str, Any], **extra: Any) -> DensityOptions:
        tenants = tuple(TenantClass(**{**base, "vcpus": 0.25, **one}) for one in classes or (SMALL, BIG))
        given = {"databases": tuple(range(1, 41)), "duration": 5.0, "repeats": 10, "time_budget": 900.0, "vcpus": 0.25}
        return DensityOptions(**{**base, **given, **extra, "tenants": tenants})

    return build


def finished(options: DensityOptions, **host: Any) -> tuple[Any, Queue, list[Any]]:
    queue = Queue(propose, options, **{"alone": 600.0, **host})
    results, _ = queue.until_stop()
    return STUDY.analyse(options, results), queue, results


def truth(options: DensityOptions, queue: Queue) -> int:
    """The largest number of tenants with which small ones keep p99 and big ones 85 % of their throughput alone."""
    names = [name for name, _ in tenant_names(options.tenants, 60, options.seed)]
    totals = [sum(100.0 if name.startswith("small") else queue.alone for name in names[:n]) for n in range(1, 61)]
    return sum(queue.late(total, 10) <= 0.01 and queue.capacity / total >= 0.85 for total in totals)


# ---- plan


def test_each_class_is_measured_alone_first(mixed):
    options = mixed()
    trials = propose(options, []).trials
    assert trials == planned(options)
    assert sorted(str(trial.point["alone"]) for trial in trials) == ["big"] * REFERENCES + ["small"] * REFERENCES
    for trial in trials:
        (address,) = trial.phases[0].loads
        assert class_of(address) == trial.point["alone"]
        assert len(trial.deployment.hosts[0].containers) == smallest_complete(options)


def test_a_step_adds_one_tenant_and_no_container_goes(mixed):
    options = mixed()
    _, _, results = finished(options)
    by_size = {trial.trial.point["tenants"]: set(trial.trial.phases[0].loads) for trial in results if "tenants" in trial.trial.point}
    for size, loads in by_size.items():
        assert len(loads) == size and all(loads <= other for larger, other in by_size.items() if larger > size)
    counts = [len(result.trial.deployment.hosts[0].containers) for result in results]
    assert counts == sorted(counts) and counts[-1] < 40


def test_a_number_that_does_not_finish_is_named_and_not_deployed_again(mixed):
    class Small(Queue):
        def run(self, trial: Trial) -> TrialResult:
            result = super().run(trial)
            full = len(trial.deployment.hosts[0].containers) > 8
            return result.model_copy(update={"phases": [], "error": "no memory"}) if full else result

    results, _ = Small(propose, mixed(), alone=600.0).until_stop()
    assert [result.trial.point["tenants"] for result in results if result.error is not None] == [16, 16]
    assert STUDY.analyse(mixed(), results).answer == "At least 8 tenants fit; trials with 16 tenants did not finish."


def test_a_class_has_its_own_database_limits_and_load(mixed):
    big = BIG | {"vcpus": 1.0, "container_memory": 2**29, "scale": 50, "clients": 8, "iops": 300, "workload": "orders"}
    trial = propose(mixed(SMALL, big), []).trials[0]
    containers = {name: next(c for c in trial.deployment.hosts[0].containers if c.name == f"{name}-01") for name in ("small", "big")}
    assert (containers["big"].vcpus, containers["big"].memory, containers["big"].iops) == (1.0, 2**29, 300)
    assert (containers["small"].vcpus, containers["small"].memory, containers["small"].iops) == (0.25, None, None)
    databases = {name: container.servers[0].databases[0] for name, container in containers.items()}
    assert (databases["big"].scale, databases["big"].workload, databases["small"].scale) == (50, "orders", 10)
    loads = {class_of(t): load for one in propose(mixed(SMALL, big), []).trials for t, load in one.phases[0].loads.items()}
    assert (loads["big"].clients, loads["big"].rate, loads["big"].objectives) == (8, None, ())
    assert (loads["small"].rate, loads["small"].objectives, loads["small"].sampling) == (100.0, (P99,), 1.0)


def test_tainted_references_are_repeated_once(mixed):
    _, _, results = finished(mixed(), taint=lambda trial: "steal" if "alone" in trial.point else None)
    assert sum("alone" in result.trial.point for result in results) == 2 * 2 * REFERENCES


# ---- answer


@pytest.mark.parametrize("seed", range(6))
def test_the_limit_is_found_within_one(mixed, seed):
    options = mixed(seed=seed)
    analysis, queue, _ = finished(options, seed=seed)
    capacity = analysis.findings["capacity"]
    assert abs(capacity.value - truth(options, queue)) <= 1 and capacity.low <= truth(options, queue) <= capacity.high
    assert capacity.unit == "tenants"


def test_the_answer_names_number_class_and_bottleneck(mixed):
    analysis, _, _ = finished(mixed())
    size = f"{analysis.findings['capacity'].value:g}"
    assert analysis.answer.startswith(f"{size} tenants fit (95 % interval ")
    assert analysis.answer.endswith(f"); class small fails first with {int(size) + 1}, bottleneck CPU.")
    assert len(analysis.answer.split()) <= 20
    assert f"{size} tenants (" in " ".join(analysis.details)


def test_a_class_without_objective_fails_by_its_efficiency(mixed):
    """Seven of 200 tps make 1,400 and eight 1,600, so over 1,200 tps a tenant gets 86 % and 75 %."""
    analysis, _, _ = finished(mixed(BIG, {**BIG, "name": "other"}), capacity=1200.0, alone=200.0)
    assert "class big fails first with 8" in analysis.answer and analysis.findings["capacity"].value == 7
    failing = next(row for row in analysis.tables["tenants"] if row["class"] == "big" and row["keeps"] == "no")
    assert failing["misses"] == "efficiency" and failing["efficiency"].value < 0.85


class Uneven(Queue):
    """A host on which a tenant alone makes 190, 200 and 210 tps, so that the mean is known to ± 25 tps."""

    def run(self, trial: Trial) -> TrialResult:
        self.alone = 190.0 + 10 * trial.repeat if "alone" in trial.point else 200.0
        return super().run(trial)


def test_the_interval_includes_the_spread_of_the_trials_alone(mixed):
    """By 175 to 225 tps alone, 85 % are 149 to 191 tps, of which 6 and 8 tenants make the most."""
    options = mixed(BIG, {**BIG, "name": "other"})
    even = finished(options, capacity=1200.0, alone=200.0)[0].findings["capacity"]
    assert (even.value, even.low, even.high) == (7, 7, 7)
    results, _ = Uneven(propose, options, capacity=1200.0).until_stop()
    analysis = STUDY.analyse(options, results)
    capacity = analysis.findings["capacity"]
    assert (capacity.value, capacity.low, capacity.high) == (7, 6, 8)
    assert analysis.grade == "B" and "(95 % interval 6–8)" in analysis.answer
    assert max(result.trial.point.get("tenants", 0) for result in results) <= 16


def test_a_row_for_each_class_and_size(mixed):
    options = mixed()
    analysis, _, results = finished(options)
    sizes = {result.trial.point["tenants"] for result in results if "tenants" in result.trial.point}
    rows = {(row["tenants"], row["class"]): row for row in analysis.tables["tenants"]}
    for size in sizes:
        assert sum(rows[size, name]["class_tenants"] for name in ("small", "big") if (size, name) in rows) == size
    size = analysis.findings["capacity"].value
    small, big = rows[size, "small"], rows[size, "big"]
    assert small["throughput"].value == pytest.approx(100) and big["throughput"].value == pytest.approx(600)
    assert small["min_max_ratio"].value == pytest.approx(1) and small["efficiency"].value == pytest.approx(1)
    assert small["p99"].value is not None and "p99" not in big and big["p95"].value == 2.0
    assert analysis.findings["p99{class=small}"] == small["p99"]
    assert analysis.findings["throughput_alone{class=big}"].value == pytest.approx(600)
    assert 0 <= small["late_share"].value <= 0.01 and big["late_share"].value is None
    worse = next(row for row in analysis.tables["tenants"] if row["class"] == "small" and row["keeps"] == "no")
    assert worse["late_share"].value > 0.01
    alone = {row["class"]: row for row in analysis.tables["classes_alone"]}
    assert alone["small"]["class_share"] == 0.8 and alone["small"]["has_to_keep"] == "p99 ≤ 10 ms at 100 tps"


def test_wait_events_are_a_row_for_each_class(mixed):
    """Small tenants run, and big ones wait for a lock."""
    options = mixed()
    _, _, results = finished(options)
    none = {f"waits.{name}": 0.0 for name in ("cpu", "lock", "lwlock", "io", "ipc", "client", "other")}
    waits = {"small": none | {"waits.cpu": 1.0}, "big": none | {"waits.lock": 1.0}}
    sampled = []
    for result in results:
        servers = {f"server:{'/'.join(target.split('/')[1:3])}": waits[class_of(target)] for target in result.trial.phases[0].loads}
        phases = [phase.model_copy(update={"metrics": phase.metrics | servers}) for phase in result.phases]
        sampled.append(result.model_copy(update={"phases": phases}))
    assert all(result.trial.wait_events for result in results)
    analysis = STUDY.analyse(options, sampled)
    size = analysis.findings["capacity"].value
    rows = {row["class"]: row for row in analysis.tables["wait_events"] if row["tenants"] == size}
    assert (rows["small"]["on_cpu"].value, rows["big"]["waits_lock"].value) == (1, 1)
    count = next(row["class_tenants"] for row in analysis.tables["tenants"] if row["tenants"] == size and row["class"] == "big")
    assert rows["big"]["active_sessions"].value == count
    assert "wait_events" not in STUDY.analyse(options, results).tables


def test_the_classes_of_a_table_are_a_table_of_the_analysis(mixed):
    loadable = Loadable(base=8 * MB, per_scale=15 * MB, largest_scale=400, least_rate=2.5)
    classes = classes_of([TableDatabase(f"db{i}", 100 * MB, 5 + i, 14) for i in range(3)], loadable, lambda classes: 10)
    table = TenantTable(source="fleet.csv", classes=classes, document="")
    analysis, _, _ = finished(mixed(tenant_table=table))
    assert analysis.tables["tenant_table"] == table.rows() and table.summary() in analysis.details
    assert "tenant_table" not in finished(mixed())[0].tables
    text, hidden = compact_table("tenant_table", table.rows())
    assert not hidden and text.row_count == 1, "all columns fit on a terminal"


def test_a_class_that_cannot_keep_its_needs_alone_ends_the_run(mixed):
    options = mixed({**SMALL, "rate": 5000.0}, BIG)
    analysis, _, results = finished(options)
    assert len(results) == 2 * REFERENCES and analysis.grade == "C"
    assert analysis.answer.startswith("No answer: class small misses p99 ≤ 10 ms at 5000 tps even alone, by ")
    assert analysis.answer.endswith("; it makes 4,000 tps.") and analysis.findings["capacity"].value is None
    assert fault_alone(options, results) == analysis.grade_reason


def test_a_reference_cannot_miss_the_mean_of_the_references(mixed):
    """Of 600, 200 and 200 tps, two are below 85 % of the mean, which is no fault of the class."""
    options = mixed()
    _, _, results = finished(options)
    references = [result for result in results if result.trial.point == {"alone": "big"}]
    uneven = []
    for number, result in enumerate(references):
        (phase,) = result.phases
        (only,) = phase.targets
        slower = phase.model_copy(update={"targets": [only.model_copy(update={"throughput": 200.0 if number else 600.0})]})
        uneven.append(result.model_copy(update={"phases": [slower]}))
    small = [result for result in results if result.trial.point == {"alone": "small"}]
    assert fault_alone(options, [*small, *uneven]) == ""


def test_an_open_answer_and_a_hopeless_one(mixed):
    analysis, _, _ = finished(mixed(databases=(1, 2, 5), max_databases_in_memory=5))
    assert analysis.answer == "At least 5 tenants fit; memory holds no more." and analysis.grade == "B"
    analysis, _, _ = finished(mixed(databases=(1, 2, 5)))
    assert analysis.answer == "At least 5 tenants fit; --databases 10 also tries more."
    analysis, _, _ = finished(mixed(databases=(1, 2, 5), max_databases_in_memory=8))
    assert analysis.answer == "At least 5 tenants fit; --databases 8 also tries more."
    analysis, _, _ = finished(mixed(databases=(1, 2, 5), repeats=3))
    assert analysis.answer == "5 tenants fit, the largest measured (without a lower bound)."
    assert analysis.next_steps[1] == "--databases 10 also tries more"
    analysis, _, _ = finished(mixed(databases=(20, 30)), capacity=1500.0)
    assert analysis.answer.startswith("Not even 20 tenants fit; class small fails first with 20") and analysis.grade == "C"


def test_a_run_that_was_cut_is_reported(mixed):
    analysis, _, _ = finished(mixed(time_budget=80.0))
    assert analysis.answer == "16 tenants fit, the largest measured (without a lower bound)."
    assert analysis.next_steps == ["the search did not end: raise --time-budget"] and analysis.findings["capacity"].value is None
    analysis, _, results = finished(mixed(time_budget=124.0), taint=lambda trial: "steal")
    assert sum("tenants" in result.trial.point for result in results) == 1
    assert analysis.answer == "No answer: no number of tenants has enough blocks; raise --time-budget."
    analysis = STUDY.analyse(mixed(), [])
    assert analysis.answer == "No answer: no trial of class small alone finished."
    assert analysis.tables == {"tenants": [], "classes_alone": []}


def test_only_the_class_that_misses_is_blamed(mixed):
    options = mixed()
    _, _, results = finished(options)
    failing = [result for result in results if result.trial.point.get("tenants", 0) >= 28]
    small, big = options.tenants
    assert failing and all(misses(options, results, result, small) for result in failing)
    first, reason, _ = first_to_fail(options, results, failing)
    assert first == small and reason in ("percentile", "share in a second", "schedule lag")
    assert needs(options, big) == "85 % of its throughput alone"
    details = STUDY.analyse(options, results).details
    assert "On average, each tenant of class big has to keep 85 % of its throughput alone." in details


@pytest.mark.parametrize(("made", "logged", "share"), [(0.0, 0.0, 1.0), (5.0, 0.0, 0.0), (5.0, 4.0, 0.5)])
def test_a_tenant_without_a_transaction_is_late(mixed, made, logged, share):
    options = mixed()
    _, _, results = finished(options)
    part = part_of(next(result for result in results if "tenants" in result.trial.point), "small")
    objective = options.tenants[0].objectives[0]
    values = {"logged_tx": logged, f"late_{objective.key}_tx": logged / 2}
    targets = [target.model_copy(update={"throughput": made, "values": values}) for target in part.phases[0].targets]
    part = part.model_copy(update={"phases": [part.phases[0].model_copy(update={"targets": targets})]})
    assert set(late_shares(part, objective, options.thresholds)) == {share}


def test_a_starved_tenant_is_late_in_its_phase(mixed):
    options = mixed({**SMALL, "weight": 1, "rate": 200.0, "activity": {"kind": "on-off", "duty": 0.5, "start": "aligned"}}, repeats=3)
    _, _, results = finished(options)
    for result in results:
        if "tenants" in result.trial.point:
            starved = result.phases[1].targets[0]
            values = dict.fromkeys(starved.values, 0.0)
            result.phases[1].targets[0] = starved.model_copy(update={"throughput": 0.0, "transactions": 0.0, "values": values})
    rows = STUDY.analyse(options, results).tables["phases"]
    assert rows and all(row["late_share"].value == 1 for row in rows if row["phase"] == 2)
    assert all(row["late_share"].value < 1 for row in rows if row["phase"] == 1)


def test_a_tenant_that_makes_none_of_one_transaction_due_is_not_late(mixed):
    """In its last phase 1 transaction is due, and in the first one 100."""
    slow = {**SMALL, "weight": 1, "rate": 25.0, "activity": {"kind": "daily", "profile": [1.0] * 23 + [0.01]}}
    options = mixed(slow, databases=(1, 2), duration=4.0, repeats=3)
    _, _, results = finished(options)
    for result in results:
        if result.trial.point.get("tenants") == 2:
            none, other = result.phases[23].targets
            values = dict.fromkeys(none.values, 0.0)
            none = none.model_copy(update={"throughput": 0.0, "transactions": 0.0, "values": values})
            result.phases[23] = result.phases[23].model_copy(update={"targets": [none, other]})
    rows = STUDY.analyse(options, results).tables["phases"]
    assert [row["late_share"].value for row in rows if row["phase"] == 24 and row["tenants"] == 2] == [0]


# ---- activity


def test_loads_change_at_phase_borders(mixed):
    on_off = {**SMALL, "activity": {"kind": "on-off", "duty": 0.5, "start": "aligned"}}
    options = mixed(on_off, {**BIG, "rate": 40.0, "activity": {"kind": "zipf", "exponent": 1.0}}, duration=2.0)
    phases = mix_phases(options, 10)
    assert [phase.name for phase in phases] == [f"phase{number:02d}" for number in range(1, 9)]
    for number, phase in enumerate(phases):
        by_class: dict[str, list[float]] = {"small": [], "big": []}
        for address, load in phase.loads.items():
            by_class[class_of(address)].append(load.rate)
        assert by_class["small"] == ([100.0] * 8 if number < 4 else [])
        assert sorted(by_class["big"]) == pytest.approx([80 / 3, 160 / 3])
    assert len(mix_phases(mixed(), 10)) == 1


def test_a_rate_of_less_than_a_transaction_in_a_phase_is_none(mixed):
    profile = [0.004] * 12 + [1.0] * 12
    phases = mix_phases(mixed({**SMALL, "activity": {"kind": "daily", "profile": profile}}, duration=2.0), 2)
    assert [len(phase.loads) for phase in phases] == [0] * 12 + [2] * 12


def test_a_percentile_is_that_of_all_phases_and_a_rate_of_each(mixed):
    """2,000 tps of 22 tenants at once are too much for p99 within 10 ms, and half of them at a time are not."""
    at_once, in_turn = (
        finished(mixed({**SMALL, "weight": 1, "rate": 200.0, "activity": {"kind": "on-off", "duty": 0.5, "start": start}}, repeats=4))[0]
        for start in ("aligned", "spread")
    )
    assert at_once.findings["capacity"].value + 5 < in_turn.findings["capacity"].value
    rows = [row for row in at_once.tables["phases"] if row["tenants"] == at_once.findings["capacity"].value + 1]
    assert [row["loaded_tenants"] for row in rows] == [rows[0]["loaded_tenants"]] * 4 + [0] * 4
    assert rows[0]["late_share"].value > 0.01 and rows[4]["late_share"].value is None and rows[4]["throughput"].value == 0
    assert "phases" not in finished(mixed())[0].tables


def test_tenants_of_different_activity_are_compared_by_their_rates(mixed):
    analysis, _, _ = finished(mixed({**SMALL, "weight": 1, "activity": {"kind": "zipf", "exponent": 1.0}}, repeats=3))
    for row in analysis.tables["tenants"]:
        if row["keeps"] == "yes" and row["class_tenants"] > 1:
            assert row["min_max_ratio"].value == pytest.approx(1) and row["efficiency"].value == pytest.approx(1)
            assert row["throughput"].value == pytest.approx(100)


# ---- figures


def test_the_figure_shows_each_class_and_where_it_fails(mixed, run8):
    analysis, _, results = finished(mixed())
    record = run8[0].model_copy(update={"analysis": analysis})
    drawn, left_out = drawing.draw(FigureInputs(record, analysis, results))
    figure = next(one for one in drawn if one.name == "tenants")
    text = " ".join(ElementTree.fromstring(figure.svg).itertext())
    assert analysis.answer.split(" (")[0] in text and "small" in text and "big" in text and "fails" in text
    assert {"throughput", "efficiency", "fairness"}.isdisjoint({one.name for one in drawn} | set(left_out))
    assert "Bars are intervals" in text
    spec = figures_tenants.tenants(FigureInputs(record, analysis, results)).chart.to_dict()
    bars = next(layer for layer in spec["layer"] if "y2" in layer["encoding"])
    assert bars["encoding"]["y2"]["field"] == "high" and bars["encoding"]["color"]["field"] == "class"


def test_the_figure_of_phases_shows_who_was_late_and_when(mixed, run8):
    on_off = {**SMALL, "weight": 1, "rate": 200.0, "activity": {"kind": "on-off", "duty": 0.5, "start": "aligned"}}
    analysis, _, _ = finished(mixed(on_off, repeats=4))
    record = run8[0].model_copy(update={"analysis": analysis})
    drawn, _ = drawing.draw(FigureInputs(record, analysis, []))
    text = " ".join(ElementTree.fromstring(next(one for one in drawn if one.name == "phases").svg).itertext())
    assert "late transactions of the worst tenant, %" in text and "small" in text
    worst = max(row["late_share"].value or 0 for row in analysis.tables["phases"])
    assert "slowest tenant" not in text
    assert worst > 0.01 and f"with {analysis.findings['capacity'].value + 1:g} tenants" in text


def test_a_class_without_an_objective_suffers_in_the_phases_in_which_others_are_on(mixed, run8):
    """Tenants without a rate share 1,200 tps with others at 200 tps each, which are on in the first half of the phases."""
    on_off = {**SMALL, "weight": 1, "rate": 200.0, "objectives": (), "activity": {"kind": "on-off", "duty": 0.5, "start": "aligned"}}
    analysis, _, _ = finished(mixed(on_off, BIG, repeats=3), capacity=1200.0, alone=600.0)
    size = max(row["tenants"] for row in analysis.tables["phases"])
    kept = {row["phase"]: row["kept_share"].value for row in analysis.tables["phases"] if (row["tenants"], row["class"]) == (size, "big")}
    assert max(kept[phase] for phase in range(1, 5)) < min(kept[phase] for phase in range(5, 9)) <= 1.01, kept
    small = [row for row in analysis.tables["phases"] if (row["tenants"], row["class"]) == (size, "small")]
    assert small[0]["kept_share"].value < 1 and small[7]["kept_share"].value is None, "of the rate, and without a load"
    record = run8[0].model_copy(update={"analysis": analysis})
    drawn, _ = drawing.draw(FigureInputs(record, analysis, []))
    text = " ".join(ElementTree.fromstring(next(one for one in drawn if one.name == "phases").svg).itertext())
    assert "slowest tenant, % of its rate or of one alone" in text and "late transactions of the worst" not in text


def test_the_share_kept_in_a_phase_is_as_uncertain_as_the_throughput_alone(mixed):
    """All blocks are equal, and the mean of 200 tps alone is known to ± 25 tps."""
    on_off = {**SMALL, "weight": 1, "rate": 200.0, "objectives": (), "activity": {"kind": "on-off", "duty": 0.5, "start": "aligned"}}
    options = mixed(on_off, BIG, repeats=6)
    results, _ = Uneven(propose, options, capacity=1200.0).until_stop()
    rows = [row for row in STUDY.analyse(options, results).tables["phases"] if row["class"] == "big" and row["kept_share"].low is not None]
    assert rows
    for kept in (row["kept_share"] for row in rows):
        assert (kept.low, kept.high) == pytest.approx((kept.value * 200 / 224.84, kept.value * 200 / 175.16), rel=1e-3)


def test_equal_databases_have_no_figure_of_a_mix(run8):
    with pytest.raises(FigureUnavailable, match="^$"):
        figures_tenants.tenants(FigureInputs(run8[0], run8[0].analysis, []))
    with pytest.raises(FigureUnavailable, match="^$"):
        figures_tenants.phases(FigureInputs(run8[0], run8[0].analysis, []))
