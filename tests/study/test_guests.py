import pytest

from pgherd.model.analysis import Analysis, Check, Finding
from pgherd.model.deployment import Container, Deployment, Host, VmOptions
from pgherd.model.device_io import DeviceIo, DeviceView
from pgherd.model.load import Load, Phase
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.study.guests import (
    EMULATION_REASON,
    FUNCTIONAL_TABLE,
    discount_checks,
    is_emulated,
    uses_ksm,
    with_emulation,
    with_guest_memory,
)

MEASURED = Analysis(
    answer="This host holds 7 databases.", grade="A", findings={"databases": Finding(value=7, unit="")}, tables={"density": [{"tps": 5}]}
)


def phase(mark):
    metrics = {"host": {"cpu.user": 1.0}} | ({} if mark is None else {"guest:a": {"emulated": mark}})
    return PhaseResult(phase="p", start=0, end=1, overlap=1, targets=[], metrics=metrics)


def result(number, mark=1.0, guests=1, error=None):
    deployment = Deployment(hosts=(Host(containers=tuple(Container(name=f"db{n}", runtime="vm") for n in range(guests))),))
    loads = {"local": Load(driver="command")}
    trial = Trial.model_construct(
        point={"databases": guests},
        repeat=0,
        deployment=deployment,
        phases=(Phase(name="p", warmup=0, seconds=1, loads=loads),),
        validity_checks=(),
    )
    return TrialResult.model_construct(
        id=f"{number:04d}", trial=trial, started=0, ended=1, phases=[] if error else [phase(mark)], error=error, checks=[]
    )


def test_only_a_guest_that_was_emulated_makes_trials_functional():
    assert is_emulated([phase(None), phase(1.0)])
    assert not is_emulated([phase(None), phase(0.0)]) and not is_emulated([])
    assert with_emulation(MEASURED, [result(1, mark=0.0), result(2, mark=None)]) is MEASURED


def test_nothing_of_speed_is_said_of_an_emulated_run():
    emulation = with_emulation(MEASURED, [result(1), result(2, guests=3), result(3, error="guest db1 ended")])
    assert emulation.grade == "C" and "throughput is not reported" in emulation.answer and "1 of 3 trials failed" in emulation.answer
    assert "up to 3 guests" in emulation.answer and set(emulation.tables) == {FUNCTIONAL_TABLE} and not emulation.figures
    assert {name: finding.value for name, finding in emulation.findings.items()} == {"trials_finished": 2, "trials_failed": 1, "guests": 3}
    assert emulation.tables[FUNCTIONAL_TABLE] == [
        {"point": "databases 1", "trials": 2, "finished": 1},
        {"point": "databases 3", "trials": 1, "finished": 1},
    ]
    assert any("0003 failed: guest db1 ended" in warning for warning in emulation.warnings)


def test_what_was_ended_for_want_of_memory_is_said_all_the_same():
    kills = [{"container": "db1", "processes": 1}]
    observed = MEASURED.model_copy(update={"tables": {"density": [{"tps": 5}], "oom_kills": kills}})
    emulation = with_emulation(observed, [result(1)])
    assert set(emulation.tables) == {FUNCTIONAL_TABLE, "oom_kills"} and emulation.tables["oom_kills"] == kills


def test_what_is_judged_by_speed_is_unknown_there():
    verdicts = [
        Check(name="cpu-bound", kind="validity", result="fail", observed="10 %", expected="95 %"),
        Check(name="overlap", kind="noise", result="pass", observed="99 %", expected="95 %"),
        Check(name="cached", kind="validity", result="pass", observed="hit ratio 99.9 %", expected="hit ratio ≥ 99 %"),
    ]
    assert discount_checks(verdicts, [phase(None)]) == verdicts
    first, *others = discount_checks(verdicts, [phase(1.0)])
    assert (first.result, first.reason, others) == ("unknown", EMULATION_REASON, verdicts[1:])


