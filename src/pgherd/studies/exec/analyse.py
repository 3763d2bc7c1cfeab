"""From results to an answer with a grade. Pure; never raises for missing, failed or tainted trials: it says so."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pgherd.analysis.intervals import LEAST, mean_interval
from pgherd.model.finding import Analysis, Finding, Grade
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.studies.exec.options import ExecOptions
from pgherd.study.findings import as_finding, missing
from pgherd.study.grade import fallback_warnings, grade_of, qualify_answer, trial_warnings

Row = dict[str, Finding | str | int | float | None]
MB = 1e6
_OWN = frozenset({"duration", "cpu", "host_cpu", "host_memory"})
"""Names of findings; a value of that name is told as ``value_NAME``."""
_SHORT = 0.5
"""Seconds below which a command's start weighs in its duration, and samples are few."""


@dataclass(frozen=True)
class Trials:
    """The trials of a run. ``used`` are the clean ones, or the tainted ones where none is clean."""

    used: tuple[TrialResult, ...]
    tried: int
    tainted: int
    clean: bool

    def mean(self, take: Callable[[TrialResult], float | None], unit: str, absent: str, note: str = "") -> Finding:
        """Mean over the used trials with its interval, or why there is none."""
        values = [value for one in self.used if (value := take(one)) is not None]
        tainted = "" if self.clean else "only tainted trials: an indication"
        joined = "; ".join(text for text in (note, tainted) if text)
        return as_finding(mean_interval(values), unit, joined) if values else missing(unit, absent)


def analyse(options: ExecOptions, results: Sequence[TrialResult]) -> Analysis:
    """All findings, tables and figures of a command's run, one sentence as its answer, and its grade."""
    warnings = trial_warnings(results)
    trials = _trials(results)
    if trials is None:
        said = f"{len(results)} trials were run and none of them finished" if results else "no trial was run"
        return Analysis(answer=f"Nothing can be said: {said}.", grade="C", warnings=warnings)
    findings = _findings(options, trials)
    grade = _grade(trials)
    text = _sentence(options, findings)
    return Analysis(
        answer=qualify_answer(text, grade),
        grade=grade,
        findings=findings,
        tables={"exec": [_row(options, trials, host) for host in options.hosts], "devices": _devices(trials)},
        warnings=[*warnings, *fallback_warnings([trials.clean]), *_warnings(options, findings)],
        look_at=["what the command said: trials/NNNN/drivers/00-command/HOST/stdout and stderr in the run's directory"],
        figures={"runs": _runs(options, results)},
    )


def _trials(results: Sequence[TrialResult]) -> Trials | None:
    finished = [one for one in results if one.error is None and one.phases and one.phases[0].targets]
    clean = [one for one in finished if not one.tainted]
    used = clean or finished
    if not used:
        return None
    return Trials(tuple(used), len(results), sum(one.tainted for one in results), bool(clean))


def _target(result: TrialResult, host: str) -> TargetResult | None:
    return next((one for one in result.phases[0].targets if one.target == host), None)


def _of(host: str, take: Callable[[TargetResult], float | None]) -> Callable[[TrialResult], float | None]:
    def taken(result: TrialResult) -> float | None:
        one = _target(result, host)
        return None if one is None else take(one)

    return taken


def _duration(one: TargetResult) -> float | None:
    return one.values.get("duration_seconds")


def _value(name: str) -> Callable[[TargetResult], float | None]:
    return lambda one: one.values.get(f"value:{name}")


def _metric(result: TrialResult, entity: str, *names: str) -> float | None:
    metrics = result.phases[0].metrics.get(entity, {})
    return sum(metrics[name] for name in names) if all(name in metrics for name in names) else None


def _host_memory(result: TrialResult) -> float | None:
    total, available = _metric(result, "host", "memory.total"), _metric(result, "host", "memory.available")
    return None if total is None or available is None else (total - available) / MB


def _findings(options: ExecOptions, trials: Trials) -> dict[str, Finding]:
    """Of the host; with several, of all together, and of each under names of its own (``duration.HOST``)."""
    found = _of_host(options, trials, options.hosts[0]) if len(options.hosts) == 1 else _of_all(options, trials)
    for host in options.hosts if len(options.hosts) > 1 else ():
        found |= {f"{name}.{host}": finding for name, finding in _of_host(options, trials, host).items()}
    found["host_cpu"] = trials.mean(
        lambda result: result.phases[0].busy_cores(),
        "cores",
        "the host's CPU was not seen",
        "all that ran on the host, mean over each trial",
    )
    found["host_memory"] = trials.mean(
        _host_memory, "MB", "the host's memory was not seen", "what is not available to programs, mean over each trial; 1 MB is 10^6 bytes"
    )
    return found


def _of_all(options: ExecOptions, trials: Trials) -> dict[str, Finding]:
    """Of several hosts together: the slowest one's duration, and the sum of their CPU."""

    def over(take: Callable[[TargetResult], float | None], whole: Callable[[list[float]], float]) -> Callable[[TrialResult], float | None]:
        def taken(result: TrialResult) -> float | None:
            values = [value for one in result.phases[0].targets if (value := take(one)) is not None]
            return whole(values) if len(values) == len(options.hosts) else None

        return taken

    absent = "not seen on every host"
    if options.seconds is not None:
        return {"cpu": trials.mean(over(lambda one: one.client_cpu, math.fsum), "cores", absent, "of all hosts together")}
    return {
        "duration": trials.mean(over(_duration, max), "s", absent, "of the slowest host of each trial"),
        "cpu": trials.mean(over(lambda one: one.client_cpu_seconds, math.fsum), "s", absent, "CPU time of all hosts together, a run"),
    }


