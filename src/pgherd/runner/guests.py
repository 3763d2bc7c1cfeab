"""Servers in guests: their disks packed from golden copies, the machines booted, the servers as the host reaches them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pgherd.host import direct_io
from pgherd.metrics.sampler import GuestView
from pgherd.model.deployment import Container, Server
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.node.protocol import Command
from pgherd.postgres import tcp_access
from pgherd.postgres.disk import check_space
from pgherd.postgres.golden import Golden
from pgherd.postgres.installations import Installation
from pgherd.postgres.instance import Instance
from pgherd.postgres.tcp_access import TcpAccess
from pgherd.runner.housing import PORT, Goldens
from pgherd.runner.session import Session
from pgherd.runner.transition import ServerKey
from pgherd.runner.watcher import Watcher
from pgherd.runtimes.runtime import Room
from pgherd.runtimes.vm import disk_image, images
from pgherd.runtimes.vm.images import Images
from pgherd.runtimes.vm.qemu import Disk
from pgherd.runtimes.vm.runtime import VmRuntime
from pgherd.studies.emulated import MARK

MOUNT = "/srv/pgherd"
"""Where a guest mounts the disk with its server's data."""
SOCKETS = "/run/pgherd-sockets"
"""Directory of the server's Unix socket in a guest."""
FREE = 3 * 2**29
"""Bytes that a guest's server may write beyond its golden copy: WAL above all. The disk is sparse."""
_COPY_SECONDS = 3600.0


