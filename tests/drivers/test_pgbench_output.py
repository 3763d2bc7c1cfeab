import itertools
import re

import pytest

from pgherd.drivers.pgbench_output import ProgressLine, last_messages, latency, percentile, read_logs, read_progress, read_report

# ---- progress, report and log


def test_reads_plain_progress_lines(capture) -> None:
    lines = read_progress(capture("select-only").files["stderr"])
    assert len(lines) == 3
    assert all(19e3 < line.tps < 60e3 and 0.01 < line.latency < 0.2 and line.lag is None for line in lines)
    assert [round(b.at - a.at) for a, b in itertools.pairwise(lines)] == [1, 1]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "progress: 1795303192.909 s, 43946.0 tps, lat 0.044 ms stddev 0.153, 0 failed",
            ProgressLine(1795303192.909, 43946.0, 0.044, 0),
        ),
        (
            "progress: 1795303198.807 s, 292.0 tps, lat 0.430 ms stddev 0.348, 2 failed, lag 0.125 ms",
            ProgressLine(1795303198.807, 292.0, 0.430, 2, 0.125),
        ),
        (
            "progress: 1795303225.623 s, 1971.0 tps, lat 1.143 ms stddev 1.629, 0 failed, lag 0.880 ms, 57 skipped",
            ProgressLine(1795303225.623, 1971.0, 1.143, 0, 0.880, 57),
        ),
        (
            "progress: 1795303206.723 s, 6570.9 tps, lat 0.316 ms stddev 0.205, 3151 failed, 5350 retried, 5360 retries",
            ProgressLine(1795303206.723, 6570.9, 0.316, 3151),
        ),
        (
            "progress: 1795303206.723 s, 65.9 tps, lat 0.316 ms stddev 0.205, 1 failed, lag 0.1 ms, 5 skipped, 4 retried, 6 retries",
            ProgressLine(1795303206.723, 65.9, 0.316, 1, 0.1, 5),
        ),
    ],
)
def test_reads_every_kind_of_progress_line(line: str, expected: ProgressLine) -> None:
    assert read_progress(f"pgbench: setting random seed to 7\n{line}\n") == [expected]


def test_a_torn_progress_line_is_left_out() -> None:
    assert read_progress("progress: 1795303206.723 s, 6570.9 tps, lat 0.316 ms stddev 0.205, 31") == []


def test_reads_the_report(capture) -> None:
    report = read_report(capture("rate-limit").files)
    assert report.transactions > 3000
    assert report.lag is not None and report.lag_max is not None and report.lag < report.lag_max <= 5.0
    assert report.seconds == pytest.approx(2.4, abs=0.1)
    assert 0 < report.connecting < 0.1


def test_reads_failures(capture) -> None:
    report = read_report(capture("retries").files)
    assert report.failed > 1000
    assert report.lag is None


def test_a_run_without_transactions_has_a_report() -> None:
    report = read_report({"stdout": "number of transactions actually processed: 0\nnumber of failed transactions: 0 (NaN%)\n"})
    assert (report.transactions, report.seconds) == (0, None)


def test_the_scripts_own_lines_are_not_the_totals(capture) -> None:
    run = capture("scripts")
    report = read_report(run.files)
    by_script = [int(count) for count in re.findall(r"^ - (\d+) transactions \(", run.files["stdout"], re.MULTILINE)]
    assert len(by_script) == 2
    assert report.transactions == sum(by_script)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("killed", r"no final report; its last messages: pgbench \("),
        ("terminated", r"no final report; its last messages: pgbench \("),
        ("sql-error", 'failed: pgbench: error: ERROR:  relation "no_such_table" does not exist'),
        ("lost", "failed: .*terminating connection due to administrator command"),
        ("refused", "failed: pgbench: error: connection to server on socket .* failed"),
    ],
)
def test_a_failed_run_is_told_with_its_last_words(capture, case: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_report(capture(case).files)


def test_nothing_written_is_said() -> None:
    with pytest.raises(ValueError, match="no output"):
        read_report({})
    assert last_messages("", "progress: 1.0 s\n") == "progress: 1.0 s"


def test_reads_the_logs_of_all_threads(capture) -> None:
    run = capture("tpcb-threads")
    rows = list(read_logs(run.files, rate=False))
    assert sum(name.startswith("log.") for name in run.files) == 2
    assert len(rows) == sum(text.count("\n") for name, text in run.files.items() if name.startswith("log."))
    assert all(run.started < row.at < run.ended and 0 < row.latency < 1000 and row.lag is None for row in rows)


def test_the_logs_latency_includes_the_schedule_lag(capture) -> None:
    rows = list(read_logs(capture("rate").files, rate=True))
    assert all(row.lag is not None and row.latency >= row.lag for row in rows)


def test_the_log_agrees_with_the_report_where_everything_is_logged(capture) -> None:
    run = capture("rate")
    report, rows = read_report(run.files), list(read_logs(run.files, rate=True))
    assert len(rows) == report.transactions
    assert sum(row.latency for row in rows) / len(rows) == pytest.approx(report.latency, abs=0.001)
    assert sum(row.lag or 0 for row in rows) / len(rows) == pytest.approx(report.lag, abs=0.001)
    assert max(row.lag or 0 for row in rows) == pytest.approx(report.lag_max, abs=0.001)


def test_failed_and_skipped_and_torn_lines_of_the_log_are_left_out() -> None:
    text = "0 1 100 0 5 500000\n0 2 failed 0 5 600000\n0 3 skipped 0 5 700000 12\n0 4 deadlock 0 5 7\n0 5 200 0\n0 6 300 0 5 9"
    assert [(row.at, row.latency) for row in read_logs({"log.12": text, "log.x": text, "stdout": text}, rate=False)] == [(5.5, 0.1)]


# ---- latency of sampled transactions


def test_percentiles_need_ten_values_beyond_them() -> None:
    values = [float(i) for i in range(200)]
    assert percentile(values, 0.5) == 99.5
    assert percentile(values, 0.95) == pytest.approx(189.05)
    assert percentile(values[:199], 0.95) is None
    assert percentile(values, 0.99) is None
    assert percentile([], 0.5) is None


def test_the_mean_is_not_the_sample_s():
    result = latency([float(i) for i in range(20, 0, -1)], 3.5)
    assert (result.mean, result.p50, result.p95, result.maximum, result.sampled) == (3.5, 10.5, None, 20.0, 20)
    assert latency([], None).maximum is None
