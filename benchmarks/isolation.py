"""`pgherd isolation` with a known truth: an aggressor on another CPU has no effect, and one in the same quota takes its share.

- *apart*: scheme cpuset, aggressor cpu. The victim uses up its CPU: its throughput next to the aggressor ÷ that alone is 1.
- *at a rate*: the same at a rate that the victim can reach, as users run it: the ratio of its p99 is 1. It takes a third CPU: of two, the
  aggressor leaves none to pgherd's samplers and the system, which then run on the victim's.
- *quota*: scheme shared-container. In place of the aggressor's script is the victim's load, so that each gets half of what both get: the
  victim's share is 0.5. The ratio of throughput is lower by what twice as many processes in a quota cost.

Trials are those that the study plans, and ratios and intervals those of its analysis. Checks of trials are left out: a victim that misses
its rate is meant, and what else runs shows in the intervals.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import deployed
import outcome
import paired
from outcome import Figure

from pgherd.analysis.intervals import Estimate, mean_interval
from pgherd.model.analysis import Finding
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.prepare.prepared_study import prepare
from pgherd.runner.progress import RunObserver
from pgherd.studies.isolation.analyse import analyse
from pgherd.studies.isolation.options import ALONE, IsolationOptions, IsolationRequest
from pgherd.studies.isolation.propose import addresses, planned

MORE_THAN_A_CPU = 1e6
"""Rate that no victim reaches, so that it always has work."""
CLIENTS = 4
NEAR_SHARE = 0.02
"""Largest half of an interval of the share that shows something."""


@dataclass(frozen=True)
class Part:
    """Part of the benchmark: options of the study, and the ratio of which the truth is known.

    ``truth`` is None for a ratio that is only shown. ``near`` is the largest half of an interval that shows something. ``script`` is in
    place of the aggressor's own.
    """

    asked: Mapping[str, Any]
    ratio: str
    truth: float | None
    near: float
    name: str
    script: str | None = None


_APART = {"schemes": ("cpuset",), "vcpus": 1.0}
PARTS = {
    "apart": Part({**_APART, "rate": MORE_THAN_A_CPU}, "throughput_ratio", 1.0, 0.03, "another CPU: throughput ÷ alone"),
    "at a rate": Part({**_APART, "rate": 700.0}, "p99_ratio", 1.0, 0.15, "another CPU, at a rate: p99 ÷ alone"),
    "quota": Part(
        {"schemes": ("shared-container",), "vcpus": 0.5, "rate": MORE_THAN_A_CPU, "protocol": "simple"},
        "throughput_ratio",
        None,
        0.03,
        "same quota, equal loads: throughput ÷ alone",
        "builtin:select-only",
    ),
}


def main() -> None:
    """Measure, print, write."""
    parser = outcome.parser(__doc__, 15, "blocks of each part")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this one (repeatable)  [default: all]")
    parser.add_argument("--duration", type=float, default=5.0, metavar="S", help="measured seconds of a trial  [default: 5]")
    options = parser.parse_args()
    if options.quick:
        options.duration = 2.0
    options.pairs = options.pairs or (1 if options.quick else 15)
    seed = outcome.seed_of(options)
    settings: dict[str, Any] = {"seconds": options.duration, "clients": CLIENTS}
    raw: list[dict[str, Any]] = []
    found: dict[str, Finding] = {}
    before = outcome.cpu_seconds()
    for name in options.part or PARTS:
        study, results = measured(name, options, seed)
        settings |= {"postgres": study.pg_version, "runtime": study.runtime}
        raw += [_row(name, study, result) for result in results]
        found[name] = ratio_of(name, study, results)
    result = outcome.Outcome("isolation", options.quick, seed, settings, figures(found, raw), raw, outcome.noise_since(before))
    outcome.conclude(result, options)


def measured(name: str, asked: argparse.Namespace, seed: int) -> tuple[IsolationOptions, list[TrialResult]]:
    """Run the trials that the study plans for a part. Return its options and results."""
    node, part = deployed.CountedNode(), PARTS[name]
    request = {"aggressors": ("cpu",), "workload": "select-only", "scale": 10, "clients": CLIENTS, "aggressor_clients": CLIENTS}
    request |= {"repeats": asked.pairs, "duration": f"{asked.duration:g}s", "warmup": "1s", "seed": seed, "memory": "512MB"}
    prepared = prepare(node, "isolation", IsolationRequest.model_validate({**request, **part.asked}))
    assert isinstance(prepared.options, IsolationOptions)
    options = prepared.options
    if part.script is not None:
        options = options.model_copy(update={"scripts_of": {"cpu": part.script}})
    results = []
    with deployed.opened(node, options, prepared, RunObserver()) as (fleet, _):
        for trial in planned(options):
            started = node.now()
            played = deployed.play(node, fleet, trial)
            results.append(TrialResult(id=trial.key(), trial=trial, started=started, ended=node.now(), phases=played))
            outcome.say(f"{name}, block {trial.repeat + 1}, aggressor {_aggressor(trial)}: {_victim(options, played).throughput:,.0f} tps")
    return options, results


def _aggressor(trial: Trial) -> str:
    return str(trial.point["aggressor"])


def _victim(options: IsolationOptions, played: Sequence[PhaseResult]) -> Any:
    victim, _ = addresses(options.schemes[0])
    return next(target for target in played[0].targets if target.target == victim)


def _row(name: str, options: IsolationOptions, result: TrialResult) -> dict[str, Any]:
    victim = _victim(options, result.phases)
    others = [target.throughput for target in result.phases[0].targets if target is not victim]
    return {
        "part": name,
        "block": result.trial.repeat,
        "aggressor": _aggressor(result.trial),
        "victim tps": victim.throughput,
        "victim p99 ms": victim.latency.p99,
        "aggressor tps": others[0] if _aggressor(result.trial) != ALONE else None,
    }


def ratio_of(name: str, options: IsolationOptions, results: Sequence[TrialResult]) -> Finding:
    """Return the ratio of a part by the study's analysis."""
    (row,) = analyse(options, results).tables["isolation"]
    finding = row[PARTS[name].ratio]
    assert isinstance(finding, Finding)
    return finding


def figures(found: Mapping[str, Finding], raw: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Return the ratio of each part, and the victim's share of a quota, with their truths. A part without a value has none."""
    made = []
    for name, finding in found.items():
        part = PARTS[name]
        if finding.value is not None:
            ends = (finding.low, finding.high, finding.confidence)
            estimate = Estimate(finding.value, *ends, n=finding.n, method=finding.method, note=finding.note)
            known = Figure.of(part.name, "", estimate) if part.truth is None else paired.known(part.name, estimate, part.truth, part.near)
            made.append(known)
    both = [row for row in raw if row["part"] == "quota" and row["aggressor tps"] is not None]
    if both:
        share = mean_interval([row["victim tps"] / (row["victim tps"] + row["aggressor tps"]) for row in both])
        made.append(paired.known("same quota, equal loads: the victim's share of both", share, 0.5, NEAR_SHARE))
    return made


if __name__ == "__main__":
    outcome.run(main)