@pytest.mark.parametrize("check", ["cpu-bound", "io-bound", "not-client-bound", "rate-achieved"])
def test_nothing_of_speed_passes_there_either(check):
    """Nor is it a pass where a phase of several fell short."""
    for reported in ({"result": "pass"}, {"result": "fail", "failed_phases": ("p",)}):
        (outcome,) = discount_checks([Check(name=check, kind="validity", observed="99 %", expected="95 %", **reported)], [phase(1.0)])
        assert (outcome.result, outcome.reason, outcome.failed_phases) == ("unknown", EMULATION_REASON, ())


MB = 2.0**20
EMPTY = Analysis(answer="x", grade="A")


def metrics(ballooned=300.0, resident=400.0, database=250.0):
    guest = {
        "guest.memory_configured": 1000 * MB,
        "guest.memory_balloon_actual": (1000 - ballooned) * MB,
        "guest.target": 650 * MB,
        "guest.free": 300 * MB,
    }
    return {
        "guest:a": guest | {"qemu.anon": (resident + 60) * MB, "qemu.overhead": 60 * MB},
        "server:a/pg": {"balloon.bytes": database * MB},
        "guest-drive:a/data": {"reads": 0.0, "read_bytes": 0.0, "read_time": 0.0, "writes": 100.0, "write_bytes": 8e6, "write_time": 0.3}
        | {"flushes": 10.0, "flush_time": 0.1},
        "guest-disk:a/vdb": {"reads": 0.0, "writes": 100.0, "write_bytes": 8e6, "write_time": 0.4, "flushes": 10.0, "flush_time": 0.1},
    }


def trial(number=1, found=None, point=None, error=None, merge=False):
    host = Host(containers=(Container(name="a", runtime="vm", vm=VmOptions(merge=merge)),))
    request = Trial(point=point or {"scheme": 3}, deployment=Deployment(hosts=(host,)), phases=(Phase(name="high"),))
    phase = PhaseResult(phase="high", start=0.0, end=10.0, overlap=1.0, targets=[], metrics=metrics() if found is None else found)
    return TrialResult(id=f"{number:04d}", trial=request, started=0.0, ended=10.0, phases=[] if error else [phase], error=error)


def test_a_guest_is_a_row_of_every_phase() -> None:
    guest_memory = with_guest_memory(EMPTY, [trial(1), trial(2, metrics(310.0, 390.0)), trial(3, metrics(290.0, 410.0))])
    (row,) = guest_memory.tables["guest_memory"]
    assert (row["point"], row["phase"], row["guest"]) == ("scheme 3", "high", "a")
    values = {name: cell.value for name, cell in row.items() if hasattr(cell, "value")}
    assert values == pytest.approx(
        {
            "configured": 1000,
            "resident": 400,
            "ballooned": 300,
            "by_pg_balloon": 250,
            "compressed": 0,
            "swapped": 0,
            "never_touched": 300,
            "unaccounted": 0,
            "balloon_target": 650,
        }
    )
    parts = ("resident", "ballooned", "compressed", "swapped", "never_touched", "unaccounted")
    assert sum(values[name] for name in parts) == pytest.approx(values["configured"]), "by_pg_balloon is in it once, as a part of ballooned"
    ballooned = row["ballooned"]
    assert ballooned.n == 3 and ballooned.low < 300 < ballooned.high
    assert "do not add it" in row["by_pg_balloon"].note
    assert guest_memory.warnings == []


def test_a_drive_is_a_row_too_in_both_views() -> None:
    row, inside = with_guest_memory(EMPTY, [trial()]).tables["guest_drives"]
    assert (row["drive"], row["reported_by"]) == ("a/data", "the hypervisor")
    assert (inside["drive"], inside["reported_by"], inside["write_await"].value) == ("a/vdb", "the guest", pytest.approx(3))
    values = {name: cell.value for name, cell in row.items() if hasattr(cell, "value")}
    assert values["write_await"] == pytest.approx(2) and values["flush_await"] == pytest.approx(10) and values["write_rate"] == 8
    assert values["read_await"] is None and values["reads"] == 0


