"""Answer, findings, tables, warnings and grade of a command's run. Missing, failed and tainted trials give warnings, not errors."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pgherd.analysis.intervals import LEAST, mean_interval
from pgherd.model.analysis import Analysis, Finding, Grade
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.units import MB_PER_SECOND
from pgherd.studies.exec.options import ExecOptions
from pgherd.study.findings import as_finding, missing
from pgherd.study.grade import fallback_warnings, grade_of, qualify_answer, trial_warnings

Row = dict[str, Finding | str | int | float | None]
MB = 2**20
"""Unit of memory."""
_RESERVED_NAMES = frozenset({"duration", "cpu_seconds", "cpu_cores", "host_cpu", "host_memory"})
"""Names of findings. An extracted value with such a name is reported as ``value_NAME``."""
_SHORT_S = 0.5
"""Below this duration, the start of the process matters and there are few samples."""


@dataclass(frozen=True)
class CommandTrials:
    """Trials of a run. ``used`` are the clean ones, or the tainted ones if none is clean."""

    used: tuple[TrialResult, ...]
    tried: int
    tainted: int
    clean: bool

    def mean(self, extract: Callable[[TrialResult], float | None], unit: str, absent: str, note: str = "") -> Finding:
        """Return the mean over the used trials with its interval, or the reason ``absent`` if no trial has a value."""
        values = [value for trial in self.used if (value := extract(trial)) is not None]
        tainted = "" if self.clean else "only tainted trials: an indication"
        notes = "; ".join(text for text in (note, tainted) if text)
        return as_finding(mean_interval(values), unit, notes) if values else missing(unit, absent)


def analyse(options: ExecOptions, results: Sequence[TrialResult]) -> Analysis:
    """Return all findings, tables and figures of a command's run, its answer in one sentence, and its grade."""
    warnings = trial_warnings(results)
    trials = _finished_trials(results)
    if trials is None:
        reason = f"none of {len(results)} trials finished" if results else "no trial was run"
        return Analysis(answer=f"No result: {reason}.", grade="C", warnings=warnings)
    findings = _findings(options, trials)
    grade = _grade(trials)
    answer = _answer(options, findings)
    return Analysis(
        answer=qualify_answer(answer, grade),
        grade=grade,
        findings=findings,
        tables={"exec": [_row(options, trials, host) for host in options.hosts], "devices": _device_rows(trials)},
        warnings=[*warnings, *fallback_warnings([trials.clean]), *_warnings(options, findings)],
        next_steps=["output of the command: trials/NNNN/drivers/00-command/HOST/stdout and stderr in the run's directory"],
        figures={"runs": _runs(options, results)},
    )


def _finished_trials(results: Sequence[TrialResult]) -> CommandTrials | None:
    finished = [result for result in results if result.error is None and result.phases and result.phases[0].targets]
    clean = [result for result in finished if not result.tainted]
    used = clean or finished
    if not used:
        return None
    return CommandTrials(tuple(used), len(results), sum(result.tainted for result in results), bool(clean))


def _target(result: TrialResult, host: str) -> TargetResult | None:
    return next((target for target in result.phases[0].targets if target.target == host), None)


def _on_host(host: str, extract: Callable[[TargetResult], float | None]) -> Callable[[TrialResult], float | None]:
    def extract_from_host(result: TrialResult) -> float | None:
        target = _target(result, host)
        return None if target is None else extract(target)

    return extract_from_host


def _duration(target: TargetResult) -> float | None:
    return target.values.get("duration_seconds")


def _extracted_value(name: str) -> Callable[[TargetResult], float | None]:
    return lambda target: target.values.get(f"value:{name}")


def _metric(result: TrialResult, entity: str, name: str) -> float | None:
    return result.phases[0].metrics.get(entity, {}).get(name)


def _host_memory(result: TrialResult) -> float | None:
    total, available = _metric(result, "host", "memory.total"), _metric(result, "host", "memory.available")
    return None if total is None or available is None else (total - available) / MB


