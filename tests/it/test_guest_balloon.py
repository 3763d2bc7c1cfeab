"""The balloon manager on two real guests: what it takes from them must be seen in the host's memory, and all of it accounted for."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pgherd.analysis import guest_memory_breakdown
from pgherd.metrics.guests import QEMU_PROCESS as QEMU
from pgherd.metrics.sampler import GuestView, SamplingView
from pgherd.metrics.spool import Spool
from pgherd.model.deployment import Container, VmMemoryPolicy
from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.runtimes import balloon_manager
from pgherd.runtimes.vm import hypervisor, initramfs, kernel
from pgherd.runtimes.vm.qemu import GuestSpec
from pgherd.runtimes.vm.virtual_machine import VirtualMachine

MB = 2**20
MEMORY = 256 * MB
KEPT = {"busy": 120, "idle": 0}
"""MB that each guest uses for itself after it has touched all that it could get."""
REPORTS = "reports"
"""A further guest, which uses nothing for itself and tells the host what is free."""
MODULES = ("virtio_pci", "virtio_balloon", "virtio_console", "virtio_blk")
PATIENCE = 120.0
ENOUGH = 10.0
"""Seconds after which a guest that reports would have told what is free: Linux does so every two."""
_INIT = """#!/bin/busybox sh
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
for module in $(cat /modules/order); do insmod /modules/$module.ko; done
mount -t tmpfs -o size=100% memory /upper
available() { busybox awk '/MemAvailable/ { print int($2 / 1024) }' /proc/meminfo; }
touch_all() { busybox dd if=/dev/zero of=/upper/all bs=1M count=$(($(available) - 12)) 2>/dev/null; busybox rm /upper/all; }
kept=0
for word in $(cat /proc/cmdline); do case $word in test.kept=*) kept=${word#*=} ;; esac; done
touch_all
[ $kept = 0 ] || busybox dd if=/dev/zero of=/upper/kept bs=1M count=$kept 2>/dev/null
echo "test: touched"
first=$(available)
while [ $(available) -gt $((first - 60)) ]; do sleep 0.2; done
while [ $(available) -lt $((first - 20)) ]; do sleep 0.2; done
touch_all
echo "test: touched again"
while :; do sleep 60; done
"""


@pytest.fixture(scope="module")
def guests() -> Iterator[dict[str, VirtualMachine]]:
    """Three guests of 256 MB without a disk of their own, which have touched all their memory; the idle one does so once more, after its
    balloon has held half of it."""
    node = LocalNode()
    beside = Path(sys.prefix) / "cache"  # the other tests' kernel lies there too: it is fetched once
    try:
        beside.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=beside) as scratch:
            kernel.ensure(node, str(beside), scratch, say=lambda text: None)
    except (OSError, CapabilityError) as error:
        pytest.skip(f"there is no kernel for guests: {error}")
    found = kernel.present(str(beside), MODULES)
    if found is None:
        pytest.skip(f"no kernel here has {', '.join(MODULES)}")
    try:
        qemu = hypervisor.program()
        version = hypervisor.version(node)
        first = initramfs.archive(found, MODULES, init=_INIT)
    except CapabilityError as error:
        pytest.skip(str(error))
    emulated = hypervisor.Hypervisor(qemu, version, sandbox=False, accelerator="tcg", why="these tests emulate")
    with tempfile.TemporaryDirectory(prefix="pgherd-b-") as scratch, contextlib.ExitStack() as ending:
        initrd, root = Path(scratch, "initrd"), Path(scratch, "root")
        initrd.write_bytes(first)
        root.write_bytes(bytes(MB))
        machines = {}
        for name, kept in {**KEPT, REPORTS: 0}.items():
            directory = Path(scratch, name)
            directory.mkdir()
            words = (f"test.kept={kept}",)
            described = GuestSpec(name, found.image, str(initrd), str(root), memory=MEMORY, reporting=name == REPORTS, words=words)
            machines[name] = VirtualMachine(node, described, str(directory), emulated)
            machines[name].start()
            ending.callback(machines[name].stop)
        for machine in machines.values():
            eventually(lambda machine=machine: "test: touched" in machine.console_tail(50), machine.console_tail)
        yield machines


def eventually(true: Callable[[], object], said: Callable[[], object] = lambda: "") -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, said()
        time.sleep(0.1)


def held(machine: VirtualMachine) -> float:
    """Private memory of the guest's QEMU, bytes."""
    status = Path(f"/proc/{machine.pid}/status").read_text()
    return float(status.split("RssAnon:")[1].split()[0]) * 1024


def test_what_a_guest_reports_as_free_goes_back_to_the_host_unasked(guests) -> None:
    before = held(guests["idle"])
    eventually(lambda: held(guests[REPORTS]) < before - MEMORY / 4, lambda: (before, held(guests[REPORTS])))
    time.sleep(ENOUGH)
    assert before - held(guests["idle"]) <= 0.05 * MEMORY, "it has freed as much, and reports nothing"
    assert guests[REPORTS].execute("query-balloon")["actual"] == MEMORY, "no balloon has moved"


def test_inflating_and_deflating_is_seen_in_the_hosts_memory(guests) -> None:
    machine = guests["idle"]
    before = held(machine)
    assert before >= 0.9 * MEMORY, "all of it has been touched"
    machine.execute("balloon", value=128 * MB)
    eventually(lambda: machine.execute("query-balloon")["actual"] == 128 * MB)
    eventually(lambda: abs(before - held(machine) - 128 * MB) <= 0.05 * 128 * MB, lambda: (before, held(machine)))
    machine.execute("balloon", value=MEMORY)
    eventually(lambda: machine.execute("query-balloon")["actual"] == MEMORY)
    eventually(lambda: abs(before - held(machine)) <= 0.05 * 128 * MB, lambda: (before, held(machine)))
    eventually(lambda: "touched again" in machine.console_tail(50), machine.console_tail)


def test_the_manager_divides_and_all_of_it_is_accounted_for(guests, tmp_path) -> None:
    budget = 400 * MB
    guests = {name: guests[name] for name in KEPT}
    manager = balloon_manager.BalloonManager(VmMemoryPolicy(policy="virtio-balloon", reserve=0), budget, period=0.25)
    for name, machine in guests.items():
        manager.add(balloon_manager.managed(Container(name=name, runtime="vm", memory=MEMORY), machine, overhead=0))
    spool = tmp_path / "spool.jsonl"
    node = LocalNode()
    sources = QEMU.sources(SamplingView(guests=[GuestView(name, machine.pid, MEMORY) for name, machine in guests.items()]))
    manager.start()
    try:
        eventually(lambda: sum(one.actual for one in manager.status().values()) <= budget, manager.status)
        eventually(lambda: _settled(manager), manager.status)
        manager.record(spool)
        sampling = node.sample(sources, str(spool), 0.25)
        time.sleep(2.0)
        sampling.stop()
        manager.record(None)  # raises where rounds were not finished
        status = manager.status()
    finally:
        left = manager.stop(patience=PATIENCE)
    assert all(machine.running for machine in guests.values()), [machine.last_words(40) for machine in guests.values()]
    assert left == []
    assert status["idle"].actual < status["busy"].actual, "who uses its memory keeps it"
    assert all(one.actual >= 96 * MB for one in status.values())
    for machine in guests.values():
        eventually(lambda machine=machine: machine.execute("query-balloon")["actual"] == MEMORY)
    for name in guests:
        found = [one for t, one in _effects(spool, name)]
        assert len(found) >= 4
        last = guest_memory_breakdown.mean_breakdown(found)
        assert last is not None
        assert last.ballooned > 50 * MB or name == "busy"
        assert abs(last.gap) <= 0.05, last
        assert last.resident + last.never_touched == pytest.approx(MEMORY - last.ballooned, abs=0.05 * MEMORY)


def _settled(manager: balloon_manager.BalloonManager) -> bool:
    before = manager.status()
    time.sleep(1.5)
    after = manager.status()
    return all(
        abs(after[name].actual - before[name].actual) < 2 * MB and abs(one.actual - one.target) < 2 * MB for name, one in after.items()
    )


def _effects(spool: Path, name: str) -> list[tuple[float, guest_memory_breakdown.MemoryBreakdown]]:
    kinds = {
        "guest.memory_configured": "configured",
        "guest.memory_balloon_actual": "actual",
        "guest.free": "free",
        "qemu.anon": "hypervisor",
        "qemu.overhead": "overhead",
    }
    series: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds.values()}
    with spool.open() as lines:
        for t, _, entity, values in Spool(lines):
            for metric, kind in kinds.items():
                if entity == f"guest:{name}" and metric in values:
                    series[kind].append((t, values[metric]))
    return guest_memory_breakdown.over_time(series)
