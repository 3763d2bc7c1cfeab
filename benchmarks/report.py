"""What the report of a run of up to 50 databases costs: CPU of ``pgherd report``, and the size of report.html.

The run is made up at E1's published size (160 cores, 4 vCPUs each, its fractions and past them, 3 repeats of 9 s), with
every metric that the samplers have for every entity, and laid down as a run lies on disk. A real run can be given instead:
report.py [RUN-DIRECTORY] works on a copy of it.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import outcome
from outcome import Figure

import pgherd
from pgherd.analysis.intervals import mean_interval
from pgherd.host.facts import gather
from pgherd.metrics.registry import samplers
from pgherd.model.analysis import Thresholds
from pgherd.model.errors import TrialError
from pgherd.model.host_facts import HostFacts
from pgherd.model.result import Latency, PhaseResult, TargetResult, TrialResult
from pgherd.model.run import RunRecord
from pgherd.model.trial import Trial
from pgherd.node.local import LocalNode
from pgherd.runner.checks.trial_checks import judge
from pgherd.store.run_directory import RunDirectory
from pgherd.studies.density.options import DensityOptions, choose_points
from pgherd.studies.density.propose import planned

CPU, BYTES = 3.0, 3_000_000
CORES, VCPUS, ALONE, START = 160.0, 4.0, 64_000.0, 1_790_000_000.0
SAMPLERS = {
    "host": ("cpu", "memory", "pressure", "vmstat"),
    "container": ("cgroup_cpu", "cgroup_memory", "pressure"),
    "server": ("database", "pg_io"),
    "disk": ("diskstats",),
    "process": ("processes",),
}
"""Which samplers describe which kind of entity."""


def main() -> None:
    """Measure, print, write."""
    parser = outcome.parser(__doc__, 5, "reports made (there are no pairs)")
    parser.add_argument("run", type=Path, nargs="?", metavar="RUN-DIRECTORY", help="report on a copy of this run")
    options = parser.parse_args()
    seed = outcome.seed_of(options)
    raw: list[dict[str, Any]] = []
    before = outcome.cpu_seconds()
    with tempfile.TemporaryDirectory(prefix="pgherd-benchmark-") as directory:
        run = Path(directory) / "run"
        if options.run:
            shutil.copytree(options.run, run)
            shutil.rmtree(run / "figures", ignore_errors=True)
        else:
            make_up(run, seed)
        made = RunDirectory(run)
        results = made.results()
        databases = max(len(phase.targets) for result in results for phase in result.phases)
        for _ in range(options.pairs or (2 if options.quick else 5)):
            raw.append(report(run))
            outcome.say(", ".join(f"{name} {value:,.2f}" for name, value in raw[-1].items()))
    settings = {"databases in the largest trial": databases, "trials": len(results), "made up": options.run is None}
    result = outcome.Outcome("report", options.quick, seed, settings, figures(raw), raw, outcome.noise_since(before))
    outcome.conclude(result, options)


def report(run: Path) -> dict[str, float]:
    """Make the report as a user does: CPU seconds, seconds, and sizes in bytes."""
    used, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run([sys.executable, "-m", "pgherd", "report", str(run)], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise TrialError(f"pgherd report ended with exit code {done.returncode}: {done.stderr}")
    figures = sum(file.stat().st_size for file in (run / "figures").iterdir())
    return {
        "CPU s": after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime,
        "s": time.monotonic() - began,
        "report.html": float(os.path.getsize(run / "report.html")),
        "figures": float(figures),
    }


def make_up(run: Path, seed: int) -> None:
    """A finished run of 40 and more databases, with the same numbers for the same seed."""
    rng = random.Random(seed)
    options = DensityOptions(
        host_cores=CORES,
        host_memory=512 * 2**30,
        vcpus=VCPUS,
        container_memory=8 * 2**30,
        runtime="cgroup",
        cpu_mode="quota",
        pg_bin="/usr/lib/postgresql/18/bin",
        pg_version="18.6",
        settings={"shared_buffers": "256MB", "max_connections": "40"},
        clients=8,
        threads=4,
        databases=choose_points(CORES, VCPUS),
        repeats=3,
        duration=9.0,
        seed=seed,
    )
    facts = gather(LocalNode()).model_copy(update={"cores": CORES, "logical_cpus": int(CORES), "hostname": "made-up"})
    results = [trial_result(trial, number, options, facts, rng) for number, trial in enumerate(planned(options))]
    directory = RunDirectory(run)
    for result in results:
        partial = directory.begin_trial(result.id)
        for name in samplers():
            (partial / "samples").mkdir(exist_ok=True)
            (partial / "samples" / f"{name}.parquet").write_bytes(b"PAR1")
        for target in result.phases[0].targets:
            for file in target.raw:
                (partial / file).parent.mkdir(parents=True, exist_ok=True)
                (partial / file).write_bytes(b"made up\n")
        directory.finish_trial(result)
    record = RunRecord(
        run="20260131-120000-density-0000",
        study="density",
        options=options.model_dump(mode="json"),
        command=["pgherd", "density"],
        state="finished",
        started=START - 60,
        ended=results[-1].ended,
        pgherd=pgherd.__version__,
        hosts={"local": facts},
        postgres={options.pg_bin: options.pg_version},
        settings=options.settings,
        timing={"setup": 60.0, "measured": 9.0 * len(results), "wall": 11.0 * len(results)},
    )
    directory.save(record)


def trial_result(trial: Trial, number: int, options: DensityOptions, facts: HostFacts, rng: random.Random) -> TrialResult:
    """What a trial might have given: linear up to 70 % of the cores, then flatter; repeats scatter by 1 %."""
    begin = START + 11 * number
    start, end = begin + 1, begin + 10
    loaded = list(trial.phases[0].loads)
    full = options.fraction(len(loaded))
    share = 1.0 if full <= 0.7 else (0.7 + 0.52 * (min(full, 1.0) - 0.7)) / full
    spread = rng.gauss(1, 0.008)
    used = min(VCPUS, CORES * 0.975 / len(loaded))
    targets = []
    metrics: dict[str, dict[str, float]] = {}
    for index, target in enumerate(loaded):
        series = [ALONE * share * spread * rng.gauss(1, 0.02) for _ in range(9)]
        name = f"drivers/00-steady/{target.replace('/', '.')}"
        tps = sum(series) / 9
        targets.append(
            TargetResult(
                target=target,
                driver="pgbench",
                transactions=tps * 9,
                throughput=tps,
                per_second=series,
                latency=Latency(mean=8000 / tps, p50=7000 / tps, p95=14000 / tps, p99=25000 / tps, maximum=30.0, sampled=int(tps * 0.45)),
                first=begin + 0.01,
                last=end,
                client_cpu=0.15 * used,
                client_cpu_seconds=1.5 * used,
                raw=[f"{name}/log.{1000 + index}.gz", f"{name}/stdout", f"{name}/stderr"],
            )
        )
        metrics[f"driver:{target}"] = values("process", rng) | {"cpu.usage": 0.15 * used}
    working = {target.split("/")[1] for target in loaded}
    for _, container in trial.deployment.containers():
        busy = container.name in working
        metrics[f"container:{container.name}"] = values("container", rng) | {"cpu.usage": used if busy else 0.002}
        metrics[f"server:{container.name}/pg"] = values("server", rng) | {
            "db.blks_hit": 3 * ALONE * busy,
            "db.blks_read": 0.0,
            "checkpoint.timed": 0.0,
            "checkpoint.requested": 0.0,
            "vacuum.workers": 0.0,
        }
        metrics[f"backend:{container.name}/pg"] = values("process", rng) | {"cpu.usage": 0.0004}
    metrics["disk:nvme0n1"] = values("disk", rng) | {"reads": 0.0}
    metrics["pgherd"] = values("process", rng) | {"cpu.usage": 0.015}
    inside = used * len(loaded)
    rest = {"cpu.user": inside * 0.7 + 0.2, "cpu.system": inside * 0.3 + 0.8, "cpu.idle": max(0.1, CORES - inside - 1.3), "cpu.steal": 0.3}
    metrics["host"] = values("host", rng) | dict.fromkeys(("cpu.nice", "cpu.irq", "cpu.softirq", "cpu.iowait"), 0.0) | rest
    phase = PhaseResult(phase="steady", start=start, end=end, overlap=1.0, targets=targets, metrics=metrics)
    return TrialResult(
        id=f"{number + 1:04d}",
        trial=trial,
        started=begin - 0.1,
        ended=end + 0.9,
        transition=f"{max(options.databases)} kept",
        phases=[phase],
        checks=judge(trial, [phase], facts, Thresholds(), 0.0),
    )


def values(kind: str, rng: random.Random) -> dict[str, float]:
    """A value for each metric that an entity of this kind has."""
    return {metric.name: rng.uniform(0.0, 1e6) for name in SAMPLERS[kind] for metric in samplers()[name].metrics}


def figures(raw: list[dict[str, Any]]) -> list[Figure]:
    """CPU and sizes."""
    cpu = mean_interval([row["CPU s"] for row in raw])
    size = max(row["report.html"] for row in raw)
    return [
        Figure.of("CPU of pgherd report", "CPU s", cpu, f"≤ {CPU:g} CPU s", outcome.met(cpu, most=CPU), "analysis, figures, page"),
        Figure("report.html", size / 1e6, "MB", n=len(raw), method="largest", goal=f"≤ {BYTES / 1e6:g} MB", met=size <= BYTES),
        Figure("figures as files", max(row["figures"] for row in raw) / 1e6, "MB", n=len(raw), method="largest"),
        Figure.of("wall clock", "s", mean_interval([row["s"] for row in raw])),
    ]


if __name__ == "__main__":
    outcome.run(main)
