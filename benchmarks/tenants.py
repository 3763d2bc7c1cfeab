"""Tenants with a known truth: classes on separate CPUs add up, equal loads halve a quota, and 40 tenants keep their rates in phases.

- apart: a small and a large class have one CPU each. Together they make the sum of what each makes alone, and neither has an effect on
  the other. With two CPUs pgherd shares them, and two CPUs that are threads of one core share that.
- quota: two equal loads are in one container. Each gets half of the throughput.
- phases: all tenants have a rate, which differs between phases for half of them. pgbench's arrivals are random, so a single tenant's
  number in a phase says little: judged are all tenants of a phase together, and each tenant's schedule lag. Where the lag grows by 2 % of
  the time, the rate is missed by 2 %. A pgbench starts for each tenant of a phase: that takes some milliseconds of a CPU, times tenants.

Sides of a pair follow each other on servers that keep running.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

import deployed
import outcome
import paired
from outcome import Figure

from pgherd.analysis.intervals import Estimate, mean_interval, median_interval, share_interval
from pgherd.model.deployment import Container, Deployment, Host
from pgherd.model.errors import PgherdError
from pgherd.model.load import Load, Phase
from pgherd.model.result import PhaseResult
from pgherd.model.trial import Trial
from pgherd.runner.deploy.deployer import Deployer
from pgherd.runner.progress import RunObserver
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.tenant_mix import tenant_names
from pgherd.studies.density.tenants import mix_phases
from pgherd.study.database_options import target
from pgherd.study.objectives import START_S, lag_excess

PARTS = ("apart", "quota", "phases")
CLASSES = {
    "apart": (
        "{name: small, count: 1, vcpus: 1, cpu_mode: cpuset, scale: 1, clients: 1}",
        "{name: large, count: 1, vcpus: 1, cpu_mode: cpuset, scale: 10, clients: 4}",
    ),
    "quota": ("{name: equal, count: 1, vcpus: 1, cpu_mode: quota, scale: 10, clients: 4}",),
    "phases": (
        "{name: steady, count: 1, vcpus: 0.25, scale: 1, rate: 10}",
        "{name: pair, count: 1, vcpus: 0.25, scale: 1, rate: 20, activity: elastic}",
    ),
}
"""Part → its classes, as in a file for --tenants. All have pgbench's select-only, which needs no disk."""
MEMORY = {"apart": "512MB", "quota": "512MB", "phases": "128MB"}
NEAR = 0.02
"""Largest half of an interval that shows something, and largest miss of a rate."""
MOST_BEHIND = 0.01
"""Largest share of tenants' phases that may miss the rate, since other programs run too."""
SWITCH_MS = 20.0
OWN_CPU = 3.0
"""Per cent of one core."""


def main() -> None:
    """Measure, print, write."""
    parser = outcome.parser(__doc__, 40, "blocks of apart and quota")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this one (repeatable)  [default: all]")
    parser.add_argument("--duration", type=float, default=5.0, metavar="S", help="measured seconds of apart and quota  [default: 5]")
    parser.add_argument("--tenants", type=int, default=40, help="tenants in phases  [default: 40]")
    parser.add_argument("--trials", type=int, default=10, help="trials of eight phases  [default: 10]")
    options = parser.parse_args()
    if options.quick:
        options.duration, options.tenants, options.trials = 1.0, 4, 1
    options.pairs = options.pairs or (2 if options.quick else 40)
    seed = outcome.seed_of(options)
    settings: dict[str, Any] = {"seconds": options.duration, "tenants": options.tenants, "seconds of a phase": _phase_seconds(options)}
    raw: list[dict[str, Any]] = []
    before = outcome.cpu_seconds()
    for part in options.part or PARTS:
        with _up(part, options) as (node, fleet, tenants):
            settings |= {"postgres": tenants.pg_version, "runtime": tenants.runtime}
            if part == "phases":
                for row in in_phases(node, fleet, tenants, options):
                    phase_figures([row])  # a fault shows after the first trial
                    raw.append(row)
            else:
                raw += in_blocks(part, options, random.Random(f"{seed} {part}"), SIDES[part](node, fleet, tenants, options.duration))
    result = outcome.Outcome("tenants", options.quick, seed, settings, figures(raw), raw, outcome.noise_since(before))
    outcome.conclude(result, options)


def _phase_seconds(options: argparse.Namespace) -> float:
    """Return a duration within which pgbench reports often enough for a schedule lag that grows to be seen."""
    return 5.0 if options.quick else 6.0


