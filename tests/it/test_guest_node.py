"""A virtual machine as a node: a server, pgbench and samplers inside it, its clock, and the way to its server from outside."""

from __future__ import annotations

import importlib.util
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from pgherd.drivers.driver import MeasuredWindow
from pgherd.drivers.pgbench import PgbenchDriver
from pgherd.host.paths import free_ports
from pgherd.metrics import aggregate, sampler
from pgherd.metrics.sampler import ProcessView, SamplingView
from pgherd.metrics.spool import Spool
from pgherd.model.errors import CapabilityError
from pgherd.model.load import Load, Script
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command
from pgherd.postgres.instance import Instance, initdb
from pgherd.postgres.tcp_access import TcpAccess, generate, write_password_file
from pgherd.runtimes.vm import agent_wire, boot_images, disk_image, guest_spool
from pgherd.runtimes.vm.guest_node import GuestNode
from pgherd.runtimes.vm.qemu import Disk, GuestSpec
from pgherd.runtimes.vm.virtual_machine import VirtualMachine

_spec = importlib.util.spec_from_file_location("postgres_conftest", Path(__file__).parents[1] / "postgres/conftest.py")
assert _spec and _spec.loader
_shared = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_shared)

SETTINGS = {"shared_buffers": "16MB", "max_connections": "20", "fsync": "off", "autovacuum": "off"}
BOOT_SECONDS = 240.0

pytestmark = pytest.mark.timeout(900)


@dataclass
class Up:
    machine: VirtualMachine
    node: GuestNode
    server: Instance


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    """A guest with a server in it that is ready; made once for all tests here."""
    host = LocalNode()
    account = _shared.server_account()
    found = [one for one in _shared.installations.find_all(host) if one.kind == "system"]
    if not found:
        pytest.skip("there is no system PostgreSQL here")
    chosen = found[0]
    cache = Path(sys.prefix, "cache")
    cache.mkdir(exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="pgherd-guest-", dir="/tmp"))
    place.chmod(0o755)
    machine: VirtualMachine | None = None
    guest: GuestNode | None = None
    try:
        try:
            made = boot_images.build(host, chosen, account, str(cache), str(place))
        except CapabilityError as error:
            pytest.skip(str(error))
        initdb(host, chosen, str(place / "disk/data"), account=account)
        disk_image.pack(host, str(place / "disk"), str(place / "data.raw"), free=256 << 20, account=account)
        (port,) = free_ports("127.0.0.1", 1)
        disk = Disk("data", str(place / "data.raw"), "/mnt/data")
        description = GuestSpec(
            "db01", made.boot, made.initrd, made.root.path, (disk,), memory=512 << 20, accelerator=made.hypervisor.accelerator, port=port
        )
        machine = VirtualMachine(host, description, str(place), made.hypervisor)
        machine.start()
        guest = GuestNode.connect("db01", machine.agent_socket, BOOT_SECONDS, alive=lambda: machine.running)
        guest.patience = 120.0
        guest.align_clock()
        access = TcpAccess("127.0.0.1", port, str(place / "pgpass"), generate())
        server = Instance(guest, chosen, "/mnt/data/data", "/run/pgherd", account=made.root.account, name="db01/pg", access=access)
        write_password_file(access.password_file, [(access, server.user)], account)
        server.write_settings(SETTINGS)
        server.start()
        server.wait_ready(BOOT_SECONDS)
        yield Up(machine, guest, server)
    finally:
        if guest is not None:
            guest.close()
        if machine is not None:
            machine.stop()
        shutil.rmtree(place, ignore_errors=True)