def _findings(options: ExecOptions, trials: CommandTrials) -> dict[str, Finding]:
    """Return the findings of the host. With several hosts, return common findings and those of each host (``duration.HOST``)."""
    findings = _host_findings(options, trials, options.hosts[0]) if len(options.hosts) == 1 else _common_findings(options, trials)
    for host in options.hosts if len(options.hosts) > 1 else ():
        findings |= {f"{name}.{host}": finding for name, finding in _host_findings(options, trials, host).items()}
    findings["host_cpu"] = trials.mean(
        lambda result: result.phases[0].busy_cores(),
        "cores",
        "the host's CPU was not sampled",
        "all processes of the host, mean over each trial",
    )
    findings["host_memory"] = trials.mean(
        _host_memory,
        "MB",
        "the host's memory was not sampled",
        "memory that is not available to programs, mean over each trial",
    )
    return findings


def _common_findings(options: ExecOptions, trials: CommandTrials) -> dict[str, Finding]:
    """Return the duration of the slowest of several hosts, and the sum of their CPU."""

    def over_hosts(
        extract: Callable[[TargetResult], float | None], combine: Callable[[list[float]], float]
    ) -> Callable[[TrialResult], float | None]:
        def extract_from_all(result: TrialResult) -> float | None:
            values = [value for target in result.phases[0].targets if (value := extract(target)) is not None]
            return combine(values) if len(values) == len(options.hosts) else None

        return extract_from_all

    absent = "not measured on every host"
    if options.duration is not None:
        return {"cpu_cores": trials.mean(over_hosts(lambda target: target.client_cpu, math.fsum), "cores", absent, "of all hosts together")}
    return {
        "duration": trials.mean(over_hosts(_duration, max), "s", absent, "of the slowest host of each trial"),
        "cpu_seconds": trials.mean(
            over_hosts(lambda target: target.client_cpu_seconds, math.fsum), "s", absent, "CPU time of all hosts together, per run"
        ),
    }


def _host_findings(options: ExecOptions, trials: CommandTrials, host: str) -> dict[str, Finding]:
    findings = {}
    if options.duration is None:
        note = "from the start of its process to its end"
        findings["duration"] = trials.mean(_on_host(host, _duration), "s", "the command did not end by itself", note)
        findings["cpu_seconds"] = trials.mean(
            _on_host(host, lambda target: target.client_cpu_seconds),
            "s",
            "not measured",
            "CPU time of the command and its children, per run",
        )
    else:
        findings["cpu_cores"] = trials.mean(
            _on_host(host, lambda target: target.client_cpu),
            "cores",
            "not measured",
            "of the command and its children, over its whole run time",
        )
    for value in options.extract:
        findings[_value_name(value.name)] = trials.mean(
            _on_host(host, _extracted_value(value.name)), value.unit, "not found in the command's output", f"extracted by {value.pattern}"
        )
    return findings


def _value_name(name: str) -> str:
    return f"value_{name}" if name in _RESERVED_NAMES else name


def _row(options: ExecOptions, trials: CommandTrials, host: str) -> Row:
    row: Row = {"host": host} if len(options.hosts) > 1 else {}
    row |= _host_findings(options, trials, host)
    if len(options.hosts) > 1:
        row["host_cpu"] = trials.mean(lambda result: result.phases[0].busy_cores(f"host:{host}"), "cores", "the host's CPU was not sampled")
    return row | {"trials": trials.tried, "tainted_trials": trials.tainted}


def _device_rows(trials: CommandTrials) -> list[Row]:
    """Return the block devices with I/O while the command ran, including I/O of other programs."""
    entities = sorted({entity for trial in trials.used for entity in trial.phases[0].metrics if entity.startswith("disk:")})
    rows: list[Row] = []
    for entity in entities:
        columns = {
            name: trials.mean(_rate(entity, metric, scale), unit, "not sampled")
            for name, metric, scale, unit in (
                ("reads", "reads", 1.0, "1/s"),
                ("writes", "writes", 1.0, "1/s"),
                ("read_rate", "read_bytes", MB_PER_SECOND, "MB/s"),
                ("write_rate", "write_bytes", MB_PER_SECOND, "MB/s"),
                ("utilization", "io_time", 0.01, "%"),
            )
        }
        if columns["reads"].value or columns["writes"].value:
            rows.append({"device": entity.partition(":")[2], **columns})
    return rows


