"""Guests that really boot, emulated: a database in one, its console, its faults, and nothing left afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgherd.host import paths
from pgherd.host.journal import Journal
from pgherd.model.errors import CapabilityError, PgherdError, TrialError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command
from pgherd.postgres import installations
from pgherd.runner.deploy.guests import MOUNT
from pgherd.runner.deploy.single_guest import GuestRequest, SingleGuest, boot_single_guest
from pgherd.runtimes.vm import hypervisor, initramfs, kernel
from pgherd.runtimes.vm.boot_images import BootImages
from pgherd.runtimes.vm.hypervisor import Hypervisor
from pgherd.runtimes.vm.log_pipe import KEPT_BYTES
from pgherd.runtimes.vm.qemu import GuestSpec
from pgherd.runtimes.vm.runtime import BootOptions
from pgherd.runtimes.vm.virtual_machine import VirtualMachine

pytestmark = pytest.mark.timeout(600)
PATIENCE = 300.0
MIB = 2**20
PYTHON = [sys.executable, "-P", "-m", "pgherd"]
PRINTS = """#!/bin/busybox sh
i=0
while :; do i=$((i + 1)); echo "line $i ----------------------------------------------------------------------"; done
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """State and cache of this module's own; the images are made once."""
    root = tmp_path_factory.mktemp("guest")
    for path in (root, *root.parents):
        if str(path).startswith("/tmp/") and path.owner() == "root" and os.geteuid() == 0:
            path.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(root / "state"))
        patch.setenv("XDG_CACHE_HOME", str(root / "cache"))
        _fetch_kernel(root / "cache/pgherd/vm/kernel")
        yield root


def _fetch_kernel(place: Path) -> None:
    """A kernel beside the environment, fetched once for all tests and shown to this module's cache."""
    path = Path(sys.prefix, "cache")
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path) as scratch:
            kernel.ensure(LocalNode(), str(path), scratch, say=lambda text: None)
    except (OSError, CapabilityError) as error:
        pytest.skip(f"there is no kernel for guests: {error}")
    place.parent.mkdir(parents=True)
    (path / "vm/kernel").mkdir(parents=True, exist_ok=True)  # an installed kernel needs no other
    place.symlink_to(path / "vm/kernel")


@pytest.fixture(scope="module")
def up(places: Path) -> Iterator[SingleGuest]:
    """One guest with a database, for all tests that do it no harm."""
    node = LocalNode()
    with contextlib.ExitStack() as stack:
        try:
            request = GuestRequest(scale=1, memory=384 * MIB, boot=BootOptions("tcg", console_shell=True, timeout_s=PATIENCE))
            result = stack.enter_context(boot_single_guest(node, installations.choose(node), request))
        except PgherdError as error:
            if error.exit_code == 3:
                pytest.skip(str(error))
            raise
        yield result


def test_the_database_of_the_template_answers(up: SingleGuest) -> None:
    assert up.instance is not None
    assert up.instance.sql("SELECT count(*) FROM pgbench_accounts", database=up.database) == [(100000,)]
    assert up.instance.sql("SHOW data_directory") == [(f"{MOUNT}/data",)]
    assert set(up.seconds) >= {"packing the disk", "booting", "starting the server", "ready"}


def test_the_guest_is_a_node_with_its_own_kernel_and_disks(up: SingleGuest) -> None:
    assert up.guest.read("/proc/sys/kernel/osrelease").decode().strip() == up.images.kernel.release
    mounts = up.guest.read("/proc/mounts").decode()
    assert f" {MOUNT} ext4 rw" in mounts and " / overlay rw" in mounts and " /sys/fs/cgroup cgroup2 " in mounts
    assert "memory" in up.guest.read("/sys/fs/cgroup/cgroup.controllers").decode().split()
    finished = up.guest.run(Command(["sh", "-c", "id -u; cat /proc/sys/kernel/hostname; ulimit -n"], user=up.images.root.account))
    assert finished.code == 0, finished.err
    assert finished.out.split()[1:] == [up.machine.name, "1048576"]


def test_pgbench_runs_inside(up: SingleGuest) -> None:
    assert up.instance is not None
    argv = [
        up.instance.installation.tool("pgbench"),
        "-n",
        "-S",
        "-t",
        "20",
        "-h",
        up.instance.socket_dir,
        "-U",
        up.instance.user,
        up.database,
    ]
    finished = up.guest.run(Command(argv, user=up.images.root.account), timeout=PATIENCE)
    assert finished.code == 0 and "number of transactions actually processed: 20/20" in finished.out, finished.err


def test_balloon_and_statistics_are_there(up: SingleGuest) -> None:
    """Pages that the guest has touched come back to the host when the balloon takes them."""
    deadline = time.monotonic() + PATIENCE
    while (stats := up.machine.execute("qom-get", path="/machine/peripheral/balloon0", property="guest-stats"))["last-update"] == 0:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert 0 < stats["stats"]["stat-total-memory"] < 384 * MIB
    up.machine.execute("balloon", value=256 * MIB)
    while up.machine.execute("query-balloon")["actual"] > 256 * MIB:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    up.machine.execute("balloon", value=384 * MIB)
    with pytest.raises(TrialError, match="refuses no-such-command"):
        up.machine.execute("no-such-command")


