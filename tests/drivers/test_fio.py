"""fio as a driver: its command line, and its results over any window of a captured run.

Its reports and logs are as captured, and in the shapes of other versions. See tests/fixtures/fio/README.md.
"""

import itertools
import json
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.drivers.driver import DriverSpan, Endpoint, MeasuredWindow
from pgherd.drivers.fio import DRIVER, DirectionStats, FioReport, IopsSample, curve, file_argv, read_logs, read_report
from pgherd.model.errors import UsageError
from pgherd.model.load import Load

FIXTURES = Path(__file__).parent.parent / "fixtures" / "fio"
CAPTURED = json.loads((FIXTURES / "captured.json").read_text())
ENDPOINT = Endpoint("disk0", "", "", 0, "", "", "/out", directory="/mnt/a b")
PLAIN = {"rw": "randread", "bs": "8192", "size": str(2**30)}


def load(**changes):
    options = PLAIN | changes.pop("options", {})
    return Load(driver="fio", options=options, **changes)


def files(name):
    return {file.name: file.read_text() for file in (FIXTURES / name).iterdir()}


class TestArgv:
    def test_says_all_that_the_load_says(self):
        argv = DRIVER.argv(load(clients=32, options={"engine": "libaio", "ramp": "2", "seed": "7"}), ENDPOINT, 66.2)
        for word in (
            "--filename=/mnt/a b/pgherd.data",
            f"--size={2**30}",
            "--rw=randread",
            "--bs=8192",
            "--iodepth=32",
            "--numjobs=1",
            "--thread=1",
            "--direct=1",
            "--ioengine=libaio",
            "--runtime=67",
            "--ramp_time=1000ms",
            "--randseed=7",
            "--overwrite=1",
            "--output=/out/report.json",
            "--write_iops_log=/out/log",
        ):
            assert word in argv
        assert not any(word.startswith(("--rate", "--rwmixread", "--offset_increment")) for word in argv)

    def test_a_mix_is_two_rates(self):
        argv = DRIVER.argv(load(rate=100, options={"rw": "randrw", "read_rate": "70", "write_rate": "30"}), ENDPOINT, 5)
        assert "--rate_iops=70,30" in argv

    def test_jobs_share_the_file(self):
        argv = DRIVER.argv(load(threads=4), ENDPOINT, 5)
        assert f"--size={2**28}" in argv and f"--offset_increment={2**28}" in argv

    def test_the_shares_of_jobs_are_whole_blocks(self):
        """Direct I/O at an offset that is not aligned is refused with EINVAL."""
        argv = DRIVER.argv(load(threads=3), ENDPOINT, 5)
        share = 2**30 // 3 // 8192 * 8192
        assert f"--size={share}" in argv and f"--offset_increment={share}" in argv and 3 * share <= 2**30

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"rw": "sideways"}, "needs rw, one of read, .*not 'sideways'"),
            ({"size": "0"}, "needs size"),
            ({"size": "8191"}, "needs size.* at least one block for each job"),
            ({"colour": "red"}, "no option 'colour'; known: bs, direct"),
            (
                {"rw": "randrw", "read_rate": "70", "write_rate": "30", "rwmixread": "70"},
                "rwmixread and a rate exclude each other.*--rate-iops 70,30",
            ),
        ],
    )
    def test_refuses(self, options, said):
        with pytest.raises(UsageError, match=said):
            DRIVER.argv(load(options=options), ENDPOINT, 5)

    def test_the_file_is_written_whole_onto_the_device(self):
        argv = file_argv("/mnt", 2**20, direct=False)
        assert {"--rw=write", "--end_fsync=1", "--refill_buffers=1", "--direct=0", f"--size={2**20}"} <= set(argv)

    def test_is_stopped_by_the_signal_that_leaves_a_report(self):
        assert DRIVER.stop_signal == signal.SIGINT
        assert {run["code"] for run in CAPTURED.values()} <= set(DRIVER.exit_codes)


@pytest.mark.parametrize("name", CAPTURED)
class TestCaptured:
    def test_the_span_begins_after_fios_ramp_and_ends_at_the_stop(self, name):
        run = CAPTURED[name]
        ramp = max(0.0, float(run["load"]["options"]["ramp"]) - 1)
        span = DRIVER.span(files(name), run["started"], run["stop"])
        assert run["started"] + ramp <= span.first < run["stop"]
        assert span.last <= run["stop"] and span.last - span.first <= read_report(files(name)).seconds + 1e-6

    def test_over_its_whole_life_every_io_is_counted(self, name):
        run, report = CAPTURED[name], read_report(files(name))
        window = MeasuredWindow(run["started"], run["stop"] + 5, run["stop"] + 5)
        found = DRIVER.result(Load.model_validate(run["load"]), files(name), run["started"], window, "disk0")
        assert found.transactions == pytest.approx(sum(side.ios for side in report.directions.values()))
        assert found.driver == "fio" and found.values["job_cpu"] == report.cpu

    def test_parts_of_a_window_add_up(self, name):
        run = CAPTURED[name]
        span = DRIVER.span(files(name), run["started"], run["stop"])
        middle = (span.first + span.last) / 2
        parts = [
            DRIVER.result(
                Load.model_validate(run["load"]), files(name), run["started"], MeasuredWindow(start, end, run["stop"]), "x"
            ).transactions
            for start, end in ((span.first, middle), (middle, span.last), (span.first, span.last))
        ]
        assert parts[0] + parts[1] == pytest.approx(parts[2])


