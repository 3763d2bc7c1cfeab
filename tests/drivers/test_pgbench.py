"""The driver for pgbench. Its counts in time slices: on logs of which the truth is known, and on captured ones."""

import signal
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgherd.drivers.driver import DriverSpan, Endpoint, MeasuredWindow
from pgherd.drivers.pgbench import DRIVER, by_script, count_in_slices, curves, lag_growth, late_counts
from pgherd.drivers.pgbench_output import LoggedTransaction, PgbenchReport, ProgressLine, read_logs, read_report
from pgherd.model.errors import UsageError
from pgherd.model.load import LatencyObjective, Load, Script

ENDPOINT = Endpoint("local/db01/pg/bench", "/usr/lib/postgresql/18/bin", "/run/x", 5432, "bench", "postgres", "/out", scale=10)


def result(run, start: float, end: float):
    return DRIVER.result(run.load, run.files, run.started, run.window(start, end), "local/db01/pg/bench")


class TestArgv:
    def test_of_the_default_load(self) -> None:
        assert " ".join(DRIVER.argv(Load(), ENDPOINT, 10.2)) == (
            "/usr/lib/postgresql/18/bin/pgbench -n -M prepared -c 1 -j 1 -T 11 -P 1 --progress-timestamp -l --log-prefix=/out/log"
            " --sampling-rate=0.05 -b select-only@1 -h /run/x -p 5432 -U postgres bench"
        )

    def test_of_scripts_with_a_rate_and_options(self) -> None:
        options = {"define:rows": "7", "connect": "1"}
        scripts = (Script(source="/a@b.sql", weight=3), Script(source="c.sql"))
        load = Load(clients=8, threads=2, rate=1500, sampling=1, protocol="simple", scripts=scripts, options=options)
        assert " ".join(DRIVER.argv(load, ENDPOINT, 0)[1:]) == (
            "-n -M simple -c 8 -j 2 -T 1 -P 1 --progress-timestamp -l --log-prefix=/out/log -R 1500"
            " -D rows=7 --connect"
            " -f /a@b.sql@3 -f c.sql@1 -s 10 -h /run/x -p 5432 -U postgres bench"
        )

    def test_of_a_number_of_transactions_after_a_delay(self) -> None:
        load = Load(sampling=1, options={"transactions": "1", "delay": "0.25"})
        argv = DRIVER.argv(load, ENDPOINT, 10)
        assert argv[:5] == ["sh", "-c", 'sleep "$0" && exec "$@"', "0.25", "/usr/lib/postgresql/18/bin/pgbench"]
        assert argv[argv.index("-t") + 1] == "1" and "-T" not in argv
        assert load.ends_itself and not Load().ends_itself

    def test_leaves_the_scale_to_the_database_where_a_builtin_is_in_the_mix(self) -> None:
        load = Load(scripts=(Script(source="a.sql"), Script(source="builtin:tpcb-like", weight=2)))
        argv = DRIVER.argv(load, ENDPOINT, 5)
        assert "-s" not in argv
        assert argv[argv.index("-b") + 1] == "tpcb-like@2"

    @pytest.mark.parametrize(
        ("load", "said"),
        [
            (Load(options={"tries": "2"}), "no option 'tries'; known: connect, define:NAME, transactions, delay"),
            (Load(options={"define:a b": "2"}), "'a b' is not a pgbench variable"),
            (Load(scripts=()), "at least one script"),
        ],
    )
    def test_refuses(self, load: Load, said: str) -> None:
        with pytest.raises(UsageError, match=said):
            DRIVER.argv(load, ENDPOINT, 5)

    def test_is_stopped_by_the_signal_that_leaves_a_report(self) -> None:
        assert DRIVER.stop_signal == signal.SIGALRM


