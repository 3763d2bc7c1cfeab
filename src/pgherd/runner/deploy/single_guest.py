"""Single guest with one database for interactive use. It is deployed as the guests of trials are."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pgherd.host.facts import gather
from pgherd.model.deployment import Container, Database, Server, VmMemoryPolicy, VmOptions
from pgherd.model.run import RunEnvironment
from pgherd.node.protocol import Node
from pgherd.postgres import installations
from pgherd.postgres.installations import Installation
from pgherd.postgres.instance import Instance
from pgherd.runner.deploy.deployer import Deployer
from pgherd.runner.deploy.guests import BootedGuest
from pgherd.runner.progress import RunObserver
from pgherd.runner.session import open_session
from pgherd.runtimes.vm.boot_images import BootImages
from pgherd.runtimes.vm.qemu import GuestSpec
from pgherd.runtimes.vm.runtime import BootOptions
from pgherd.runtimes.vm.virtual_machine import VirtualMachine

_MIB = 2**20
_DATABASE = "pgbench"


@dataclass(frozen=True)
class GuestRequest:
    """Requested guest. ``memory`` is in bytes.

    ``scale`` is pgbench's (0: no server). ``hypervisor`` holds the host-side options, and ``reporting`` enables free page
    reporting.
    """

    scale: int = 1
    vcpus: int = 1
    memory: int = 512 * _MIB
    settings: dict[str, str] = field(default_factory=dict)
    hypervisor: VmOptions = field(default_factory=VmOptions)
    reporting: bool = True
    boot: BootOptions = field(default_factory=lambda: BootOptions(console_shell=True))


@dataclass(frozen=True)
class SingleGuest:
    """Running guest, and its server unless none was requested.

    ``seconds`` maps each step to its duration; ``ready`` is the time from the template to the first response.
    """

    booted: BootedGuest
    instance: Instance | None
    database: str
    seconds: dict[str, float]

    @property
    def images(self) -> BootImages:
        """Kernel, initramfs and root image."""
        return self.booted.images

    @property
    def machine(self) -> VirtualMachine:
        """Virtual machine of the guest."""
        return self.booted.machine

    @property
    def guest(self) -> Node:
        """The guest as a node."""
        return self.booted.node


class _Steps(RunObserver):
    """Observer that passes each step to a function."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def setup(self, what: str) -> None:
        self._say(what)

    def note(self, text: str) -> None:
        self._say(text)


@contextlib.contextmanager
def boot_single_guest(
    node: Node, chosen: Installation, request: GuestRequest, *, run_as: str | None = None, say: Callable[[str], None] = lambda _: None
) -> Iterator[SingleGuest]:
    """Boot a guest and start the server in it. Everything but the cache is removed on exit.

    No share of the host is reserved for it.

    Raises:
        CapabilityError: QEMU, a kernel, a tool or a library is missing.
        TrialError: the guest or the server did not start.
        UsageError: the requested guest is impossible.
    """
    watcher = _Steps(say)
    name = f"{time.strftime('%H%M%S')}-{secrets.token_hex(2)}"
    _require_possible(name, request)
    policy = VmMemoryPolicy(policy="free-page-reporting" if request.reporting else "static")
    environment = RunEnvironment(runtime="vm", run_as=run_as, cores=gather(node).cores, memory=0, vm_memory_policy=policy)
    with open_session(node, f"vm-{name}", environment, watcher, reserved=False) as session:
        usable = installations.reachable_copy(node, chosen, session.account, str(session.cache))
        settings = {"shared_buffers": "64MB", **request.settings}
        databases = (Database(name=_DATABASE, scale=request.scale or 1),)
        servers = (Server(bin=chosen.bin, version=chosen.version, settings=settings, databases=databases),) if request.scale else ()
        container = Container(name=name, runtime="vm", vcpus=request.vcpus, memory=request.memory, vm=request.hypervisor, servers=servers)
        deployer = Deployer(session, {chosen.bin: usable}, watcher, request.boot)
        try:
            deployer.prepare(container)
            began = time.monotonic()
            deployer.deploy(container)
            ready = time.monotonic() - began
            booted = deployer.guest(name)
            seconds = {**booted.images.seconds, **booted.seconds}
            if servers:
                seconds["starting the server"] = max(ready - sum(booted.seconds.values()), 0.0)
            seconds["ready"] = ready
            yield SingleGuest(booted, deployer.server(name) if servers else None, _DATABASE, seconds)
        finally:
            deployer.close()


def _require_possible(name: str, request: GuestRequest) -> None:
    """Check the options before anything is created. Raises UsageError."""
    page = request.hypervisor.huge_page
    GuestSpec(
        name,
        "",
        "",
        "",
        vcpus=request.vcpus,
        memory=request.memory,
        machine=request.boot.machine,
        backing="plain" if page is None else "huge",
        huge_page=page or GuestSpec.huge_page,
        merge=request.hypervisor.merge,
        reporting=request.reporting,
    ).check()
