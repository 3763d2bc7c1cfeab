"""Verdicts of trials that run a command: did it end well, and did its output hold what is to be read from it? Pure."""

from __future__ import annotations

from pgherd.drivers.command import VALUE, patterns_of
from pgherd.model.facts import HostFacts
from pgherd.model.finding import Thresholds, Verdict
from pgherd.model.result import PhaseResult, TargetResult
from pgherd.model.trial import Trial

_SEE = "see its stdout and stderr in the trial's directory"


def exit_code(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Verdict:
    """Every command that ended by itself ended with 0; one that was told to end had to run until then, or the trial failed."""
    codes = {target.target: code for target in phase.targets if (code := target.values.get("exit_code")) is not None}
    wanted = "exit code 0 of every command"
    if not codes:
        return _verdict("exit-code", True, "each ran until it was told to end", wanted)
    bad = {target: code for target, code in codes.items() if code != 0}
    if not bad:
        return _verdict("exit-code", True, "exit code 0", wanted)
    said = ", ".join(f"{_code(code)} on {target}" for target, code in bad.items())
    return _verdict("exit-code", False, said, wanted, _SEE)


def values_found(trial: Trial, number: int, phase: PhaseResult, facts: HostFacts, limits: Thresholds) -> Verdict:
    """Every value that is to be read from an output was there, as a number."""
    loads = trial.phases[number].loads
    missing = [
        f"{name} on {target.target}"
        for target in phase.targets
        for name in patterns_of(loads[target.target])
        if f"{VALUE}{name}" not in target.values
    ]
    wanted = "a number for every --value"
    if missing:
        return _verdict("values-found", False, f"not found: {', '.join(missing)}", wanted, _SEE)
    return _verdict("values-found", True, "all found", wanted)


def cpu(target: TargetResult, phase: PhaseResult) -> float:
    """Cores that a driver used in the window, as far as it was seen. A command's own processes are not sampled, but their CPU is known once
    it has waited for them: the mean over its whole life stands for the window."""
    sampled = phase.metrics.get(f"driver:{target.target}", {}).get("cpu.usage", 0.0)
    return max(sampled, target.client_cpu or 0.0) if target.driver == "command" else sampled


def _verdict(check: str, ok: bool, observed: str, wanted: str, why: str = "") -> Verdict:
    return Verdict(check=check, kind="intent", result="pass" if ok else "fail", observed=observed, wanted=wanted, why=why)


def _code(code: float) -> str:
    return f"exit code {code:.0f}" if code >= 0 else f"signal {-code:.0f}"