def test_the_verbs_see_the_guest(up: SingleGuest, places: Path) -> None:
    def pgherd(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*PYTHON, *arguments], capture_output=True, text=True, cwd="/", timeout=PATIENCE)

    listed = json.loads(pgherd("vm", "list", "--json").stdout)
    ours = [guest for guest in listed["running"] if guest["name"] == up.machine.name]
    assert len(ours) == 1 and ours[0]["pid"] == up.machine.pid and ours[0]["memory"] == 384 * MIB
    assert {"root image", "initramfs"} <= {retained["kind"] for retained in listed["cached"]}
    inside = pgherd("vm", "shell", up.machine.name, "-c", "hostname; (exit 4)")
    assert (inside.returncode, inside.stdout.split()) == (4, [up.machine.name]), inside.stderr
    cleaned = json.loads(pgherd("vm", "clean", "--json").stdout)
    assert up.images.root.path in {retained["path"] for retained in cleaned["kept"]} and Path(up.images.root.path).exists()


@pytest.fixture
def bare(up: SingleGuest, tmp_path: Path) -> Iterator[tuple[BootImages, Journal, str]]:
    """What it takes to boot a further guest without disks: images, a journal, a short directory."""
    node = LocalNode()
    journal = Journal.open(node, tmp_path / "state", "guest")
    private = f"{paths.socket_root(node, journal)}/v"
    node.make_dir(private)
    yield up.images, journal, private
    assert not [message for message in journal.close() if message.startswith("not undone")]


def test_a_kernel_that_does_not_boot_is_told_by_its_console(bare: tuple[BootImages, Journal, str], tmp_path: Path) -> None:
    created, journal, private = bare
    (tmp_path / "empty").write_bytes(b"\0" * MIB)
    guest = GuestSpec("broken", created.boot, created.initrd, str(tmp_path / "empty"), memory=192 * MIB)
    machine = VirtualMachine(LocalNode(), guest, private, created.hypervisor, journal)
    machine.start()
    with pytest.raises(
        TrialError, match=r"powered itself off while it came up; its console ends with:[\s\S]*the root image cannot be mounted"
    ):
        machine.wait_ready(PATIENCE)
    machine.stop()


def test_a_guest_that_hangs_is_given_up_after_its_time(bare: tuple[BootImages, Journal, str]) -> None:
    created, journal, private = bare
    guest = GuestSpec("hangs", created.boot, created.initrd, created.root.path, memory=192 * MIB, words=("rdinit=/no/such/init", "panic=0"))
    machine = VirtualMachine(LocalNode(), guest, private, created.hypervisor, journal)
    machine.start()
    pid = machine.pid
    with pytest.raises(TrialError, match="guest hangs did not come up within 1 s"):
        machine.wait_ready(1.0)
    machine.stop()
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("shell", [False, True])
def test_a_guest_that_prints_without_end_fills_nothing(places: Path, tmp_path: Path, shell: bool) -> None:
    """A log file would grow for as long as it prints."""
    node, booted = LocalNode(), kernel.present(str(places / "cache/pgherd"))
    assert booted is not None
    (tmp_path / "root").write_bytes(b"\0" * MIB)
    (tmp_path / "initrd").write_bytes(initramfs.archive(booted, (), init=PRINTS))
    guest = GuestSpec("prints", booted.image, str(tmp_path / "initrd"), str(tmp_path / "root"), memory=192 * MIB, shell=shell)
    private = tmp_path / "v"
    private.mkdir()
    machine = VirtualMachine(node, guest, str(private), Hypervisor(hypervisor.program(), hypervisor.version(node), False, "tcg"))
    machine.start()
    try:
        deadline = time.monotonic() + PATIENCE
        while "line " not in (kept := machine.console_tail(KEPT_BYTES)) or "line 1 " in kept:
            assert machine.running and time.monotonic() < deadline, machine.last_words()
            time.sleep(0.2)
        assert machine.execute("query-status")["running"]
        assert sum(path.lstat().st_size for path in private.iterdir()) == 0
    finally:
        machine.kill()
    assert "line " in machine.console_tail(2), "its last words can still be read"


def test_after_a_kill_nothing_of_a_guest_is_left(up: SingleGuest, places: Path, tmp_path: Path) -> None:
    """pgherd itself is killed while its guest runs: QEMU goes with it, and 'pgherd clean' removes the rest."""
    process = subprocess.Popen(
        [*PYTHON, "vm", "boot", "--scale", "0", "--memory", "192MB", "--accel", "tcg", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
    )
    assert process.stdout is not None
    message = ""
    for line in process.stdout:
        message += line
        if line.startswith("}"):
            break
    document = json.loads(message)
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 30
    while Path(f"/proc/{document['pid']}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{document['pid']}").exists()
    finished = subprocess.run([*PYTHON, "clean", "--runs-dir", str(tmp_path / "runs"), "--json"], capture_output=True, text=True, cwd="/")
    assert json.loads(finished.stdout)["clean"], finished.stdout
    names = [path.name for path in (places / "cache/pgherd/work").iterdir() if document["guest"] in path.name]
    assert names == []