def test_a_mix_is_told_by_direction_and_meets_its_rates():
    run = CAPTURED["mix-70-30"]
    span = DRIVER.span(files("mix-70-30"), run["started"], run["stop"])
    window = MeasuredWindow(span.first, span.last, run["stop"])
    found = DRIVER.result(Load.model_validate(run["load"]), files("mix-70-30"), run["started"], window, "disk0")
    assert found.values["read_iops"] == pytest.approx(70, abs=2) and found.values["write_iops"] == pytest.approx(30, abs=2)
    assert found.values["read_bytes_per_second"] == pytest.approx(found.values["read_iops"] * 8192)
    assert found.latency.p50 is None and found.latency.mean is not None, "fio reports percentiles per direction only"
    assert found.per_second == pytest.approx([a + b for a, b in zip(found.series["read_iops"], found.series["write_iops"], strict=True)])
    assert "write_p99_ms" not in found.values, "fewer than ten writes are above it"


def test_a_percentile_needs_ten_ios_beyond_it():
    run = CAPTURED["libaio-randread"]
    window = MeasuredWindow(run["started"], run["stop"], run["stop"])
    found = DRIVER.result(Load.model_validate(run["load"]), files("libaio-randread"), run["started"], window, "disk0")
    assert found.latency.p99 == found.values["read_p99_ms"] and found.latency.sampled > 10_000
    assert found.latency.p50 < found.latency.p99 <= found.latency.maximum


def test_an_empty_window_is_refused():
    with pytest.raises(ValueError, match="empty"):
        DRIVER.result(load(), files("libaio-randread"), 0, MeasuredWindow(5, 5, 5), "disk0")


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=20), st.integers(0, 5000))
def test_the_curve_never_falls_and_ends_at_the_total(rates, rest):
    first = 1_000_000.0
    logs = [IopsSample(first + at + 1, rate, "read", "j") for at, rate in enumerate(rates)]
    total = sum(rates) + rest
    report = FioReport(
        "3.33", first + len(rates) + 1, {"read": DirectionStats(ios=total, seconds=len(rates) + 0.5), "write": DirectionStats()}, 0.1
    )
    found = curve(report, logs, "read", DriverSpan(first, first + len(rates) + 0.5))
    assert found.counts == sorted(found.counts) and found.counts[-1] == total
    for at, rate in enumerate(rates):
        # fio rounds down to whole I/Os per second.
        assert rate - 1e-3 <= found.between(first + at, first + at + 1) <= rate + 1 + 1e-3


def iops_report(total, seconds):
    return FioReport("3.33", 0.0, {"read": DirectionStats(ios=total, seconds=seconds), "write": DirectionStats()}, 0.1)


def test_a_stall_is_where_it_was():
    """1000 I/Os per second, but none from 2 to 3 s. fio writes no line at 3 s, and the total has no I/Os that could be there."""
    first = 1_000_000.0
    logs = [IopsSample(first + at, 1000, "read", "j") for at in (1, 2, 4, 5, 6)]
    found = curve(iops_report(5000, 6.0), logs, "read", DriverSpan(first, first + 6))
    assert found.per_second(first, first + 6) == pytest.approx([1000, 1000, 0, 1000, 1000, 1000])


def test_ios_that_fio_rounds_off_are_in_their_seconds():
    """16 jobs do 10 I/Os per second. Their lines are 1001 ms apart, and 10 * 1000 / 1001 is 9 in fio's integers."""
    first = 1_000_000.0
    logs = sorted(
        (IopsSample(first + 1.001 * at, 9, "read", f"job {job}") for at in range(1, 31) for job in range(16)), key=lambda line: line.at
    )
    found = curve(iops_report(16 * 310, 31.0), logs, "read", DriverSpan(first, first + 31))
    assert found.per_second(first, first + 31) == pytest.approx([160] * 31, abs=1)


@pytest.mark.parametrize("rate", [1, 5])
def test_ios_of_missing_lines_are_not_taken_for_rounded_off(rate):
    """The last lines of 32 jobs are missing."""
    first = 1_000_000.0
    logs = [IopsSample(first + at, rate, "read", f"job {job}") for at in range(1, 6) for job in range(32)]
    found = curve(iops_report(32 * 10 * rate, 10.0), logs, "read", DriverSpan(first, first + 10))
    assert found.per_second(first, first + 10) == pytest.approx([32 * rate] * 10)


def test_a_line_after_a_gap_counts_one_period():
    first = 1_000_000.0
    logs = [IopsSample(first + at, 1000, "read", "j") for at in (1, 2, 3.5, 4.5)]
    found = curve(iops_report(4000, 4.5), logs, "read", DriverSpan(first, first + 4.5))
    assert found.per_second(first, first + 4.5) == pytest.approx([1000, 1000, 500, 1000])


