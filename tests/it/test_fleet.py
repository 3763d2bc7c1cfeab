"""Servers of a list: loaded over TCP with passwords of three kinds, guarded, and left as they were."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from pgherd.host.server_user import server_account
from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command, Process
from pgherd.postgres import installations
from pgherd.postgres.installations import Installation
from pgherd.prepare import fleet
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.propose import planned

NODE = LocalNode()
PASSWORDS = {"alpha": "horse-in-the-file", "beta": "horse-of-a-service", "gamma": "horse-in-pgpass"}
HOSTS = {"alpha": "rack1", "beta": "rack1", "gamma": "rack2"}
HERE, NEAR, THERE = "127.0.0.1", "10.206.77.1", "10.206.77.2"
"""Addresses: of this host, of its end of the link to the second host, and of that host."""
HBA = f"""
local all postgres trust
local replication postgres trust
host all all {HERE}/32 scram-sha-256
host all all {NEAR}/32 scram-sha-256
"""
SHORT = ("--scale", "1", "--duration", "1s", "--warmup", "0s", "--clients", "2", "--no-report")
SLEEP = 50
"""Seconds of a statement. A session that does not notice the end of its client lives as long."""


@dataclass
class Theirs:
    """A server of somebody else, who is a superuser on its socket; ``loader`` is let in over TCP with a password.

    ``host`` is the pid of a process in the network namespace of the server's host. None: this host.
    """

    name: str
    usable: Installation
    root: Path
    account: str | None
    port: int = 0
    address: str = HERE
    host: int | None = None
    process: Process | None = field(default=None)

    @property
    def socket_dir(self) -> Path:
        return self.root / f"{self.name}.s"

    def start(self) -> None:
        argv = [self.usable.tool("postgres"), "-D", str(self.root / self.name), "-p", str(self.port), "-k", str(self.socket_dir)]
        argv += ["-c", f"listen_addresses={self.address}", "-c", "fsync=off", "-c", "autovacuum=off", "-c", "shared_buffers=16MB"]
        argv += ["-c", "full_page_writes=off"]  # so that a transaction generates the same WAL before and after a checkpoint
        log = str(self.root / f"{self.name}.log")
        user = self.account
        if self.host is not None:  # only root enters a namespace, so that the server's user is taken on inside
            argv = ["nsenter", f"--net=/proc/{self.host}/ns/net", "setpriv", f"--reuid={user}", "--clear-groups", "--pdeathsig=QUIT", *argv]
            user = None
        self.process = NODE.spawn(Command(argv, user=user, death_signal="QUIT", stdout=log, stderr=log))
        while True:
            with contextlib.suppress(psycopg.OperationalError):
                self.sql("SELECT 1")
                return
            assert self.process.poll() is None, Path(log).read_text()

    def stop(self) -> None:
        if self.process is not None:
            self.process.signal(signal.SIGQUIT)
            self.process.wait(30)
            self.process = None

    def sql(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        with psycopg.connect(host=str(self.socket_dir), port=self.port, user="postgres", dbname=database, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def sessions(self) -> int:
        return int(self.sql("SELECT count(*) FROM pg_stat_activity WHERE usename = 'loader'")[0][0])  # type: ignore[call-overload]

    def left_behind(self) -> list[tuple[object, ...]]:
        """Sessions, prepared transactions and temporary tables of the load."""
        return self.sql(
            "SELECT (SELECT count(*) FROM pg_stat_activity WHERE usename = 'loader'), (SELECT count(*) FROM pg_prepared_xacts), "
            "(SELECT count(*) FROM pg_class WHERE relpersistence = 't')",
            "app",
        )


@contextlib.contextmanager
def second_host() -> Iterator[int | None]:
    """Make a network namespace with a link to this one; the pid of a process in it. None without root."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        yield None
        return
    with subprocess.Popen(["unshare", "--net", "sh", "-c", "echo made; exec sleep infinity"], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == "made\n"
            inside = f"nsenter --net=/proc/{holder.pid}/ns/net ip"
            for command in (
                f"ip link add fleet-near type veth peer name there netns {holder.pid}",
                f"ip addr add {NEAR}/30 dev fleet-near",
                "ip link set fleet-near up",
                f"{inside} addr add {THERE}/30 dev there",
                f"{inside} link set there up",
            ):
                subprocess.run(command.split(), check=True)
            yield holder.pid
        finally:
            holder.kill()  # the link goes with the namespace


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Theirs]]:
    with second_host() as host:
        yield from _servers(host)


