"""What a cluster costs: start skew, an agent's CPU and memory (idle, measuring), the time to notice a lost host, and to clean up after a
lost driver.

Four hosts as network and process namespaces with their own SSH servers on this machine (tests/it/cluster_hosts.py), started as real ones
are. Their clocks are wrong by known amounts, so that the skew is judged by the true time and not by the offsets that pgherd measured.
Needs root.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cluster_actor
import outcome
from outcome import Figure

from pgherd.analysis.intervals import mean_interval, median_interval
from pgherd.cluster import dask_client
from pgherd.cluster.interfaces import HostLost
from pgherd.model.errors import CapabilityError, TrialError

HOSTS = Path(__file__).parents[1] / "tests/it/cluster_hosts.py"
NAMES = ("a", "b", "c", "d")
SKEW = {"b": 0.2, "c": -0.7, "d": 3.0}
SKEW_GOAL, CPU_GOAL, MEMORY_GOAL, NOTICE_GOAL, CLEAN_GOAL = 0.020, 0.5, 150.0, 10.0, 30.0
DATABASES = 8
MEASURING_GOAL = CPU_GOAL + 1.0
"""% of a core: an idle agent's, and what sampling 8 databases may take (benchmarks/sampling.py)."""
AHEAD = 0.25
"""Seconds between saying when to start and starting."""


def main() -> None:
    """Measure, print, write."""
    options = outcome.parser(__doc__, 30, "agreed starts").parse_args()
    starts = options.pairs or (10 if options.quick else 30)
    idle, faults = (10.0, 1) if options.quick else (60.0, 5)
    settings = {"hosts": len(NAMES), "starts": starts, "idle s": idle, "faults": faults}
    cluster_actor.by_value()
    raw: list[dict[str, Any]] = []
    before = outcome.cpu_seconds()
    with hosts() as bed:
        began = time.monotonic()
        start(bed)
        raw.append({"what": "start", "s": time.monotonic() - began})
        outcome.say(f"started after {raw[-1]['s']:.1f} s")
        raw += [{"what": "idle, no driver", **row} for row in used(bed, idle)]
        with bed.inside(), dask_client.connect("default") as made:
            raw += [{"what": "idle, held", **row} for row in used(bed, idle)]
            raw += skews(made, starts)
        raw += measuring(bed, *((2, 2) if options.quick else (5, 10)))
        for number in range(faults):
            with bed.inside(), dask_client.connect("default") as made:
                raw += noticed(bed, made)
            start(bed)
            raw.append({"what": "clean", "s": cleaned(bed)})
            told = ", ".join(f"{row['what']} {row['s']:.2f} s" for row in raw[-4:])
            outcome.say(f"faults {number + 1} of {faults}: {told}")
        bed.pgherd("cluster", "stop")
    result = outcome.Outcome("cluster", options.quick, 0, settings, figures(raw), raw, outcome.noise_since(before))
    outcome.conclude(result, options)


@contextlib.contextmanager
def hosts() -> Iterator[Any]:
    """The hosts, and the driver's own places in the environment."""
    spec = importlib.util.spec_from_file_location("cluster_hosts", HOSTS)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["cluster_hosts"] = module
    spec.loader.exec_module(module)
    root = Path(tempfile.mkdtemp(prefix="pgherd-benchmark-"))
    root.chmod(0o755)
    try:
        with module.Bed(root, NAMES, SKEW) as bed:
            os.environ["XDG_STATE_HOME"] = bed.environment()["XDG_STATE_HOME"]
            yield bed
    except module.NotToBeHad as error:
        raise CapabilityError(str(error)) from error
    finally:
        shutil.rmtree(root)


def start(bed: Any) -> None:
    """Start the agents, or those that are gone."""
    done = bed.pgherd("cluster", "start", "--hosts", ",".join(NAMES), "--ssh-config", str(bed.config))
    if done.returncode:
        raise TrialError(done.stderr)


