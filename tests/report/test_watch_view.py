import io

import pytest
from rich.console import Console

from pgherd.model.analysis import Check
from pgherd.report.live_status import LiveDevice, LiveStatus, LiveThroughput, LiveTrialResult, LiveTrialStatus, LiveUsage
from pgherd.report.watch_view import changes, heading, measured_text, phase_text, picture, progress, result_text, spark, trial_text

TRIAL = LiveTrialStatus(
    number=7, point={"databases": 8}, repeat=1, reason="planned", phases=1, phase=1, name="steady", phase_part="measured", elapsed=4.2,
    seconds=9.0, drivers={"pgbench": 8},
)  # fmt: skip


def result(id_="0006", **changes):
    complete = {"id": id_, "point": {"databases": 8}, "repeat": 0, "seconds": 11.0, "throughput": 121934.0, "unit": "tps"}
    return LiveTrialResult(**{**complete, "tainted": False, "error": None, "passed": 9, **changes})


def verdict(check, result, severity="taint"):
    return Check(name=check, kind="noise", result=result, observed="3.1 %", expected="at most 2 %", severity=severity)


def present(**update):
    return LiveStatus(
        **{
            "run": "20260131-120000-density-0a1b",
            "study": "density",
            "state": "running",
            "at": 200.0,
            "started": 0.0,
            "ended": None,
            "elapsed": 200.0,
            "trials_done": 1,
            "trials_remaining": 3,
            "seconds_remaining": 65.0,
            "trial": TRIAL,
            "throughput": LiveThroughput(value=121934.0, reporting=8, targets=8, series=[(1.0, 60.0), (2.0, 120.0)]),
            "host": LiveUsage(name="host", cpu=1.9, vcpus=2, memory=3.2e9, limit=24e9),
            "containers": [LiveUsage(name="c01", cpu=0.25, vcpus=0.25, memory=2**29, limit=2**30), LiveUsage(name="c02")],
            "devices": [LiveDevice(name="sda", reads=120.0, writes=3.0, read_bytes=2**20, write_bytes=0.0)],
            "trials": [result()],
            **update,
        }
    )


def drawn(shown, height=40, width=100):
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False).print(picture(shown, height))
    return out.getvalue()


def test_the_picture_has_all_of_it():
    text = drawn(present())
    for message in (
        "density 20260131-120000-density-0a1b, running for 3 min 20 s",
        "1 trial done, 3 left, about 1 min 5 s (more may be added)",
        "Trial 7: databases 8, repeat 1",
        "Phase 'steady', 1 of 1: measured 4 of 9 s, 8 × pgbench",
        "Throughput: 121.9k tps",
        "▅█",
        "1.90 of 2",
        "0.25 of 0.25",
        "512 MB of 1 GB",
        "sda",
        "0006  databases 8: 121.9k tps, all 9 checks pass",
    ):
        assert message in text, message
    assert "c02" in text and "–" in text, "what is not seen has a dash"


def test_rates_are_in_powers_of_1000():
    devices = [
        LiveDevice(name="sda", reads=120.0, writes=3.0, read_bytes=1.5e6, write_bytes=0.0),
        LiveDevice(name="sdb", reads=12.0, writes=3.0, read_bytes=2.5e9, write_bytes=123456.0),
    ]
    lines = [line.split() for line in drawn(present(devices=devices)).splitlines() if line.startswith("sd")]
    assert [line[3:] for line in lines] == [["1.5", "MB/s", "0", "B/s"], ["2.5", "GB/s", "123", "kB/s"]]


def test_many_containers_fit_the_height():
    many = [LiveUsage(name=f"c{number:02d}", cpu=0.1) for number in range(40)]
    text = drawn(present(containers=many), height=30)
    assert len(text.splitlines()) <= 32 and "more" in text and "c39" not in text
    assert "c39" in drawn(present(containers=many), height=80)


def test_while_setting_up_there_is_only_a_step():
    text = drawn(present(trial=None, throughput=None, host=None, containers=[], devices=[], setup_step="copying 8 databases (1.2 GB)"))
    assert "Setting up: copying 8 databases (1.2 GB)" in text and "Trial" not in text