def _servers(host: int | None) -> Iterator[dict[str, Theirs]]:
    """Yield three servers, of which gamma runs on the second host if there is one."""
    root = Path(tempfile.mkdtemp(prefix="fleet-", dir="/tmp"))
    root.chmod(0o755)
    account = server_account()
    try:
        usable = installations.reachable_copy(NODE, installations.choose(NODE), account, str(root))
    except CapabilityError as error:
        shutil.rmtree(root)
        pytest.skip(str(error))
    found = {name: Theirs(name, usable, root, account) for name in PASSWORDS}
    with contextlib.ExitStack() as stack:
        for one in found.values():
            free = stack.enter_context(socket.socket())
            free.bind(("127.0.0.1", 0))
            one.port = free.getsockname()[1]
    if host is not None:
        found["gamma"].address, found["gamma"].host = THERE, host
    try:
        for one in found.values():
            NODE.make_dir(str(one.socket_dir), mode=0o711, user=account)
        first = found["alpha"]
        NODE.make_dir(str(root / "alpha"), mode=0o700, user=account)
        made = NODE.run(
            Command([usable.tool("initdb"), "-D", str(root / "alpha"), "-U", "postgres", "--no-sync"], user=account), timeout=120
        )
        assert made.code == 0, made.err
        (root / "alpha/pg_hba.conf").write_text(HBA)
        first.start()
        first.sql("CREATE ROLE loader LOGIN")
        first.sql("CREATE DATABASE app OWNER loader")
        address = ["-h", str(first.socket_dir), "-p", str(first.port), "-U", "postgres", "app"]
        made = NODE.run(Command([usable.tool("pgbench"), "-i", "-q", *address], env={"PGOPTIONS": "-c role=loader"}), timeout=120)
        assert made.code == 0, made.err
        first.sql("CHECKPOINT")
        first.stop()
        (root / "alpha/postmaster.pid").unlink(missing_ok=True)
        for name in ("beta", "gamma"):
            subprocess.run(["cp", "-a", root / "alpha", root / name], check=True)
        for one in found.values():
            one.start()
            one.sql(f"ALTER ROLE loader PASSWORD '{PASSWORDS[one.name]}'")
        yield found
    finally:
        for one in found.values():
            one.stop()
        shutil.rmtree(root)


@pytest.fixture
def listed(pgherd, servers, monkeypatch) -> str:
    """The list: a password in the file, one in a service file, and one in ~/.pgpass."""
    places = {name: f"host={one.address} port={one.port} user=loader dbname=app" for name, one in servers.items()}
    service = "\n".join(places["beta"].split(" "))
    (pgherd.root / "services").write_text(f"[beta]\n{service}\npassword={PASSWORDS['beta']}\n")
    monkeypatch.setenv("PGSERVICEFILE", str(pgherd.root / "services"))
    (pgherd.root / ".pgpass").write_text(f"{servers['gamma'].address}:{servers['gamma'].port}:app:loader:{PASSWORDS['gamma']}\n")
    (pgherd.root / ".pgpass").chmod(0o600)
    entries = [
        {
            "name": "alpha",
            "dsn": f"{places['alpha']} password={PASSWORDS['alpha']}",
            "labels": {"host": "rack1"},
            "capacity": 2,
            "price": 10,
        },
        {"name": "beta", "service": "beta", "labels": {"host": "rack1"}},
        {"name": "gamma", "dsn": places["gamma"], "labels": {"host": "rack2"}},
    ]
    path = pgherd.root / "fleet.yaml"
    path.write_text(json.dumps({"servers": entries}))  # JSON is YAML
    return str(path)