class TestSpan:
    def test_is_from_the_first_transaction_to_the_stop(self, capture) -> None:
        run = capture("rate")
        span = DRIVER.span(run.files, run.started, run.stop)
        log = sorted(row.at - row.latency / 1000 for row in read_logs(run.files, rate=True))
        assert run.started < span.first <= log[0] + 0.002
        assert span.first == pytest.approx(log[0], abs=0.02)
        assert span.last == pytest.approx(run.stop, abs=0.002)

    def test_ends_at_the_stop_though_a_long_transaction_goes_on(self, capture) -> None:
        run = capture("slow")
        assert run.ended > run.stop + 0.5
        assert DRIVER.span(run.files, run.started, run.stop).last == run.stop

    def test_ends_with_a_driver_that_ended_by_itself(self, capture) -> None:
        run = capture("select-only")
        assert DRIVER.span(run.files, run.started, run.stop + 5).last == pytest.approx(run.stop, abs=0.05)

    def test_a_late_progress_line_does_not_move_the_start(self) -> None:
        line = "progress: {:.3f} s, 100.0 tps, lat 1.0 ms stddev 0.1, 0 failed\n"
        stdout = "number of transactions actually processed: 300\nnumber of failed transactions: 0 (0.000%)\n"
        stdout += "initial connection time = 50.000 ms\ntps = 100.000000 (without initial connection time)\n"
        files = {"stdout": stdout, "stderr": "".join(line.format(t) for t in (101.31, 102.202, 103.2))}
        span = DRIVER.span(files, 100.0, 110.0)
        assert (span.first, span.last) == (pytest.approx(100.25), pytest.approx(103.25))

    def test_slow_connecting_delays_the_first_line_and_the_start(self) -> None:
        line = "progress: {:.3f} s, 100.0 tps, lat 1.0 ms stddev 0.1, 0 failed\n"
        stdout = "number of transactions actually processed: 480\nnumber of failed transactions: 0 (0.000%)\n"
        stdout += "initial connection time = 2400.000 ms\ntps = 100.000000 (without initial connection time)\n"
        files = {"stdout": stdout, "stderr": "".join(line.format(t) for t in (102.501, 103.1, 104.1))}
        assert DRIVER.span(files, 100.0, 110.0).first == pytest.approx(102.5)


