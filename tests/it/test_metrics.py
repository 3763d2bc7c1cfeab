"""A real Prometheus scrapes a run while it measures, and its queries return the run's own totals."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from itertools import pairwise
from pathlib import Path

import pytest

from pgherd.drivers.pgbench_output import read_progress
from pgherd.metrics.aggregate import window_sum
from pgherd.store.samples import read_samples

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="Prometheus is not installed (Debian: prometheus)")

FINE = (0, 1)
RUN = ("--databases", "2", "--repeats", "2", "--duration", "5s", "--warmup", "1s", "--time-budget", "25s", "--seed", "1")
GRAFANA = Path(__file__).parents[2] / "grafana"
ELSEWHERE = re.compile(r"node_|pgherd_(guest|zram|platform)|balloon")
"""What a small run on this host does not have."""


def free_port() -> int:
    with socket.socket() as item:
        item.bind(("127.0.0.1", 0))
        return int(item.getsockname()[1])


class Prometheus:
    """One of our own, on loopback, in a directory that goes."""

    def __init__(self, directory: Path, target: int) -> None:
        self.port, self.log = free_port(), directory / "log"
        config = {
            "scrape_configs": [{"job_name": "pgherd", "scrape_interval": "1s", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}]
        }
        (directory / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={directory / 'prometheus.yml'}",
                    f"--storage.tsdb.path={directory / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def query(self, promql: str, at: float) -> list[dict]:
        """What a query returns, as of an instant."""
        text = urllib.parse.urlencode({"query": promql, "time": f"{at:.3f}"})
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/query?{text}", timeout=20) as answer:
                result: list[dict] = json.load(answer)["data"]["result"]
                return result
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{promql}: {error.read().decode()}") from None

    def series(self, name: str, start: float, end: float) -> dict[tuple[str, str], list[tuple[float, float]]]:
        """(container, target) → the samples between two instants, as they were stored."""
        result = self.query(f"{name}[{round(1000 * (end - start))}ms]", end)
        return {
            (item["metric"].get("container", ""), item["metric"].get("target", "")): [(t, float(value)) for t, value in item["values"]]
            for item in result
        }

    def end(self) -> None:
        self.process.kill()  # nothing of it is kept
        self.process.wait(20)


@pytest.fixture
def scraped(pgherd, tmp_path):
    """A finished run that was scraped each second, and the Prometheus that did it."""
    port = free_port()
    prometheus = Prometheus(tmp_path, port)
    try:
        pgherd.wait_until(prometheus.ready, pause=0.1)
        ended = pgherd.density(*RUN, "--metrics-listen", str(port))
        assert ended.code in FINE, ended
        assert f"Metrics are served at http://127.0.0.1:{port}/metrics" in ended.err
        yield pgherd.run, pgherd.record(), pgherd.trials(), prometheus
    finally:
        prometheus.end()


def imported_total(pgherd, directory):
    """The run's transactions, as the real promtool's blocks of its export have them."""
    file, data = directory / "run.om", directory / "blocks"
    exported = pgherd("export", str(pgherd.run), "--output", str(file))
    assert exported.code == 0, exported
    finished = subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(file), str(data)], capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stderr
    (data / "wal").mkdir()  # promtool dumps no blocks without one
    request = ["promtool", "tsdb", "dump", "--match", '{__name__="pgherd_run_transactions_total"}', str(data)]
    dumped = subprocess.run(request, capture_output=True, text=True, check=True).stdout
    last = {}
    for line in dumped.splitlines():
        series, value, _ = line.rsplit(" ", 2)
        last[series] = float(value)
    return sum(last.values())


def test_queries_return_the_run_s_own_totals(pgherd, scraped, tmp_path):
    run, record, trials, prometheus = scraped
    finished = [trial for trial in trials if trial["phases"]]
    assert len(finished) >= 2
    at = max(trial["ended"] for trial in trials) + 30

    def transactions(trials: list[dict]) -> int:
        return sum(target["transactions"] for trial in trials for phase in trial["phases"] for target in phase["targets"])

    # Nothing waits for a last scrape, so that the last trial may be missing.
    (count,) = prometheus.query("sum(last_over_time(pgherd_trials_finished_total[5m]))", at)
    scraped_trials = int(count["value"][1])
    assert len(trials) - 1 <= scraped_trials <= len(trials)
    (total,) = prometheus.query(f'sum(last_over_time(pgherd_run_transactions_total{{run="{record["run"]}"}}[5m]))', at)
    assert float(total["value"][1]) == pytest.approx(transactions(trials[:scraped_trials]), rel=0.01)
    assert imported_total(pgherd, tmp_path) == pytest.approx(transactions(finished), rel=1e-6), "an export holds the same"

    judged = []
    for trial in finished:
        (phase,) = trial["phases"]
        directory = run / "trials" / trial["id"]
        # What servers counted: between the first and the last scrape in the window as much as the run's own samples say.
        commits = {}
        for t, entity, value in read_samples(directory, "database", "db.xact_commit"):
            commits.setdefault(entity.split("/")[0].removeprefix("server:"), []).append((t, value))
        observed = prometheus.series("pgherd_server_db_xact_commit_total", phase["start"], phase["end"])
        reported = prometheus.series("pgherd_driver_transactions_total", phase["start"], phase["end"])
        if min(map(len, [*observed.values(), *reported.values()]), default=0) < 3:
            continue  # the machine is too busy for Prometheus to look once a second
        judged.append(phase)
        assert {container for container, _ in observed} == {target["target"].split("/")[1] for target in phase["targets"]} | set(commits)
        for (container, _), samples in observed.items():
            (first, low), (last, high) = samples[0], samples[-1]
            times, levels = zip(*commits[container], strict=True)
            _, _, own = window_sum(times, levels, first, last, integral=False)
            assert high - low == pytest.approx(own, rel=0.01, abs=2)
        # What the drivers told.
        for target in phase["targets"]:
            ((first, low), *_, (last, high)) = reported[target["target"].split("/")[1], target["target"]]
            stderr = next(directory / name for name in target["raw"] if name.endswith("/stderr"))
            lines = [line for line in read_progress(stderr.read_text()) if first - 0.0005 < line.at < last + 0.0005]
            own = sum(line.tps * (line.at - before.at) for before, line in pairwise(lines))
            assert high - low == pytest.approx(own, rel=0.01)

    # And every query of the dashboards is one that Prometheus answers, in the middle of a measured period.
    if not judged:
        pytest.skip("the machine is too busy: no measured period of five seconds was scraped three times")
    middle = judged[-1]["end"] - 0.5
    cgroup = record["environment"]["runtime"] == "cgroup"
    for file in sorted(GRAFANA.glob("*.json")):
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel.get("targets", ()):
                query = target["expr"].replace("$run", record["run"]).replace("$host", ".*").replace("$container", ".*")
                query = query.replace("$device", ".*").replace("$window", "10s").replace("$__range", "1h")
                result = prometheus.query(query, at if "pgherd_result" in query or "device_info" in query else middle)
                core = re.search(r"pgherd_(driver_(transactions|latency)|host_cpu|own|server_db|trial_point|result|trials)", query)
                core = core and not ELSEWHERE.search(query) and "p99" not in query and "coordinate" not in query
                if core or (cgroup and "pgherd_container_cpu_usage" in query):
                    assert result, f"{file.name}, {panel['title']}: {query}"