class Guests:
    """The guests of a run. A container that is a guest holds one server, whose data disk is made anew each time it is restored."""

    def __init__(self, session: Session, installations: Mapping[str, Installation], goldens: Goldens, watcher: Watcher) -> None:
        """No guest runs yet."""
        self._session, self._installations, self._goldens, self._watcher = session, installations, goldens, watcher
        self._images: dict[str, Images] = {}
        self._packed: dict[str, str] = {}
        self._access: dict[str, tuple[TcpAccess, str]] = {}
        self._disks: dict[str, str] = {}
        self._names = itertools.count(1)

    def restore(
        self, wanted: Mapping[ServerKey, tuple[Container, Server]], rooms: Mapping[str, Room]
    ) -> tuple[dict[ServerKey, Instance], dict[str, Room]]:
        """Boot each container's guest with a fresh disk; the servers, not started, and the rooms with their nodes.

        Raises:
            TrialError: a guest does not come up, or a disk cannot be packed.
            CapabilityError: what guests need is missing, or there is too little disk.
        """
        if not wanted:
            return {}, {}
        crowded = {name for name, _ in wanted if sum(one == name for one, _ in wanted) > 1}
        if crowded:
            raise CapabilityError(
                f"container {', '.join(sorted(crowded))} is a guest and is to hold several servers, but only one can be reached in a "
                "guest; give each server a container of its own"
            )
        runtime = self._runtime
        booted: dict[ServerKey, Container] = {}
        for key, (container, server) in wanted.items():
            made, disk = self._made(server), self._disk(container, server)
            sockets = self._session.sockets / f"v{next(self._names)}"
            self._session.node.make_dir(str(sockets), mode=0o700)
            runtime.boot(container, rooms[container.name], made, (disk,), str(sockets))
            booted[key] = container
        self._watcher.setup(f"booting {len(booted)} guests ({next(iter(self._images.values())).hypervisor.sentence()})")
        found: dict[ServerKey, Instance] = {}
        entered: dict[str, Room] = {}
        for key, container in booted.items():
            try:
                node = runtime.connect(container.name)
            except OSError as error:
                raise TrialError(f"guest {container.name} does not answer: {error}") from None
            entered[container.name] = replace(rooms[container.name], node=node, clock=node.clock, balloons=runtime.balloons)
            found[key] = self._instance(key, wanted[key][1], entered[container.name])
        passwords = str(self._session.work / "passwords")
        tcp_access.write_password_file(passwords, list(self._access.values()), self._session.account)
        return found, entered

    def views(self) -> list[GuestView]:
        """The guests that run."""
        if not self._access:
            return []
        return [GuestView(name, one.pid, one.guest.memory) for name, one in self._runtime.machines().items() if one.running]

    def readings(self) -> dict[str, dict[str, float]]:
        """Whether each guest's processors are emulated, by entity."""
        if not self._access:
            return {}
        machines = self._runtime.machines()
        return {f"guest:{name}": {MARK: float(one.hypervisor.functional_only)} for name, one in machines.items() if name in self._access}

    def check(self) -> None:
        """Raise TrialError with the last words of a guest that has ended."""
        for name, machine in self._runtime.machines().items() if self._access else ():
            if not machine.running:
                raise TrialError(f"guest {name} {machine.ending()} during the trial; {machine.last_words()}")

    def forget(self, container: str) -> None:
        """The container goes: its disk too."""
        self._access.pop(container, None)
        disk = self._disks.pop(container, None)
        if disk is not None:
            self._runtime.end(container)
            self._session.node.remove_tree(str(Path(disk).parent))

    @property
    def _runtime(self) -> VmRuntime:
        runtime = self._session.runtime("vm")
        assert isinstance(runtime, VmRuntime)
        return runtime

    def _made(self, server: Server) -> Images:
        if server.bin not in self._images:
            scratch = self._session.work / f"images-{len(self._images)}"
            self._session.node.make_dir(str(scratch), mode=0o755)
            self._images[server.bin] = images.build(
                self._session.node,
                self._installations[server.bin],
                self._session.account,
                str(self._session.cache),
                str(scratch),
                say=self._watcher.setup,
            )
        return self._images[server.bin]

    def _disk(self, container: Container, server: Server) -> Disk:
        """A disk of the container's own: a copy of the packed golden copy."""
        node, golden = self._session.node, self._goldens.of(server)
        packed = self._packed.get(golden.key) or self._pack(golden, server)
        self._runtime.end(container.name)  # nothing may have the old disk open
        home = self._session.work / f"guest-{container.name}"
        node.remove_tree(str(home))
        node.make_dir(str(home), mode=0o700)
        image = str(home / "data.raw")
        check_space(node, str(home), os.stat(packed).st_blocks * 512 + FREE, f"the disk of guest {container.name}")
        done = node.run(Command(["cp", "--reflink=auto", "--sparse=always", "--", packed, image]), timeout=_COPY_SECONDS)
        if done.code != 0:
            node.remove_tree(str(home))
            words = (done.err.strip() or "no reason given").splitlines()[-1]
            raise TrialError(f"the disk of guest {container.name} cannot be copied: {words}")
        self._disks[container.name] = image
        return Disk("data", image, MOUNT, direct=direct_io.possible(str(home)))

    def _pack(self, golden: Golden, server: Server) -> str:
        self._watcher.setup(f"packing golden copy {golden.key} into a disk")
        image = str(self._session.work / f"packed-{len(self._packed)}.raw")
        stage = str(self._session.work / "stage")
        account = self._made(server).root.account
        disk_image.pack_golden(self._session.node, golden, stage, image, free=FREE, account=account)
        self._packed[golden.key] = image
        return image

    def _instance(self, key: ServerKey, server: Server, room: Room) -> Instance:
        assert room.node is not None
        port = self._runtime.machines()[key[0]].guest.port
        assert port is not None
        access = TcpAccess("127.0.0.1", port, str(self._session.work / "passwords"), tcp_access.generate())
        self._access[key[0]] = (access, Instance.user)
        return Instance(
            node=room.node,
            installation=self._installations[server.bin],
            data_dir=f"{MOUNT}/data",
            socket_dir=SOCKETS,
            port=PORT,
            account=self._made(server).root.account,
            name="/".join(key),
            access=access,
        )
