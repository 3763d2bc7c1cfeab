"""Made-up trials of a command of which duration, values and load are known."""

from __future__ import annotations

import pytest

from pgherd.model.analysis import Check
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.studies.exec.options import ExecOptions
from pgherd.studies.exec.study import STUDY


@pytest.fixture
def options():
    def make(**changes):
        return ExecOptions.model_validate({"command": ("make", "-j2"), "host_cores": 2} | changes)

    return make


@pytest.fixture
def results(options):
    """All planned trials: the n-th takes ``duration`` × (1 + spread × (n − 2)) seconds."""

    def make(asked=None, duration=4.0, spread=0.01, values=None, cpu=6.0, tainted=(), failed=(), host=True):
        asked = asked or options()
        collected = []
        for number, trial in enumerate(STUDY.propose(asked, []).trials):
            ran = {"id": f"{number + 1:04d}", "trial": trial, "started": 10.0 * number, "ended": 10.0 * number + duration + 0.5}
            if number in failed:
                collected.append(TrialResult(**ran, error="it had not ended after 10 min"))
                continue
            took = duration * (1 + spread * (number - 2)) if asked.duration is None else asked.duration
            reported = {"duration_seconds": took, "exit_code": float(number in tainted)} if asked.duration is None else {}
            reported |= {f"value:{name}": value * (1 + spread * (number - 2)) for name, value in (values or {}).items()}
            targets = [
                TargetResult(
                    target=name, driver="command", transactions=1, throughput=1 / took, first=0, last=took, values=reported,
                    client_cpu=cpu / took, client_cpu_seconds=cpu,
                )
                for name in asked.hosts
            ]  # fmt: skip
            metrics = {
                "host": {"cpu.user": 1.5, "cpu.online": 2.0, "cpu.idle": 0.2, "memory.total": 4e9, "memory.available": 1e9},
                "disk:sda": {"reads": 10.0, "writes": 20.0, "read_bytes": 1e6, "write_bytes": 2e6, "io_time": 0.25},
                "disk:sdb": {"reads": 0.0, "writes": 0.0, "read_bytes": 0.0, "write_bytes": 0.0, "io_time": 0.0},
            }
            phase = PhaseResult(phase="command", start=0, end=took, overlap=1, targets=targets, metrics=metrics if host else {})
            result = "fail" if number in tainted else "pass"
            verdict = Check(name="exit-code", kind="validity", result=result, observed="exit code 1", expected="exit code 0")
            collected.append(TrialResult(**ran, phases=[phase], checks=[verdict]))
        return collected

    return make
