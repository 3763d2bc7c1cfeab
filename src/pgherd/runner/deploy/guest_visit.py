"""A guest with a database in it, to look inside: from a golden copy to a server that answers, and away again."""

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
from pgherd.runtimes.vm import disk_image, images
from pgherd.runtimes.vm.guest_node import GuestNode
from pgherd.runtimes.vm.images import Images
from pgherd.runtimes.vm.machine import BOOT_SECONDS, Machine
from pgherd.runtimes.vm.qemu import Disk, Guest
from pgherd.workloads.registry import fillings

MOUNT = "/srv/pgherd"
"""Where the guest mounts the disk with the data directory."""
_MIB = 2**20

Say = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """What guest is wanted. Sizes are bytes, ``scale`` pgbench's (0: no server at all), ``free`` the room on its data disk; ``hypervisor``
    is what that does for it, and ``reporting`` whether the guest tells it which pages are free."""

    scale: int = 1
    vcpus: int = 1
    memory: int = 512 * _MIB
    machine: Literal["q35", "microvm"] = "q35"
    accelerator: str | None = None
    free: int = 512 * _MIB
    shell: bool = True
    patience: float = BOOT_SECONDS
    settings: dict[str, str] = field(default_factory=dict)
    hypervisor: GuestMachine = field(default_factory=GuestMachine)
    reporting: bool = True


@dataclass(frozen=True)
class Visit:
    """A guest that is up. ``seconds`` says what took how long; ``ready`` in it is from the golden copy to the first answer."""

    images: Images
    machine: Machine
    guest: GuestNode
    instance: Instance | None
    database: str
    seconds: dict[str, float]


@contextlib.contextmanager
def visit(node: Node, chosen: Installation, wanted: Wanted, *, run_as: str | None = None, say: Say = lambda _: None) -> Iterator[Visit]:
    """Make what is missing, boot the guest, start the server in it; all of it goes at the end, but for what the cache keeps.

    Raises:
        CapabilityError: QEMU, a kernel, a tool or a library is missing.
        TrialError: the guest or the server did not come up.
        UsageError: no guest can be like that.
    """
    account = server_account(run_as)
    cache = str(paths.cache_dir())
    name = f"{time.strftime('%H%M%S')}-{secrets.token_hex(2)}"
    page = wanted.hypervisor.huge_page
    beneath: dict[str, Any] = {"merge": wanted.hypervisor.merge, "reporting": wanted.reporting}
    beneath |= {} if page is None else {"backing": "huge", "huge_page": page}
    # Before anything is made.
    Guest(name, "", "", "", vcpus=wanted.vcpus, memory=wanted.memory, machine=wanted.machine, **beneath).check()
    with contextlib.ExitStack() as stack:
        with interruption.undisturbed():  # what is there shall be in the stack, whenever a signal comes
            journal = Journal.open(node, paths.state_dir(), f"vm-{name}")
            stack.callback(journal.end, say)
        work = Path(paths.work_tree(node, journal, f"vm-{name}", account))
        sockets = paths.socket_root(node, journal)
        scratch = str(work / "making")
        node.make_dir(scratch, mode=0o755)
        usable = installations.reachable_copy(node, chosen, account, cache)
        made = images.build(node, usable, account, cache, scratch, accelerator=wanted.accelerator, say=say)
        copy = None
        if wanted.scale:
            golden_sockets = os.path.join(sockets, "g")
            node.make_dir(golden_sockets, mode=0o700, user=account)
            contents = fillings(node, [Database(name="pgbench", scale=wanted.scale)])
            copy = golden.ensure(node, usable, contents, account=account, cache_dir=cache, socket_dir=golden_sockets, say=say)
        seconds = dict(made.seconds)
        began = time.monotonic()
        disks: tuple[Disk, ...] = ()
        if copy is not None:
            say("packing the golden copy into a disk")
            image = str(work / "data.raw")
            user = made.root.account
            disk_image.pack_golden(node, copy, str(work / "stage"), image, free=wanted.free, account=user)
            if account is not None:
                os.chown(image, pwd.getpwnam(account).pw_uid, pwd.getpwnam(account).pw_gid)
            disks = (Disk("data", image, MOUNT, direct=direct_io.possible(str(work))),)
        seconds["packing the disk"] = time.monotonic() - began
        guest = Guest(
            name=name,
            kernel=made.boot,
            initrd=made.initrd,
            root=made.root.path,
            disks=disks,
            vcpus=wanted.vcpus,
            memory=wanted.memory,
            machine=wanted.machine,
            accelerator=made.hypervisor.accelerator,
            port=free_ports("127.0.0.1", 1)[0],
            shell=wanted.shell,
            **beneath,
        )
        if page is not None:
            huge_pages.reserve(node, journal, page, wanted.memory // page)
        if wanted.hypervisor.merge:
            same_page_merging.switch_on(node, journal)
        private = os.path.join(sockets, "v")
        node.make_dir(private, mode=0o700, user=account)
        machine = Machine(node, guest, private, made.hypervisor, journal, account)
        say(f"booting a guest by {'KVM' if not made.hypervisor.functional_only else 'emulation'}")
        booted = time.monotonic()
        stack.callback(machine.stop)
        machine.start()
        machine.wait_ready(wanted.patience)
        seconds["booting"] = time.monotonic() - booted
        inside = GuestNode.connect(name, machine.agent_socket, wanted.patience, alive=lambda: machine.running)
        stack.callback(inside.close)
        if wanted.hypervisor.pinned:
            machine.pin(sorted(os.sched_getaffinity(machine.pid)))
        seconds["first answer of the agent"] = time.monotonic() - booted - seconds["booting"]
        instance = None
        if copy is not None:
            say("starting the server in the guest")
            started = time.monotonic()
            password = tcp_access.generate()
            passwords = str(work / "passwords")
            access = tcp_access.TcpAccess("127.0.0.1", guest.port or 0, passwords, password)
            instance = Instance(inside, usable, f"{MOUNT}/data", "/run/pgherd-sockets", account=made.root.account, name=name, access=access)
            tcp_access.write_password_file(passwords, [(access, instance.user)])
            instance.write_settings({"shared_buffers": "64MB", **wanted.settings})
            instance.start()
            instance.wait_ready(wanted.patience)
            seconds["starting the server"] = time.monotonic() - started
        seconds["ready"] = time.monotonic() - began
        yield Visit(made, machine, inside, instance, "pgbench", seconds)
