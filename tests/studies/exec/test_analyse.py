import pytest

from pgherd.studies.exec.study import STUDY

RATE = ({"name": "rate", "pattern": r"(\d+)", "unit": "MB/s"},)


def analysed(options, results, **changes):
    study_options = options(**changes)
    return study_options, lambda **of: STUDY.analyse(study_options, results(study_options, **of))


def test_duration_with_its_interval(options, results):
    _, analyse = analysed(options, results)
    analysis = analyse()
    duration = analysis.findings["duration"]
    # 3.92 … 4.08 s: mean 4, standard deviation 0.04 × √2.5 = 0.0632, t(0.975; 4) = 2.7764
    assert duration.value == pytest.approx(4.0) and duration.n == 5 and duration.unit == "s"
    assert duration.high - duration.value == pytest.approx(2.7764 * 0.04 * 2.5**0.5 / 5**0.5, rel=1e-3)
    assert analysis.grade == "A" and analysis.answer.startswith("'make -j2' takes 4 (") and "6 (6 … 6) s of CPU per run" in analysis.answer
    assert analysis.findings["cpu_seconds"].value == pytest.approx(6.0) and analysis.findings["host_cpu"].value == pytest.approx(1.8)
    assert analysis.findings["host_memory"].value == pytest.approx(3e9 / 2**20), "memory is in units of 2^20 bytes everywhere"


def test_values_from_its_output(options, results):
    _, analyse = analysed(options, results, extract=RATE)
    analysis = analyse(values={"rate": 250.0})
    assert analysis.findings["rate"].value == pytest.approx(250) and analysis.findings["rate"].unit == "MB/s"
    assert "rate is 250 (" in analysis.answer and analysis.tables["exec"][0]["rate"] == analysis.findings["rate"]
    missing = analyse()
    assert missing.findings["rate"].value is None and "unknown (not found" in missing.answer


def test_a_value_that_is_called_like_a_finding_has_its_own_name(options, results):
    _, analyse = analysed(options, results, extract=({"name": "duration", "pattern": "x"},))
    analysis = analyse(values={"duration": 9.0})
    assert analysis.findings["duration"].value == pytest.approx(4.0) and analysis.findings["value_duration"].value == pytest.approx(9.0)


def test_devices_that_did_something(options, results):
    _, analyse = analysed(options, results)
    (row,) = analyse().tables["devices"]
    assert row["device"] == "sda" and row["utilization"].value == pytest.approx(25) and row["write_rate"].value == pytest.approx(2)


def test_one_that_was_ended_by_the_clock_has_no_duration(options, results):
    _, analyse = analysed(options, results, duration=12.0)
    analysis = analyse()
    assert "duration" not in analysis.findings and "ran for 12 s per trial" in analysis.answer
    assert analysis.findings["cpu_cores"].unit == "cores" and analysis.findings["cpu_cores"].value == pytest.approx(0.5)


def test_tainted_trials_count_only_where_none_is_clean(options, results):
    _, analyse = analysed(options, results)
    analysis = analyse(tainted=(0, 4))
    assert analysis.findings["duration"].n == 3 and analysis.grade == "A" and analysis.tables["exec"][0]["tainted_trials"] == 2
    analysis = analyse(tainted=range(5))
    assert analysis.grade == "C" and analysis.answer.startswith("Indication only") and analysis.findings["duration"].n == 5
    assert "Only tainted trials: the whole answer is an indication (grade C)" in analysis.warnings


def test_too_few_for_an_interval_is_no_a(options, results):
    _, analyse = analysed(options, results, repeats=2)
    analysis = analyse()
    assert analysis.grade == "B" and analysis.findings["duration"].low is None and "no interval" in analysis.findings["duration"].note


def test_nothing_finished_is_said(options, results):
    request, analyse = analysed(options, results)
    assert "none of 5 trials finished" in analyse(failed=range(5)).answer
    assert "no trial was run" in STUDY.analyse(request, []).answer


def test_what_was_not_seen_has_no_number(options, results):
    _, analyse = analysed(options, results)
    analysis = analyse(host=False)
    assert analysis.findings["host_cpu"].value is None and analysis.tables["devices"] == []


def test_each_host_has_its_row_and_findings(options, results):
    _, analyse = analysed(options, results, hosts=("a", "b"))
    analysis = analyse()
    assert [row["host"] for row in analysis.tables["exec"]] == ["a", "b"] and {"duration.a", "duration.b"} <= set(analysis.findings)
    assert analysis.findings["duration"].value == analysis.findings["duration.a"].value, "both take the same"
    assert analysis.findings["cpu_seconds"].value == pytest.approx(12) and analysis.findings["cpu_seconds.b"].value == pytest.approx(6)
    assert "on 2 hosts takes 4 (" in analysis.answer and "until the slowest host is finished" in analysis.answer
    assert analysis.tables["exec"][0]["host_cpu"].value is None, "only the whole was seen"


def test_the_slowest_host_and_the_range_of_values_are_told(options, results):
    study_options = options(hosts=("a", "b"), extract=RATE)
    slower = []
    for result in results(study_options, values={"rate": 100.0}):
        phase = result.phases[0]
        first, second = phase.targets
        reported = {**second.values, "duration_seconds": 2 * second.values["duration_seconds"], "value:rate": 50.0}
        observed = {"host:a": {"cpu.user": 0.5}, "host:b": {"cpu.user": 0.7}}
        changed = phase.model_copy(update={"targets": [first, second.model_copy(update={"values": reported})], "metrics": observed})
        slower.append(result.model_copy(update={"phases": [changed]}))
    analysis = STUDY.analyse(study_options, slower)
    assert analysis.findings["duration"].value == pytest.approx(8) and "rate is 50 (b) to 100 (a) MB/s" in analysis.answer
    assert [row["host_cpu"].value for row in analysis.tables["exec"]] == [pytest.approx(0.5), pytest.approx(0.7)]


def test_a_short_command_is_warned_of(options, results):
    _, analyse = analysed(options, results)
    assert any("starting a process" in text for text in analyse(duration=0.1).warnings)
    assert not any("starting a process" in text for text in analyse().warnings)


def test_figures_need_each_run(options, results):
    _, analyse = analysed(options, results, extract=RATE)
    runs = analyse(values={"rate": 1.0}, failed=(2,)).figures["runs"]
    assert [run["id"] for run in runs] == ["0001", "0002", "0004", "0005"] and runs[0]["values"] == {"rate": pytest.approx(0.98)}