def test_a_job_that_stalls_leaves_the_rate_of_the_other():
    first = 1_000_000.0
    logs = [IopsSample(first + at, 1000, "read", "a") for at in (1, 2, 3, 4)]
    logs = sorted(logs + [IopsSample(first + at + 0.001, 500, "read", "b") for at in (1, 4)], key=lambda line: line.at)
    found = curve(iops_report(5000, 4.0), logs, "read", DriverSpan(first, first + 4))
    assert found.per_second(first, first + 4) == pytest.approx([1500, 1000, 1000, 1500], abs=1)


# ---- output


def shape(version):
    return {"stdout": (FIXTURES / f"{version}-shape.txt").read_text()}


@pytest.mark.parametrize("name", CAPTURED)
def test_a_captured_report_holds_what_fio_says_of_itself(name):
    found = read_report(files(name))
    job = json.loads(files(name)["report.json"].partition("\nfio: terminating on signal 2\n")[2])["jobs"][0]
    assert found.version == "3.33"
    for side in ("read", "write"):
        assert (found.directions[side].ios, found.directions[side].bytes) == (job[side]["total_ios"], job[side]["io_bytes"])
        if job[side]["total_ios"]:
            assert found.directions[side].mean == pytest.approx(job[side]["lat_ns"]["mean"] / 1e6)
            assert found.directions[side].percentiles[0.5] == job[side]["lat_ns"]["percentile"]["50.000000"] / 1e6
            assert found.directions[side].ios / found.directions[side].seconds == pytest.approx(job[side]["iops"], rel=1e-3)
    assert CAPTURED[name]["stop"] <= found.at <= CAPTURED[name]["stop"] + 1


@pytest.mark.parametrize("name", CAPTURED)
def test_the_log_is_by_the_second_and_within_the_run(name):
    lines = read_logs(files(name))
    assert lines and all(CAPTURED[name]["started"] < line.at <= CAPTURED[name]["stop"] + 0.1 for line in lines)
    by_job = {}
    for line in lines:
        by_job.setdefault((line.job, line.direction), []).append(line.at)
    for times in by_job.values():
        assert all(after - before == pytest.approx(1, abs=0.1) for before, after in itertools.pairwise(times))


def test_a_report_of_3_1_has_percentiles_of_another_latency_and_names_twice():
    found = read_report(shape("3.1"))
    side = found.directions["write"]
    assert (found.version, found.at, found.cpu) == ("3.1", 1500000010.5, pytest.approx(0.255))
    assert (side.ios, side.bytes, side.seconds, side.mean, side.maximum) == (1000, 8192000, 10, 2.0, 4.1)
    assert side.percentiles == {0.5: 1.8, 0.99: 3.9}


def test_a_report_of_3_42_stands_between_other_lines_and_jobs_are_added_up():
    found = read_report(shape("3.42"))
    side = found.directions["read"]
    assert (side.ios, side.seconds, side.counted) == (3000, 4, 3000)
    assert side.mean == pytest.approx((2000 * 1 + 1000 * 4) / 3000)
    assert side.percentiles == {0.5: 3.9, 0.99: 6.0}, "the slowest job's"
    assert found.cpu == 0.9 and found.directions["write"].ios == 0


@pytest.mark.parametrize(
    ("given_files", "said"),
    [
        ({}, "wrote no report; its last messages: no output"),
        ({"stderr": "fio: engine nonsense not loadable\nfio: failed to load engine\n"}, "wrote no report.*failed to load engine"),
        ({"report.json": '{\n  "fio version" : "fio-3.33",\n  "jobs" : [\n'}, "truncated"),
        ({"report.json": '{\n  "fio version" : "fio-2.21", "jobs": []}'}, "fio-2.21, but fio 3.0 or later"),
        ({"report.json": '{\n  "fio version" : "fio-3.33", "jobs": []}'}, "has no job"),
        (
            {
                "report.json": '{\n"fio version" : "fio-3.33", "jobs": [{"jobname": "load", "error": 28}]}',
                "stderr": "fio: pid=9, err=28/file:io_u.c:1845, func=io_u error, error=No space left on device\n",
            },
            "error 28 in job 'load'.*No space left on device",
        ),
    ],
)
def test_what_is_no_report_says_why(given_files, said):
    with pytest.raises(ValueError, match=said):
        read_report(given_files)


def test_lines_of_the_log_that_are_torn_or_of_another_kind_are_left_out():
    text = "1795329260000, 70, 0, 0, 0\n1795329260000, 31, 1, 8192, 0, 0x0004\n1, 2, 2, 0, 0\nnonsense\n1795329261000, 7"
    found = read_logs({"log_iops.1.log": text, "log_bw.1.log": text, "report.json": text})
    assert found == [IopsSample(1795329260.0, 70, "read", "log_iops.1.log"), IopsSample(1795329260.0, 31, "write", "log_iops.1.log")]


@given(st.text())
def test_no_text_is_more_than_a_refusal(text):
    read_logs({"log_iops.1.log": text})
    try:
        read_report({"report.json": "{\n" + text, "stderr": text})
    except ValueError as error:
        assert str(error)
