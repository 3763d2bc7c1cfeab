"""A server that pgherd did not start, in a cgroup of its own: what the kernel and the server tell of it, and that nothing is changed."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from pgherd.host import cgroup_parent
from pgherd.host.server_user import server_account
from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command
from pgherd.postgres import external_connections, external_server, installations
from pgherd.postgres.instance import Instance, initdb
from pgherd.prepare import servers

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
        initdb(NODE, usable, one.data_dir, account=account)
        (Path(one.data_dir) / "pg_hba.conf").write_text("local all all trust\nhost all all 127.0.0.1/32 trust\n")
        one.write_settings({"fsync": "off", "shared_buffers": "64MB", "autovacuum": "off"})
        with open(Path(one.data_dir) / "postgresql.auto.conf", "a") as ours:  # over TCP too, unlike private servers
            ours.write("listen_addresses = '127.0.0.1'\n")
        one.start(join=tuple(f"{directory}/cgroup.procs" for directory in dict.fromkeys(groups.values())))
        one.wait_ready()
        one.sql("CREATE ROLE free LOGIN")
        one.sql("CREATE DATABASE app OWNER free")
        argv = [usable.tool("pgbench"), "-i", "-q", "-s", "1", "-h", one.socket_dir, "-p", str(port), "-U", "free", "app"]
        made = NODE.run(Command(argv, user=account))
        assert made.code == 0, made.err
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
        assert pid == (observed.instance.pid if host is None else connection.info.backend_pid)
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


def test_a_cgroup_can_be_named_and_a_wrong_one_is_refused_first(pgherd, observed: Observed) -> None:
    found = external_server.read_database_info(external_server.normalize_dsn(observed.dsn("127.0.0.1")), node=NODE)
    for text in (f"pid:{observed.instance.pid}", observed.path):
        assert servers.describe_cgroup(NODE, found, text).startswith(f"Its cgroup is {observed.path} (--server-cgroup {text})")
    ended = pgherd.density("--databases", "1", "--dsn", observed.dsn(), "--server-cgroup", "/no/such")
    assert ended.code == 2 and "there is no cgroup /no/such" in ended.message, ended
    ended = pgherd.density("--server-cgroup", "pid:1")
    assert ended.code == 2 and "add its --dsn" in ended.message, ended