class TestResult:
    def test_counts_what_the_log_counts(self, capture) -> None:
        run = capture("rate")
        found = result(run, 0.5, 2.5)
        logged = sum(run.started + 0.5 < row.at <= run.started + 2.5 for row in read_logs(run.files, rate=True))
        # A border within a second assumes a steady rate there; arrivals are Poisson: 4 standard deviations.
        assert found.transactions == pytest.approx(logged, abs=4 * 300**0.5)
        assert found.throughput == found.transactions / 2
        assert found.latency.sampled == logged

    def test_what_a_throttled_pgbench_needs_to_end_takes_nothing_from_the_window(self) -> None:
        """Two clients, 1000 transactions a second in all from 100.0 on; stopped at 102.9, it ends at 103.0 because of its CPU quota."""
        line = "progress: {:.3f} s, 1000.0 tps, lat 2.0 ms stddev 0.1, 0 failed\n"
        stdout = "number of transactions actually processed: 2902\nnumber of failed transactions: 0 (0.000%)\n"
        stdout += (
            f"latency average = 2.000 ms\ninitial connection time = 0.000 ms\ntps = {2902 / 3.0:f} (without initial connection time)\n"
        )
        files = {"stdout": stdout, "stderr": "".join(line.format(t) for t in (101.0, 102.0))}
        load = Load(driver="pgbench", clients=2, scripts=(Script(source="builtin:select-only"),))
        found = DRIVER.result(load, files, 100.0, MeasuredWindow(101.4, 102.9, 102.9), "x")
        assert found.transactions == pytest.approx(1500, abs=0.2)

    def test_over_the_whole_life_is_the_reports_total(self, every_capture) -> None:
        for run in every_capture:
            try:
                report = read_report(run.files)
            except ValueError:
                continue
            found = result(run, -1, run.ended - run.started + 1)
            assert found.transactions == report.transactions
            assert found.failed == report.failed

    def test_splits_into_seconds(self, capture) -> None:
        found = result(capture("select-only"), 0.8, 2.8)
        assert len(found.per_second) == 2
        assert sum(found.per_second) == pytest.approx(found.transactions)
        assert min(found.per_second) > 10_000

    def test_of_select_only(self, capture) -> None:
        found = result(capture("select-only"), 0.3, 3.2)
        latency = found.latency
        assert (found.target, found.driver, found.failed, found.client_cpu) == ("local/db01/pg/bench", "pgbench", 0, None)
        assert latency.sampled >= 1000
        assert latency.p50 is not None and latency.p95 is not None and latency.p99 is not None and latency.maximum is not None
        assert latency.p50 < latency.p95 < latency.p99 < latency.maximum
        # Two clients, closed loop: what they do at a time is what the latency allows.
        assert found.throughput * latency.mean / 1000 == pytest.approx(2, rel=0.15)
        assert latency.lag_mean is None and latency.lag_max is None

    def test_of_a_load_that_ends_itself_counts_all_transactions(self) -> None:
        files = {
            "log.7": "0 1 3665 0 107 500000\n",
            "stdout": "number of transactions actually processed: 1/1\nnumber of failed transactions: 0 (0.000%)\n"
            "latency average = 3.700 ms\ninitial connection time = 17.316 ms\ntps = 270.1 (without initial connection time)\n",
        }
        load = Load(sampling=1, options={"transactions": "1"})
        within, before = (DRIVER.result(load, files, 100, MeasuredWindow(start, start + 4, start + 4), "t") for start in (105.0, 110.0))
        assert within.transactions == before.transactions == 1 and within.latency.maximum == before.latency.maximum == 3.665
        assert within.per_second == [0, 0, 1, 0] and sum(before.per_second) == 0
        assert within.values == {"connect_ms": 17.316} and within.first == pytest.approx(107.5 - 0.003665)

    def test_gives_no_percentile_that_the_sample_cannot_support(self, capture) -> None:
        found = result(capture("tpcb-threads"), 1.0, 2.5).latency
        assert 200 <= found.sampled < 1000
        assert found.p95 is not None and found.p99 is None

    def test_tells_the_schedule_lag_of_an_open_loop(self, capture) -> None:
        found = result(capture("rate-limit"), 0.2, 2.3).latency
        assert found.lag_mean is not None and found.lag_max is not None and found.mean is not None
        assert 0 < found.lag_mean < found.mean
        assert found.lag_mean < found.lag_max <= 5.0

    @pytest.mark.parametrize(("achieved", "stall"), [(1.0, 0.0), (1.0, 0.5), (0.66, 0.0), (0.9, 0.0)])
    def test_lag_grows_by_the_share_of_the_rate_that_is_missing(self, achieved: float, stall: float) -> None:
        """Whatever happens in the last second alone is no growth."""
        lags = [1000 * (1 - achieved) * (second + 0.5) for second in range(9)]
        lags[-1] += 1000 * stall
        lines = [ProgressLine(101.0 + second, 10 * achieved, lag + 3, 0, lag) for second, lag in enumerate(lags)]
        assert lag_growth(lines) == pytest.approx(1 - achieved)
        assert lag_growth(lines[:3]) is None and lag_growth([]) is None

    def test_lag_of_a_long_window_is_averaged_over_parts(self) -> None:
        lines = [ProgressLine(float(second), 10.0, 5.0, 0, 2.0 * second) for second in range(1000)]
        assert lag_growth(lines) == pytest.approx(0.002)

    def test_counts_failures_in_the_window(self, capture) -> None:
        run = capture("retries")
        assert 0 < result(run, 0.5, 1.5).failed < read_report(run.files).failed

    def test_of_transactions_longer_than_a_second(self, capture) -> None:
        run = capture("slow")
        found = result(run, 0.1, 2.0)
        assert found.transactions == pytest.approx(1, abs=0.05)
        assert found.latency.mean == pytest.approx(1300, abs=5)

    @pytest.mark.parametrize("case", ["killed", "terminated", "sql-error", "lost", "refused"])
    def test_of_a_failed_run_is_an_error(self, capture, case: str) -> None:
        with pytest.raises(ValueError, match="pgbench"):
            result(capture(case), 0.1, 1.0)

    def test_an_empty_window_is_an_error(self, capture) -> None:
        with pytest.raises(ValueError, match="is empty"):
            result(capture("rate"), 1.0, 1.0)


