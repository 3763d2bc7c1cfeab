"""What serving a run's metrics costs: CPU and time of one scrape, with 8 and with 40 databases under a light open load.

A trial is played as any other, and scraped over HTTP as Prometheus does it (OpenMetrics, on loopback). The CPU is that of the thread that
answers: collecting, naming and writing. The scraper's own is not in it. Beside it a glimpse is taken, as a cluster's agents take it for
whoever watches: its CPU on the host, and what would go over the network.
"""

from __future__ import annotations

import http.client
import pickle
import shutil
import tempfile
import threading
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import deployed
import outcome
from outcome import Figure

import pgherd
from pgherd.analysis.intervals import Estimate, mean_interval
from pgherd.distributed.agent import LiveSampler
from pgherd.export.server import ListenAddress, MetricsServer
from pgherd.model.load import Load
from pgherd.model.run import RunRecord
from pgherd.runner.execute import phases
from pgherd.runner.progress import LiveWriter

_OPENMETRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}


def main() -> None:
    """Measure, print, write."""
    parser = outcome.parser(__doc__, 3, "trials with each number of databases")
    parser.add_argument("--duration", type=float, default=20.0, help="measured time of each trial  [default: 20]")
    parser.add_argument("--every", type=float, default=2.0, help="seconds between two scrapes  [default: 2]")
    parser.add_argument("--rate", type=float, default=5.0, help="transactions per second of each database  [default: 5]")
    parser.add_argument("--databases", type=int, nargs="+", metavar="N", help="numbers of databases  [default: 8 40; --quick: 3 8]")
    options = parser.parse_args()
    trials = options.pairs or (1 if options.quick else 3)
    seconds = 5.0 if options.quick else options.duration
    every = 1.0 if options.quick else options.every
    seed = outcome.seed_of(options)
    raw: list[dict[str, Any]] = []
    settings: dict[str, Any] = {"seconds": seconds, "every": every, "rate": options.rate, "scale": 1}
    before = outcome.cpu_seconds()
    for databases in options.databases or ([3, 8] if options.quick else [8, 40]):
        node = deployed.CountedNode()
        asked = {"databases": (databases,), "scale": 1, "clients": 1, "rate": options.rate, "seed": 1}
        with deployed.watcher() as progress, deployed.deployed(node, progress, **asked) as up:
            settings |= {"postgres": up.options.pg_version, "runtime": up.options.runtime}
            for number in range(trials):
                found, glimpses = trial(up, node, seconds, every, progress)
                raw += [{"databases": databases, "trial": number, **one} for one in (*found, *glimpses)]
                middle = sorted(scrape["CPU ms"] for scrape in found)[len(found) // 2]
                outcome.say(f"{databases} databases: {len(found)} scrapes, median {middle:.1f} CPU ms, {found[-1]['samples']} samples")
    result = outcome.Outcome("metrics_cost", options.quick, seed, settings, figures(raw, every), raw, outcome.noise_since(before))
    outcome.conclude(result, options)


def trial(
    up: deployed.Deployed, node: deployed.CountedNode, seconds: float, every: float, progress: Any
) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """One trial, and what each scrape and each glimpse within it took; the first, which reads all sources' announcements, is left out."""
    load = Load(scripts=up.options.scripts, rate=up.options.rate, sampling=up.options.sampling)
    one = up.trial(dict.fromkeys(up.targets(), load), ramp=1.0, seconds=seconds)
    scratch = up.fleet.scratch / "0001"
    node.make_dir(str(scratch), mode=0o711)
    server = MetricsServer(ListenAddress("127.0.0.1", 0))
    ended = threading.Event()
    found: list[dict[str, float]] = []
    glimpses: list[dict[str, float]] = []
    try:
        with tempfile.TemporaryDirectory(prefix="pgherd-benchmark-") as directory:
            run = Path(directory)
            partial = run / "trials/0001.partial"
            partial.mkdir(parents=True)
            recording = LiveWriter(run, progress)
            recording.output = lambda number: up.fleet.scratch / f"{number:04d}"
            hosts = {"local": up.session.facts}
            server.show(run, RunRecord(run="r", study="density", options={}, started=time.time(), pgherd=pgherd.__version__, hosts=hosts))
            recording.trial(one, 1)
            lookout = LiveSampler(one, partial, scratch)
            beside = [
                threading.Thread(target=_scrape, args=(server, every, ended, found)),
                threading.Thread(target=_glimpse, args=(lookout, every, ended, glimpses)),
            ]
            for thread in beside:
                thread.start()
            try:
                phases.run(node, one, up.fleet, partial, scratch, recording, up.fleet.watched)
            finally:
                ended.set()
                for thread in beside:
                    thread.join()
    finally:
        server.close()
        shutil.rmtree(scratch)
    return [scrape for scrape in found if scrape["samples"] > found[0]["samples"]] or found[1:], glimpses[1:]


def _glimpse(lookout: LiveSampler, every: float, ended: threading.Event, glimpses: list[dict[str, float]]) -> None:
    """Take one per interval until the trial has ended."""
    while not ended.wait(every):
        began = time.thread_time()
        size = len(pickle.dumps(lookout.take()))
        glimpses.append({"glimpse CPU ms": 1000 * (time.thread_time() - began), "glimpse bytes": float(size)})


def _scrape(server: MetricsServer, every: float, ended: threading.Event, found: list[dict[str, float]]) -> None:
    """Scrape once per interval until the trial has ended."""
    port = int(server.url.rsplit(":", 1)[1].partition("/")[0])
    told = 0.0
    while not ended.wait(every):
        began = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/metrics", headers=_OPENMETRICS)
        text = connection.getresponse().read().decode()
        took = time.perf_counter() - began
        connection.close()
        # A scrape tells what those before it have cost.
        cost = next(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith("pgherd_exporter_cpu_seconds_total"))
        if found:
            found[-1]["CPU ms"] = 1000 * (cost - told)
        told = cost
        samples = sum(not line.startswith("#") for line in text.splitlines())
        found.append({"ms": 1000 * took, "CPU ms": 0.0, "samples": float(samples), "bytes": float(len(text))})
    if found:
        found.pop()  # nobody has told what it cost


def figures(raw: list[dict[str, Any]], every: float) -> list[Figure]:
    """Cost by number of databases."""
    made = []
    for databases in sorted({row["databases"] for row in raw}):
        rows = [row for row in raw if row["databases"] == databases and "samples" in row]
        seen = [row for row in raw if row["databases"] == databases and "glimpse bytes" in row]
        cpu = _of_trials(rows, "CPU ms")
        each = f"{databases} databases"
        made += [
            Figure.of(f"{each}, a scrape", "CPU ms", cpu),
            Figure.of(f"{each}, until it is answered", "ms", _of_trials(rows, "ms")),
            Figure.of(f"{each}, a scrape each {every:g} s", "% of a core", cpu.scaled(0.1 / every)),
            Figure(f"{each}, samples", max(row["samples"] for row in rows), "samples", n=len(rows)),
            Figure(f"{each}, size", max(row["bytes"] for row in rows) / 1000, "kB", n=len(rows)),
        ]
        if seen:
            made += [
                Figure.of(f"{each}, a glimpse of a cluster's host", "CPU ms", _of_trials(seen, "glimpse CPU ms")),
                Figure(f"{each}, size of a glimpse", max(row["glimpse bytes"] for row in seen) / 1000, "kB", n=len(seen)),
            ]
    return made


def _of_trials(rows: list[dict[str, Any]], name: str) -> Estimate:
    """Return the mean of the trials' means: scrapes of one trial have its servers and its load in common."""
    trials = dict.fromkeys(row["trial"] for row in rows)
    return mean_interval([fmean(row[name] for row in rows if row["trial"] == trial) for trial in trials])


if __name__ == "__main__":
    outcome.run(main)
