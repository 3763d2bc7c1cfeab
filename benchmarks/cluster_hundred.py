"""How the driver's own work grows from 4 to 100 hosts: joining, an order to all hosts, clocks, and collecting their samples.

The engine, the scheduler and the network stack are real, over TLS; the hosts are not: many workers share a few processes of this
machine, each with a loopback address of its own, and what they would measure is made up. So every host's work is on this machine, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import cluster_actor
import outcome
from outcome import Figure

from pgherd.analysis.intervals import median_interval
from pgherd.cluster import certificates, dask_client
from pgherd.cluster.interfaces import RemoteObject
from pgherd.distributed.merge_results import qualified
from pgherd.model.errors import TrialError
from pgherd.store.samples import HostSamples, merge_samples

SIZES = (4, 10, 25, 50, 100)
PER_PROCESS = 25
REPEATS = 6
"""The fewest of which a median has an interval."""
SECONDS = 600
METRICS = {"cpu": 11, "memory": 14, "cgroup_cpu": 6, "cgroup_memory": 17, "database": 12}
"""What one host has sampled: seconds, and by sampler how many metrics of one entity, 60 in all."""
PLAN_GOAL, CONTROL_GOAL, COLLECT_GOAL = 2.0, 1.0, 30.0
STEPS = (
    ("join", "joining, with an actor on each", None),
    ("plan", "planning density, placement included", PLAN_GOAL),
    ("plan_cpu", "planning, the driver's own CPU", None),
    ("order", "an order to all, and their answers", CONTROL_GOAL),
    ("clocks", "all clocks", None),
    ("collect", f"collecting {SECONDS} s of {sum(METRICS.values())} metrics from each, as one trial's samples", COLLECT_GOAL),
)
"""Key in ``raw``, words, goal in seconds at 100 hosts."""


def main() -> None:
    """Measure, print, write; or, with --serve, be some of the hosts."""
    if sys.argv[1:2] == ["--serve"]:
        asyncio.run(serve(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))
        return
    options = outcome.parser(__doc__, REPEATS, "repeats").parse_args()
    sizes = (4, 10) if options.quick else SIZES
    repeats = options.pairs or (2 if options.quick else REPEATS)
    settings = {"sizes": list(sizes), "seconds sampled": SECONDS, "metrics per host": METRICS, "repeats": repeats}
    cluster_actor.by_value()
    raw: list[dict[str, Any]] = []
    before = outcome.cpu_seconds()
    with tempfile.TemporaryDirectory(prefix="pgherd-benchmark-") as scratch:
        directory = Path(scratch)
        made = certificates.authority("hundred")
        (directory / certificates.AUTHORITY).write_text(made.certificate)
        certificates.write_private(directory / certificates.MEMBER, made.issue("all"))
        with scheduler(directory) as address, contextlib.ExitStack() as stack:
            there = 0
            for size in sizes:
                while there < size:
                    more = min(PER_PROCESS, size - there)
                    stack.enter_context(hosts(directory, address, there, there + more))
                    there += more
                for _ in range(repeats):
                    raw.append({"hosts": size, **measured(directory, address, size)})
                outcome.say(", ".join(f"{name} {value:.3g}" for name, value in raw[-1].items()))
    result = outcome.Outcome("cluster_hundred", options.quick, 0, settings, figures(raw), raw, outcome.noise_since(before))
    outcome.conclude(result, options)
    if options.out is None and not options.quick:
        plot(raw, outcome.RESULTS / "cluster_hundred.svg")


def plot(raw: Sequence[dict[str, Any]], target: Path) -> None:
    """How each step grows with the hosts: medians, and every single measurement."""
    import altair
    import vl_convert

    rows = [{"hosts": row["hosts"], "step": name, "seconds": row[step]} for row in raw for step, name, _ in STEPS]
    base = altair.Chart(altair.Data(values=rows)).encode(
        x=altair.X("hosts:Q", title="hosts"),
        y=altair.Y("seconds:Q", title="seconds", scale=altair.Scale(type="log")),
        color=altair.Color("step:N", title=None, sort=[name for _, name, _ in STEPS], legend=altair.Legend(labelLimit=0)),
    )
    lines = base.mark_line().encode(y=altair.Y("median(seconds):Q", title="seconds", scale=altair.Scale(type="log")))
    chart = (base.mark_point(size=20, opacity=0.5) + lines).properties(width=480, height=320)
    target.write_text(vl_convert.vegalite_to_svg(chart.to_json()))
    print(f"wrote {target}")


def measured(directory: Path, address: str, size: int) -> dict[str, float]:
    """Seconds of each step over all hosts."""
    took = {}
    began = time.monotonic()
    with dask_client.connect(address, tls=directory) as made, ThreadPoolExecutor(size) as pool:
        if len(made.hosts()) != size:
            raise TrialError(f"{len(made.hosts())} of {size} hosts have joined")
        remotes = list(made.actors(cluster_actor.make).values())
        took["join"] = time.monotonic() - began
        took["plan"], took["plan_cpu"] = planned(made, address)
        began = time.monotonic()
        list(pool.map(lambda remote: remote.call("start_at", 0.0, timeout=60), remotes))
        took["order"], began = time.monotonic() - began, time.monotonic()
        made.offsets()
        took["clocks"] = time.monotonic() - began
        list(pool.map(lambda remote: remote.call("sample", SECONDS, METRICS, timeout=300), remotes))  # each host does that for itself
        began = time.monotonic()
        collected(directory / "trial", remotes, pool)
        took["collect"] = time.monotonic() - began
    return took


def collected(trial: Path, remotes: Sequence[RemoteObject], pool: ThreadPoolExecutor) -> None:
    """Bring all hosts' samples here and make one trial's of them, as a run does after each."""

    def fetch(remote: RemoteObject) -> HostSamples:
        place = trial / "hosts" / remote.host
        (place / "samples").mkdir(parents=True)
        for name, data in remote.call("collect", timeout=120).items():
            (place / "samples" / name).write_bytes(data)
        return HostSamples(place, 0.5, partial(qualified, host=remote.host))

    written = merge_samples(list(pool.map(fetch, remotes)), trial)
    if {file.stem for file in written} != set(METRICS):
        raise TrialError(f"{len(written)} of {len(METRICS)} samplers' files were made")
    shutil.rmtree(trial)


def planned(made: dask_client.DaskClusterClient, address: str) -> tuple[float, float]:
    """Seconds, and CPU seconds of this process, to plan a density study over all hosts, placement included. What the first of them does
    by itself for it is not in it."""
    from pgherd.cli import dry_run
    from pgherd.distributed import prepare_cluster
    from pgherd.distributed.agent_pool import AgentPool
    from pgherd.studies.density.options import DensityRequest
    from pgherd.study.study import study_of

    prepare_cluster.AgentPool = partial(AgentPool, make=cluster_actor.pretend)  # type: ignore[misc]
    request = DensityRequest(cluster=address, vcpus=0.25)
    prepare_cluster.prepare_over(made, "density", request, dry=True)
    began, cpu = time.monotonic(), time.process_time()
    prepared, _ = prepare_cluster.prepare_over(made, "density", request, dry=True)
    dry_run.host_lines(prepared, study_of("density").propose(prepared.options, []).trials)
    return time.monotonic() - began, time.process_time() - cpu


@contextlib.contextmanager
def scheduler(directory: Path) -> Iterator[str]:
    """A scheduler on loopback; its address."""
    program = [sys.executable, "-m", "pgherd.cluster.scheduler_process", str(directory), "127.0.0.1", "0"]
    with ending(subprocess.Popen(program)):
        deadline = time.monotonic() + 60
        while not (directory / "address").exists():
            if time.monotonic() > deadline:
                raise TrialError("the scheduler does not start")
            time.sleep(0.05)
        yield (directory / "address").read_text()


@contextlib.contextmanager
def hosts(directory: Path, address: str, first: int, end: int) -> Iterator[None]:
    """Some hosts in one process, until it is ended; returns once they have joined."""
    program = [sys.executable, __file__, "--serve", str(directory), address, str(first), str(end)]
    process = subprocess.Popen(program, stdout=subprocess.PIPE)
    with ending(process):
        assert process.stdout is not None
        if process.stdout.readline() != b"joined\n":
            raise TrialError("hosts do not join")
        yield


@contextlib.contextmanager
def ending(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End a process after the block."""
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


async def serve(directory: Path, address: str, first: int, end: int) -> None:
    """Workers ``first`` to ``end`` of the cluster, each at a loopback address of its own."""
    from pgherd.cluster import dask_servers, dask_settings
    from pgherd.cluster.scheduler_address import member_security

    dask_settings.configure()
    security = member_security(directory)
    for number in range(first, end):
        where = f"127.1.{number // 250}.{number % 250 + 1}"
        await dask_servers.worker(address, f"host{number:03d}", security, str(directory / f"scratch{number}"), listen=where)
    print("joined", flush=True)
    await asyncio.Event().wait()


def figures(raw: Sequence[dict[str, Any]]) -> list[Figure]:
    """One figure per step and number of hosts."""
    found = []
    for step, words, goal in STEPS:
        for size in sorted({row["hosts"] for row in raw}):
            times = median_interval([row[step] for row in raw if row["hosts"] == size])
            held = (f"≤ {goal:g} s at 100", outcome.met(times, most=goal)) if goal is not None and size == max(SIZES) else ("", None)
            found.append(Figure.of(f"{size} hosts: {words}", "s", times, *held))
    return found


if __name__ == "__main__":
    outcome.run(main)