def loaded(trial: dict) -> set[str]:
    return {target.split("/")[1] for target in trial["trial"]["phases"][0]["loads"]}


def command_lines() -> str:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(file.read_bytes().decode(errors="replace"))
    return "\n".join(found)


def test_one_to_all_servers_are_loaded_and_no_password_is_told(pgherd, servers, listed):
    process = pgherd.start("density", "--servers", listed, "--repeats", "1", "--time-budget", "1s", *SHORT, "--json")
    pgherd.wait_until(lambda: process.poll() is not None or sum(one.sessions() for one in servers.values()) >= 2, pause=0.05)
    seen = command_lines()
    ended = pgherd.end(process)
    assert ended.code in (0, 1), ended
    trials = pgherd.trials()
    assert {trial["trial"]["point"]["databases"]: len(loaded(trial)) for trial in trials} == {1: 1, 2: 2, 3: 3}
    assert not [trial["error"] for trial in trials if trial["error"]]
    (two,) = (trial for trial in trials if len(loaded(trial)) == 2)
    assert {HOSTS[name] for name in loaded(two)} == {"rack1", "rack2"}, "both hosts are loaded before one of them twice"
    for trial in trials:
        checks = {check["name"]: check for check in trial["checks"]}
        assert checks["overlap"]["result"] in ("pass", "fail"), "whether all loads ran at the same time is judged"
        assert trial["phases"][0]["overlap"] > 0
        assert checks["cpu-bound"]["result"] == "unknown" and "external" in checks["cpu-bound"]["reason"]
    document = json.loads(ended.out)
    rows = {row["server"]: row for row in document["tables"]["servers"]}
    assert set(rows) == set(servers) and rows["beta"]["host"] == "rack1" and all(row["throughput"]["value"] > 0 for row in rows.values())
    assert rows["alpha"]["throughput_per_core"]["value"] == pytest.approx(rows["alpha"]["throughput"]["value"] / 2)
    assert rows["beta"]["throughput_per_core"]["value"] is None
    assert document["tables"]["density"][0]["allocated_share"]["value"] is None, "their cores are unknown"
    for secret in PASSWORDS.values():
        assert secret not in ended.out + ended.err + seen
        for root in (pgherd.runs, pgherd.root / "state", pgherd.root / "cache"):
            for file in root.rglob("*"):
                with contextlib.suppress(OSError):
                    assert file.is_dir() or secret.encode() not in file.read_bytes(), file
    assert {one.left_behind()[0] for one in servers.values()} == {(0, 0, 0)}


def test_servers_of_several_dsns_keep_a_latency_objective(pgherd, servers):
    words = [
        word
        for name in ("alpha", "gamma")
        for word in ("--dsn", f"host={servers[name].address} port={servers[name].port} user=loader password={PASSWORDS[name]} dbname=app")
    ]
    ended = pgherd("density", *words, "--rate", "200", "--slo", "p90=2s", "--time-budget", "45s", *SHORT, "--json")
    assert ended.code in (0, 1), ended
    document = json.loads(ended.out)
    assert "objective" in document["tables"], (document["answer"], document["warnings"])
    assert 2 in {row["databases"] for row in document["tables"]["objective"]}, document["answer"]
    assert {server.partition("/")[0] for trial in pgherd.trials() for server in loaded(trial)} <= {"server1", "server2"}
    assert {one.left_behind()[0] for one in servers.values()} == {(0, 0, 0)}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_whatever_ends_pgherd_ends_the_load(pgherd, servers, listed, number):
    script = pgherd.root / "sleep.sql"
    script.write_text(f"SELECT pg_sleep({SLEEP});\n")
    words = ("--script", str(script), "--read-only", "--databases", "2,3", "--repeats", "1", "--clients", "2", "--no-report")
    process = pgherd.start("density", "--servers", listed, *words, "--duration", "40s", "--time-budget", "1s")
    asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    pgherd.wait_until(lambda: process.poll() is not None or sum(one.sql(asleep)[0][0] for one in servers.values()) >= 4, pause=0.05)
    process.send_signal(number)
    began = os.times().elapsed
    pgherd.wait_until(lambda: {one.left_behind()[0] for one in servers.values()} == {(0, 0, 0)})
    assert os.times().elapsed - began < SLEEP / 2, "not because the statements came to their end"
    pgherd.end(process)
    assert pgherd("clean").code == 0