def test_the_guest_is_another_machine(up: Up) -> None:
    assert up.node.read("/proc/sys/kernel/hostname").strip() == b"db01"
    assert up.node.read("/proc/sys/kernel/random/boot_id") != Path("/proc/sys/kernel/random/boot_id").read_bytes()
    assert up.node.read("/proc/mounts").count(b"/mnt/data ext4") == 1
    up.node.make_dir("/run/x", user=up.server.account)
    up.node.write("/run/x/file", bytes(range(256)) * 8000)
    assert up.node.read("/run/x/file") == bytes(range(256)) * 8000
    assert up.node.run(Command(["sh", "-c", "echo in; exit 3"])).code == 3
    stat = up.node.run(Command(["cat", "/proc/self/stat"], sched_batch=True, user=up.server.account)).out
    assert stat.rpartition(")")[2].split()[41 - 3] == "3", "field 41 of proc(5) is the policy, here SCHED_BATCH"
    up.node.remove_tree("/run/x")
    assert not up.node.exists("/run/x")


def test_its_server_is_reached_from_outside_with_the_password_only(up: Up) -> None:
    assert up.server.sql("SELECT current_setting('cluster_name')") == [("db01/pg",)]
    assert up.server.sql("SHOW listen_addresses") == [("*",)]
    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        psycopg.connect(up.server.conninfo().replace("pgpass", "nothing"))
    assert up.server.access is not None
    way = ["-h", "127.0.0.1", "-p", str(up.server.access.port), "-U", "postgres", "postgres"]
    argv = [up.server.installation.tool("pgbench"), "-n", "-t", "5", "-f", "/dev/stdin", *way]
    script = Path(up.server.access.password_file).with_name("script.sql")
    script.write_text("SELECT 1;\n")
    outside = LocalNode().run(Command(argv, env={"PGPASSFILE": up.server.access.password_file}, stdin=str(script)), timeout=120)
    assert "number of transactions actually processed: 5/5" in outside.out, outside.err
    up.server.write_settings({**SETTINGS, "work_mem": "7MB"})
    up.server.reload(60)
    assert up.server.sql("SHOW work_mem") == [("7MB",)]


def test_pgbench_and_the_samplers_run_inside_and_share_our_clock(up: Up, tmp_path: Path) -> None:
    """The guest's transactions as pgbench counts them by its clock lie in the window that the host saw."""
    tool = up.server.installation.tool("pgbench")
    way = ["-h", up.server.socket_dir, "-U", "postgres", "postgres"]
    done = up.node.run(Command([tool, "-i", "-q", "-s", "1", *way], user=up.server.account), timeout=300)
    assert done.code == 0, done.err
    up.node.make_dir("/run/out", user=up.server.account)
    out = {name: f"/run/out/{name}" for name in ("stdout", "stderr")}
    sampling = up.node.sample(sampler.sources(SamplingView()), str(tmp_path / "guest.jsonl"), 1.0)
    driver = PgbenchDriver()
    argv = [
        tool,
        "-n",
        "-c",
        "1",
        "-T",
        "60",
        "-P",
        "1",
        "--progress-timestamp",
        "-l",
        "--log-prefix=/run/out/log",
        "-b",
        "select-only",
        *way,
    ]
    at = up.node.now() + 1.0
    process = up.node.spawn(Command(argv, user=up.server.account, cwd="/run/out", **out), at=at)
    began = time.time()
    sampling.add(sampler.samplers()["processes"].sources(SamplingView(processes=[ProcessView("driver:x", process.pid)])))
    time.sleep(5.0)
    sampling.add(())
    process.signal(driver.stop_signal)
    assert process.wait(60) == 0
    stopped = up.node.now()
    ended = time.time()
    sampling.stop()
    files = {name: up.node.read(f"/run/out/{name}").decode() for name in up.node.listdir("/run/out")}
    span = driver.span(files, at, stopped)
    unsure = up.node.clock.uncertainty + 0.1
    assert began - unsure < up.node.clock.host(span.first) < up.node.clock.host(span.last) < ended + unsure
    load = Load(driver="pgbench", scripts=(Script(source="builtin:select-only"),), clients=1)
    result = driver.result(load, files, at, MeasuredWindow(span.first, span.last, stopped), "db01/pg/postgres")
    assert result.transactions > 10

    host = LocalNode().sample(sampler.sources(SamplingView()), str(tmp_path / "host.jsonl"), 1.0)
    host.stop()
    guest_spool.append(
        tmp_path / "host.jsonl", [guest_spool.GuestSpool("db01", (tmp_path / "guest.jsonl").read_text().splitlines(), up.node.clock)]
    )
    spool = Spool((tmp_path / "host.jsonl").read_text().splitlines())
    readings = list(spool)
    assert not spool.torn and {source.entity for source in spool.failures} <= {"driver:x", "guest:db01"}, spool.failures
    metrics = aggregate.aggregate(readings, began, ended)
    assert 0.2 < metrics["guest:db01"]["cpu.user"] + metrics["guest:db01"]["cpu.system"] < 1.2
    assert 400 << 20 < metrics["guest:db01"]["memory.total"] < 512 << 20
    assert "guest-disk:db01/vdb" in metrics and metrics["driver:x"]["cpu.usage"] > 0
    assert "host" in {entity for _, _, entity, _ in readings} and "host" not in metrics, "the host was sampled later"