@contextlib.contextmanager
def _up(part: str, options: argparse.Namespace) -> Iterator[tuple[deployed.CountedNode, Deployer, DensityOptions]]:
    """Yield an empty fleet for the classes of a part, and their options."""
    node = deployed.CountedNode()
    number = options.tenants if part == "phases" else len(CLASSES[part])
    with tempfile.TemporaryDirectory(prefix="pgherd-benchmark-") as directory:
        file = Path(directory) / "tenants.yaml"
        file.write_text("classes:\n" + "".join(f"  - {one}\n" for one in CLASSES[part]))
        asked = {"tenants": str(file), "databases": (number,), "memory": MEMORY[part], "workload": "select-only", "seed": 1}
        asked |= {"duration": f"{_phase_seconds(options):g}s"} if part == "phases" else {}
        asked |= {"warmup": "300ms"} if options.quick else {}
        chosen, prepared = deployed.complete(node, **asked)
    with deployed.opened(node, chosen, prepared, RunObserver()) as (fleet, _):
        yield node, fleet, chosen


def _trial(options: DensityOptions, containers: Sequence[Container], played: Sequence[Phase]) -> Trial:
    host = Host(cores=options.host_cores, memory=options.host_memory, containers=tuple(containers))
    return Trial(point={}, deployment=Deployment(hosts=(host,)), phases=tuple(played))


# ---- blocks


Side = Callable[[], dict[str, float]]
"""Function that measures one side of a block: throughput by tenant."""


def in_blocks(part: str, options: argparse.Namespace, rng: random.Random, sides: Mapping[str, Side]) -> list[dict[str, Any]]:
    """Measure all sides in each block and return a row for each block: side → throughput by tenant."""
    rows: list[dict[str, Any]] = []

    def note(number: int, block: dict[str, dict[str, float]]) -> bool:
        rows.append({"part": part, **block})
        texts = (f"{side} {' + '.join(f'{tps:,.0f}' for tps in found.values())} tps" for side, found in block.items())
        outcome.say(f"{part}, block {number}: {', '.join(texts)}")
        return False

    paired.run_blocks(options.pairs, rng, sides, note)
    return rows


def _sides(
    node: deployed.CountedNode,
    fleet: Deployer,
    options: DensityOptions,
    seconds: float,
    containers: Sequence[Container],
    loads: Mapping[str, tuple[str, Load]],
) -> dict[str, Side]:
    """Return a side for each tenant alone, and one for both. ``loads`` maps a tenant to its target and load."""

    def measure(names: Sequence[str]) -> dict[str, float]:
        chosen = dict(loads[name] for name in names)
        phase = Phase(warmup=options.warmup + START_S * len(loads), seconds=seconds, loads=chosen)
        (played,) = deployed.play(node, fleet, _trial(options, containers, [phase]))
        found = {one.target: one.throughput for one in played.targets}
        return {name: found[loads[name][0]] for name in names}

    return {**{name: partial(measure, (name,)) for name in loads}, "both": partial(measure, tuple(loads))}


def _apart(node: deployed.CountedNode, fleet: Deployer, options: DensityOptions, seconds: float) -> dict[str, Side]:
    """Each class has a container on a CPU of its own."""
    named = tenant_names(options.tenants, len(options.tenants), options.seed)
    loads = {one.name: (target(name), one.tenant_load()) for name, one in named}
    return _sides(node, fleet, options, seconds, [one.container(name) for name, one in named], loads)


def _quota(node: deployed.CountedNode, fleet: Deployer, options: DensityOptions, seconds: float) -> dict[str, Side]:
    """One container has a server for each of two equal loads."""
    (one,) = options.tenants
    names = ("first", "second")
    servers = tuple(one.own_server(name, (one.database_called("bench"),)) for name in names)
    memory = None if one.container_memory is None else len(names) * one.container_memory
    container = one.container("both").model_copy(update={"servers": servers, "memory": memory})
    loads = {name: (f"local/both/{name}/bench", one.tenant_load()) for name in names}
    return _sides(node, fleet, options, seconds, [container], loads)


SIDES = {"apart": _apart, "quota": _quota}


# ---- phases


