"""Server time of the web page: the list of 1,000 runs, and the sample explorer's first plot of a run of up to 50 databases.

The runs are made up: records and trials of E1's published size, samples of 50 containers, servers and drivers at 1 Hz with every metric
that their samplers have. ``ui.py RUN-DIRECTORY`` explores a real run instead. Requests go through the whole application as a browser's
would, without a network between: what is timed is the time in which the server makes its answer.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import outcome
from outcome import Figure

import report
from pgherd.analysis.intervals import mean_interval
from pgherd.metrics.sampler import samplers
from pgherd.model.errors import TrialError
from pgherd.store.run_directory import RunDirectory
from pgherd.store.samples import Sample, write_samples

GOAL, RUNS, SECONDS = 0.3, 1000, 600
ADDRESS = "http://127.0.0.1:8765"
PREFIXES = {"container": "container:", "server": "server:", "process": "driver:"}


def main() -> None:
    """Measure, print, write."""
    parser = outcome.parser(__doc__, 20, "requests of each kind (there are no pairs)")
    parser.add_argument("run", type=Path, nargs="?", metavar="RUN-DIRECTORY", help="explore a copy of this run")
    parser.add_argument("--cold", type=Path, metavar="RUNS", help="(used by the benchmark itself) time the first requests of a new process")
    options = parser.parse_args()
    if options.cold:
        print(json.dumps(first_requests(options.cold)))
        return
    seed = outcome.seed_of(options)
    raw: list[dict[str, Any]] = []
    before = outcome.cpu_seconds()
    with tempfile.TemporaryDirectory(prefix="pgherd-benchmark-") as directory:
        place = Path(directory)
        os.environ["XDG_CACHE_HOME"], os.environ["XDG_STATE_HOME"] = str(place / "cache"), str(place / "state")
        large, many = place / "large", place / "many"
        run = large / "20260131-120000-density-0000"
        if options.run:
            shutil.copytree(options.run, run)
        else:
            report.make_up(run, seed)
            lay_samples(run, seed)
        count = 50 if options.quick else RUNS
        lay_many(run, many, count, seed)
        trials = RunDirectory(run).results()
        databases = max(len(phase.targets) for result in trials for phase in result.phases)
        for _ in range(2 if options.quick else 5):
            raw.append(cold(large, many, place / "cache"))
            outcome.say(", ".join(f"{name} {value * 1000:.0f} ms" for name, value in raw[-1].items()))
        raw += warm(large, many, options.pairs or (3 if options.quick else 20))
    settings = {"runs": count, "databases in the largest trial": databases, "trials": len(trials), "made up": options.run is None}
    result = outcome.Outcome("ui", options.quick, seed, settings, figures(raw, count, databases), raw, outcome.noise_since(before))
    outcome.conclude(result, options)


def lay_samples(run: Path, seed: int) -> None:
    """Samples at 1 Hz of the largest trial, for ten minutes; the other trials' files are left empty."""
    rng = random.Random(seed)
    results = RunDirectory(run).results()
    result = max(results, key=lambda one: (len(one.phases[0].targets), one.id))
    trial = run / "trials" / result.id
    shutil.rmtree(trial / "samples")
    start = result.phases[0].start - 1
    names = list(result.phases[0].metrics)
    entities = {kind: [name for name in names if name.startswith(prefix)] for kind, prefix in PREFIXES.items()} | {"host": ["host"]}
    rows: list[Sample] = []
    for kind, found in entities.items():
        for sampler in report.SAMPLERS[kind]:
            metrics = samplers()[sampler].metrics
            for entity in found:
                levels = {metric.name: rng.uniform(0, 1e6) for metric in metrics}
                for second in range(SECONDS):
                    for metric in metrics:
                        grown = rng.uniform(0, 10) if metric.kind == "counter" else rng.uniform(-10, 10)
                        levels[metric.name] += grown
                    rows.append((start + second, sampler, entity, dict(levels)))
    write_samples(trial, rows)


def lay_many(run: Path, root: Path, count: int, seed: int) -> None:
    """Runs that differ in name, study, host, grade and date, each with its trials' directories."""
    rng = random.Random(seed)
    document = json.loads((run / "run.json").read_text())
    trials = sorted(path.name for path in (run / "trials").iterdir())
    for number in range(count):
        study = rng.choice(["density", "scaling", "compare", "storage"])
        started = report.START + 3600 * number
        name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(started))}-{study}-{number:04x}"
        document |= {"run": name, "study": study, "started": started, "ended": started + 250, "state": "finished"}
        document["hosts"]["local"]["hostname"] = f"db-host-{number % 7}"
        document["analysis"] = analysis(rng)
        for trial in trials:
            (root / name / "trials" / trial).mkdir(parents=True)
        (root / name / "run.json").write_text(json.dumps(document))


