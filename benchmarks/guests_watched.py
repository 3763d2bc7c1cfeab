"""What watching several guests takes of this machine: pgherd's own CPU while its balloon manager and its samplers look at all of them.

The guests idle, each with a disk beside that of its system. The CPU is that of this process, all threads and its work in the kernel, by
its own clock: the hypervisors' and the guests' own are not in it. A window of a minute has in it what is done seldom: readings are fetched
from guests every 20 s, and the hypervisors' mappings read once.
"""

from __future__ import annotations

import os
import pwd
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pgherd.host import storage
from pgherd.host.facts import gather
from pgherd.metrics import sampler
from pgherd.metrics.sampler import ContainerView, GuestView, ProcessView, SamplingView
from pgherd.model.deployment import Container, VmMemoryPolicy
from pgherd.model.run import RunEnvironment
from pgherd.node.local import LocalNode
from pgherd.postgres import installations
from pgherd.postgres.installations import Installation
from pgherd.runner.execute.phases import GuestSamplers
from pgherd.runner.progress import RunObserver
from pgherd.runner.session import RunSession, open_session
from pgherd.runtimes.runtime import ContainerHandle
from pgherd.runtimes.vm import boot_images
from pgherd.runtimes.vm.hypervisor import OVERHEAD
from pgherd.runtimes.vm.qemu import Disk
from pgherd.runtimes.vm.runtime import VmRuntime

MEMORY = 256 * 2**20
_DISK = 64 * 2**20
_PATIENCE = 600.0


def watch(chosen: Installation, guests: int, seconds: float, windows: int, say: Callable[[str], None]) -> tuple[str, list[dict[str, Any]]]:
    """The guests' accelerator, and for each window of so many ``seconds`` a row: how many guests are up ``together``, and the cores of
    this process while the ``manager`` alone looks, and while the samplers do too (``both``)."""
    node = LocalNode()
    own = max(OVERHEAD.values())
    memory = int(1.1 * guests * (MEMORY + own))
    policy = VmMemoryPolicy(policy="virtio-balloon", overhead=own)
    surroundings = RunEnvironment(runtime="vm", cores=gather(node).cores, memory=memory, vm_memory_policy=policy)
    found = []
    with open_session(node, f"guests-watched-{secrets.token_hex(2)}", surroundings, RunObserver()) as held:
        runtime = held.runtime("vm")
        assert isinstance(runtime, VmRuntime)
        rooms, accelerator = _booted(held, runtime, chosen, guests)
        say(f"{guests} guests are up")
        for number in range(1, windows + 1):
            row: dict[str, Any] = {"together": guests, "manager": _cores(seconds)}
            directory = held.work / f"window-{number}"
            directory.mkdir()
            inside = GuestSamplers(directory)
            sampling = node.sample(sampler.sources(_view(runtime, rooms)), str(directory / "spool.jsonl"))
            try:
                inside.begin(rooms)
                time.sleep(min(2.0, seconds))  # everything is read once at the begin
                row["both"] = _cores(seconds)
            finally:
                sampling.stop()
                inside.stop()
            found.append(row)
            say(f"window {number}: manager {100 * row['manager']:.2f} % of a core, with the samplers {100 * row['both']:.2f} %")
    return accelerator, found


def _booted(held: RunSession, runtime: VmRuntime, chosen: Installation, guests: int) -> tuple[dict[str, ContainerHandle], str]:
    """The guests' rooms, by name, and their accelerator; one boots after the other."""
    node, account = held.node, held.account
    scratch = held.work / "images"
    node.make_dir(str(scratch), mode=0o755)
    usable = installations.reachable_copy(node, chosen, account, str(held.cache))
    made = boot_images.build(node, usable, account, str(held.cache), str(scratch))
    rooms: dict[str, ContainerHandle] = {}
    for number in range(1, guests + 1):
        container = Container(name=f"g{number}", runtime="vm", vcpus=1, memory=MEMORY)
        image, sockets = held.work / f"{container.name}.raw", held.sockets / f"v{number}"
        image.touch(mode=0o600)
        os.truncate(image, _DISK)
        node.make_dir(str(sockets), mode=0o700, user=account)
        if account is not None:
            os.chown(image, pwd.getpwnam(account).pw_uid, pwd.getpwnam(account).pw_gid)
        room = runtime.create(container)
        disk = Disk("data", str(image), direct=storage.direct_io_works(str(held.work)))
        runtime.boot(container, room, made, [disk], str(sockets), 1, account)
        inside = runtime.connect(container.name, _PATIENCE)
        rooms[container.name] = replace(room, node=inside, clock=inside.clock, balloons=runtime.balloons)
    return rooms, made.hypervisor.accelerator


def _view(runtime: VmRuntime, rooms: dict[str, ContainerHandle]) -> SamplingView:
    """What a run would look at: the guests, their control groups, and this process."""
    return SamplingView(
        containers=[ContainerView(name, room.groups) for name, room in rooms.items()],
        processes=[ProcessView("pgherd", os.getpid())],
        guests=[GuestView(name, machine.pid, machine.guest.memory) for name, machine in runtime.machines().items()],
        run_cgroup=runtime.budget_groups(),
    )


def _cores(seconds: float) -> float:
    """CPU of this process, in cores, over so many seconds in which its main thread does nothing."""
    began, before = time.monotonic(), time.process_time()
    time.sleep(seconds)
    return (time.process_time() - before) / (time.monotonic() - began)