def in_phases(node: deployed.CountedNode, fleet: Deployer, options: DensityOptions, asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Run all tenants through the phases of their activity and yield a row for each trial."""
    named = tenant_names(options.tenants, asked.tenants, options.seed)
    trial = _trial(options, [one.container(name) for name, one in named], mix_phases(options, asked.tenants))
    for number in range(1, asked.trials + 1):
        played = deployed.play(node, fleet, trial)
        assert node.begun is not None and node.over is not None
        wall = node.over.at - node.begun.at
        row = {
            "part": "phases",
            "phases": [_phase_row(plan, phase) for plan, phase in zip(trial.phases, played, strict=True)],
            "pgherd by clock": 100 * (node.over.own - node.begun.own) / wall,
            "backends by clock": 100 * (node.over.backends - node.begun.backends) / wall,
        }
        skews = [phase["switch ms"] for phase in row["phases"]]
        outcome.say(
            f"trial {number}: switches in {min(skews):.0f} to {max(skews):.0f} ms, pgherd {row['pgherd by clock']:.2f} % and its backends "
            f"{row['backends by clock']:.2f} % of a core"
        )
        yield row


def _phase_row(plan: Phase, phase: PhaseResult) -> dict[str, float]:
    """Return the transactions due and done, the tenants behind their rate, the time of the switch and pgherd's CPU in a phase."""
    due, done, behind, unknown = 0.0, 0.0, 0, 0
    for found in phase.targets:
        load = plan.loads[found.target]
        assert load.rate is not None
        excess = lag_excess(found, load, phase.seconds)
        due, done = due + load.rate * phase.seconds, done + found.transactions
        behind += excess is not None and excess > NEAR
        unknown += excess is None
    own = {entity: found["cpu.usage"] for entity, found in phase.metrics.items() if entity.partition(":")[0] in ("pgherd", "backend")}
    return {
        "tenants": len(phase.targets),
        "due": due,
        "done": done,
        "behind": behind,
        "lag unknown": unknown,
        "switch ms": 1000 * (phase.skew or 0.0),
        "own CPU": 100 * math.fsum(own.values()),
    }


# ---- figures


def figures(raw: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Return the ratios with their known truth, and the goals of phases."""
    rows = {part: [row for row in raw if row["part"] == part] for part in PARTS}
    made = []
    if rows["apart"]:
        made += apart_figures(rows["apart"])
    if rows["quota"]:
        made += quota_figures(rows["quota"])
    if rows["phases"]:
        made += phase_figures(rows["phases"])
    return made


def apart_figures(rows: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Return the throughput of both classes together over the sum of each alone, and that of each next to the other."""
    names = list(rows[0]["both"])
    alone = {name: [row[name][name] for row in rows] for name in names}
    both = {name: [row["both"][name] for row in rows] for name in names}
    sums = [[sum(values) for values in zip(*side.values(), strict=True)] for side in (both, alone)]
    found = {"both ÷ the sum of each alone": paired.ratio(*sums)}
    found |= {f"{name} next to the other ÷ alone": paired.ratio(both[name], alone[name]) for name in names}
    return [paired.known(f"one CPU each: {name}", ratio, 1.0, NEAR) for name, ratio in found.items()]


def quota_figures(rows: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Return the share of one of two equal loads, and its throughput over that alone."""
    first, second = ([row["both"][name] for row in rows] for name in ("first", "second"))
    share = mean_interval([one / (one + other) for one, other in zip(first, second, strict=True)])
    made = [paired.known("one quota: share of one of two equal loads", share, 0.5, NEAR)]
    slowed = paired.ratio(first, [row["first"]["first"] for row in rows])
    return [*made, Figure.of("one quota: throughput next to an equal load ÷ alone", "", slowed)]


def phase_figures(rows: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Return how rates are kept, how long switches take, and what pgherd uses."""
    played = [phase for row in rows for phase in row["phases"]]
    each = f"{played[0]['tenants']} tenants"

    def of_trials(value: Callable[[Mapping[str, float]], float]) -> list[float]:
        """Return the mean of each trial, whose phases have servers and neighbours in common."""
        return [fmean(value(phase) for phase in row["phases"]) for row in rows]

    rate = mean_interval(of_trials(lambda phase: phase["done"] / phase["due"]))
    judged = sum(phase["tenants"] - phase["lag unknown"] for phase in played)
    switch = median_interval([median(phase["switch ms"] for phase in row["phases"]) for row in rows])
    slowest = max(phase["switch ms"] for phase in played)
    clocks = mean_interval([row["pgherd by clock"] + row["backends by clock"] for row in rows])
    measured = mean_interval(of_trials(lambda phase: phase["own CPU"]))
    unit, cpu = "% of a core", f"≤ {OWN_CPU:g} %"
    made = [
        Figure.of(f"{each}: transactions ÷ due, of a phase", "", rate, f"± {NEAR}", outcome.met(rate, least=1 - NEAR, most=1 + NEAR)),
        Figure.of(f"{each}: from the first to the last switch, median", "ms", switch, *_goal_of_switch(switch)),
        Figure(f"{each}: from the first to the last switch, longest", slowest, "ms", None, None, len(played), "maximum"),
        Figure.of(f"{each}: pgherd and its backends in phases", unit, measured, cpu, outcome.met(measured, most=OWN_CPU)),
        Figure.of(f"{each}: pgherd and its backends, switches included", unit, clocks, cpu, outcome.met(clocks, most=OWN_CPU)),
    ]
    if not judged:
        raise PgherdError(f"the schedule lag is unknown in all {len(played)} phases; a phase takes too short a time for it")
    behind = share_interval(sum(phase["behind"] for phase in played), judged)
    name = f"{each}: phases of a tenant that miss its rate by more than {100 * NEAR:g} %"
    goal = (f"≤ {100 * MOST_BEHIND:g} %", outcome.met(behind, most=MOST_BEHIND))
    unknown = sum(phase["lag unknown"] for phase in played)
    note = f"by its schedule lag, unknown in {unknown:g} of {unknown + judged:g}"
    made.insert(1, Figure.of(name, "%", behind.scaled(100), *goal, note=note))
    return made


def _goal_of_switch(found: Estimate) -> tuple[str, bool | None]:
    return f"≤ {SWITCH_MS:g} ms", outcome.met(found, most=SWITCH_MS)


if __name__ == "__main__":
    outcome.run(main)
