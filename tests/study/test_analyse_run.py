"""The order of what every study's conclusion goes through; each part has tests of its own."""

import pytest

from pgherd.model.analysis import Analysis, Check
from pgherd.model.base import Model
from pgherd.model.deployment import Deployment, Host
from pgherd.model.load import Phase
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.study.analyse_run import conclude


class Study:
    """Says what it is given to say."""

    grade = "A"

    def analyse(self, options, results):
        return Analysis(answer="measured", grade=self.grade, tables={"own": [{"x": 1}]})


def result(**metrics):
    trial = Trial(point={"databases": 1}, deployment=Deployment(hosts=(Host(),)), phases=(Phase(name="p"),))
    phase = PhaseResult(phase="p", start=0, end=1, overlap=1, targets=[], metrics=metrics)
    return TrialResult(id="0001", trial=trial, started=0, ended=1, phases=[phase])


def test_a_plain_run_is_concluded_by_its_study_alone():
    outcome = conclude(Study(), Model(), [result(host={"cpu.user": 1.0})])
    assert outcome.answer == "measured" and set(outcome.tables) == {"own"}


def test_an_emulated_one_is_functional_only():
    outcome = conclude(Study(), Model(), [result(**{"guest:a": {"emulated": 1.0}})])
    assert outcome.answer.startswith("Functional only") and "own" not in outcome.tables


@pytest.mark.parametrize(("inputs", "grade"), [("A", "B"), ("B", "B"), ("C", "C")])
def test_numbers_that_mix_two_hosts_are_not_of_grade_a(inputs, grade):
    study = Study()
    study.grade = inputs
    assert conclude(study, Model(), [result()], ["After 5 trials …"]).grade == grade
    assert conclude(study, Model(), [result()]).grade == inputs


def test_what_to_do_about_a_busy_machine_comes_first():
    study = Study()
    study.grade = "B"
    busy = Check(name="background-cpu", kind="noise", result="fail", observed="40 %", expected="≤ 5 %")
    trials = [result().model_copy(update={"checks": [busy]}), result()]
    (text,) = conclude(study, Model(), trials, command=["pgherd", "density"]).next_steps
    assert text.startswith("Rerun on an idle machine") and text.endswith("1 of 2 trials (background-cpu): pgherd density")
    emulated = [result(**{"guest:a": {"emulated": 1.0}}).model_copy(update={"checks": [busy]})]
    assert not any("idle machine" in next_step for next_step in conclude(study, Model(), emulated).next_steps), (
        "a quiet machine emulates, too"
    )