def used(bed: Any, seconds: float) -> list[dict[str, Any]]:
    """Each agent's CPU (% of a core) and memory (MB) while nothing happens."""
    agents = {name: bed.agent(name) for name in NAMES}
    time.sleep(3)
    first = {name: cpu_of(pid) for name, pid in agents.items()}
    time.sleep(seconds)
    return [
        {"host": name, "cpu": 100 * (cpu_of(pid) - first[name]) / seconds, "memory": memory_of(pid) / 1e6} for name, pid in agents.items()
    ]


def measuring(bed: Any, trials: int, seconds: int) -> list[dict[str, Any]]:
    """The agent's CPU (% of a core, sampling backends included) in each trial of DATABASES databases that all lie on its host, and the
    most memory (MB) that it had in the run."""
    agent, most, over = bed.agent(NAMES[0]), [0.0], threading.Event()

    def look() -> None:
        while not over.wait(0.25):
            most.append(memory_of(agent) / 1e6)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        size = ("--databases", str(DATABASES), "--scale", "1", "--clients", "1", "--rate", "5", "--vcpus", "0.2")
        length = (
            "--warmup",
            "1s",
            "--duration",
            f"{seconds}s",
            "--repeats",
            str(trials),
            "--time-budget",
            f"{3 * trials * (seconds + 1)}s",
        )
        done = bed.pgherd(
            "density", "--cluster", "default", "--placement", f"listed:*={NAMES[0]}", *size, *length, "--no-report", timeout=900
        )
    finally:
        over.set()
        looking.join()
    if done.returncode not in (0, 1):
        raise TrialError(done.stderr)
    (run,) = (bed.root / "driver/runs").glob("*-density-*")
    rows = []
    for file in sorted(run.glob("trials/*/trial.json")):
        trial = json.loads(file.read_text())
        if trial["trial"]["point"]["databases"] == DATABASES and trial["phases"]:
            metrics = trial["phases"][0]["metrics"]
            backends = sum(found["cpu.usage"] for entity, found in metrics.items() if entity.startswith("backend:"))
            rows.append({"what": "measuring", "cpu": 100 * (metrics[f"pgherd:{NAMES[0]}"]["cpu.usage"] + backends), "memory": max(most)})
    each = ", ".join(f"{row['cpu']:.2f}" for row in rows)
    outcome.say(f"measuring {DATABASES} databases: {each} % of a core, {max(most):.0f} MB")
    return rows


