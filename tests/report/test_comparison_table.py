from pgherd.model.finding import Finding
from pgherd.report import html_model, html_render
from pgherd.report.html_model import percent_change, with_labels


def test_ratios_are_read_as_changes_and_metrics_by_their_names(comparison):
    rows = with_labels(comparison.comparison_run().analysis.tables["comparison"])
    ratio = comparison.comparison_run().analysis.tables["comparison"][1]["ratio"]
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
    text = html_render.render(record.model_copy(update={"analysis": record.analysis.model_copy(update={"tables": tables})}), [])
    assert text.index("change, %") < text.index("What differs between the variants") < text.index('id="figures"')
    assert text.count("1GB") == 1
    table = html_model.main_table("comparison", record.analysis.tables["comparison"])
    assert table.heads == ("variant", "metric", "baseline", "value", "change, %", "verdict", "A/A, %")
