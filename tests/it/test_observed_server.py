"""A server that pgherd did not start, in a cgroup of its own: what the kernel and the server tell of it, and that nothing is changed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from pgherd.host import cgroup_parent
from pgherd.host.server_user import server_account
from pgherd.model.errors import CapabilityError
from pgherd.model.fleet import ListedServer
from pgherd.node.local import LocalNode
from pgherd.node.process import MARK
from pgherd.node.protocol import Command
from pgherd.postgres import external_connections, external_server, installations
from pgherd.postgres.instance import Instance, initdb
from pgherd.prepare import server_observation
from pgherd.store.samples import read_samples

NODE = LocalNode()
CORES = 0.25
MEMORY = 512 * 2**20
NAME = "observed-server"


@dataclass
class Observed:
    """The server, its port on the loopback interface, and the directories of its cgroup by controller."""

    instance: Instance
    port: int
    groups: dict[str, str]

    @property
    def path(self) -> str:
        return f"/{NAME}"

    def dsn(self, host: str | None = None, user: str = "free") -> str:
        return f"host={host or self.instance.socket_dir} port={self.port} user={user} dbname=app"

    def limits(self) -> dict[str, str]:
        """Limits and members' parent of its cgroup, which must not change."""
        names = ("cpu.cfs_quota_us", "cpu.shares", "cpu.max", "memory.limit_in_bytes", "memory.max", "memory.high", "cpuset.cpus")
        files = [f"{directory}/{name}" for directory in self.groups.values() for name in names]
        return {file: Path(file).read_text() for file in files if Path(file).exists()}


def made_by_hand() -> dict[str, str]:
    """A cgroup at the top, as an administrator makes it, limited in CPU and memory."""
    layout = cgroup_parent.read_layout(NODE)
    if layout.manager == "v1":
        groups = {name: f"{layout.v1[name].mount}/{NAME}" for name in ("cpu", "cpuacct", "memory", "blkio") if name in layout.v1}
        settings = {("cpu", "cpu.cfs_quota_us"): round(CORES * 100_000), ("memory", "memory.limit_in_bytes"): MEMORY}
    elif layout.v2 is not None:
        groups = {"v2": f"{layout.v2.mount}/{NAME}"}
        settings = {("v2", "cpu.max"): f"{round(CORES * 100_000)} 100000", ("v2", "memory.max"): MEMORY}
    else:
        pytest.skip("no cgroups are mounted")
    try:
        for directory in groups.values():
            Path(directory).mkdir(exist_ok=True)
        for (controller, file), value in settings.items():
            Path(groups[controller], file).write_text(str(value))
    except OSError as error:
        remove(groups)
        pytest.skip(f"no cgroup can be made here: {error}")
    return groups


def remove(groups: dict[str, str]) -> None:
    for directory in dict.fromkeys(groups.values()):
        if Path(directory).exists():
            Path(directory).rmdir()


def start(one: Instance, port: int, join: tuple[str, ...] = ()) -> None:
    """Start a server with pgbench's tables, whose processes ``join`` a cgroup."""
    initdb(NODE, one.installation, one.data_dir, account=one.account)
    (Path(one.data_dir) / "pg_hba.conf").write_text("local all all trust\nhost all all 127.0.0.1/32 trust\n")
    one.write_settings({"fsync": "off", "shared_buffers": "64MB", "autovacuum": "off", "shared_preload_libraries": "pg_stat_statements"})
    with open(Path(one.data_dir) / "postgresql.auto.conf", "a") as ours:  # over TCP too, unlike private servers
        ours.write("listen_addresses = '127.0.0.1'\n")
    one.start(join=join)
    one.wait_ready()
    one.sql("CREATE ROLE free LOGIN")
    one.sql("CREATE DATABASE app OWNER free")
    argv = [one.installation.tool("pgbench"), "-i", "-q", "-s", "1", "-h", one.socket_dir, "-p", str(port), "-U", "free", "app"]
    made = NODE.run(Command(argv, user=one.account))
    assert made.code == 0, made.err


