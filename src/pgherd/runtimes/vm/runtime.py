"""The runtime of virtual machines: each container is a QEMU guest, which runs in a control group where those are to be had."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence

from pgherd.host import huge_pages, same_page_merging
from pgherd.host.cpus import least_shared, numa_nodes, siblings
from pgherd.host.journal import Journal
from pgherd.host.ports import free_ports
from pgherd.model.deployment import Container, GuestMachine, GuestMemory, Host
from pgherd.model.errors import CapabilityError
from pgherd.model.facts import HostFacts
from pgherd.node.protocol import Node
from pgherd.runtimes.balloon_guests import GuestBalloons
from pgherd.runtimes.runtime import Capabilities, Room, Runtime
from pgherd.runtimes.vm import acceleration, initramfs
from pgherd.runtimes.vm.disk_image import mkfs
from pgherd.runtimes.vm.guest_node import GuestNode
from pgherd.runtimes.vm.images import Images
from pgherd.runtimes.vm.machine import BOOT_SECONDS, Machine
from pgherd.runtimes.vm.qemu import UNIT, Disk, Guest

DEFAULT_MEMORY = 512 * 2**20
"""Bytes of a guest whose container does not say."""


class VmRuntime:
    """Implements ``runtimes.runtime.Runtime``: ``create`` makes the room in which a guest's QEMU will run, ``boot`` the guest in it.

    A container's memory is that of its guest, which QEMU allots; the group around it holds QEMU's own too, so it has no limit of
    its own below the host's budget.
    """

    name = "vm"

    def __init__(self, node: Node, journal: Journal, facts: HostFacts, suffix: str, cpus: Sequence[int] | None = None) -> None:
        """``within`` must follow before a container is made; suffix and CPUs are the inner runtime's."""
        self._node, self._journal = node, journal
        self._inner: Runtime | None = None
        self._machines: dict[str, Machine] = {}
        self._nodes: dict[str, GuestNode] = {}
        self._containers: dict[str, Container] = {}
        self._cpus = tuple(cpus if cpus is not None else sorted(os.sched_getaffinity(0)))
        self._pins: dict[str, tuple[int, ...]] = {}
        self._reserved: dict[str, int | None] = {}
        self._merging: int | None = None
        self.balloons = GuestBalloons(node, self.budget_groups)

    def share(self, policy: GuestMemory | None, budget: int | None) -> None:
        """How guests share the memory of this many bytes; before the first container."""
        self.balloons.share(policy, budget)

    def within(self, inner: Runtime) -> None:
        """Guests run in rooms of this open runtime, which is closed by whoever opened it."""
        self._inner = inner

    def capabilities(self) -> Capabilities:
        """Found by looking for the tools; whether KVM works is found out when guests are made ready (``images.build``)."""
        try:
            acceleration.program()
            mkfs()
            initramfs.busybox()
            import qemu.qmp  # noqa: F401
        except CapabilityError as error:
            return Capabilities(available=False, note=str(error))
        except ImportError:
            return Capabilities(available=False, note="QEMU's monitor cannot be spoken to; pip install 'pgherd[vm]'")
        machine = os.uname().machine
        if machine != "x86_64":
            return Capabilities(available=False, note=f"guests are made for x86_64, and this machine is {machine}")
        note = "each container is a QEMU guest of its own"
        return Capabilities(available=True, cpu_quota=True, cpuset=True, memory_limit=True, accounting=True, note=note)

    def open(self, host: Host) -> None:
        """Nothing to do: the inner runtime holds the budget."""

    def create(self, container: Container) -> Room:
        """Make the room of a guest; raises as the inner runtime, and UsageError where guests are guaranteed more memory than there is."""
        self.balloons.promise(container)
        try:
            return self._within.create(container.model_copy(update={"memory": None}))
        except BaseException:
            self.balloons.withdraw(container.name)
            raise

    def boot(
        self,
        container: Container,
        room: Room,
        images: Images,
        disks: Sequence[Disk],
        directory: str,
        servers: int = 1,
        account: str | None = None,
    ) -> Machine:
        """Start the container's guest and return at once; ``connect`` waits for it. One that runs is ended first.

        ``directory`` is private and has a short path. So many ``servers`` are reached from outside: a port of this machine leads to each
        of the guest's from 5432 on. QEMU runs as ``account`` (None: as ourselves), whose the directory and the disks must be. Call it
        from a thread that outlives the guest.

        Raises:
            UsageError: no guest can be like that.
            CapabilityError: the directory's path is too long for sockets; huge pages that it is to lie on cannot be had.
            OSError: QEMU cannot be started.
        """
        self.end(container.name)
        port, *more = free_ports("127.0.0.1", servers)
        asked = container.guest or GuestMachine()
        guest = Guest(
            name=container.name,
            kernel=images.boot,
            initrd=images.initrd,
            root=images.root.path,
            disks=tuple(disks),
            vcpus=max(1, math.ceil(container.vcpus or 1)),
            memory=(container.memory or DEFAULT_MEMORY) // UNIT * UNIT,
            accelerator=images.hypervisor.accelerator,
            reporting=self.balloons.reporting,
            backing="plain" if asked.huge_page is None else "huge",
            huge_page=asked.huge_page or Guest.huge_page,
            merge=asked.merge,
            port=port,
            further=tuple((one, Guest.guest_port + number) for number, one in enumerate(more, 1)),
        )
        machine = Machine(self._node, guest, directory, images.hypervisor, self._journal, account)
        self._machines[container.name], self._containers[container.name] = machine, container.model_copy(update={"memory": guest.memory})
        if asked.huge_page is not None:
            self._reserved[container.name] = huge_pages.reserve(self._node, self._journal, guest.huge_page, guest.memory // guest.huge_page)
        if asked.merge and self._merging is None:
            self._merging = same_page_merging.switch_on(self._node, self._journal)
        machine.start(room.join, room.cpus)
        return machine

    def connect(self, container: str, timeout: float = BOOT_SECONDS) -> GuestNode:
        """The booted guest as a node, when it has come up; raises TrialError."""
        machine = self._machines[container]
        machine.wait_ready(timeout)
        node = self._nodes[container] = GuestNode.connect(container, machine.agent_socket, timeout, alive=lambda: machine.running)
        node.align_clock()
        if (asked := self._containers[container].guest) is not None and asked.pinned:
            machine.pin(self._pins_of(machine))
        self.balloons.entered(self._containers[container], machine)
        return node

    def machines(self) -> Mapping[str, Machine]:
        """The guests that have been booted, by container."""
        return dict(self._machines)

    def lost(self) -> list[str]:
        """The guests whose agents' sockets have been closed."""
        return [name for name, node in self._nodes.items() if node.lost is not None]

    def mute(self) -> list[str]:
        """The guests that run and have left the last question without an answer."""
        return [name for name, node in self._nodes.items() if node.lost is None and node.silent]

    def end(self, container: str) -> None:
        """End a container's guest, if there is one; the room stays."""
        self.balloons.left(container)
        node, machine = self._nodes.pop(container, None), self._machines.pop(container, None)
        if node is not None:
            node.close()
        if machine is not None:
            machine.stop()
        reserved = self._reserved.pop(container, None)
        if reserved is not None:
            self._journal.undo(reserved)

    def destroy(self, container: str) -> None:
        """End the guest and remove its room."""
        self.end(container)
        self._pins.pop(container, None)
        self.balloons.withdraw(container)
        self._within.destroy(container)

    def close(self) -> None:
        """End all guests; their rooms go with the inner runtime. Raises OSError for what is left (it stays in the journal)."""
        for container in list(self._machines):
            self.balloons.left(container)  # they end: nobody needs to give them anything back
        self.balloons.close()
        failed: list[str] = []
        for container in list(self._machines):
            try:
                self.end(container)
            except OSError as error:  # the others are to end all the same; the journal has this one
                failed.append(f"guest {container}: {error}")
        if self._merging is not None:
            self._journal.undo(self._merging)
            self._merging = None
        if failed:
            raise OSError("; ".join(failed))

    def change_budget(self, memory: int) -> None:
        """As the inner runtime."""
        self._within.change_budget(memory)
        self.balloons.change_budget(memory)

    def withhold(self, memory: int) -> None:
        """So many bytes of the budget are held by what is no guest (0: none): guests are not to share them."""
        self.balloons.withhold(memory)

    def empty(self) -> None:
        """As the inner runtime."""
        self._within.empty()

    def budget_groups(self) -> Mapping[str, str]:
        """The inner runtime's."""
        return self._within.budget_groups()

    def _pins_of(self, machine: Machine) -> tuple[int, ...]:
        """The CPUs for a guest's vCPUs, the same whenever it is booted: of those on which it may run the ones on which the fewest vCPUs of
        other guests are, of these on cores of their own while there are any, and of several such sets one on a single NUMA node, since
        memory lies near the CPU that touches it first."""
        allowed = os.sched_getaffinity(machine.pid)
        before = self._pins.pop(machine.name, None)
        if before is not None and allowed.issuperset(before):
            self._pins[machine.name] = before
        else:
            taken = Counter(cpu for given in self._pins.values() for cpu in given)
            usable = [cpu for cpu in self._cpus if cpu in allowed] or sorted(allowed)
            threads, nodes, vcpus = siblings(self._node, usable), numa_nodes(self._node, usable), machine.guest.vcpus
            rooms = [[cpu for cpu in usable if nodes.get(cpu) == one] for one in sorted(set(nodes.values()))]
            near = [least_shared(room, vcpus, taken, threads) for room in rooms if len(room) >= vcpus]
            _, pins = min([*near, least_shared(usable, vcpus, taken, threads)], key=lambda one: one[0])
            self._pins[machine.name] = tuple(sorted(pins))
        return self._pins[machine.name]

    @property
    def _within(self) -> Runtime:
        if self._inner is None:
            raise RuntimeError("within() comes before the first container")
        return self._inner