def cpu_of(pid: int) -> float:
    """User and system time of all its threads in seconds, to the nanosecond (/proc/PID/task/TID/schedstat)."""
    return sum(int(task.joinpath("schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()) / 1e9


def memory_of(pid: int) -> int:
    """Its resident set in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def skews(made: dask_client.DaskClusterClient, starts: int) -> list[dict[str, Any]]:
    """Agreed starts: by how much the first and the last process started apart, by the true time (s)."""
    remotes = made.actors(cluster_actor.make)
    rows = []
    for _ in range(starts):
        offsets = made.offsets()
        at = time.time() + AHEAD
        with ThreadPoolExecutor(len(remotes)) as pool:
            calls = {name: pool.submit(one.call, "start_at", at + offsets[name].seconds, timeout=30) for name, one in remotes.items()}
            true = [future.result() - SKEW.get(name, 0.0) for name, future in calls.items()]
        rows.append({"what": "skew", "s": max(true) - min(true), "late": sum(true) / len(true) - at})
    return rows


def noticed(bed: Any, made: dask_client.DaskClusterClient) -> list[dict[str, Any]]:
    """Seconds until the driver knows that a host's agent was killed, that one hangs, and that one is cut off."""
    remotes = made.actors(cluster_actor.make)
    hanging = bed.agent("b")
    with ThreadPoolExecutor(3) as pool:
        waiting = {name: pool.submit(until_lost, remotes[name]) for name in ("a", "b", "c")}
        time.sleep(0.5)
        began = time.monotonic()
        os.kill(bed.agent("a"), signal.SIGKILL)
        os.kill(hanging, signal.SIGSTOP)
        bed.cut("c")
        ended = {name: future.result() - began for name, future in waiting.items()}
    os.kill(hanging, signal.SIGCONT)
    bed.mend("c")
    return [{"what": what, "s": ended[name]} for what, name in (("killed", "a"), ("hanging", "b"), ("cut", "c"))]


def until_lost(remote: Any) -> float:
    """When a call on the host ended because it is lost (monotonic clock)."""
    try:
        remote.call("nap", 120.0, timeout=120)
    except HostLost:
        return time.monotonic()
    raise TrialError(f"host {remote.host} was not lost")


def cleaned(bed: Any) -> float:
    """Seconds from the death of a driver until no host runs anything of it."""
    with bed.inside():
        driver = cluster_actor.driver(bed.environment())
    began = time.monotonic()
    driver.kill()
    driver.communicate()
    wait_until(lambda: not any(bed.pids(name, cluster_actor.SERVER) for name in NAMES))
    return time.monotonic() - began


def wait_until(done: Callable[[], bool]) -> None:
    """Poll, for two minutes at most."""
    deadline = time.monotonic() + 120
    while not done():
        if time.monotonic() > deadline:
            raise TrialError("nothing came within two minutes")
        time.sleep(0.05)


def figures(raw: list[dict[str, Any]]) -> list[Figure]:
    """From the single measurements."""
    found = []
    skew = median_interval([1000 * row["s"] for row in raw if row["what"] == "skew"])
    found.append(
        Figure.of("start skew over 4 hosts, median", "ms", skew, f"≤ {1000 * SKEW_GOAL:g} ms", outcome.met(skew, most=1000 * SKEW_GOAL))
    )
    found.append(Figure.of("start, late by", "ms", mean_interval([1000 * row["late"] for row in raw if row["what"] == "skew"])))
    for state in ("idle, no driver", "idle, held"):
        rows = [row for row in raw if row["what"] == state]
        cpu, memory = mean_interval([row["cpu"] for row in rows]), mean_interval([row["memory"] for row in rows])
        found.append(Figure.of(f"an agent, {state}", "% of a core", cpu, f"≤ {CPU_GOAL:g} %", outcome.met(cpu, most=CPU_GOAL)))
        found.append(Figure.of(f"an agent, {state}", "MB", memory, f"≤ {MEMORY_GOAL:g} MB", outcome.met(memory, most=MEMORY_GOAL)))
    rows = [row for row in raw if row["what"] == "measuring"]
    cpu, name = mean_interval([row["cpu"] for row in rows]), f"an agent, measuring {DATABASES} databases"
    found.append(Figure.of(name, "% of a core", cpu, f"≤ {MEASURING_GOAL:g} %", outcome.met(cpu, most=MEASURING_GOAL)))
    memory = rows[0]["memory"]
    found.append(
        Figure(name, memory, "MB", goal=f"≤ {MEMORY_GOAL:g} MB", met=memory <= MEMORY_GOAL, note="the most that it had in the run")
    )
    for what, name, goal in (
        ("killed", "until a killed agent is noticed", NOTICE_GOAL),
        ("hanging", "until a hanging host is noticed", NOTICE_GOAL),
        ("cut", "until a host that is cut off is noticed", NOTICE_GOAL),
        ("clean", "until all hosts are clean after the driver died", CLEAN_GOAL),
    ):
        times = [row["s"] for row in raw if row["what"] == what]
        longest = f"the longest took {max(times):.1f} s"
        found.append(Figure.of(name, "s", mean_interval(times), f"≤ {goal:g} s", max(times) <= goal, longest))
    (began,) = [row["s"] for row in raw if row["what"] == "start"]
    found.append(Figure("cluster start, 4 hosts with the environment there", began, "s"))
    return found


if __name__ == "__main__":
    outcome.run(main)