def test_names_with_brackets_and_escapes_are_text():
    text = drawn(present(containers=[LiveUsage(name="[red]c\x1b[31m")], setup_step="[bold]x", trial=None))
    assert "[red]c" in text and "\x1b" not in text and "[bold]x" in text


def test_a_driver_that_tells_nothing_is_said():
    assert "known at the end of the trial" in drawn(present(throughput=LiveThroughput(value=None, reporting=0, targets=1)))
    assert "not reported yet" in drawn(present(throughput=LiveThroughput(value=None, reporting=2, targets=2)))
    assert "of 1 of 2 drivers" in drawn(present(throughput=LiveThroughput(value=5.0, reporting=1, targets=2)))


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (result(), "all 9 checks pass"),
        (result(error="a server died"), "0006  databases 8: failed: a server died"),
        (result(tainted=True, checks=[verdict("steal", "fail")]), "tainted: steal (3.1 %, expected at most 2 %)"),
        (result(checks=[verdict("steal", "unknown")], passed=8), "8 checks pass; unknown: steal"),
        (result(checks=[verdict("x", "fail", "warn")]), "all 9 checks pass"),
        (result(passed=0), "no checks"),
        (result(throughput=None), "databases 8: took 11 s"),
        (result(misses=[]), "121.9k tps, passes, all 9 checks pass"),
        (result(misses=["percentile", "schedule lag"]), "121.9k tps, misses by percentile and schedule lag, all 9 checks pass"),
    ],
)
def test_what_came_of_a_trial(item, text):
    assert text in result_text(item)


def test_words_of_a_trial_that_was_not_planned_say_why():
    assert trial_text(TRIAL.model_copy(update={"reason": "rerun of tainted databases=8#0"})).endswith("(rerun of tainted databases=8#0)")


def test_a_part_that_ends_with_its_drivers_has_a_bound_only():
    assert "4 of at most 600 s" in phase_text(TRIAL.model_copy(update={"ends_with": "drivers", "seconds": 600.0}))
    assert phase_text(TRIAL.model_copy(update={"phase": None})) == ""


def test_lines_tell_what_has_changed():
    first = present(trial=TRIAL.model_copy(update={"phase_part": "warmup", "elapsed": 0.5, "seconds": 1.0}))
    text = list(changes(None, first))
    assert text[0] == heading(first) and text[1] == progress(first) and any("warm-up" in line for line in text)
    assert list(changes(first, first)) == []
    now = present()
    assert list(changes(first, now)) == [phase_text(TRIAL)]
    ended = present(trial=None, trials=[result(), result("0007", tainted=True, checks=[verdict("steal", "fail")])])
    assert [line[:4] for line in changes(now, ended)] == ["0007"]
    assert list(changes(now, present(trial=None, setup_step="cloning"))) == ["setting up: cloning"]


def test_one_line_on_what_is_measured():
    assert measured_text(present()) == "Throughput: 121.9k tps; host CPU 1.90 of 2; memory 2.98 GB of 22.4 GB"
    assert measured_text(present(host=None)) == ""


def test_several_hosts_stand_below_all_of_them():
    each = [LiveUsage(name=name, cpu=0.9, vcpus=1, memory=2**30, limit=2**31) for name in ("db1", "db2")]
    shown = present(host=LiveUsage(name="all hosts", cpu=1.8, vcpus=2, memory=2**31, limit=2**32), hosts=each)
    lines = drawn(shown).splitlines()
    names = [word for row in lines for word in ("all hosts", "host db1", "host db2", "c01") if row.startswith(word)]
    assert names == ["all hosts", "host db1", "host db2", "c01"]
    assert measured_text(shown) == "Throughput: 121.9k tps; all hosts CPU 1.80 of 2; memory 2 GB of 4 GB"


def test_progress_says_no_more_than_is_known():
    assert progress(present(trials_remaining=0, trials_done=12)) == "12 trials done"
    assert progress(present(seconds_remaining=None)) == "1 trial done, 3 left (more may be added)"


def test_a_run_that_ended_is_said_to_have():
    assert heading(present(state="finished")).endswith("finished after 3 min 20 s")


def test_sparks_are_relative_to_the_largest():
    assert spark([0, 4, 8]) == "▁▅█" and spark([0, 0]) == "▁▁" and spark([]) == ""
