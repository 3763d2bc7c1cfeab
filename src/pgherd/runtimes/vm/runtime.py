"""The runtime of virtual machines: each container is a QEMU guest, which runs in a control group where those are to be had."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence

from pgherd.host.journal import Journal
from pgherd.model.deployment import Container, Host
from pgherd.model.errors import CapabilityError
from pgherd.model.facts import HostFacts
from pgherd.model.guest_memory import GuestMemory
from pgherd.node.protocol import Node
from pgherd.runtimes.balloon_guests import GuestBalloons
from pgherd.runtimes.runtime import Capabilities, Room, Runtime
from pgherd.runtimes.vm import acceleration, initramfs
from pgherd.runtimes.vm.disk_image import mkfs
from pgherd.runtimes.vm.guest_node import GuestNode
from pgherd.runtimes.vm.images import Images
from pgherd.runtimes.vm.machine import BOOT_SECONDS, Machine, free_port
from pgherd.runtimes.vm.qemu import Disk, Guest

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

    def boot(self, container: Container, room: Room, images: Images, disks: Sequence[Disk], directory: str) -> Machine:
        """Start the container's guest and return at once; ``connect`` waits for it. One that runs is ended first.

        ``directory`` is private and has a short path. Call it from a thread that outlives the guest.

        Raises:
            UsageError: no guest can be like that.
            CapabilityError: the directory's path is too long for sockets.
            OSError: QEMU cannot be started.
        """
        self.end(container.name)
        guest = Guest(
            name=container.name,
            kernel=images.boot,
            initrd=images.initrd,
            root=images.root.path,
            disks=tuple(disks),
            vcpus=max(1, math.ceil(container.vcpus or 1)),
            memory=container.memory or DEFAULT_MEMORY,
            accelerator=images.hypervisor.accelerator,
            reporting=self.balloons.reporting,
            port=free_port(),
        )
        machine = Machine(self._node, guest, directory, images.hypervisor, self._journal)
        self._machines[container.name], self._containers[container.name] = machine, container.model_copy(update={"memory": guest.memory})
        machine.start(room.join, room.cpus)
        return machine

    def connect(self, container: str, timeout: float = BOOT_SECONDS) -> GuestNode:
        """The booted guest as a node, when it has come up; raises TrialError."""
        machine = self._machines[container]
        machine.wait_ready(timeout)
        node = self._nodes[container] = GuestNode.connect(container, machine.agent_socket, timeout, alive=lambda: machine.running)
        node.align_clock()
        self.balloons.entered(self._containers[container], machine)
        return node

    def machines(self) -> Mapping[str, Machine]:
        """The guests that have been booted, by container."""
        return dict(self._machines)

    def end(self, container: str) -> None:
        """End a container's guest, if there is one; the room stays."""
        self.balloons.left(container)
        node, machine = self._nodes.pop(container, None), self._machines.pop(container, None)
        if node is not None:
            node.close()
        if machine is not None:
            machine.stop()

    def destroy(self, container: str) -> None:
        """End the guest and remove its room."""
        self.end(container)
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
        if failed:
            raise OSError("; ".join(failed))

    def change_budget(self, memory: int) -> None:
        """As the inner runtime."""
        self._within.change_budget(memory)
        self.balloons.change_budget(memory)

    def empty(self) -> None:
        """As the inner runtime."""
        self._within.empty()

    def budget_groups(self) -> Mapping[str, str]:
        """The inner runtime's."""
        return self._within.budget_groups()

    @property
    def _within(self) -> Runtime:
        if self._inner is None:
            raise RuntimeError("within() comes before the first container")
        return self._inner
