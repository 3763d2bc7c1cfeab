"""Runtime of virtual machines: each container is a QEMU guest, inside a cgroup where possible.

The guests of a run share one balloon manager, within the run's memory budget.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pgherd.host import huge_pages, ksm
from pgherd.host.cpus import least_shared, numa_nodes, siblings
from pgherd.host.journal import Journal
from pgherd.host.kernel_files import flat_keyed
from pgherd.host.paths import free_ports
from pgherd.metrics import cgroup
from pgherd.model.capabilities import Capabilities, capabilities_of
from pgherd.model.deployment import Container, Host, VmMemoryPolicy, VmOptions
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.node.protocol import Node
from pgherd.runtimes import balloon_controller, balloon_manager
from pgherd.runtimes.balloon_controller import moves, reports
from pgherd.runtimes.balloon_device import QmpTarget
from pgherd.runtimes.balloon_manager import BalloonManager
from pgherd.runtimes.runtime import ContainerHandle, Runtime
from pgherd.runtimes.vm import hypervisor, initramfs
from pgherd.runtimes.vm.boot_images import BootImages
from pgherd.runtimes.vm.disk_image import mkfs
from pgherd.runtimes.vm.guest_node import GuestNode
from pgherd.runtimes.vm.qemu import MEMORY_UNIT_BYTES, Disk, GuestSpec
from pgherd.runtimes.vm.virtual_machine import BOOT_TIMEOUT_S, VirtualMachine

DEFAULT_MEMORY = 512 * 2**20
"""Memory of a guest whose container has no memory size, bytes."""


@dataclass(frozen=True)
class BootOptions:
    """Options of a guest that no deployment has. ``accelerator`` None: KVM if it works. ``console_shell``: a root shell on the console."""

    accelerator: str | None = None
    machine: Literal["q35", "microvm"] = "q35"
    console_shell: bool = False
    timeout_s: float = BOOT_TIMEOUT_S


DEFAULT_BOOT = BootOptions()

_USE_CGROUP = "use the cgroup runtime (--runtime cgroup)"


class VmRuntime:
    """Runtime with two steps: ``create`` creates the container of a guest's QEMU, and ``boot`` starts the guest in it.

    A container's memory is the memory of its guest, which QEMU limits. The cgroup around the guest also holds QEMU's overhead, so it has no
    limit below the run cgroup's.
    """

    name = "vm"

    def __init__(self, node: Node, journal: Journal, facts: HostFacts, suffix: str, cpus: Sequence[int] | None = None) -> None:
        """Call ``within`` before the first container. Suffix and CPUs are used by the inner runtime."""
        self._node, self._journal = node, journal
        self._inner: Runtime | None = None
        self._machines: dict[str, VirtualMachine] = {}
        self._nodes: dict[str, GuestNode] = {}
        self._containers: dict[str, Container] = {}
        self._cpus = tuple(cpus if cpus is not None else sorted(os.sched_getaffinity(0)))
        self._pins: dict[str, tuple[int, ...]] = {}
        self._reserved: dict[str, int | None] = {}
        self._merging: int | None = None
        self.balloons = GuestBalloons(node, self.budget_groups)

    def share(self, policy: VmMemoryPolicy | None, budget: int | None) -> None:
        """Set the policy by which guests share this many bytes. Call it before the first container."""
        self.balloons.share(policy, budget)

    def within(self, inner: Runtime) -> None:
        """Set the open runtime in whose containers guests run. Its owner closes it."""
        self._inner = inner

    def capabilities(self) -> Capabilities:
        """Check the tools. ``images.build`` checks whether KVM works."""
        try:
            hypervisor.program()
            mkfs()
            initramfs.busybox()
        except CapabilityError as error:
            return Capabilities(available=False, note=str(error))
        machine = os.uname().machine
        if machine != "x86_64":
            return Capabilities(available=False, note=f"guests need x86_64, and this machine is {machine}")
        note = "each container is a separate QEMU guest"
        return replace(capabilities_of("vm"), note=note)

    def open(self, host: Host) -> None:
        """Do nothing: the inner runtime enforces the budget."""

    def create(self, container: Container) -> ContainerHandle:
        """Create the container of a guest.

        Raises as the inner runtime, CapabilityError for an I/O limit, and UsageError where the guests' minima exceed the memory.
        """
        if container.io_limited:
            raise CapabilityError(f"container {container.name} asks for an I/O limit, which the vm runtime can't give; {_USE_CGROUP}")
        self.balloons.promise(container)
        try:
            return self._within.create(container.model_copy(update={"memory": None}))
        except BaseException:
            self.balloons.withdraw(container.name)
            raise

    def boot(
        self,
        container: Container,
        handle: ContainerHandle,
        images: BootImages,
        disks: Sequence[Disk],
        directory: str,
        servers: int = 1,
        account: str | None = None,
        how: BootOptions = DEFAULT_BOOT,
    ) -> VirtualMachine:
        """Start the container's guest and return at once. ``connect`` waits for it. A running guest of the container is ended first.

        ``directory`` is private and has a short path. One port of this machine is forwarded for each of ``servers``, to the guest's ports
        from 5432. QEMU runs as ``account`` (None: the current user), which must own the directory and the disks. Call it from a thread
        that outlives the guest.

        Raises:
            UsageError: the description of the guest is invalid.
            CapabilityError: the directory's path is too long for sockets, or the huge pages for its memory are not available.
            OSError: QEMU cannot be started.
        """
        self.end(container.name)
        # A machine that has just been started has not bound its ports yet.
        ports = free_ports("127.0.0.1", servers, [port for machine in self._machines.values() for port in machine.guest.ports])
        options = container.vm or VmOptions()
        guest = GuestSpec(
            name=container.name,
            kernel=images.boot,
            initrd=images.initrd,
            root=images.root.path,
            disks=tuple(disks),
            vcpus=max(1, math.ceil(container.vcpus or 1)),
            memory=(container.memory or DEFAULT_MEMORY) // MEMORY_UNIT_BYTES * MEMORY_UNIT_BYTES,
            machine=how.machine,
            accelerator=images.hypervisor.accelerator,
            reporting=self.balloons.reporting,
            backing="plain" if options.huge_page is None else "huge",
            huge_page=options.huge_page or GuestSpec.huge_page,
            merge=options.merge,
            port=ports[0] if ports else None,
            further=tuple((port, GuestSpec.guest_port + number) for number, port in enumerate(ports[1:], 1)),
            shell=how.console_shell,
        )
        machine = VirtualMachine(self._node, guest, directory, images.hypervisor, self._journal, account)
        self._machines[container.name], self._containers[container.name] = machine, container.model_copy(update={"memory": guest.memory})
        if options.huge_page is not None:
            self._reserved[container.name] = huge_pages.reserve(self._node, self._journal, guest.huge_page, guest.memory // guest.huge_page)
        if options.merge and self._merging is None:
            self._merging = ksm.switch_on(self._node, self._journal)
        machine.start(handle.join, handle.cpus)
        return machine

    def connect(self, container: str, timeout: float = BOOT_TIMEOUT_S) -> GuestNode:
        """Wait until the guest has booted, and return it as a node. Raises TrialError."""
        machine = self._machines[container]
        machine.wait_ready(timeout)
        node = self._nodes[container] = GuestNode.connect(container, machine.agent_socket, timeout, alive=lambda: machine.running)
        node.align_clock()
        if (options := self._containers[container].vm) is not None and options.pinned:
            machine.pin(self._pins_of(machine))
        self.balloons.entered(self._containers[container], machine)
        return node

    def machines(self) -> Mapping[str, VirtualMachine]:
        """Return the booted guests by container."""
        return dict(self._machines)

    def lost(self) -> list[str]:
        """Return the guests whose agent has disconnected."""
        return [name for name, node in self._nodes.items() if node.lost is not None]

    def mute(self) -> list[str]:
        """Return the running guests that have not answered the last call."""
        return [name for name, node in self._nodes.items() if node.lost is None and node.silent]

    def end(self, container: str) -> None:
        """End a container's guest, if there is one. The container stays."""
        self.balloons.left(container)
        node, machine = self._nodes.pop(container, None), self._machines.pop(container, None)
        if node is not None:
            node.close()
        if machine is not None:
            machine.stop()
        reserved = self._reserved.pop(container, None)
        if reserved is not None:
            self._journal.undo(reserved)

    def limit_io(self, container: Container, paths: Sequence[str]) -> None: ...

    def destroy(self, container: str) -> None:
        """End the guest and remove its container."""
        self.end(container)
        self._pins.pop(container, None)
        self.balloons.withdraw(container)
        self._within.destroy(container)

    def close(self) -> None:
        """End all guests. The inner runtime removes their containers. Raises OSError for what could not be removed. The journal keeps
        it."""
        for container in list(self._machines):
            self.balloons.left(container)  # they end and need no memory back
        self.balloons.close()
        failed: list[str] = []
        for container in list(self._machines):
            try:
                self.end(container)
            except OSError as error:  # the other guests must end too, and the journal keeps this one
                failed.append(f"guest {container}: {error}")
        if self._merging is not None:
            self._journal.undo(self._merging)
            self._merging = None
        if failed:
            raise OSError("; ".join(failed))

    def change_budget(self, memory: int) -> None:
        self._within.change_budget(memory)
        self.balloons.change_budget(memory)

    def try_memory(self, container: str, memory: int) -> bool:
        """Set the target of the guest's balloon, so that the guest keeps ``memory`` bytes. Return False until it has given or got them.

        Raises CapabilityError if the policy moves balloons, and TrialError if QEMU does not answer.
        """
        self.balloons.set_target(container, memory)
        machine = self._machines[container]
        machine.execute("balloon", value=memory)
        return abs(int(machine.execute("query-balloon")["actual"]) - memory) < MEMORY_UNIT_BYTES

    def withhold(self, memory: int) -> None:
        self.balloons.withhold(memory)

    def empty(self) -> None:
        self._within.empty()

    def budget_groups(self) -> Mapping[str, str]:
        return self._within.budget_groups()

    def _pins_of(self, machine: VirtualMachine) -> tuple[int, ...]:
        """Return the CPUs for a guest's vCPUs. They stay the same when it boots again.

        Of the allowed CPUs those with the fewest vCPUs of other guests are chosen, on separate cores while there are any. Of several such
        sets one on a single NUMA node is chosen, because memory is allocated near the CPU that touches it first.
        """
        allowed = os.sched_getaffinity(machine.pid)
        previous = self._pins.pop(machine.name, None)
        if previous is not None and allowed.issuperset(previous):
            self._pins[machine.name] = previous
        else:
            taken = Counter(cpu for pinned in self._pins.values() for cpu in pinned)
            usable = [cpu for cpu in self._cpus if cpu in allowed] or sorted(allowed)
            threads, nodes, vcpus = siblings(self._node, usable), numa_nodes(self._node, usable), machine.guest.vcpus
            numa_cpus = [[cpu for cpu in usable if nodes.get(cpu) == candidate] for candidate in sorted(set(nodes.values()))]
            candidates = [least_shared(room, vcpus, taken, threads) for room in numa_cpus if len(room) >= vcpus]
            _, pins = min([*candidates, least_shared(usable, vcpus, taken, threads)], key=lambda candidate: candidate[0])
            self._pins[machine.name] = tuple(sorted(pins))
        return self._pins[machine.name]

    @property
    def _within(self) -> Runtime:
        if self._inner is None:
            raise RuntimeError("call within() before the first container")
        return self._inner


