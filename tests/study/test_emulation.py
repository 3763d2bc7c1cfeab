import pytest

from pgherd.model.analysis import Analysis, Check, Finding
from pgherd.model.deployment import Container, Deployment, Host
from pgherd.model.load import Load, Phase
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.study.emulation import EMULATION_REASON, FUNCTIONAL_TABLE, discount_checks, is_emulated, with_emulation

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