def _rate(entity: str, metric: str, scale: float) -> Callable[[TrialResult], float | None]:
    def extract(result: TrialResult) -> float | None:
        value = _metric(result, entity, metric)
        return None if value is None else value / scale

    return extract


def _runs(options: ExecOptions, results: Sequence[TrialResult]) -> list[dict[str, object]]:
    """Return the data of each trial for the figures, in the order of the trials."""
    runs: list[dict[str, object]] = []
    for result in results:
        phase: PhaseResult | None = result.phases[0] if result.error is None and result.phases else None
        for host in options.hosts if phase is not None else ():
            target = _target(result, host)
            if target is not None:
                values = {value.name: target.values.get(f"value:{value.name}") for value in options.extract}
                runs.append({"id": result.id, "host": host, "tainted": result.tainted, "duration": _duration(target), "values": values})
    return runs


def _grade(trials: CommandTrials) -> Grade:
    """Return the grade. A: enough clean trials for an interval, all their checks passed. C: no clean trial. B: all other cases."""
    return grade_of([trials.clean], {result.trial.key() for result in trials.used}, trials.used, whole=len(trials.used) >= LEAST)


def _answer(options: ExecOptions, findings: dict[str, Finding]) -> str:
    name, several = _command_text(options.command), len(options.hosts) > 1
    hosts = f" on {len(options.hosts)} hosts" if several else ""
    if options.duration is None:
        slowest = " until the slowest host is finished" if several else ""
        parts = [f"{name}{hosts} takes {_number_text(findings['duration'])}{slowest}"]
    else:
        parts = [f"{name}{hosts} ran for {options.duration:g} s per trial"]
    # A value that the user extracts is the result, and the run time of its command may be constant.
    parts = [f"{value.name} is {_value_text(options, findings, value.name)}" for value in options.extract] + parts
    cpu = findings["cpu_seconds" if options.duration is None else "cpu_cores"]
    if cpu.value is not None:
        parts.append(f"it uses {_number_text(cpu)} of CPU" + (" per run" if options.duration is None else ""))
    return "; ".join(parts) + "."


def _value_text(options: ExecOptions, findings: dict[str, Finding], value: str) -> str:
    """Return an extracted value as text, for several hosts the minimum and the maximum."""
    key = _value_name(value)
    if len(options.hosts) == 1:
        return _number_text(findings[key])
    means = {host: mean for host in options.hosts if (mean := findings[f"{key}.{host}"].value) is not None}
    if not means:
        return _number_text(findings[f"{key}.{options.hosts[0]}"])
    lowest, highest = min(means, key=lambda host: means[host]), max(means, key=lambda host: means[host])
    return f"{_digits(means[lowest])} ({lowest}) to {_digits(means[highest])} ({highest}) {findings[f'{key}.{lowest}'].unit}".strip()


def _command_text(command: Sequence[str]) -> str:
    text = shlex.join(command)
    return f"'{text}'" if len(text) <= 60 else f"'{text[:57]}…'"


def _number_text(finding: Finding) -> str:
    if finding.value is None:
        return f"unknown ({finding.note})"
    interval = "" if finding.low is None or finding.high is None else f" ({_digits(finding.low)} … {_digits(finding.high)})"
    return f"{_digits(finding.value)}{interval} {finding.unit}".strip()


def _digits(value: float) -> str:
    """Return a number with three significant digits and without an exponent if it is large."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{float(f'{value:.3g}'):,.0f}"


def _warnings(options: ExecOptions, findings: dict[str, Finding]) -> list[str]:
    warnings = ["pgherd does not know what the command does: make sure that every trial starts in the same state (caches, files)"]
    durations = [finding.value for name, finding in findings.items() if name.partition(".")[0] == "duration" and finding.value is not None]
    if options.duration is None and durations and min(durations) < _SHORT_S:
        warnings.append(
            f"Short run time: the command takes {min(durations):.3g} s. It includes starting a process (some milliseconds). "
            "CPU, memory and devices were sampled only at its start and end"
        )
    return warnings