def _of_host(options: ExecOptions, trials: Trials, host: str) -> dict[str, Finding]:
    found = {}
    if options.seconds is None:
        note = "from the start of its process to its end"
        found["duration"] = trials.mean(_of(host, _duration), "s", "the command did not end by itself", note)
        found["cpu"] = trials.mean(
            _of(host, lambda one: one.client_cpu_seconds), "s", "not seen", "its own and its children's CPU time, a run"
        )
    else:
        found["cpu"] = trials.mean(
            _of(host, lambda one: one.client_cpu), "cores", "not seen", "its own and its children's, over its whole life"
        )
    for value in options.values:
        found[f"value_{value.name}" if value.name in _OWN else value.name] = trials.mean(
            _of(host, _value(value.name)), value.unit, "not found in the command's output", f"read by {value.pattern}"
        )
    return found


def _row(options: ExecOptions, trials: Trials, host: str) -> Row:
    row: Row = {"host": host} if len(options.hosts) > 1 else {}
    row |= _of_host(options, trials, host)
    if len(options.hosts) > 1:
        row["host_cpu"] = trials.mean(lambda result: result.phases[0].busy_cores(f"host:{host}"), "cores", "the host's CPU was not seen")
    return row | {"trials": trials.tried, "tainted": trials.tainted}


def _devices(trials: Trials) -> list[Row]:
    """Block devices on which anything was read or written while the command ran, whoever did it."""
    names = sorted({entity for one in trials.used for entity in one.phases[0].metrics if entity.startswith("disk:")})
    rows: list[Row] = []
    for entity in names:
        shown = {
            name: trials.mean(_rate(entity, metric, scale), unit, "not seen")
            for name, metric, scale, unit in (
                ("reads", "reads", 1.0, "1/s"),
                ("writes", "writes", 1.0, "1/s"),
                ("read", "read_bytes", MB, "MB/s"),
                ("written", "write_bytes", MB, "MB/s"),
                ("busy", "io_time", 0.01, "%"),
            )
        }
        if shown["reads"].value or shown["writes"].value:
            rows.append({"device": entity.partition(":")[2], **shown})
    return rows


def _rate(entity: str, metric: str, scale: float) -> Callable[[TrialResult], float | None]:
    def taken(result: TrialResult) -> float | None:
        value = _metric(result, entity, metric)
        return None if value is None else value / scale

    return taken


def _runs(options: ExecOptions, results: Sequence[TrialResult]) -> list[dict[str, object]]:
    """What the figures need of each trial, in the order in which they ran."""
    found: list[dict[str, object]] = []
    for result in results:
        phase: PhaseResult | None = result.phases[0] if result.error is None and result.phases else None
        for host in options.hosts if phase is not None else ():
            one = _target(result, host)
            if one is not None:
                values = {value.name: one.values.get(f"value:{value.name}") for value in options.values}
                found.append({"id": result.id, "host": host, "tainted": result.tainted, "duration": _duration(one), "values": values})
    return found


def _grade(trials: Trials) -> Grade:
    """A: clean trials enough for an interval, all verdicts passed in them. C: no clean trial. B: everything between."""
    return grade_of([trials.clean], {one.trial.key() for one in trials.used}, trials.used, whole=len(trials.used) >= LEAST)


def _sentence(options: ExecOptions, findings: dict[str, Finding]) -> str:
    name, several = _shown(options.command), len(options.hosts) > 1
    hosts = f" on {len(options.hosts)} hosts" if several else ""
    if options.seconds is None:
        slowest = " until the slowest is done" if several else ""
        parts = [f"{name}{hosts} takes {_words(findings['duration'])}{slowest}"]
    else:
        parts = [f"{name}{hosts} ran for {options.seconds:g} s a trial"]
    parts += [f"{value.name} is {_by_host(options, findings, value.name)}" for value in options.values]
    if findings["cpu"].value is not None:
        parts.append(f"it uses {_words(findings['cpu'])} of CPU" + (" a run" if options.seconds is None else ""))
    return "; ".join(parts) + "."


def _by_host(options: ExecOptions, findings: dict[str, Finding], value: str) -> str:
    """A value in words: of several hosts the least and the most."""
    key = f"value_{value}" if value in _OWN else value
    if len(options.hosts) == 1:
        return _words(findings[key])
    means = {host: mean for host in options.hosts if (mean := findings[f"{key}.{host}"].value) is not None}
    if not means:
        return _words(findings[f"{key}.{options.hosts[0]}"])
    least, most = min(means, key=lambda host: means[host]), max(means, key=lambda host: means[host])
    return f"{means[least]:.3g} ({least}) to {means[most]:.3g} ({most}) {findings[f'{key}.{least}'].unit}".strip()


def _shown(command: Sequence[str]) -> str:
    text = shlex.join(command)
    return f"'{text}'" if len(text) <= 60 else f"'{text[:57]}…'"


def _words(finding: Finding) -> str:
    if finding.value is None:
        return f"unknown ({finding.note})"
    between = "" if finding.low is None or finding.high is None else f" ({finding.low:.3g} … {finding.high:.3g})"
    return f"{finding.value:.3g}{between} {finding.unit}".strip()


def _warnings(options: ExecOptions, findings: dict[str, Finding]) -> list[str]:
    found = ["What the command does is not known: whether each trial starts as the one before it did (caches, files) is for you to see to"]
    durations = [finding.value for name, finding in findings.items() if name.partition(".")[0] == "duration" and finding.value is not None]
    if options.seconds is None and durations and min(durations) < _SHORT:
        found.append(
            f"It takes {min(durations):.3g} s: starting a process (some milliseconds) weighs in that, and CPU, memory and devices were "
            "sampled at its start and end alone"
        )
    return found
