"""Cost of pgherd on existing servers: sampling 40 by DSN, capturing 10,000 statements, queries to Prometheus, and the end of a load.

One server has 40 databases, each sampled by its DSN as a server of a list. The end of loads is the time from a signal to pgherd until
no session of it is left on two servers whose clients are in the middle of a long statement.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import command
import deployed
import outcome
import psycopg
from outcome import Figure

from pgherd.analysis.intervals import mean_interval
from pgherd.host.server_user import server_account
from pgherd.metrics import prometheus, sampler
from pgherd.metrics.sampler import ProcessView, SamplingView, ServerView
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.model.prometheus import PrometheusSource, values_of
from pgherd.node.local import LocalNode
from pgherd.postgres import installations
from pgherd.postgres.instance import Instance, initdb

SAMPLED, STATEMENTS, TRIALS = 40, 10_000, 24
COLUMNS, PER_TABLE = 32, 1000
"""Columns of a table, and statements of it: each selects another pair of columns."""
CAPTURE_S = 20.0
"""Default window of a capture."""
USER = "loader"
SAMPLING_GOAL, CAPTURE_GOAL_S, CAPTURE_CPU_GOAL, PROMETHEUS_GOAL_S, END_GOAL_S = 3.0, 30.0, 1.0, 2.0, 2.0
END_TIMEOUT_S = 60.0
_SETTINGS = {
    "shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.max": "20000", "fsync": "off", "shared_buffers": "64MB",
    "autovacuum": "off", "max_connections": "120",
}  # fmt: skip


def main() -> None:
    """Measure, print, write."""
    parser = outcome.parser(__doc__, 20, "ends of a load by each signal; other parts have a fifth, at least 2")
    parser.add_argument("--part", choices=PARTS, action="append", help="part (repeatable)  [default: all]")
    options = parser.parse_args()
    ends = options.pairs or (1 if options.quick else 20)
    repeats = max(1 if options.quick else 2, ends // 5)
    raw: list[dict[str, Any]] = []
    before = outcome.cpu_seconds()
    with tempfile.TemporaryDirectory(prefix="fleet-cost-", dir="/tmp") as place, contextlib.ExitStack() as stack:
        root = Path(place)
        root.chmod(0o755)
        servers = [stack.enter_context(running(root, name)) for name in ("one", "two")]
        for part in options.part or PARTS:
            for row in PARTS[part](servers, root, ends if part == "end" else repeats, options.quick):
                raw.append({"part": part, **row})
                outcome.say(f"{part}: {', '.join(f'{name} {value:.3g}' for name, value in row.items() if isinstance(value, float))}")
    settings = {"databases": SAMPLED, "statements": STATEMENTS, "trials": TRIALS}
    result = outcome.Outcome(
        "fleet_cost", options.quick, outcome.seed_of(options), settings, figures(raw), raw, outcome.noise_since(before)
    )
    outcome.conclude(result, options)


@contextlib.contextmanager
def running(root: Path, name: str) -> Iterator[Instance]:
    """A server with a database ``app`` and a user that may read statistics; it is removed at the end."""
    node, account = LocalNode(), server_account()
    usable = installations.reachable_copy(node, installations.choose(node), account, str(root))
    one = Instance(node, usable, str(root / name), str(root / f"s-{name}"), account=account, name=name)
    try:
        initdb(node, usable, one.data_dir, account=account)
        one.write_settings(_SETTINGS)
        one.start()
        one.wait_ready()
        one.sql(f"CREATE ROLE {USER} LOGIN IN ROLE pg_monitor")
        one.sql(f"CREATE DATABASE app OWNER {USER}")
        yield one
    finally:
        one.disconnect(["postgres", "app"])
        one.stop("immediate", 10)


def dsn(server: Instance, database: str = "app", user: str = USER) -> str:
    """DSN of a server over its socket."""
    return f"host={server.socket_dir} port={server.port} user={user} dbname={database}"


# ---- sampling


def sampling(servers: Sequence[Instance], root: Path, repeats: int, quick: bool) -> Iterator[dict[str, Any]]:
    """CPU of this process and of its backends while 40 databases are sampled as servers, in % of a core."""
    count, seconds = (8, 4.0) if quick else (SAMPLED, 20.0)
    for number in range(count):
        servers[0].sql(f"CREATE DATABASE sampled{number}")
    node, major = deployed.CountedNode(), servers[0].installation.major
    views = [ServerView(f"s{n}/pg", dsn(servers[0], f"sampled{n}"), major, 0, waits=True) for n in range(count)]
    view = SamplingView(servers=views, processes=[ProcessView("pgherd", os.getpid())])
    try:
        for repeat in range(-1, repeats):
            loop = node.sample(sampler.sources(view), str(root / f"spool{repeat}"))
            time.sleep(1.5)  # statements are prepared in the first second
            begun = node.used()
            time.sleep(seconds)
            ended = node.used()
            loop.stop()
            if repeat >= 0:
                wall = ended.at - begun.at
                own, backends = 100 * (ended.own - begun.own) / wall, 100 * (ended.backends - begun.backends) / wall
                yield {"databases": count, "pgherd %": own, "backends %": backends}
    finally:
        for one in views:
            node.disconnect(one.conninfo)


# ---- capture


def capture(servers: Sequence[Instance], root: Path, repeats: int, quick: bool) -> Iterator[dict[str, Any]]:
    """Time of a capture beyond its window, and the CPU of its sessions as a share of the host's CPU, while all statements run."""
    server, tables = servers[1], 1 if quick else STATEMENTS // PER_TABLE
    with psycopg.connect(dsn(server, user="postgres"), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    with psycopg.connect(dsn(server), autocommit=True) as connection:
        for number in range(tables):
            columns = ", ".join(f"c{column} int DEFAULT 1" for column in range(COLUMNS))
            connection.execute(f"CREATE TABLE t{number} ({columns})".encode())
    over = threading.Event()
    rounds: list[float] = []
    load = threading.Thread(target=_load, args=(dsn(server), tables, over, rounds))
    load.start()
    try:
        while not rounds:  # every statement is known
            time.sleep(0.1)
        window = max(3.0 if quick else CAPTURE_S, 2.5 * rounds[0])
        for repeat in range(repeats):
            out = root / f"capture{repeat}"
            words = ("capture", dsn(server), "--out", str(out), "--duration", f"{window:.0f}s")
            process = subprocess.Popen(
                [sys.executable, "-m", "pgherd", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            began, cpu = time.monotonic(), 0.0
            cpu = _backends_cpu(server, process)
            wall = time.monotonic() - began
            text = process.communicate()[0]
            if process.returncode not in (0, 1):
                raise TrialError(f"capture: {text}")
            share = 100 * cpu / (wall * (os.cpu_count() or 1))
            yield {
                "statements": tables * PER_TABLE,
                "window s": window,
                "s beyond": wall - round(window),
                "backend CPU s": cpu,
                "CPU %": share,
            }
    finally:
        over.set()
        load.join()


def _load(conninfo: str, tables: int, over: threading.Event, rounds: list[float]) -> None:
    """Run each statement in turn until the end."""
    with psycopg.connect(conninfo, autocommit=True, prepare_threshold=None) as connection:
        while not over.is_set():
            began = time.monotonic()
            for number in range(tables):
                with connection.pipeline():
                    for pair in range(PER_TABLE):
                        connection.execute(f"SELECT c{pair // COLUMNS}, c{pair % COLUMNS} FROM t{number}".encode())
                if over.is_set():
                    return
            rounds.append(time.monotonic() - began)


def _backends_cpu(server: Instance, process: subprocess.Popen[str]) -> float:
    """Return the CPU seconds of pgherd's and pg_dump's sessions until the process ends, to a twentieth of a second."""
    query = b"SELECT pid FROM pg_stat_activity WHERE application_name IN ('pgherd', 'pg_dump')"
    used: dict[int, float] = {}
    with psycopg.connect(dsn(server, "postgres", "postgres"), autocommit=True) as connection:
        while process.poll() is None:
            for (pid,) in connection.execute(query).fetchall():
                with contextlib.suppress(OSError):
                    used[pid] = deployed.process_cpu(pid)
            time.sleep(0.05)
    return sum(used.values())


# ---- Prometheus


def queries(servers: Sequence[Instance], root: Path, repeats: int, quick: bool) -> Iterator[dict[str, Any]]:
    """Seconds of the requests of 24 trials to a Prometheus with one node_exporter that it scrapes each second."""
    with _prometheus(root) as url:
        source = PrometheusSource(url=url, label="instance", values=values_of(("127.0.0.1",)))
        while not prometheus.available(source):
            time.sleep(0.5)
        time.sleep(6 if quick else 60)
        for _ in range(repeats):
            now = time.time()
            seconds = 0.0
            for _ in range(TRIALS):
                readings, views = prometheus.observe(source, "c", "c/pg", [(now - (4 if quick else 30), now)])
                seconds += views[0].seconds
            yield {"requests s": seconds, "samples": float(len(readings))}


@contextlib.contextmanager
def _prometheus(root: Path) -> Iterator[str]:
    names = ("prometheus", "prometheus-node-exporter")
    if missing := [name for name in names if shutil.which(name) is None]:
        raise CapabilityError(f"not installed (Debian: {', '.join(missing)})")
    with contextlib.ExitStack() as stack:
        ports = []
        for _ in names:
            free = stack.enter_context(socket.socket())
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    scrape = {"job_name": "node", "scrape_interval": "1s", "static_configs": [{"targets": [f"127.0.0.1:{ports[1]}"]}]}
    (root / "prometheus.yml").write_text(json.dumps({"scrape_configs": [scrape]}))  # JSON is YAML
    address = f"127.0.0.1:{ports[0]}"
    commands = [
        [names[0], f"--config.file={root}/prometheus.yml", f"--storage.tsdb.path={root}/tsdb", f"--web.listen-address={address}"],
        [names[1], f"--web.listen-address=127.0.0.1:{ports[1]}"],
    ]
    with open(root / "prometheus.log", "w") as log:
        started = [subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log) for words in commands]
    try:
        deadline = time.monotonic() + 30
        while not _ready(f"http://{address}/-/ready"):
            if time.monotonic() > deadline:
                raise TrialError(f"Prometheus is not ready: {(root / 'prometheus.log').read_text()[-500:]}")
            time.sleep(0.2)
        yield f"http://{address}"
    finally:
        for one in started:
            one.kill()
            one.wait()


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


# ---- end of the load


def end(servers: Sequence[Instance], root: Path, repeats: int, quick: bool) -> Iterator[dict[str, Any]]:
    """Seconds from a signal until no session of the load is left on two servers."""
    (root / "sleep.sql").write_text("SELECT pg_sleep(50);\n")
    listed = [{"name": server.name, "dsn": dsn(server)} for server in servers]
    (root / "fleet.yaml").write_text(json.dumps({"servers": listed}))
    words = ["density", "--servers", f"{root}/fleet.yaml", "--script", f"{root}/sleep.sql", "--read-only", "--databases", "2"]
    words += ["--repeats", "1", "--clients", "8", "--duration", "40s", "--no-report", "--runs-dir", f"{root}/runs"]
    for _ in range(repeats):
        for number in (signal.SIGINT, signal.SIGKILL):
            yield {"signal": number.name, "s": _ended_after(servers, words, number)}
    command.pgherd(["clean"])


def _ended_after(servers: Sequence[Instance], words: Sequence[str], number: signal.Signals) -> float:
    log = open(os.devnull, "w")  # noqa: SIM115 (closed with the process)
    with log, contextlib.ExitStack() as stack:
        watching = [stack.enter_context(psycopg.connect(dsn(one, user="postgres"), autocommit=True)) for one in servers]
        process = subprocess.Popen([sys.executable, "-m", "pgherd", *words], stdout=log, stderr=log, start_new_session=True)
        try:
            _await(watching, "wait_event = 'PgSleep'", least=16, process=process)
            process.send_signal(number)
            began = time.monotonic()
            _await(watching, f"usename = '{USER}'", most=0)
            return time.monotonic() - began
        finally:
            if process.poll() is None and number != signal.SIGINT:
                process.kill()
            process.wait(120)


def _await(watching: Sequence[psycopg.Connection[Any]], condition: str, *, least: int = 0, most: int = 10**6, process: Any = None) -> None:
    """Wait until the number of such sessions is in the range. Raises TrialError if it is not in time."""
    query = f"SELECT count(*) FROM pg_stat_activity WHERE {condition}".encode()
    deadline = time.monotonic() + END_TIMEOUT_S
    while not least <= sum(one.execute(query).fetchall()[0][0] for one in watching) <= most:
        if time.monotonic() > deadline or (process is not None and process.poll() is not None):
            raise TrialError(f"the sessions with {condition} were never from {least} to {most}")
        time.sleep(0.02)


PARTS = {"sampling": sampling, "capture": capture, "prometheus": queries, "end": end}


def figures(raw: Sequence[dict[str, Any]]) -> list[Figure]:
    """Figures of the measured parts, with their goals."""

    def figure(name: str, unit: str, rows: Sequence[dict[str, Any]], value: str, goal: float | None = None, note: str = "") -> list[Figure]:
        if not rows:
            return []
        found = mean_interval([row[value] for row in rows])
        goal_text, met = (f"≤ {goal:g} {unit}", outcome.met(found, most=goal)) if goal is not None else ("", None)
        return [Figure.of(name, unit, found, goal_text, met, note)]

    by_part = {part: [row for row in raw if row["part"] == part] for part in PARTS}
    sampled = by_part["sampling"][0]["databases"] if by_part["sampling"] else 0
    statements = by_part["capture"][0]["statements"] if by_part["capture"] else 0
    made = figure(f"sampling {sampled} servers, pgherd", "% of a core", by_part["sampling"], "pgherd %", SAMPLING_GOAL)
    made += figure(f"sampling {sampled} servers, their backends", "% of a core", by_part["sampling"], "backends %")
    made += figure(f"capture of {statements:,} statements, beyond its window", "s", by_part["capture"], "s beyond", CAPTURE_GOAL_S)
    made += figure("capture, its sessions", "% of the host's CPU", by_part["capture"], "CPU %", CAPTURE_CPU_GOAL)
    made += figure(f"Prometheus, requests of {TRIALS} trials", "s", by_part["prometheus"], "requests s", PROMETHEUS_GOAL_S)
    for number in ("SIGINT", "SIGKILL"):
        rows = [row for row in by_part["end"] if row["signal"] == number]
        note = "" if not rows else f"the longest {max(row['s'] for row in rows):.2f} s"
        made += figure(f"from {number} to no session", "s", rows, "s", END_GOAL_S, note)
    return made


if __name__ == "__main__":
    outcome.run(main)