def analysis(rng: random.Random) -> dict[str, Any]:
    """An analysis of a real one's size: ten findings, a table of twelve rows and as many columns, each cell a finding."""
    cell = {
        "value": 1.0,
        "unit": "tps",
        "low": 0.9,
        "high": 1.1,
        "confidence": 0.95,
        "n": 3,
        "method": "mean of repeats, t interval",
        "note": "",
    }
    return {
        "answer": f"This host holds {rng.randrange(1, 60)} databases at 85 % efficiency.",
        "grade": rng.choice("ABC"),
        "findings": {f"finding_{i}": cell for i in range(10)},
        "tables": {"density": [{f"column_{i}": cell for i in range(12)} for _ in range(12)]},
        "warnings": ["One trial was tainted."],
        "look_at": [],
        "figures": {},
    }


def requests(large: Path, many: Path) -> dict[str, tuple[Path, str]]:
    """What is asked for: name → root and address."""
    run = next(large.iterdir()).name
    results = RunDirectory(large / run).results()
    trial = max(results, key=lambda one: (len(one.phases[0].targets) if one.phases else 0, one.id)).id
    return {
        "list, a page of 100": (many, "/"),
        "list, all on one page": (many, f"/?size={RUNS}"),
        "explorer, first plot": (large, f"/runs/{run}/explore?trial={trial}"),
        "explorer, another metric": (large, f"/runs/{run}/explore?trial={trial}&metric=server/database/db.xact_commit&view=spread"),
        "run": (large, f"/runs/{run}"),
    }


def clients(large: Path, many: Path) -> dict[str, Callable[[], int]]:
    """Name → a request through the whole application; gives the answer's size."""
    from starlette.testclient import TestClient

    from pgherd.ui.app_state import AppState
    from pgherd.ui.security import AccessPolicy
    from pgherd.ui.server import application

    made = {}
    for root in (large, many):
        policy = AccessPolicy(frozenset({"127.0.0.1"}))
        made[root] = TestClient(application(AppState.for_runs(root, policy)), base_url=ADDRESS, cookies={policy.cookie: policy.session})

    def asker(root: Path, address: str) -> Callable[[], int]:
        def ask() -> int:
            answer = made[root].get(address)
            if answer.status_code != 200:
                raise TrialError(f"{address} was answered with {answer.status_code}: {answer.text[:200]}")
            return len(answer.content)

        return ask

    return {name: asker(*what) for name, what in requests(large, many).items()}


def warm(large: Path, many: Path, count: int) -> list[dict[str, Any]]:
    """Each request so many times, by turns, in a process that has answered it before."""
    asked = clients(large, many)
    for ask in asked.values():
        ask()
    return [{name: timed(ask) for name, ask in asked.items()} for _ in range(count)]


def cold(large: Path, many: Path, cache: Path) -> dict[str, float]:
    """The first requests of a new process that has read no run before, and of the next, which finds the index on disk."""
    shutil.rmtree(cache, ignore_errors=True)
    first, second = (_own_process(large.parent) for _ in range(2))
    return {"first list, nothing read yet": first["list"], "first list after a new start": second["list"], "first plot": second["plot"]}


def _own_process(place: Path) -> dict[str, float]:
    done = subprocess.run([sys.executable, __file__, "--cold", str(place)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise TrialError(f"the process of its own ended with exit code {done.returncode}: {done.stderr}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def first_requests(place: Path) -> dict[str, float]:
    """In a process of its own: the server's modules are imported, as they are before it listens, and nothing else."""
    from pgherd.ui import sample_queries
    from pgherd.ui.rendering import environment

    asked = clients(place / "large", place / "many")
    sample_queries.make_ready()  # as the server does beside its start, with the templates
    for name in environment().list_templates(extensions=["j2"]):
        environment().get_template(name)
    return {"list": timed(asked["list, a page of 100"]), "plot": timed(asked["explorer, first plot"])}


def timed(ask: Callable[[], int]) -> float:
    """Seconds."""
    began = time.perf_counter()
    ask()
    return time.perf_counter() - began


def figures(raw: list[dict[str, Any]], runs: int, databases: int) -> list[Figure]:
    """Times in ms."""
    found = []
    for name, goal in (
        ("list, a page of 100", True),
        ("list, all on one page", True),
        ("first list after a new start", True),
        ("first list, nothing read yet", False),
        ("explorer, first plot", True),
        ("first plot", True),
        ("explorer, another metric", False),
        ("run", False),
    ):
        values = [row[name] * 1000 for row in raw if name in row]
        if not values:
            continue
        estimate = mean_interval(values)
        what = f"{runs:,} runs" if "list" in name else f"{databases} databases"
        shown = f"{what}: {name}" if name != "first plot" else f"{what}: the same after a new start"
        held = (f"≤ {GOAL * 1000:g} ms", outcome.met(estimate, most=GOAL * 1000)) if goal else ("", None)
        found.append(Figure.of(shown, "ms of server time", estimate, *held))
    return found


if __name__ == "__main__":
    outcome.run(main)