_USAGE_FILE = {"v1": "memory.usage_in_bytes", "v2": "memory.current"}
_INACTIVE_FILE = {"v1": "total_inactive_file", "v2": "inactive_file"}
_IN_USE = {"v1": ("total_rss", "total_cache"), "v2": ("anon", "file", "kernel", "sock")}
"""Keys of memory.stat that are in use. In version 1 kernel memory is in a separate file."""
_KERNEL = "memory.kmem.usage_in_bytes"


class GuestBalloons:
    """Owner of the balloon manager. The manager starts with the first guest."""

    def __init__(self, node: Node, groups: Callable[[], Mapping[str, str]]) -> None:
        """``groups`` returns the cgroup around all guests, directory by controller. Its use shows the free memory of the host."""
        self._node, self._groups = node, groups
        self._policy = VmMemoryPolicy()
        self._budget: int | None = None
        self._withheld = 0
        self._manager: BalloonManager | None = None
        self._spool: Path | None = None
        self._promised: dict[str, Container] = {}

    def share(self, policy: VmMemoryPolicy | None, budget: int | None) -> None:
        """Set the policy and the budget (bytes) of all guests. Call it before the first guest starts."""
        self._policy, self._budget = policy or VmMemoryPolicy(), budget

    @property
    def reporting(self) -> bool:
        """Whether guests report their free pages."""
        return reports(self._policy.policy)

    def promise(self, container: Container) -> None:
        """Register a guest before it starts. Call it for all guests before the first one boots.

        Raises:
            UsageError: the sum of the guaranteed minima exceeds the memory for guests.
        """
        promised = {**self._promised, container.name: container}
        guests = [
            balloon_manager.entitlement_of(guest_container, self._policy.overhead)
            for guest_container in promised.values()
            if guest_container.memory is not None
        ]
        balloon_controller.check(guests, self._shared if moves(self._policy.policy) else None, self._policy.reserve)
        self._promised = promised

    def withdraw(self, container: str) -> None:
        """Undo ``promise``."""
        self._promised.pop(container, None)

    def entered(self, container: Container, machine: QmpTarget) -> None:
        """Add a guest that has booted. Raises UsageError as ``promise``."""
        if self._manager is None:
            self._manager = BalloonManager(self._policy, self._shared, self._free)
            self._manager.record(self._spool)
            self._manager.start()
        self._manager.remove(container.name)
        self._manager.add(balloon_manager.managed(container, machine, self._policy.overhead))

    def left(self, container: str) -> None:
        """Remove a guest before it ends."""
        if self._manager is not None:
            self._manager.remove(container)

    def change_budget(self, budget: int) -> None:
        """Change the budget. Raises UsageError where the minima of the running guests exceed it."""
        before, self._budget = self._budget, budget
        try:
            self._announce()
        except UsageError:
            self._budget = before
            raise

    def withhold(self, memory: int) -> None:
        """Reserve this many bytes of the budget for something that is not a guest. Raises as ``change_budget``."""
        before, self._withheld = self._withheld, memory
        try:
            self._announce()
        except UsageError:
            self._withheld = before
            raise

    def set_target(self, container: str, memory: int) -> None:
        """Record the target (bytes) that the caller sets. Raises CapabilityError if the policy moves balloons itself."""
        if moves(self._policy.policy):
            raise CapabilityError(f"--vm-memory-policy {self._policy.policy} decides on the memory of guest {container}")
        if self._manager is not None:
            self._manager.set_target(container, memory)

    def record(self, spool: Path | None) -> None:
        """Append readings to this spool from now on. None stops recording. Raises as ``BalloonManager.record``."""
        self._spool = spool
        if self._manager is not None:
            self._manager.record(spool)

    def close(self) -> None:
        """Stop the manager. Guests that still run get their memory back."""
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.stop()

    @property
    def _shared(self) -> int | None:
        """Memory of all guests and their hypervisors, bytes."""
        return None if self._budget is None else max(self._budget - self._withheld, 0)

    def _announce(self) -> None:
        if self._manager is not None:
            self._manager.change_budget(self._shared)

    def _free(self) -> int | None:
        """Return the bytes that the cgroup around the guests can still be charged with. None: it is not counted.

        Inactive file pages and the remains of split huge pages count as free.
        """
        group = cgroup.memory(self._groups())
        if group is None or self._budget is None:
            return None
        used = int(self._node.read(f"{group.directory}/{_USAGE_FILE[group.version]}"))
        stat = self._node.read(f"{group.directory}/memory.stat").decode(errors="replace")
        droppable = flat_keyed(stat, {_INACTIVE_FILE[group.version]: "file"}).get("file", 0.0)
        return self._budget - used + int(droppable + self._split(group, used, stat))

    def _split(self, group: cgroup.Accounting, used: int, stat: str) -> float:
        """Return the bytes that the cgroup is charged with but that nothing uses.

        QEMU puts guest memory on transparent huge pages. After a balloon has taken a part of one, the full page stays charged until the
        kernel reclaims memory (deferred split, mm/huge_memory.c). The result is 0 where memory.stat lacks one of the values.
        """
        in_use = flat_keyed(stat, {key: key for key in _IN_USE[group.version]})
        if group.version == "v1" and self._node.exists(f"{group.directory}/{_KERNEL}"):
            in_use[_KERNEL] = float(self._node.read(f"{group.directory}/{_KERNEL}"))
        complete = len(in_use) == (3 if group.version == "v1" else len(_IN_USE["v2"]))
        return max(used - sum(in_use.values()), 0.0) if complete else 0.0
