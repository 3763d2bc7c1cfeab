"""Throughput of a host with too many databases by CPU scheduling: default, SCHED_BATCH, fewer clients, weights, cpuset.

The load is the last point of a default `pgherd density`: databases with a quota of 0.25 vCPU, 1.25 times as many as fit on the
host. Each variant changes one property. Each block measures every variant once, in random order, and the next block in the
reverse order. All servers restart before each measurement. The warm-up is longer than a density trial's, because a host can take
10 s after the start of the load to settle. Ratios are within blocks.
"""

from __future__ import annotations

import math
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import deployed
import outcome
import paired
from outcome import Figure

from pgherd.analysis.intervals import mean_interval
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.model.load import Phase
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.node.local import LocalNode
from pgherd.runner.deploy.deployer import Deployer
from pgherd.runner.execute import phases
from pgherd.runner.progress import RunObserver
from pgherd.studies.density.options import DensityOptions, deployment
from pgherd.study.observation import observe

BASELINE = "default"
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    BASELINE: {},
    "batch": {"scheduler": "batch"},
    "batch-servers": {"scheduler": "batch-servers"},
    "batch-clients": {"scheduler": "batch-clients"},
    "one client": {"clients": 1, "threads": 1},
    "no quota": {"cpu_mode": "none"},
    "cpuset": {"cpu_mode": "cpuset"},
}
"""Variant → changed options. Without a quota the containers have equal CPU weights. With a cpuset each has one whole CPU."""
QUANTITIES = {"throughput": "tps", "CPU per transaction": "µs", "CPU share received": "%"}
"""Quantity → unit. The share is CPU used by the containers, clients included, over the default variant's quota of all of them."""


def main() -> None:
    """Measure, print, write."""
    parser = outcome.parser(__doc__, 12, "blocks")
    parser.add_argument("--databases", type=int, help="databases  [default: 1.25 times a full host]")
    parser.add_argument("--vcpus", type=float, help="quota of a database in CPUs  [default: 0.25; --quick: 1]")
    parser.add_argument("--scale", type=int, default=10, help="pgbench scale  [default: 10]")
    parser.add_argument("--warmup", type=float, default=12.0, metavar="S", help="seconds before the measured time  [default: 12]")
    parser.add_argument("--duration", type=float, default=20.0, metavar="S", help="measured seconds  [default: 20]")
    parser.add_argument("--variant", action="append", choices=list(VARIANTS)[1:], help="only this one (repeatable)  [default: all]")
    options = parser.parse_args()
    if options.quick:
        options.scale, options.warmup, options.duration = 1, 0.5, 1.0
    blocks = options.pairs or (1 if options.quick else 12)
    vcpus = options.vcpus or (1.0 if options.quick else 0.25)
    variants = {name: VARIANTS[name] for name in (BASELINE, *(options.variant or list(VARIANTS)[1:]))}
    seed = outcome.seed_of(options)
    node = LocalNode()
    raw: list[dict[str, Any]] = []
    before = outcome.cpu_seconds()
    base, prepared = deployed.complete(node, vcpus=vcpus, scale=options.scale, databases=options.databases and (options.databases,))
    if base.runtime != "cgroup" or base.cpu_mode != "quota":
        raise CapabilityError("this benchmark needs CPU quotas, and this user cannot create cgroups")
    base = base.model_copy(update={"databases": base.databases[-1:]})
    with deployed.opened(node, base, prepared, RunObserver()) as (fleet, session):
        settings = {
            "databases": base.databases[0],
            "warm-up seconds": options.warmup,
            "seconds": options.duration,
            "variants": {name: dict(changes) for name, changes in variants.items()},
            **deployed.Deployed(base, fleet, session).settings(),
        }

        def note(number: int, block: dict[str, dict[str, Any]]) -> bool:
            raw.append(block)
            outcome.say(f"block {number}: " + ", ".join(f"{name} {row['throughput']:,.0f} tps" for name, row in block.items()))
            return False

        sides: dict[str, Callable[[], dict[str, Any]]] = {
            name: partial(measured, node, fleet, base, changes, options.warmup, options.duration) for name, changes in variants.items()
        }
        paired.run_blocks(blocks, random.Random(seed), sides, note)
    result = outcome.Outcome("scheduler", options.quick, seed, settings, figures(raw), raw, outcome.noise_since(before))
    outcome.conclude(result, options)


def variant_options(base: DensityOptions, changes: Mapping[str, Any]) -> DensityOptions:
    """Return the options of a variant. A cpuset has whole CPUs, as many as hold the quota."""
    vcpus = {"vcpus": float(math.ceil(base.vcpus))} if changes.get("cpu_mode") == "cpuset" else {}
    return base.model_copy(update={**changes, **vcpus})


def measured(
    node: LocalNode, fleet: Deployer, base: DensityOptions, changes: Mapping[str, Any], warmup: float, seconds: float
) -> dict[str, Any]:
    """Restart all servers, load them and return the quantities, the median latency (ms) and transactions of all by second.

    Raises:
        TrialError: a server or pgbench failed, or the CPU of a container was not observed.
    """
    options = variant_options(base, changes)
    chosen = deployment(options)
    loads = {target: options.load(options.clients) for target in chosen.addresses()}
    phase = Phase(warmup=warmup, seconds=seconds, loads=loads)
    trial = Trial(point={"databases": len(loads)}, deployment=chosen, phases=(phase,), state="restarted")
    fleet.apply(trial)
    scratch = fleet.scratch / "trial"
    node.make_dir(str(scratch), mode=0o711)
    started = time.time()
    with tempfile.TemporaryDirectory(prefix="pgherd-benchmark-") as directory, deployed.watcher() as progress:
        progress.planned(1, warmup + seconds)
        progress.trial(trial, 1)
        played, _ = phases.run(node, trial, fleet, Path(directory), scratch, progress, fleet.watched)
    shutil.rmtree(scratch)
    found = observe(options, TrialResult(id="0001", trial=trial, started=started, ended=time.time(), phases=played))
    if found is None or found.cpu_per_tx is None or found.cpu.loaded is None:
        raise TrialError("the CPU of the containers was not observed, or no transaction was counted")
    (phase_result,) = played
    return {
        "throughput": found.throughput,
        "CPU per transaction": 1000 * found.cpu_per_tx,
        "CPU share received": 100 * found.cpu.loaded / (len(loads) * base.vcpus),
        "clients' CPU, cores": found.cpu.clients,
        "median latency, ms": found.p50,
        "by second": [sum(second) for second in zip(*(target.per_second for target in phase_result.targets), strict=False)],
    }


def figures(raw: Sequence[Mapping[str, Mapping[str, Any]]]) -> list[Figure]:
    """Return the mean of each quantity of each variant, and ratios to the default of throughput and CPU per transaction."""
    made = []
    for variant in (name for name in VARIANTS if name in raw[0]):
        for quantity, unit in QUANTITIES.items():
            made.append(Figure.of(f"{variant}: {quantity}", unit, mean_interval([block[variant][quantity] for block in raw])))
        if variant == BASELINE:
            continue
        for quantity in ("throughput", "CPU per transaction"):
            ratio = paired.ratio(*([block[side][quantity] for block in raw] for side in (variant, BASELINE)))
            made.append(Figure.of(f"{variant}: {quantity} ÷ {BASELINE}", "", ratio))
    return made


if __name__ == "__main__":
    outcome.run(main)
