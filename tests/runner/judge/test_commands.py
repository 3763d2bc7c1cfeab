import pytest

from pgherd.model.facts import HostFacts
from pgherd.model.finding import Thresholds
from pgherd.model.load import Load
from pgherd.model.result import PhaseResult, TargetResult
from pgherd.model.trial import Trial
from pgherd.runner.judge import commands as command_verdicts
from pgherd.runner.judge import verdicts
from pgherd.studies.exec.options import ExecOptions
from pgherd.studies.exec.propose import propose

FACTS = HostFacts(hostname="h", kernel="6", cores=2, logical_cpus=2, memory=2**30)


def judged(check, *values, options=None):
    hosts = [f"h{number}" for number in range(len(values))]
    loads = {host: Load(driver="command", options=options or {"argv": '["true"]'}) for host in hosts}
    trial = Trial.model_validate(
        {"point": {}, "deployment": {"hosts": [{"name": host} for host in hosts]}, "phases": [{"loads": loads}], "intents": ["exit-code"]}
    )
    targets = [
        TargetResult(target=host, driver="command", transactions=1, throughput=1, first=0, last=1, values=own)
        for host, own in zip(hosts, values, strict=True)
    ]
    phase = PhaseResult(phase="steady", start=0, end=1, overlap=1, targets=targets)
    return getattr(command_verdicts, check)(trial, 0, phase, FACTS, Thresholds())


def test_exit_code_0_passes():
    verdict = judged("exit_code", {"exit_code": 0.0}, {"exit_code": 0.0})
    assert verdict.result == "pass" and verdict.kind == "intent" and verdict.severity == "taint"


@pytest.mark.parametrize(("code", "words"), [(3.0, "exit code 3 on h1"), (-9.0, "signal 9 on h1")])
def test_any_other_fails(code, words):
    verdict = judged("exit_code", {"exit_code": 0.0}, {"exit_code": code})
    assert verdict.result == "fail" and verdict.observed == words and "stderr" in verdict.why


def test_one_that_was_told_to_end_has_run_until_then():
    assert judged("exit_code", {}).result == "pass"


def test_every_value_has_to_be_there():
    options = {"argv": '["true"]', "value:rate": r"(\d+)", "value:lag": r"(\d+)"}
    assert judged("values_found", {"value:rate": 1.0, "value:lag": 0.0}, options=options).result == "pass"
    verdict = judged("values_found", {"value:rate": 1.0, "value:lag": 0.0}, {"value:rate": 1.0}, options=options)
    assert verdict.result == "fail" and verdict.observed == "not found: lag on h1"


def test_a_command_s_cpu_is_what_its_processes_used():
    def used(driver, sampled, whole):
        target = TargetResult(target="local", driver=driver, transactions=1, throughput=1, first=0, last=1, client_cpu=whole)
        metrics = {} if sampled is None else {"driver:local": {"cpu.usage": sampled}}
        return command_verdicts.cpu(target, PhaseResult(phase="p", start=0, end=1, overlap=1, targets=[target], metrics=metrics))

    assert used("command", 0.01, 1.5) == 1.5 and used("command", 0.01, None) == 0.01 and used("command", None, None) == 0
    assert used("fio", 0.25, 1.5) == 0.25, "a driver that is sampled is taken as it was in the window"


def test_how_long_it_lasts_is_judged_of_no_open_ended_trial():
    target = TargetResult(target="local", driver="command", transactions=1, throughput=1, first=0, last=1, values={"exit_code": 0.0})
    phase = PhaseResult(phase="command", start=0, end=1, overlap=0.4, targets=[target])
    checks = {}
    for seconds in (None, 60.0):
        trial = propose(ExecOptions(command=("true",), cores=2, seconds=seconds), []).trials[0]
        checks[seconds] = {verdict.check for verdict in verdicts.judge(trial, [phase], FACTS, Thresholds(), 0.0)}
    assert checks[60.0] - checks[None] == {"overlap", "length"} and "exit-code" in checks[None]
