"""fio's reports and logs, as captured and in the shapes of other versions. See tests/fixtures/fio/README.md."""

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.drivers.fio_output import IopsSample, read_logs, read_report

FIXTURES = Path(__file__).parent.parent / "fixtures" / "fio"
CAPTURED = json.loads((FIXTURES / "captured.json").read_text())


def files(name):
    return {file.name: file.read_text() for file in (FIXTURES / name).iterdir()}


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