def test_a_lost_server_fails_its_trials_and_not_the_run(pgherd, servers, listed):
    names = [{"name": one.name, "dsn": "host=x", "version": "18", "host": HOSTS[one.name]} for one in fleet.read_servers(Path(listed))]

    def plan(seed: int) -> list[set[str]]:
        options = DensityOptions(
            host_cores=1, host_memory=1, vcpus=1, pg_bin="/b", pg_version="18", databases=(1, 3), fleet=names, seed=seed, repeats=3
        )
        return [{target.split("/")[1] for target in trial.phases[0].loads} for trial in planned(options)]

    # The first trial loads it, and the last one does not.
    seed = next(s for s in range(1000) if "beta" in plan(s)[0] and "beta" not in plan(s)[-1])
    words = ("--seed", str(seed), "--databases", "1,3", "--repeats", "3", "--time-budget", "60s")
    process = pgherd.start("density", "--servers", listed, *words, *SHORT, "--json")
    try:
        pgherd.wait_until(lambda: pgherd.in_trial(2))
        servers["beta"].stop()
        ended = pgherd.end(process)
    finally:
        (servers["beta"].root / "beta/postmaster.pid").unlink(missing_ok=True)
        servers["beta"].start()
    assert ended.code in (0, 1), ended
    assert pgherd.record()["state"] == "finished"
    trials = pgherd.trials()
    failed = [trial for trial in trials if trial["error"]]
    assert failed and all("beta" in loaded(trial) for trial in failed)
    assert any(not trial["error"] for trial in trials[2:]), "trials without it still run"


@pytest.mark.parametrize("command", [("compare",), ("io-profile", "--workload", "select-only")], ids=["compare", "io-profile"])
def test_servers_of_the_list_are_compared_by_name(pgherd, servers, listed, command):
    words = ("--variant", "a:server=alpha", "--variant", "c:server=gamma", "--max-blocks", "1", "--duration", "1s", "--warmup", "0s")
    ended = pgherd(*command, "--servers", listed, *words, "--clients", "2", "--time-budget", "3s", "--no-report", "--json")
    assert ended.code in (0, 1), ended
    assert json.loads(ended.out)["tables"]["comparison"][0]["baseline"]["value"] > 0
    ports = {
        trial["trial"]["deployment"]["hosts"][0]["containers"][0]["servers"][0]["dsn"].partition("port=")[2] for trial in pgherd.trials()
    }
    assert ports == {str(servers[name].port) for name in ("alpha", "gamma")}
    assert {trial["trial"]["state"] for trial in pgherd.trials()} == {"warm"}