@pytest.fixture(scope="module")
def observed() -> Iterator[Observed]:
    groups = made_by_hand()
    root = Path(tempfile.mkdtemp(prefix="observed-", dir="/tmp"))
    root.chmod(0o755)
    account = server_account()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    one = None
    try:
        try:
            usable = installations.reachable_copy(NODE, installations.choose(NODE), account, str(root))
        except CapabilityError as error:
            pytest.skip(str(error))
        one = Instance(NODE, usable, str(root / "data"), str(root / "s"), account=account, name="observed", port=port)
        start(one, port, tuple(f"{directory}/cgroup.procs" for directory in dict.fromkeys(groups.values())))
        yield Observed(one, port, groups)
    finally:
        if one is not None:
            one.disconnect(["postgres", "app"])
            one.stop("immediate", 10)
        remove(groups)
        shutil.rmtree(root)


@pytest.mark.parametrize("host", [None, "127.0.0.1"])
def test_the_servers_process_is_proven_by_its_socket(observed: Observed, host: str | None) -> None:
    with psycopg.connect(observed.dsn(host)) as connection:
        pid = external_connections.server_pid(NODE, connection)
        assert pid == observed.instance.pid
        assert observed.path in NODE.read(f"/proc/{pid}/cgroup").decode()


def short(pgherd, dsn: str, *words: str, seconds: int = 3):
    return pgherd.density(
        *("--databases", "1", "--clients", "2", "--repeats", "1", "--duration", f"{seconds}s", "--warmup", "1s", "--dsn", dsn, "--json"),
        *words,
    )


def test_a_run_judges_the_cgroup_of_the_server_and_changes_nothing_in_it(pgherd, observed: Observed) -> None:
    before = observed.limits()
    ended = short(pgherd, observed.dsn())
    assert ended.code in (0, 1), ended
    trial = pgherd.trials()[0]
    (phase,) = trial["phases"]
    (container,) = trial["trial"]["deployment"]["hosts"][0]["containers"]
    seen = phase["metrics"][f"container:{container['name']}"]
    assert seen["cpu.limit"] == CORES and seen["memory.limit"] == MEMORY
    assert 0 < seen["cpu.usage"] < 1.2 * CORES and 0 < seen["memory.usage"] < MEMORY
    assert seen["cpu.throttled_periods"] > 0 and "read_bytes" in seen and seen["memory.oom_kills"] == 0
    checks = {check["name"]: check for check in trial["checks"]}
    assert checks["no-oom-kill"]["result"] == "pass"
    assert {checks[name]["result"] for name in ("cpu-bound", "background-cpu", "cached")} <= {"pass", "fail"}
    assert "of their vCPUs" in checks["cpu-bound"]["observed"]
    said = " ".join(pgherd.record()["defaults_chosen"])
    assert f"Its cgroup is {observed.path} (of its process {observed.instance.pid}), limited to 0.25 cores and 512 MB" in said
    assert observed.limits() == before
    server = f"{container['name']}/pg"
    waits = phase["waits"][server]
    assert all(0 <= sum(values) <= 2.01 for values in zip(*waits.values(), strict=True)), "of two clients"
    assert all(len(values) == int(phase["end"] - phase["start"]) for values in waits.values())
    samples = read_samples(pgherd.run / "trials" / trial["id"], "waits", "waits.cpu")
    assert len(samples) > 3 * (phase["end"] - phase["start"]), "several a second, as far as a server with a quarter of a core answers"
    assert phase["metrics"][f"server:{server}"]["replication.standbys"] == 0
    assert "Hidden from role free: waits and queries of other users" in said and 'GRANT pg_monitor TO "free";' in said
    assert said.count("the database has no extension pg_stat_statements") == 1 and not phase["statements"]
    (activity,) = pgherd.record()["analysis"]["tables"]["server_activity"]
    assert activity["servers"] == 1 and activity["standbys"]["value"] == 0 and activity["checkpoints"]["value"] >= 0
    assert "replay_lag" not in activity, "it has no replica"


