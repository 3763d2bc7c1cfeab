import pytest

from pgherd.studies.exec.study import STUDY

RATE = ({"name": "rate", "pattern": r"(\d+)", "unit": "MB/s"},)


def analysed(options, results, **changes):
    asked = options(**changes)
    return asked, lambda **of: STUDY.analyse(asked, results(asked, **of))


def test_duration_with_its_interval(options, results):
    _, analyse = analysed(options, results)
    found = analyse()
    duration = found.findings["duration"]
    # 3.92 … 4.08 s: mean 4, standard deviation 0.04 × √2.5 = 0.0632, t(0.975; 4) = 2.7764
    assert duration.value == pytest.approx(4.0) and duration.n == 5 and duration.unit == "s"
    assert duration.high - duration.value == pytest.approx(2.7764 * 0.04 * 2.5**0.5 / 5**0.5, rel=1e-3)
    assert found.grade == "A" and found.answer.startswith("'make -j2' takes 4 (") and "6 (6 … 6) s of CPU per run" in found.answer
    assert found.findings["cpu_seconds"].value == pytest.approx(6.0) and found.findings["host_cpu"].value == pytest.approx(1.8)
    assert found.findings["host_memory"].value == pytest.approx(3e9 / 2**20), "memory is in units of 2^20 bytes everywhere"


def test_values_from_its_output(options, results):
    _, analyse = analysed(options, results, extract=RATE)
    found = analyse(values={"rate": 250.0})
    assert found.findings["rate"].value == pytest.approx(250) and found.findings["rate"].unit == "MB/s"
    assert "rate is 250 (" in found.answer and found.tables["exec"][0]["rate"] == found.findings["rate"]
    missing = analyse()
    assert missing.findings["rate"].value is None and "unknown (not found" in missing.answer


def test_a_value_that_is_called_like_a_finding_has_its_own_name(options, results):
    _, analyse = analysed(options, results, extract=({"name": "duration", "pattern": "x"},))
    found = analyse(values={"duration": 9.0})
    assert found.findings["duration"].value == pytest.approx(4.0) and found.findings["value_duration"].value == pytest.approx(9.0)


def test_devices_that_did_something(options, results):
    _, analyse = analysed(options, results)
    (row,) = analyse().tables["devices"]
    assert row["device"] == "sda" and row["utilization"].value == pytest.approx(25) and row["write_rate"].value == pytest.approx(2)


def test_one_that_was_ended_by_the_clock_has_no_duration(options, results):
    _, analyse = analysed(options, results, duration=12.0)
    found = analyse()
    assert "duration" not in found.findings and "ran for 12 s per trial" in found.answer
    assert found.findings["cpu_cores"].unit == "cores" and found.findings["cpu_cores"].value == pytest.approx(0.5)


def test_tainted_trials_count_only_where_none_is_clean(options, results):
    _, analyse = analysed(options, results)
    found = analyse(tainted=(0, 4))
    assert found.findings["duration"].n == 3 and found.grade == "A" and found.tables["exec"][0]["tainted_trials"] == 2
    found = analyse(tainted=range(5))
    assert found.grade == "C" and found.answer.startswith("Indication only") and found.findings["duration"].n == 5
    assert "Only tainted trials: the whole answer is an indication (grade C)" in found.warnings


def test_too_few_for_an_interval_is_no_a(options, results):
    _, analyse = analysed(options, results, repeats=2)
    found = analyse()
    assert found.grade == "B" and found.findings["duration"].low is None and "no interval" in found.findings["duration"].note


def test_nothing_finished_is_said(options, results):
    asked, analyse = analysed(options, results)
    assert "none of 5 trials finished" in analyse(failed=range(5)).answer
    assert "no trial was run" in STUDY.analyse(asked, []).answer


def test_what_was_not_seen_has_no_number(options, results):
    _, analyse = analysed(options, results)
    found = analyse(host=False)
    assert found.findings["host_cpu"].value is None and found.tables["devices"] == []


def test_each_host_has_its_row_and_findings(options, results):
    _, analyse = analysed(options, results, hosts=("a", "b"))
    found = analyse()
    assert [row["host"] for row in found.tables["exec"]] == ["a", "b"] and {"duration.a", "duration.b"} <= set(found.findings)
    assert found.findings["duration"].value == found.findings["duration.a"].value, "both take the same"
    assert found.findings["cpu_seconds"].value == pytest.approx(12) and found.findings["cpu_seconds.b"].value == pytest.approx(6)
    assert "on 2 hosts takes 4 (" in found.answer and "until the slowest host is finished" in found.answer
    assert found.tables["exec"][0]["host_cpu"].value is None, "only the whole was seen"


def test_the_slowest_host_and_the_range_of_values_are_told(options, results):
    asked = options(hosts=("a", "b"), extract=RATE)
    slower = []
    for result in results(asked, values={"rate": 100.0}):
        phase = result.phases[0]
        first, second = phase.targets
        told = {**second.values, "duration_seconds": 2 * second.values["duration_seconds"], "value:rate": 50.0}
        seen = {"host:a": {"cpu.user": 0.5}, "host:b": {"cpu.user": 0.7}}
        changed = phase.model_copy(update={"targets": [first, second.model_copy(update={"values": told})], "metrics": seen})
        slower.append(result.model_copy(update={"phases": [changed]}))
    found = STUDY.analyse(asked, slower)
    assert found.findings["duration"].value == pytest.approx(8) and "rate is 50 (b) to 100 (a) MB/s" in found.answer
    assert [row["host_cpu"].value for row in found.tables["exec"]] == [pytest.approx(0.5), pytest.approx(0.7)]


def test_a_short_command_is_warned_of(options, results):
    _, analyse = analysed(options, results)
    assert any("starting a process" in text for text in analyse(duration=0.1).warnings)
    assert not any("starting a process" in text for text in analyse().warnings)


def test_figures_need_each_run(options, results):
    _, analyse = analysed(options, results, extract=RATE)
    runs = analyse(values={"rate": 1.0}, failed=(2,)).figures["runs"]
    assert [run["id"] for run in runs] == ["0001", "0002", "0004", "0005"] and runs[0]["values"] == {"rate": pytest.approx(0.98)}
