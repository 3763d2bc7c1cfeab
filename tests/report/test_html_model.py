from __future__ import annotations

from pgherd.model.facts import BlockDevice
from pgherd.model.finding import Finding
from pgherd.report import html_model


def column(table, head):
    index = next(i for i, text in enumerate(table.heads) if text.startswith(head))
    return [row[index] for row in table.rows]


def test_units_stand_in_the_head_and_shares_are_in_percent(run8):
    table = html_model.table("density", run8[0].analysis.tables["density"])
    assert "measured, tps" in table.heads and "efficiency vs. single database, %" in table.heads and "p95, ms" in table.heads
    full = [cell.text for cell in column(table, "cores allocated")]
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


def test_a_cell_without_a_number_says_why_on_its_title(synthetic, run8):
    table = html_model.table("density", synthetic.without_numbers(run8[0]).analysis.tables["density"])
    assert {cell.text for cell in column(table, "measured")} == {"–"}
    assert all("too few trials" in cell.title for cell in column(table, "measured"))


def test_flags_are_words(run8):
    assert [cell.text for cell in column(html_model.table("models", run8[0].analysis.tables["models"]), "chosen")] == ["", "yes"]


def test_findings_put_the_published_figure_beside_ours(run8):
    table = html_model.findings_table(run8[0].analysis.findings)
    row = next(row for row in table.rows if row[0].title == "efficiency_at_saturation")
    cells = dict(zip(table.heads, (cell.text for cell in row), strict=True))
    assert cells["value"] == "85.6" and cells["unit"] == "%" and cells["confidence"] == "95 %" and cells["n"] == "3"
    assert cells["published"] == "E1: 85.7 % of perfect (n0derunner.com)"
    peak = next(row for row in table.rows if row[0].title == "usl_peak")
    assert peak[1].text == "–" and peak[-1].text == "the peak lies far beyond the data"


def test_a_device_says_how_far_it_reads_ahead(run8):
    device = BlockDevice(name="vda", number="254:0", size=2**30, read_ahead=8 << 20)
    facts = run8[0].hosts["local"].model_copy(update={"devices": (device,)})
    assert dict(html_model.host_facts(facts))["device vda"] == "1 GB, scheduler not visible, reads 8 MB ahead"


def test_host_facts_begin_with_what_a_core_is_and_say_what_is_not_visible(run8):
    facts = run8[0].hosts["local"]
    shown = html_model.host_facts(facts)
    assert shown[0] == ("what a core is here", facts.core_note)
    blind = dict(
        html_model.host_facts(facts.model_copy(update={"smt": None, "governor": None, "core_note": "", "cgroup_missing": "read-only"}))
    )
    assert blind["SMT"] == blind["frequency governor"] == blind["what a core is here"] == "not visible"
    assert blind["cgroups missing"] == "read-only"


def test_settings_hold_the_runs_and_what_servers_said_otherwise(run8):
    record, results = run8
    odd = results[0].model_copy(update={"settings": {"pg": {"shared_buffers": "128MB", "max_connections": "40"}}})
    rows = html_model.settings(record, [odd])
    assert ("shared_buffers", "256MB", "all servers") in rows
    assert ("shared_buffers", "128MB", "servers pg, as they said") in rows
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
    assert rows["share of the wall time spent measuring"] == "82 %"
    assert html_model.timing(run8[0].model_copy(update={"timing": {"wall": 0.0, "measured": 0.0}}))[-1][0] == "measured"