def test_its_clock_is_known_and_its_drift_seen(up: Up) -> None:
    first = up.node.measure_clock()
    assert abs(first.offset) < 0.5 and first.uncertainty < 0.25, "it was set to ours"
    assert abs(up.node.clock.host(up.node.now()) - time.time()) < 0.05
    up.node.ask("shift_clock", 10**10)
    assert 9 < up.node.measure_clock().offset < 11
    left = up.node.align_clock()
    assert abs(left.offset) < 0.5 and up.node.clock.measured[-1] == left


def test_a_server_that_is_killed_comes_back(up: Up) -> None:
    """Crash recovery inside a guest, seen from outside; the next server finds what the killed one left in the guest's memory."""
    up.server.kill()
    assert up.server.ending() == "was ended by signal SIGKILL"
    up.server.stop()
    up.server.start()
    up.server.wait_ready(BOOT_SECONDS)
    assert "database system was not properly shut down" in up.server.log_tail(40)


def test_a_process_that_is_told_to_end(up: Up) -> None:
    sleeping = up.node.spawn(Command(["sleep", "600"]))
    sleeping.signal(signal.SIGTERM)
    assert sleeping.wait(60) == -signal.SIGTERM and sleeping.cpu_seconds is not None


def test_a_host_that_dies_in_the_middle_of_a_question_and_comes_back(up: Up) -> None:
    """The last but one: the server is stopped before, since it belongs to the host that goes."""
    up.server.stop(timeout=120)
    assert up.server.ending() == "ended with exit code 0"
    up.node.close()
    half = agent_wire.frame(1, 1, agent_wire.encode([b"write", b"/run/never", b"x" * 200_000]))
    with socket.socket(socket.AF_UNIX) as dying:
        dying.connect(up.machine.agent_socket)
        dying.sendall(half[: len(half) // 2])
    up.node = GuestNode.connect("db01", up.machine.agent_socket, 60)
    assert up.node.read("/proc/sys/kernel/ostype") == b"Linux\n" and not up.node.exists("/run/never")


def test_the_guest_ends_with_its_agent(up: Up) -> None:
    """And whoever waits is told so."""
    found = [pid for pid in up.node.listdir("/proc") if pid.isdigit() and agent_port(up.node, pid)]
    sleeping = up.node.spawn(Command(["sleep", "600"]))
    assert len(found) == 1
    with pytest.raises(OSError, match="guest db01 has died"):
        up.node.run(Command(["kill", "-KILL", found[0]]), timeout=60)
    assert sleeping.wait(1) == -signal.SIGKILL
    deadline = time.monotonic() + 60
    while up.machine.running and time.monotonic() < deadline:
        time.sleep(0.05)
    assert up.machine.ending() == "powered itself off" and "the agent ended with exit code 137" in up.machine.console_tail()


def agent_port(node: GuestNode, pid: str) -> bool:
    try:
        return b"/dev/virtio-ports/pgherd.agent" in node.read(f"/proc/{pid}/cmdline")
    except OSError:
        return False