def test_the_two_views_of_a_drive_stand_together_under_both_names() -> None:
    result = trial()
    extra = {f"guest-{name}": {"reads": 1.0} for name in ("drive:a/wal", "disk:a/vdc", "drive:a/root", "disk:a/vda")}
    inside = (("vdb", "data"), ("vdc", "wal"))
    devices = [DeviceView(number=f"guest-disk:a/{name}", name=name, below=[f"guest-drive:a/{drive}"]) for name, drive in inside]
    devices += [DeviceView(number=f"guest-drive:a/{drive}", name=drive, below=["253:0"]) for _, drive in inside]
    (phase,) = result.phases
    phase = phase.model_copy(update={"metrics": {**phase.metrics, **extra}, "io": DeviceIo(devices=devices)})
    rows = with_guest_memory(EMPTY, [result.model_copy(update={"phases": [phase]})]).tables["guest_drives"]
    assert [(row["drive"], row["also_known_as"]) for row in rows] == [
        *(("a/vdb", "a/data"), ("a/data", "a/vdb")),
        ("a/root", ""),
        ("a/vda", ""),
        *(("a/vdc", "a/wal"), ("a/wal", "a/vdc")),
    ]


def test_memory_that_is_not_accounted_for_is_said() -> None:
    guest_memory = with_guest_memory(EMPTY, [trial(1, metrics(400.0, 1000.0))])
    assert [
        warning.startswith("40% of the memory") and "is unaccounted for in phase 'high'" in warning for warning in guest_memory.warnings
    ] == [True]


def test_points_stand_apart_and_failed_trials_away() -> None:
    guest_memory = with_guest_memory(EMPTY, [trial(1), trial(2, point={"scheme": 4}), trial(3, error="died")])
    assert [row["point"] for row in guest_memory.tables["guest_memory"]] == ["scheme 3", "scheme 4"]


def test_runs_without_guests_are_left_as_they_are() -> None:
    assert with_guest_memory(EMPTY, []) == EMPTY
    assert with_guest_memory(EMPTY, [trial(1, {"container:a": {"memory.usage": 1.0}})]) == EMPTY
    once = with_guest_memory(EMPTY, [trial()])
    assert with_guest_memory(once, [trial()]) == once


def test_a_guest_whose_balloon_was_not_seen() -> None:
    (row,) = with_guest_memory(EMPTY, [trial(1, {"guest:a": {"guest.memory_configured": 1000 * MB}})]).tables["guest_memory"]
    assert row["ballooned"].value is None and row["ballooned"].note == "its balloon was not measured"


def test_pages_that_the_host_has_merged_are_said_to_be_counted_in_each_guest() -> None:
    assert not uses_ksm([trial()])
    (row,) = with_guest_memory(EMPTY, [trial(merge=True)]).tables["guest_memory"]
    assert "merged by KSM count in each guest" in row["resident"].note
    (row,) = with_guest_memory(EMPTY, [trial()]).tables["guest_memory"]
    assert "KSM" not in row["resident"].note


def test_what_merging_saves_is_a_table_of_its_own() -> None:
    host = {"ksm.shared": 86 * MB, "ksm.saved": 148 * MB, "ksm.unshared": 188 * MB, "ksm.full_scans": 0.05}
    guest_memory = with_guest_memory(EMPTY, [trial(merge=True, found={**metrics(), "host": host})])
    (row,) = guest_memory.tables["ksm"]
    assert (row["point"], row["phase"]) == ("scheme 3", "high")
    values = {name: (cell.value, cell.unit) for name, cell in row.items() if hasattr(cell, "value")}
    assert values == {
        "shared": (86, "MB"),
        "saved": (148, "MB"),
        "unshared": (188, "MB"),
        "rounds": (pytest.approx(3), "1/min"),
    }
    guest = {**metrics()["guest:a"], "guest.ksm_merged": 90 * MB}
    (row,) = with_guest_memory(EMPTY, [trial(merge=True, found={**metrics(), "guest:a": guest})]).tables["guest_memory"]
    assert row["ksm_merged"].value == 90 and row["resident"].value == pytest.approx(400), "a part of it, and not taken off"
    plain = with_guest_memory(EMPTY, [trial(found={**metrics(), "host": host})]).tables
    assert "ksm" not in plain and "ksm_merged" not in plain["guest_memory"][0], "others may merge: it was not asked for here"