def app(observed: Observed, statement: str) -> None:
    with psycopg.connect(observed.instance.conninfo("app"), autocommit=True) as connection:
        connection.execute(statement.encode())


def test_statements_of_the_window_are_counted_and_named(pgherd, observed: Observed) -> None:
    granted = 'GRANT USAGE ON SCHEMA "their\'s" TO free'
    for statement in ('CREATE SCHEMA "their\'s"', granted, 'CREATE EXTENSION pg_stat_statements SCHEMA "their\'s"', "SELECT 'before'"):
        app(observed, statement)
    script = pgherd.root / "mixed.sql"
    script.write_text(
        "\\set aid random(1, 100000)\nUPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;\n"
        "SELECT abalance FROM pgbench_accounts WHERE aid = :aid AND abalance <> 20070501;\n"
    )
    try:
        ended = short(pgherd, observed.dsn(), "--script", str(script), "--allow-writes")
        assert ended.code in (0, 1), ended
        (trial,) = pgherd.trials()
        (phase,) = trial["phases"]
        (view,) = phase["statements"].values()
        tables = pgherd.record()["analysis"]["tables"]
        assert pgherd("report", str(pgherd.run)).code == 0
        app(observed, 'REVOKE EXECUTE ON FUNCTION "their\'s".pg_stat_statements(boolean) FROM PUBLIC')
        refused = pgherd.density("--databases", "1", "--dsn", observed.dsn(), "--dry-run", "--no-report")
    finally:
        app(observed, "DROP EXTENSION pg_stat_statements")
        app(observed, 'DROP SCHEMA "their\'s"')
    by_text = {use["text"]: use for use in view["top"]}
    update = next(use for text, use in by_text.items() if re.match(r"UPDATE pgbench_accounts SET abalance = abalance \+ \$\d", text))
    select = next(use for text, use in by_text.items() if text.startswith("SELECT abalance"))
    done = phase["targets"][0]["transactions"]
    for use in (update, select):
        assert use["calls"] == pytest.approx(done, rel=0.1, abs=20) and use["rows"] == use["calls"]
        assert use["time_ms"] > 0 and use["shared_hits"] + use["shared_reads"] >= 3 * use["calls"]
    assert update["wal_bytes"] > 50 * update["calls"] and select["wal_bytes"] < update["wal_bytes"]
    assert "20070501" not in (pgherd.run / "trials" / trial["id"] / "trial.json").read_text()
    assert not any("before" in text for text in by_text), "it ended before the window"
    assert view["time_ms"] >= sum(use["time_ms"] for use in view["top"]) and phase["end"] - phase["start"] <= view["seconds"] + 0.2
    rows = {row["statement"]: row for row in tables["statements"]}
    assert rows[update["text"]]["mean_time"]["value"] == pytest.approx(update["time_ms"] / update["calls"])
    assert 0 < rows[update["text"]]["time_share"]["value"] <= 1 and "UPDATE pgbench_accounts" in (pgherd.run / "report.html").read_text()
    assert refused.code == 0 and "Time by statement is not observed" in str(refused) and "EXECUTE ON FUNCTION" in str(refused), refused


def test_a_cgroup_can_be_named_and_a_wrong_one_is_refused_first(pgherd, observed: Observed) -> None:
    found = external_server.read_database_info(external_server.normalize_dsn(observed.dsn("127.0.0.1")), node=NODE)
    for text in (f"pid:{observed.instance.pid}", observed.path):
        server = ListedServer.model_construct(name="", container=text)
        (said,) = server_observation.describe_cgroups(NODE, [(server, found)])
        assert said.startswith(f"Its cgroup is {observed.path} (--server-cgroup {text})")
    ended = pgherd.density("--databases", "1", "--dsn", observed.dsn(), "--server-cgroup", "/no/such")
    assert ended.code == 2 and "there is no cgroup /no/such" in ended.message, ended
    ended = pgherd.density("--server-cgroup", "pid:1")
    assert ended.code == 2 and "add its --dsn" in ended.message, ended


