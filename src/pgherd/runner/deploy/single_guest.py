"""Single guest with one database for interactive use, from its template to a responding server."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pgherd.host import direct_io, huge_pages, paths, same_page_merging
from pgherd.host.account import server_account
from pgherd.host.journal import Journal
from pgherd.host.paths import free_ports
from pgherd.model.deployment import Database, GuestMachine
from pgherd.node import interruption
from pgherd.node.protocol import Node
from pgherd.postgres import golden, installations, tcp_access
from pgherd.postgres.installations import Installation
from pgherd.postgres.instance import Instance
from pgherd.runtimes.vm import boot_images, disk_image
from pgherd.runtimes.vm.boot_images import BootImages
from pgherd.runtimes.vm.guest_node import GuestNode
from pgherd.runtimes.vm.qemu import Disk, GuestSpec
from pgherd.runtimes.vm.virtual_machine import BOOT_TIMEOUT_S, VirtualMachine
from pgherd.workloads.registry import fillings

MOUNT = "/srv/pgherd"
"""Mount point in the guest of the disk with the data directory."""
_MIB = 2**20

Say = Callable[[str], None]


@dataclass(frozen=True)
class GuestRequest:
    """Requested guest. Sizes are in bytes.

    ``scale`` is pgbench's (0: no server), ``free`` the free space on its data disk. ``hypervisor`` holds the
    host-side options, and ``reporting`` enables free page reporting.
    """

    scale: int = 1
    vcpus: int = 1
    memory: int = 512 * _MIB
    machine: Literal["q35", "microvm"] = "q35"
    accelerator: str | None = None
    free: int = 512 * _MIB
    shell: bool = True
    patience: float = BOOT_TIMEOUT_S
    settings: dict[str, str] = field(default_factory=dict)
    hypervisor: GuestMachine = field(default_factory=GuestMachine)
    reporting: bool = True


@dataclass(frozen=True)
class SingleGuest:
    """Running guest. ``seconds`` maps each step to its duration; ``ready`` is the time from the template to the first
    response.
    """

    images: BootImages
    machine: VirtualMachine
    guest: GuestNode
    instance: Instance | None
    database: str
    seconds: dict[str, float]


@contextlib.contextmanager
def boot_single_guest(
    node: Node, chosen: Installation, wanted: GuestRequest, *, run_as: str | None = None, say: Say = lambda _: None
) -> Iterator[SingleGuest]:
    """Boot a guest and start the server in it. Everything but the cache is removed on exit.

    Raises:
        CapabilityError: QEMU, a kernel, a tool or a library is missing.
        TrialError: the guest or the server did not start.
        UsageError: the requested guest is impossible.
    """
    account = server_account(run_as)
    cache = str(paths.cache_dir())
    name = f"{time.strftime('%H%M%S')}-{secrets.token_hex(2)}"
    page = wanted.hypervisor.huge_page
    memory_options: dict[str, Any] = {"merge": wanted.hypervisor.merge, "reporting": wanted.reporting}
    memory_options |= {} if page is None else {"backing": "huge", "huge_page": page}
    # Check the options before anything is created.
    GuestSpec(name, "", "", "", vcpus=wanted.vcpus, memory=wanted.memory, machine=wanted.machine, **memory_options).check()
    with contextlib.ExitStack() as stack:
        with interruption.undisturbed():  # a signal must not come between creation and callback
            journal = Journal.open(node, paths.state_dir(), f"vm-{name}")
            stack.callback(journal.end, say)
        work = Path(paths.work_tree(node, journal, f"vm-{name}", account))
        sockets = paths.socket_root(node, journal)
        scratch = str(work / "making")
        node.make_dir(scratch, mode=0o755)
        installation = installations.reachable_copy(node, chosen, account, cache)
        images = boot_images.build(node, installation, account, cache, scratch, accelerator=wanted.accelerator, say=say)
        copy = None
        if wanted.scale:
            golden_sockets = os.path.join(sockets, "g")
            node.make_dir(golden_sockets, mode=0o700, user=account)
            contents = fillings(node, [Database(name="pgbench", scale=wanted.scale)])
            copy = golden.ensure(node, installation, contents, account=account, cache_dir=cache, socket_dir=golden_sockets, say=say)
        seconds = dict(images.seconds)
        started_at = time.monotonic()
        disks: tuple[Disk, ...] = ()
        if copy is not None:
            say("packing the template into a disk")
            image = str(work / "data.raw")
            user = images.root.account
            disk_image.pack_golden(node, copy, str(work / "stage"), image, free=wanted.free, account=user)
            if account is not None:
                os.chown(image, pwd.getpwnam(account).pw_uid, pwd.getpwnam(account).pw_gid)
            disks = (Disk("data", image, MOUNT, direct=direct_io.possible(str(work))),)
        seconds["packing the disk"] = time.monotonic() - started_at
        guest = GuestSpec(
            name=name,
            kernel=images.boot,
            initrd=images.initrd,
            root=images.root.path,
            disks=disks,
            vcpus=wanted.vcpus,
            memory=wanted.memory,
            machine=wanted.machine,
            accelerator=images.hypervisor.accelerator,
            port=free_ports("127.0.0.1", 1)[0],
            shell=wanted.shell,
            **memory_options,
        )
        if page is not None:
            huge_pages.reserve(node, journal, page, wanted.memory // page)
        if wanted.hypervisor.merge:
            same_page_merging.switch_on(node, journal)
        machine_sockets = os.path.join(sockets, "v")
        node.make_dir(machine_sockets, mode=0o700, user=account)
        machine = VirtualMachine(node, guest, machine_sockets, images.hypervisor, journal, account)
        say(f"booting a guest by {'KVM' if not images.hypervisor.functional_only else 'emulation'}")
        boot_started_at = time.monotonic()
        stack.callback(machine.stop)
        machine.start()
        machine.wait_ready(wanted.patience)
        seconds["booting"] = time.monotonic() - boot_started_at
        guest_node = GuestNode.connect(name, machine.agent_socket, wanted.patience, alive=lambda: machine.running)
        stack.callback(guest_node.close)
        if wanted.hypervisor.pinned:
            machine.pin(sorted(os.sched_getaffinity(machine.pid)))
        seconds["first answer of the agent"] = time.monotonic() - boot_started_at - seconds["booting"]
        instance = None
        if copy is not None:
            say("starting the server in the guest")
            server_started_at = time.monotonic()
            password = tcp_access.generate()
            passwords = str(work / "passwords")
            access = tcp_access.TcpAccess("127.0.0.1", guest.port or 0, passwords, password)
            instance = Instance(
                guest_node, installation, f"{MOUNT}/data", "/run/pgherd-sockets", account=images.root.account, name=name, access=access
            )
            tcp_access.write_password_file(passwords, [(access, instance.user)])
            instance.write_settings({"shared_buffers": "64MB", **wanted.settings})
            instance.start()
            instance.wait_ready(wanted.patience)
            seconds["starting the server"] = time.monotonic() - server_started_at
        seconds["ready"] = time.monotonic() - started_at
        yield SingleGuest(images, machine, guest_node, instance, "pgbench", seconds)
