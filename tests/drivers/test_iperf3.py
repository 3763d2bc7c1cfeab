import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.drivers.driver import Endpoint, MeasuredWindow, driver_named
from pgherd.drivers.iperf3 import DRIVER, read_report
from pgherd.model.errors import UsageError
from pgherd.model.load import Load

CAPTURED = Path(__file__).parent.parent / "fixtures" / "iperf3"
ENDPOINT = Endpoint("link", "", "db2", 5300, "", "", "/out")


def load(streams=1, **options):
    return Load(driver="iperf3", clients=streams, options=options)


def files(name):
    return {"stdout": (CAPTURED / f"3.12-{name}.json").read_text(), "stderr": ""}


def begun(name):
    return float(json.loads(files(name)["stdout"])["start"]["timestamp"]["timesecs"])


def test_it_is_known_by_its_name():
    assert driver_named("iperf3") is DRIVER


def test_the_command_line_says_what_the_load_asks_for():
    words = DRIVER.argv(load(4, reverse="1", rate="1000000", window="65536", congestion="cubic"), ENDPOINT, 7.2)
    text = " ".join(words)
    assert text.startswith("iperf3 --client db2 --port 5300 --parallel 4 --time 8 --interval 1")
    assert "--reverse --bitrate 1000000 --window 65536 --congestion cubic" in text and "--json" in words
    assert not {"--bitrate", "--length", "--no-delay"} & set(DRIVER.argv(load(), ENDPOINT, 1))


def test_writes_of_a_given_length_are_sent_at_once():
    assert "--bitrate 1000000 --length 512 --no-delay" in " ".join(DRIVER.argv(load(rate="1000000", length="512"), ENDPOINT, 1))


@pytest.mark.parametrize(("given", "message"), [(load(1, speed="1"), "no option 'speed'"), (load(129), "at most 128 streams, not 129")])
def test_what_it_cannot_do_is_said(given, message):
    with pytest.raises(UsageError, match=message):
        DRIVER.argv(given, ENDPOINT, 1)


def test_a_whole_test_counts_what_iperf3_counted():
    report = json.loads(files("two-streams")["stdout"])
    start = begun("two-streams")
    span = DRIVER.span(files("two-streams"), start, start + 60)
    assert span.last - span.first == pytest.approx(3, abs=0.1)
    window = MeasuredWindow(span.first, span.last, start + 60)
    found = DRIVER.result(load(2), files("two-streams"), start, window, "link")
    assert found.transactions == pytest.approx(sum(one["sum"]["bytes"] for one in report["intervals"]))
    assert found.values["bits_per_second"] == pytest.approx(report["end"]["sum_sent"]["bits_per_second"], rel=0.02)
    assert found.values["retransmits_per_second"] * 3 == pytest.approx(report["end"]["sum_sent"]["retransmits"], rel=0.02)
    rtts = [stream["rtt"] / 1000 for one in report["intervals"] for stream in one["streams"]]
    assert found.values["rtt_ms"] == pytest.approx(sum(rtts) / len(rtts)) and found.values["rtt_max_ms"] == max(rtts)
    assert len(found.series["bits_per_second"]) == 3 and found.values["window_bytes"] > 10_000


def test_one_that_was_told_to_end_counts_up_to_then():
    start = begun("interrupted")
    span = DRIVER.span(files("interrupted"), start, start + 2.4)
    assert span.last == start + 2.4
    found = DRIVER.result(load(2), files("interrupted"), start, MeasuredWindow(start + 1, start + 2, start + 2.4), "link")
    second = json.loads(files("interrupted")["stdout"])["intervals"][1]["sum"]["bits_per_second"]
    assert found.values["bits_per_second"] == pytest.approx(second, rel=0.05)


def test_a_trickle_is_a_trickle():
    start = begun("trickle")
    found = DRIVER.result(load(1, rate="1000000"), files("trickle"), start, MeasuredWindow(start, start + 2, start + 3), "link")
    assert found.values["bits_per_second"] == pytest.approx(1e6, rel=0.2) and found.values["rtt_ms"] > 0


def test_the_receiver_knows_neither_round_trips_nor_retransmits():
    start = begun("reverse")
    found = DRIVER.result(load(1, reverse="1"), files("reverse"), start, MeasuredWindow(start, start + 2, start + 3), "link")
    assert found.values["bits_per_second"] > 1e6
    assert "rtt_ms" not in found.values and "retransmits_per_second" not in found.values and found.series["rtt_ms"] == []


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (files("refused"), "Connection refused"),
        (files("busy"), "busy"),
        ({"stdout": "", "stderr": "iperf3: parameter error\n"}, "parameter error"),
        ({"stdout": "[1]", "stderr": ""}, "no JSON object"),
        ({"stdout": '{"start": {}, "intervals": [], "end": {}}', "stderr": ""}, "no interval"),
        ({}, "wrote no report: no output"),
    ],
)
def test_a_failure_is_told_in_iperf3s_words(texts, message):
    with pytest.raises(ValueError, match=message):
        DRIVER.span(texts, 0, 10)


def test_an_empty_window_is_an_error():
    with pytest.raises(ValueError, match="window of link is empty"):
        DRIVER.result(load(), files("trickle"), 0, MeasuredWindow(5, 5, 6), "link")


@given(
    st.text(max_size=300) | st.integers(0, len(files("trickle")["stdout"].rstrip()) - 1).map(lambda cut: files("trickle")["stdout"][:cut])
)
def test_only_a_whole_report_is_read(text):
    assert read_report(files("trickle"))["intervals"]
    with pytest.raises(ValueError):
        read_report({"stdout": text})
