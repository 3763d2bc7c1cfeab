import shutil
import subprocess

import pytest

from pgherd.model.errors import UsageError
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.run import RunRecord, Surroundings
from pgherd.report import repro_script
from pgherd.report.repro_tools import command_script
from pgherd.studies.exec.options import ExecOptions
from pgherd.studies.exec.study import STUDY

RECORD = RunRecord(
    run="r",
    study="exec",
    options={},
    started=0,
    pgherd="1",
    surroundings=Surroundings(runtime="process", run_as="bench", cores=1, memory=1),
)


def result(*words, **changes):
    trial = STUDY.propose(ExecOptions(command=words or ("echo", "x"), cores=1, **changes), []).trials[0]
    values = {"duration_seconds": 1.5, "value:rate": 250.0}
    targets = [TargetResult(target="local", driver="command", transactions=1, throughput=1, first=0, last=1, values=values)]
    return TrialResult(
        id="0001", trial=trial, started=0, ended=1, phases=[PhaseResult(phase="p", start=0, end=1, overlap=1, targets=targets)]
    )


def test_the_script_does_what_the_run_did(tmp_path):
    marker = "a b; $HOME `x` 'q'"
    text = command_script(result("printenv", "A", cwd=str(tmp_path), env={"A": marker}), RECORD)
    assert "It ran as account bench." in text and "There duration seconds was 1.5 (local)." in text and "There rate was 250" in text
    file = tmp_path / "repeat.sh"
    file.write_text(text)
    told = subprocess.run(["sh", str(file)], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", "SECRET": "1"})
    assert told.returncode == 0 and told.stdout == marker + "\n", told
    if shutil.which("shellcheck"):
        assert subprocess.run(["shellcheck", "--exclude=SC2016", str(file)], capture_output=True).returncode == 0


def test_the_caller_s_environment_does_not_reach_it(tmp_path):
    text = command_script(result("env"), RECORD)
    told = subprocess.run(["sh", "-c", text], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", "SECRET": "1"})
    assert told.returncode == 0 and set(told.stdout.split()) == {"PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}


def test_one_that_is_ended_by_the_clock_is_here_too():
    assert "timeout 12 sleep 60" in command_script(result("sleep", "60", seconds=10.0, ramp=2.0), RECORD)
    assert "timeout" not in command_script(result("sleep", "60"), RECORD)


def test_root_s_command_says_so():
    assert "It ran as account root." in command_script(result(privileged=True), RECORD)


def test_show_takes_it_from_here():
    assert "echo x" in repro_script.script(result(), RECORD)


def test_several_hosts_are_said():
    assert "2 hosts did this at the same time: a, b" in command_script(result(hosts=("a", "b")), RECORD)


def test_what_no_shell_can_say_is_refused():
    with pytest.raises(UsageError, match="NUL"):
        command_script(result("echo", "a\0b"), RECORD)
    one = result()
    trial = one.trial.model_copy(update={"phases": one.trial.phases * 2})
    with pytest.raises(UsageError, match="several phases"):
        command_script(one.model_copy(update={"trial": trial}), RECORD)


def test_a_hostile_name_stays_a_comment():
    assert "\nrm" not in command_script(result(), RECORD.model_copy(update={"run": "r\nrm -rf /"}))