def test_a_listed_server_is_observed_by_its_container(pgherd, observed: Observed) -> None:
    first = observed.instance
    root, port = Path(first.data_dir).parent, free_port()
    other = Instance(NODE, first.installation, str(root / "data2"), str(root / "s2"), account=first.account, name="other", port=port)
    places = {"seen": observed.dsn("127.0.0.1"), "plain": f"host=127.0.0.1 port={port} user=free dbname=app"}
    entries = [{"name": name, "dsn": dsn} | ({"container": observed.path} if name == "seen" else {}) for name, dsn in places.items()]
    (pgherd.root / "fleet.yaml").write_text(json.dumps({"servers": entries}))  # JSON is YAML
    listed = ("density", "--servers", str(pgherd.root / "fleet.yaml"))
    try:
        start(other, port)
        words = ("--clients", "2", "--repeats", "2", "--duration", "2s", "--warmup", "0s", "--no-report", "--json")
        ended = pgherd(*listed, *words)
    finally:
        other.disconnect(["postgres", "app"])
        other.stop("immediate", 10)
    assert ended.code in (0, 1), ended
    said = " ".join(pgherd.record()["defaults_chosen"])
    assert f"seen: Its cgroup is {observed.path} (server seen: container {observed.path}), limited to 0.25 cores" in said
    assert "plain: Its cgroup is not used" in said or "plain: No process here" in said, "it runs in the group of this test"
    for trial in pgherd.trials():
        loaded = {target.split("/")[1] for target in trial["trial"]["phases"][0]["loads"]}
        metrics = trial["phases"][0]["metrics"]
        assert 0 < metrics["container:seen"]["cpu.usage"] < 1.2 * CORES and "container:plain" not in metrics
        result = {check["name"]: check for check in trial["checks"]}["cpu-bound"]["result"]
        assert (result == "unknown") == ("plain" in loaded)
    ended = pgherd(*listed, "--server-cgroup", observed.path)
    assert ended.code == 2 and "as its 'container'" in ended.message, ended


# ---- Prometheus


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[str]:
    """The address of a Prometheus that scrapes a node_exporter each second."""
    programs = {name: shutil.which(name) for name in ("prometheus", "prometheus-node-exporter")}
    missing = [name for name, path in programs.items() if path is None]
    if missing:
        pytest.skip(f"not installed (Debian: {', '.join(missing)})")
    exporter, port = free_port(), free_port()
    scrape = {"job_name": "node", "scrape_interval": "1s", "static_configs": [{"targets": [f"127.0.0.1:{exporter}"]}]}
    (tmp_path / "prometheus.yml").write_text(json.dumps({"scrape_configs": [scrape]}))  # JSON is YAML
    commands = (
        ["prometheus-node-exporter", f"--web.listen-address=127.0.0.1:{exporter}"],
        [
            "prometheus",
            f"--config.file={tmp_path / 'prometheus.yml'}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
    )
    with open(tmp_path / "log", "w") as log:
        running = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log) for command in commands]
    query = f"http://127.0.0.1:{port}/api/v1/query?query=count_over_time(node_load1[1m])"
    try:
        deadline = time.monotonic() + 60
        while True:
            assert time.monotonic() < deadline and all(one.poll() is None for one in running), (tmp_path / "log").read_text()
            try:
                with urllib.request.urlopen(query, timeout=5) as answer:
                    result = json.load(answer)["data"]["result"]
                if result and float(result[0]["value"][1]) >= 2:
                    break
            except OSError:
                pass
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        for one in running:
            one.kill()
            one.wait(20)