lines = st.lists(
    st.tuples(st.floats(-0.5, 3), st.floats(0, 1e5), st.integers(0, 1000)).map(lambda x: (x[0], round(x[1], 1), x[2])), max_size=10
)


@given(lines, st.integers(0, 10**6), st.one_of(st.none(), st.floats(0, 20)), st.floats(0, 1), st.floats(0, 20))
def test_curves_rise_from_nothing_to_the_total(lines, total: int, seconds: float | None, connecting: float, stop: float) -> None:
    at = 1000.0
    progress = []
    for step, tps, failed in lines:
        at += step
        progress.append(ProgressLine(at, tps, 1.0, failed))
    report = PgbenchReport(total, failed=total // 3, seconds=seconds, connecting=connecting)
    for curve, whole in zip(curves(report, progress, 1000.0, 1000.0 + stop, 4), (total, total // 3), strict=True):
        assert all(a <= b for a, b in zip(curve.counts, curve.counts[1:], strict=False))
        assert all(a < b for a, b in zip(curve.times, curve.times[1:], strict=False))
        assert 0 <= curve.value_at(0) <= whole
        assert curve.value_at(1e9) == whole


@settings(max_examples=200)
@given(data=st.data())
def test_truncated_output_is_a_result_or_a_value_error(every_capture, data) -> None:
    run = data.draw(st.sampled_from(every_capture))
    files = {name: text[: data.draw(st.integers(0, len(text)))] for name, text in run.files.items() if data.draw(st.booleans())}
    try:
        found = DRIVER.result(run.load, files, run.started, run.window(0.5, 2.0), "x")
    except ValueError as error:
        assert str(error)
    else:
        assert 0 <= found.transactions <= read_report(files).transactions
        assert found.first <= found.last


@given(st.dictionaries(st.sampled_from(["stdout", "stderr", "log.1", "log.1.2"]), st.text()))
def test_any_text_is_a_result_or_a_value_error(files: dict[str, str]) -> None:
    try:
        DRIVER.result(Load(rate=5), files, 0.0, MeasuredWindow(1.0, 2.0, 3.0), "x")
    except ValueError as error:
        assert str(error)


def named(load: Load, *names: str | None, sampling: float) -> Load:
    scripts = [script.model_copy(update={"name": name}) for script, name in zip(load.scripts, names, strict=True)]
    return load.model_copy(update={"scripts": tuple(scripts), "sampling": sampling})


def test_transactions_by_script_of_a_full_log(capture) -> None:
    run = capture("scripts")  # read.sql@3 and builtin:select-only@1
    load = named(run.load, "new-order", "other", sampling=1.0)
    window = run.window(0.5, 2.0)
    found = DRIVER.result(load, run.files, run.started, window, "x")
    numbers = [x.script for x in read_logs(run.files, False) if window.start < x.at <= window.end]
    assert found.scripts == {"new-order": numbers.count(0), "other": numbers.count(1)}
    assert numbers.count(0) > 2 * numbers.count(1) > 0
    assert found.nopm == pytest.approx(60 * numbers.count(0) / 1.5)


def test_of_a_sample_they_are_shares_of_all(capture) -> None:
    run = capture("scripts")
    found = DRIVER.result(named(run.load, "read", None, sampling=0.01), run.files, run.started, run.window(0.5, 2.0), "x")
    assert list(found.scripts) == ["read"]
    assert 0.6 < found.scripts["read"] / found.transactions < 0.9
    assert found.nopm is None


def test_scripts_without_names_are_not_told_apart(capture) -> None:
    run = capture("scripts")
    assert DRIVER.result(run.load, run.files, run.started, run.window(0.5, 2.0), "x").scripts == {}


@given(st.lists(st.integers(0, 2)))
def test_by_script_loses_nothing(numbers: list[int]) -> None:
    load = Load(scripts=tuple(Script(source=name, name=name) for name in ("a", "b", "a2")), sampling=1.0)
    counts = by_script(load, [LoggedTransaction(1.0, 1.0, script=number) for number in numbers], 1e9)
    assert counts == {"a": numbers.count(0), "b": numbers.count(1), "a2": numbers.count(2)}


# ---- counts in time slices


TURNS = (DriverSpan(10.0, 10.5), DriverSpan(11.5, 12.0), DriverSpan(12.5, 13.0))
WINDOW = MeasuredWindow(10.0, 13.0, 13.0, TURNS, counted=0.4)


def steady(per_turn: int, latency: float = 1.0) -> list[LoggedTransaction]:
    """Return evenly spaced transactions in each slice, all logged."""
    return [LoggedTransaction(turn.first + 0.5 * (i + 1) / per_turn, latency) for turn in TURNS for i in range(per_turn)]


def test_a_steady_load_is_counted_exactly_where_all_is_logged() -> None:
    logged = steady(1000)
    found = count_in_slices(PgbenchReport(3000, failed=6), logged, WINDOW, 4, "x")
    assert found.transactions == 3000 and found.failed == 6 and len(found.sample) == 3000
    assert found.throughput == pytest.approx(2000, rel=0.002)
    assert found.per_second == [pytest.approx(1000, abs=2)] * 3
    assert found.latency.mean == pytest.approx(2.0, rel=0.002), "Little: 4 clients at 2,000 tps"


def test_of_a_sample_the_share_decides_and_the_report_has_the_number() -> None:
    ramp = [LoggedTransaction(9.0 + i / 1000, 1.0) for i in range(1000)]
    found = count_in_slices(PgbenchReport(20_000), [*ramp, *steady(1000)][::5], WINDOW, 4, "x")
    assert found.transactions == pytest.approx(15_000, rel=0.005), "three quarters are in the window"
    assert found.throughput == pytest.approx(10_000, rel=0.01)


def test_what_was_under_way_in_a_stop_counts_but_for_its_latency() -> None:
    spanning = [LoggedTransaction(11.5005, 1000.0), LoggedTransaction(12.5005, 500.0)]
    found = count_in_slices(PgbenchReport(3002), [*steady(1000), *spanning], WINDOW, 4, "x")
    assert found.transactions == 3002 and found.latency.maximum == 1.0
    assert found.latency.sampled == 3000 - 3, "the first of a turn began a millisecond before its end, half of it before the turn"


def test_what_does_not_count_is_in_no_rate() -> None:
    burst = [LoggedTransaction(turn.first + 0.05, 1.0) for turn in TURNS for _ in range(500)]
    assert count_in_slices(PgbenchReport(4500), [*steady(1000), *burst], WINDOW, 4, "x").throughput == pytest.approx(2000, rel=0.002)


def test_nothing_of_a_late_turn_s_begin_counts() -> None:
    """A slice that starts late still ends on time, so it is short. Transactions in progress end at once."""
    late = replace(WINDOW, turns=(*TURNS, DriverSpan(13.45, 13.5)), end=13.5, stop=13.5, lead=0.05)
    ready = [LoggedTransaction(13.451, 1.0) for _ in range(500)]
    assert count_in_slices(PgbenchReport(3500), [*steady(1000), *ready], late, 4, "x").throughput == pytest.approx(2000, rel=0.002)


def test_what_is_too_slow_for_turns_is_an_error() -> None:
    with pytest.raises(ValueError, match="a transaction of local/a never ended in the counted time, too long .* --interleave trials"):
        count_in_slices(PgbenchReport(3000), [LoggedTransaction(9.0, 1.0)], WINDOW, 4, "local/a")
    with pytest.raises(ValueError, match="never ended"):
        count_in_slices(PgbenchReport(0), [], WINDOW, 4, "x")
    assert count_in_slices(PgbenchReport(303), steady(101), WINDOW, 8, "x").throughput == pytest.approx(200, rel=0.02)
    with pytest.raises(ValueError, match="takes 44.4 ms, too long for time slices of which 400 ms count"):
        count_in_slices(PgbenchReport(270), steady(90), WINDOW, 8, "x")


@given(st.lists(st.tuples(st.floats(9, 14), st.floats(0.01, 3000)), min_size=1), st.integers(1000, 10**6))
def test_never_more_than_all(values: list[tuple[float, float]], more: int) -> None:
    report = PgbenchReport(len(values) + more)
    try:
        found = count_in_slices(report, [LoggedTransaction(at, latency) for at, latency in values], WINDOW, 2, "x")
    except ValueError:
        return
    assert 0 <= found.transactions <= report.transactions * (1 + 1e-12)
    assert sum(found.per_second) <= found.transactions * (1 + 1e-12)
    assert found.latency.maximum is None or found.latency.maximum <= 500.001, "no longer than a turn"


def test_one_turn_is_the_whole_window(capture) -> None:
    """Two ways of counting one captured run agree up to the random error of the sample."""
    run = capture("select-only")
    window = run.window(0.6, 2.8)
    plain = DRIVER.result(run.load, run.files, run.started, window, "x")
    turned = DRIVER.result(run.load, run.files, run.started, replace(window, turns=(DriverSpan(window.start, window.end),), counted=9), "x")
    scatter = 4 * plain.latency.sampled**-0.5
    assert turned.transactions == pytest.approx(plain.transactions, rel=scatter)
    assert turned.throughput == pytest.approx(plain.throughput, rel=scatter)
    assert turned.latency.mean == pytest.approx(plain.latency.mean, rel=2 * scatter)
    assert turned.latency.p50 == pytest.approx(plain.latency.p50, rel=0.01)


def test_late_transactions_are_counted_in_total_and_by_second() -> None:
    objectives = (LatencyObjective(percentile=99, limit_ms=10), LatencyObjective(percentile=50, limit_ms=2.5))
    sample = [LoggedTransaction(100 + i / 500, 20.0 if i >= 900 else 1.0 + i % 2) for i in range(1100)]
    found = late_counts(objectives, sample, 100.0, 102.2)
    counts = {"logged_tx": 1100, "late_p99_10ms_tx": 200, "late_p50_2.5ms_tx": 200}
    assert found["values"] == {**counts, "p99_ms": 20, "p50_ms": 2, "p99_least_ms": 20, "p50_least_ms": 2}
    assert found["series"]["logged_tx"] == [500, 500], "the rest after the last whole second counts in the totals only"
    assert found["series"]["late_p99_10ms_tx"] == [0, 100]
    assert late_counts(objectives, sample[:100], 100.0, 102.2)["values"].keys() == {
        "logged_tx",
        "late_p99_10ms_tx",
        "late_p50_2.5ms_tx",
        "p50_ms",
        "p99_least_ms",
        "p50_least_ms",
    }
    assert late_counts((), sample, 100.0, 102.2) == {}


@pytest.mark.parametrize("apart, least", [(100, 1), (25, 20)])
def test_the_smallest_limit_holds_in_total_and_in_every_second(apart: int, least: float) -> None:
    """12 of 1,200 transactions take 20 ms. A p99 allows 12 in total, and 8 of 300 in a second: 3 and three times 1.73."""
    p99 = LatencyObjective(percentile=99, limit_ms=10)
    late = {apart * number for number in range(12)}
    sample = [LoggedTransaction(100 + i / 300, 20.0 if i in late else 1.0) for i in range(1200)]
    values = late_counts((p99,), sample, 100.0, 104.0)["values"]
    assert (values["late_p99_10ms_tx"], values["p99_least_ms"]) == (12, least)
    assert p99.most_late(300) == pytest.approx(3 + 3 * 3**0.5)


def test_a_load_with_objectives_has_their_counts(capture) -> None:
    run = capture("select-only")
    load = run.load.model_copy(update={"objectives": (LatencyObjective(percentile=50, limit_ms=0.001),)})
    found = DRIVER.result(load, run.files, run.started, run.window(0.6, 2.8), "x")
    assert found.values["late_p50_0.001ms_tx"] == found.values["logged_tx"] == found.latency.sampled > 0
    assert found.values["p50_ms"] == found.latency.p50
    assert not result(run, 0.6, 2.8).values