def test_a_server_of_the_list_is_profiled_by_its_statistics(pgherd, servers, listed):
    beta = servers["beta"]
    settings = "SELECT name, setting, source, pg_postmaster_start_time(), pg_conf_load_time() FROM pg_settings ORDER BY name"
    counters = "SELECT (SELECT wal_bytes::bigint FROM pg_stat_wal), (SELECT count(*) FROM pgbench_history)"
    before, ((wal, transactions),) = beta.sql(settings), beta.sql(counters, "app")
    words = ("--server", "beta", "--allow-writes", "--clients", "2", "--repeats", "1", "--duration", "10s", "--warmup", "1s")
    process = pgherd.start("io-profile", "--servers", listed, *words, "--no-report", "--json")
    pgherd.wait_until(lambda: process.poll() is not None or pgherd.in_trial(1))
    for _ in range(3):  # the first one may be counted before the measured window
        beta.sql("CHECKPOINT")
        time.sleep(1.5)
    ended = pgherd.end(process)
    assert ended.code in (0, 1), ended
    ((wal_after, transactions_after),) = beta.sql(counters, "app")
    document = json.loads(ended.out)
    (row,) = document["tables"]["io_profile"]
    per_transaction = (wal_after - wal) / (transactions_after - transactions) / 1024
    assert row["server"] == "beta" and row["wal_per_tx"]["value"] == pytest.approx(per_transaction, rel=0.3), "counters lag by a second"
    assert 0.9 <= row["checkpoints"]["value"] <= 4.1, "three were requested, and one may be due"
    assert row["checkpoint_rate"]["value"] == pytest.approx(6 * row["checkpoints"]["value"], rel=0.1)
    assert row["stalls"]["value"] is None and "devices of an external server" in row["stalls"]["note"]
    assert row["p95_between_checkpoints"]["value"] is None and "log of an external server" in row["p95_between_checkpoints"]["note"]
    assert "kB of WAL" in document["answer"] and "checkpoints per minute" in document["answer"]
    assert not [warning for warning in document["warnings"] if "--wal-volume" in warning or "--checkpoint-timeout" in warning]
    assert beta.sql(settings) == before and "Transactions write to it" in " ".join(pgherd.record()["defaults_chosen"])


def test_who_else_needs_a_server_is_said_first(pgherd, servers, listed):
    alpha, gamma = servers["alpha"], servers["gamma"]
    receiver = NODE.spawn(
        Command(
            [alpha.usable.tool("pg_receivewal"), "-h", str(gamma.socket_dir), "-p", str(gamma.port), "-U", "postgres", "-D", "."],
            cwd=str(gamma.socket_dir),
            user=gamma.account,
        )
    )
    try:
        pgherd.wait_until(lambda: gamma.sql("SELECT count(*) FROM pg_stat_replication")[0][0])
        with psycopg.connect(
            host="127.0.0.1", port=alpha.port, user="loader", dbname="app", password=PASSWORDS["alpha"]
        ) as busy:  # in a transaction
            busy.execute("SELECT 1")
            ended = pgherd("density", "--servers", listed, "--clients", "2", "--dry-run", "--json")
    finally:
        receiver.signal(signal.SIGTERM)
        receiver.wait(30)
    assert ended.code == 0, ended
    first, second = json.loads(ended.out)["defaults_chosen"][:2]
    assert "others use server alpha: 1 of 1 session are active" in first and "server gamma is a primary with 1 replica" in second


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--connection-limit", "3"), "server alpha: 2 clients and pgherd need 4 connections, but --connection-limit is 3"),
        (("--clients", "500"), "server alpha: 500 clients and pgherd need 502 connections, but the server has 97 free"),
        (("--databases", "1,4"), "--databases 4: --servers lists 3; give numbers from 1 to 3"),
        (("--workload", "tpcb-like"), "server alpha .* is read only by default"),
        (("--set", "work_mem=1MB"), "--set does not go with --servers"),
        (("--server", "alpha"), "name several with --dsn or --servers"),
    ],
)
def test_what_cannot_be_is_one_message(pgherd, listed, words, message):
    ended = pgherd("density", "--servers", listed, *(() if "--clients" in words else ("--clients", "2")), *words)
    assert ended.code == 2, ended
    assert re.search(message, ended.message), ended
    assert "horse" not in ended.err