def test_prometheus_shows_the_host_of_the_server(pgherd, observed: Observed, prometheus: str) -> None:
    ended = short(pgherd, observed.dsn("127.0.0.1"), "--prometheus", prometheus, seconds=6)
    assert ended.code in (0, 1), ended
    trial = pgherd.trials()[0]
    (phase,) = trial["phases"]
    name = trial["trial"]["deployment"]["hosts"][0]["containers"][0]["name"]
    (view,) = phase["prometheus"]
    assert {"node_cpu_seconds_total", "node_memory_MemTotal_bytes"} <= set(view["series"]), view
    assert "container_cpu_usage_seconds_total" in view["missing"] and view["step"] > 0 and abs(view["clock_ahead"]) < 1

    theirs, ours = phase["metrics"][f"server-host:{name}"], phase["metrics"]["host"]
    assert theirs["cpu.online"] == ours["cpu.online"]
    for metric in ("cpu.user", "cpu.system", "cpu.idle"):  # the same host, seen at other instants
        assert theirs[metric] == pytest.approx(ours[metric], abs=0.5), metric
    assert theirs["memory.total"] == ours["memory.total"]
    checks = {check["name"]: check for check in trial["checks"]}
    assert checks["cpu-bound"]["result"] in ("pass", "fail") and checks["cached"]["result"] in ("pass", "fail", "unknown")
    assert checks["background-cpu"]["result"] == "unknown" and "container_cpu_usage_seconds_total" in checks["background-cpu"]["reason"]
    assert f"container:{name}" not in phase["metrics"], "a cgroup of this host is not mixed with Prometheus' samples"
    assert any(f"from Prometheus at {prometheus}" in sentence for sentence in pgherd.record()["defaults_chosen"])


def test_prometheus_shows_the_hosts_of_listed_servers(pgherd, observed: Observed, prometheus: str) -> None:
    first = observed.instance
    root, port = Path(first.data_dir).parent, free_port()
    other = Instance(NODE, first.installation, str(root / "data3"), str(root / "s3"), account=first.account, name="third", port=port)
    entries = [
        {"name": "labelled", "dsn": observed.dsn(), "labels": {"host": "127.0.0.1"}},
        {"name": "addressed", "dsn": f"host=127.0.0.1 port={port} user=free dbname=app"},
    ]
    file = pgherd.root / "fleet.yaml"
    file.write_text(json.dumps({"servers": entries}))  # JSON is YAML
    words = ("--clients", "2", "--databases", "2", "--repeats", "1", "--warmup", "0s", "--time-budget", "1s")
    try:
        start(other, port)
        ended = pgherd("density", "--servers", str(file), "--prometheus", prometheus, *words, "--duration", "6s", "--json")
        entries[1]["labels"] = {"host": "elsewhere"}
        file.write_text(json.dumps({"servers": entries}))
        refused = pgherd("density", "--servers", str(file), "--prometheus", prometheus, *words, "--dry-run")
    finally:
        other.disconnect(["postgres", "app"])
        other.stop("immediate", 10)
    assert ended.code in (0, 1), ended
    run = max(pgherd.runs.iterdir())
    trial = json.loads(next(run.glob("trials/*/trial.json")).read_text())
    (phase,) = trial["phases"]
    assert {view["container"] for view in phase["prometheus"]} == {"labelled", "addressed"}
    cores = phase["metrics"]["host"]["cpu.online"]
    assert {phase["metrics"][f"server-host:{name}"]["cpu.online"] for name in ("labelled", "addressed")} == {cores}
    checks = {check["name"]: check for check in trial["checks"]}
    assert checks["cpu-bound"]["result"] in ("pass", "fail"), checks["cpu-bound"]
    report = (run / "report.html").read_text()
    assert "host of labelled" in report and "host of addressed" in report
    assert refused.code == 2 and "of server addressed" in refused.message, refused


def test_a_host_that_prometheus_does_not_know_is_refused_first(pgherd, observed: Observed, prometheus: str) -> None:
    ended = pgherd.density(
        *("--databases", "1", "--dsn", observed.dsn("127.0.0.1"), "--prometheus", prometheus, "--prometheus-match", "host=node")
    )
    assert ended.code == 2 and "has no recent series of node_exporter" in ended.message, ended


# ---- Podman


