from __future__ import annotations

from pgherd.model.analysis import Check, Finding
from pgherd.model.host_facts import BlockDevice
from pgherd.model.prometheus import PrometheusView
from pgherd.report import html_model, write_report
from pgherd.report.html_model import percent_change, with_labels


def column(table, head):
    index = next(i for i, text in enumerate(table.heads) if text.startswith(head))
    return [row[index] for row in table.rows]


def test_units_stand_in_the_head_and_shares_are_in_percent(run8):
    table = html_model.table("density", run8[0].analysis.tables["density"])
    assert "throughput, tps" in table.heads and "efficiency vs. single database, %" in table.heads and "p95, ms" in table.heads
    full = [cell.text for cell in column(table, "share of the cores allocated")]
    assert "100" in full and "12.5" in full


def test_values_of_one_size_have_the_same_decimals(run8):
    cells = column(html_model.table("density", run8[0].analysis.tables["density"]), "efficiency vs. single")
    assert {len(cell.text.partition(".")[2]) for cell in cells} == {1}
    assert all(" to " in cell.detail for cell in cells)


def test_mixed_units_stay_with_their_cells():
    table = html_model.table("x", [{"a": Finding(value=1.0, unit="ms")}, {"a": Finding(value=2.0, unit="tps")}, {"a": None}])
    assert table.heads == ("a",)
    assert [row[0].text for row in table.rows] == ["1 ms", "2 tps", "–"]
    assert all(row[0].numeric for row in table.rows)


def test_a_value_beyond_the_measured_range_is_its_lower_bound():
    beyond = Finding(value=None, unit="databases", low=4.0)
    alone = html_model.table("x", [{"a": beyond}, {"a": Finding(value=6.0, unit="databases")}])
    assert [row[0].text for row in alone.rows] == ["at least 4 (95 %)", "6"]
    mixed = html_model.table("x", [{"a": beyond}, {"a": Finding(value=6.0, unit="ms")}, {"a": Finding(value=None, unit="ms")}])
    assert [row[0].text for row in mixed.rows] == ["at least 4 (95 %) databases", "6 ms", "–"]


def test_a_cell_without_a_number_says_why_on_its_title(synthetic, run8):
    table = html_model.table("density", synthetic.without_numbers(run8[0]).analysis.tables["density"])
    assert {cell.text for cell in column(table, "throughput")} == {"–"}
    assert all("too few trials" in cell.title for cell in column(table, "throughput"))


def test_flags_are_words(run8):
    assert [cell.text for cell in column(html_model.table("models", run8[0].analysis.tables["models"]), "selected")] == ["", "yes"]


def test_findings_put_the_published_figure_beside_ours(run8):
    table = html_model.findings_table(run8[0].analysis.findings)
    row = next(row for row in table.rows if row[0].title == "efficiency_at_saturation")
    cells = dict(zip(table.heads, (cell.text for cell in row), strict=True))
    assert cells["value"] == "85.6" and cells["unit"] == "%" and cells["confidence"] == "95 %" and cells["n"] == "3"
    assert cells["published"] == "E1: 85.7 % of perfect (n0derunner.com)"
    peak = next(row for row in table.rows if row[0].title == "usl_peak_load")
    assert peak[1].text == "–" and peak[-1].text == "the peak lies far beyond the data"


def test_a_device_says_how_far_it_reads_ahead(run8):
    device = BlockDevice(name="vda", number="254:0", size=2**30, read_ahead=8 << 20)
    facts = run8[0].hosts["local"].model_copy(update={"devices": (device,)})
    assert dict(html_model.host_facts(facts))["device vda"] == "1 GB, scheduler unknown, read-ahead 8 MB"


def test_host_facts_begin_with_what_a_core_is_and_say_what_is_not_visible(run8):
    facts = run8[0].hosts["local"]
    shown = html_model.host_facts(facts)
    assert shown[0] == ("meaning of a core", facts.core_note)
    blind = dict(
        html_model.host_facts(facts.model_copy(update={"smt": None, "governor": None, "core_note": "", "cgroup_missing": "read-only"}))
    )
    assert blind["SMT"] == blind["frequency governor"] == blind["meaning of a core"] == "unknown"
    assert blind["cgroups missing"] == "read-only"


def test_settings_hold_the_runs_and_what_servers_said_otherwise(run8):
    record, results = run8
    odd = results[0].model_copy(update={"settings": {"pg": {"shared_buffers": "128MB", "max_connections": "40"}}})
    rows = html_model.settings(record, [odd])
    assert ("shared_buffers", "256MB", "all servers") in rows
    assert ("shared_buffers", "128MB", "servers pg, reported") in rows
    assert sum(name == "max_connections" for name, *_ in rows) == 1


def test_raw_files_are_grouped_and_leave_the_report_out(synthetic, run8, tmp_path):
    directory = synthetic.write_run(tmp_path / "run", *run8)
    (directory / "report.html").write_text("x")
    (directory / "figures").mkdir()
    (directory / "figures" / "a.svg").write_text("x")
    (directory / "run.json.tmp").write_text("x")
    found = {pattern: count for pattern, count, _ in html_model.raw_files(directory)}
    trials = len(run8[1])
    assert found["run.json"] == 1 and found["trials/*/trial.json"] == trials and found["trials/*/samples/cpu.parquet"] == trials
    assert found["trials/*/pgbench-*.log"] == sum(len(result.phases[0].targets) for result in run8[1] if result.phases)
    assert not [pattern for pattern in found if pattern.startswith(("report", "figures")) or pattern.endswith(".tmp")]
    assert html_model.raw_files(None) == html_model.raw_files(tmp_path / "nowhere") == []