class Podman:
    """Podman with a runtime that works here, and storage in a directory."""

    def __init__(self, root: Path) -> None:
        self.root, self.rootfs = root, root / "rootfs"
        if shutil.which("podman") is None:
            pytest.skip("podman is missing")
        for name in ("usr", "etc", "proc", "sys", "dev", "tmp", "run"):
            (self.rootfs / name).mkdir(parents=True)
        for name in ("bin", "sbin", "lib", "lib64"):
            (self.rootfs / name).symlink_to(f"usr/{name}")
        refused = []
        for self.runtime in ("crun", "runc"):
            tried = self.call("run", "--rm", *self.options(), "/usr/bin/true")
            if tried.returncode == 0:
                return
            refused.append(f"{self.runtime}: {' '.join(tried.stderr.split())[-200:]}")
        pytest.skip(f"podman cannot run a container here: {'; '.join(refused)}")

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        places = ("--root", str(self.root / "storage"), "--runroot", str(self.root / "run"))
        options = (*places, "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--runtime", self.runtime)
        return subprocess.run(["podman", *options, *words], capture_output=True, text=True, timeout=120)

    def options(self, *mounts: str) -> list[str]:
        """Options of a container with this host's programs. Its limits are not above those of a restricted host."""
        volumes = [word for path in ("/usr:/usr:ro", "/etc:/etc:ro", *mounts) for word in ("-v", path)]
        limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]
        return ["--network", "host", *limits, *volumes, "--rootfs", str(self.rootfs)]


@pytest.fixture
def podman() -> Iterator[Podman]:
    if os.geteuid() != 0:
        pytest.skip("a container with limits needs root")
    root = Path(tempfile.mkdtemp(prefix="podman-", dir="/tmp"))
    root.chmod(0o755)
    try:
        yield Podman(root)
    finally:
        shutil.rmtree(root)
        for parent in Path("/sys/fs/cgroup").glob("**/libpod_parent"):
            for group in (parent / "conmon", parent):
                with contextlib.suppress(OSError):  # not there, or another container of the host is in it
                    group.rmdir()


def test_a_server_in_a_container_of_podman_is_found_by_its_id(pgherd, observed: Observed, podman: Podman) -> None:
    first, port = observed.instance, free_port()
    root = podman.root / "server"
    root.mkdir()
    one = Instance(NODE, first.installation, str(root / "data"), str(root / "s"), account=first.account, name="contained", port=port)
    start(one, port)
    one.disconnect(["postgres", "app"])
    one.stop("fast", 30)
    (root / "data/postmaster.pid").unlink(missing_ok=True)
    owner = (root / "data").stat()
    NODE.make_dir(f"{root}/socket", mode=0o711, user=first.account)
    software = Path(first.installation.bin).parent
    mounts = [f"{root}:{root}"] + ([] if software.is_relative_to("/usr") else [f"{software}:{software}:ro"])
    # As a process of these tests, it does not keep pgherd from using the account.
    options = ["-d", "--memory", str(MEMORY), "--user", f"{owner.st_uid}:{owner.st_gid}", "--env", f"{MARK}=1", *podman.options(*mounts)]
    server = [first.installation.tool("postgres"), "-D", f"{root}/data", "-p", str(port), "-k", f"{root}/socket"]
    ran = podman.call("run", *options, *server)
    assert ran.returncode == 0, ran.stderr
    container = ran.stdout.strip()
    try:
        deadline = time.monotonic() + 60
        while not (root / f"socket/.s.PGSQL.{port}").exists():
            assert time.monotonic() < deadline, podman.call("logs", container)
            time.sleep(0.1)
        ended = short(pgherd, f"host={root}/socket port={port} user=free dbname=app", "--server-cgroup", f"container:{container[:12]}")
        found = " ".join(pgherd.record()["defaults_chosen"])
        (trial,) = pgherd.trials()
    finally:
        podman.call("rm", "-f", "-t", "5", container)
    assert ended.code in (0, 1), ended
    assert f"libpod-{container}" in found and f"(--server-cgroup container:{container[:12]})" in found
    (seen,) = [values for entity, values in trial["phases"][0]["metrics"].items() if entity.startswith("container:")]
    assert seen["memory.limit"] == MEMORY and 0 < seen["memory.usage"] < MEMORY and seen["cpu.usage"] > 0