def test_timing_says_the_share_spent_measuring(run8):
    rows = dict(html_model.timing(run8[0]))
    assert rows["measured share of the wall time"] == "82 %"
    assert html_model.timing(run8[0].model_copy(update={"timing": {"wall": 0.0, "measured": 0.0}}))[-1][0] == "measured"


def test_ratios_are_read_as_changes_and_metrics_by_their_names(comparison):
    rows = with_labels(comparison.comparison_run().analysis.tables["comparison"])
    ratio = comparison.comparison_run().analysis.tables["comparison"][1]["ratio_to_baseline"]
    assert rows[1]["metric"] == "CPU per transaction"
    assert rows[1]["change"].value == (ratio.value - 1) * 100 and rows[1]["change"].unit == "%"
    assert rows[1]["A/A"].low < 0 < rows[1]["A/A"].high


def test_a_row_says_itself_what_its_metric_is_called():
    (one,) = with_labels([{"metric": "cpu_per_tx", "label": "CPU per I/O"}])
    assert one["metric"] == "CPU per I/O"


def test_what_is_missing_stays_missing():
    empty = percent_change(Finding(value=None, unit="", note="no ratio"))
    assert empty.value is None and empty.note == "no ratio"
    assert percent_change(None) is None and with_labels([{}])[0]["change"] is None


def test_the_page_shows_changes_first_and_what_differs_before_the_figures(comparison):
    record = comparison.comparison_run()
    tables = {**record.analysis.tables, "differences": [{"option": "settings.shared_buffers", "base": "128MB", "big_buffers": "1GB"}]}
    text = write_report.render(record.model_copy(update={"analysis": record.analysis.model_copy(update={"tables": tables})}), [])
    assert text.index("change, %") < text.index("Differences between variants") < text.index('id="figures"')
    assert text.count("1GB") == 1
    table = html_model.main_table("comparison", record.analysis.tables["comparison"])
    assert table.heads == ("variant", "metric", "baseline", "value", "change, %", "conclusion", "A/A, %")


def verdict(check, result, kind="noise", **more):
    return Check(name=check, kind=kind, result=result, observed=f"{check} was seen", expected="less", **more)


def trials(run8, *lists):
    first = run8[1][0]
    return [first.model_copy(update={"id": f"{i:04d}", "checks": list(found)}) for i, found in enumerate(lists)]


def test_intent_comes_first_and_the_worst_of_several_verdicts_shows(run8):
    results = trials(
        run8,
        [verdict("steal", "pass"), verdict("cached", "pass", "validity"), verdict("steal", "fail"), verdict("steal", "unknown")],
        [verdict("steal", "pass")],
    )
    matrix = html_model.check_matrix(results)
    assert matrix.checks == ("cached", "steal") and matrix.validity_checks == 1
    (_, first), (_, second) = matrix.rows
    assert [cell.result for cell in first] == ["pass", "fail"] and first[1].symbol == "✗"
    assert "fail: steal was seen, expected less" in first[1].words and "unknown" in first[1].words
    assert [cell.result for cell in second] == ["", "pass"] and second[0].words == "not checked"


def test_exceptions_say_errors_first_and_group_trials_that_failed_alike(run8):
    results = trials(
        run8,
        [verdict("steal", "fail", reason="the hypervisor took it")],
        [verdict("steal", "fail", reason="the hypervisor took it"), verdict("no-autovacuum", "unknown", severity="warn")],
        [verdict("steal", "pass")],
    )
    lines = html_model.exceptions([*results, run8[1][-1]])
    assert lines[0].startswith("Trial 0025 did not finish")
    assert lines[1] == "steal failed in trials 0000, 0001: steal was seen in trial 0000; expected: less (the hypervisor took it)."
    assert lines[2] == "no-autovacuum unknown in trial 0001 (warning only): no-autovacuum was seen; expected: less."
    assert len(lines) == 3


def test_what_failed_in_every_trial_does_not_list_them(run8):
    lines = html_model.exceptions(trials(run8, *[[verdict("steal", "fail")]] * 12))
    assert lines == ["steal failed in all 12 trials: steal was seen in trial 0000; expected: less."]


def test_no_trial_no_exception():
    assert html_model.exceptions([]) == [] and html_model.check_matrix([]).rows == ()


def test_source_step_gaps_and_missing_series_of_prometheus_are_told():
    view = PrometheusView(
        container="db01",
        url="http://prom:9090",
        match='instance=~"db1"',
        step=15.0,
        gaps=1,
        longest_gap=45.0,
        series=["node_cpu_seconds_total"],
        sparse=["node_disk_reads_completed_total"],
        missing=["container_cpu_usage_seconds_total"],
        clock_ahead=0.1,
        seconds=0.02,
    )
    assert html_model.prometheus_text([view, view]) == (
        'Prometheus at http://prom:9090, instance=~"db1": 1 series in all windows; step 15 s; 2 gaps, the longest 45 s; fewer than two '
        "samples in a window: node_disk_reads_completed_total; missing: container_cpu_usage_seconds_total"
    )
    assert html_model.prometheus([]) == []
