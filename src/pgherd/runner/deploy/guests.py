"""Servers in guests: their disks packed from golden copies, the machines booted, the servers as the host reaches them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pgherd.host import processes
from pgherd.metrics.sampler import GuestDrive, GuestView
from pgherd.model.deployment import Container, Deployment, Server
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.model.result import MemoryKill
from pgherd.node.protocol import Node
from pgherd.postgres import clones, tcp_access
from pgherd.postgres.installations import Installation
from pgherd.postgres.instance import Instance
from pgherd.postgres.tcp_access import TcpAccess
from pgherd.runner.deploy import guest_disks
from pgherd.runner.deploy.guest_disks import MOUNT, GuestDisks, suffix
from pgherd.runner.deploy.housing import PORT, Goldens
from pgherd.runner.deploy.transition import ServerKey
from pgherd.runner.deploy.volumes import Volumes
from pgherd.runner.session import Session
from pgherd.runner.watcher import Watcher
from pgherd.runtimes.runtime import Room
from pgherd.runtimes.vm import images
from pgherd.runtimes.vm.images import Images
from pgherd.runtimes.vm.qemu import Disk
from pgherd.runtimes.vm.runtime import VmRuntime
from pgherd.study.emulation import MARK

SOCKETS = "/run/pgherd-sockets"
"""Directory of the servers' Unix sockets in a guest."""


class Guests:
    """The guests of a run. Each server has a data disk of its own, made anew each time its guest is restored, and a port of its own."""

    def __init__(
        self, session: Session, installations: Mapping[str, Installation], goldens: Goldens, volumes: Volumes, watcher: Watcher
    ) -> None:
        """No guest runs yet."""
        self._session, self._installations, self._watcher = session, installations, watcher
        self._images: dict[tuple[str, ...], Images] = {}
        self._access: dict[ServerKey, tuple[TcpAccess, str]] = {}
        self._devices: dict[str, dict[str, str]] = {}
        self._disks = GuestDisks(session, goldens, volumes, watcher)
        self._names = itertools.count(1)

    def restore(
        self, wanted: Mapping[ServerKey, tuple[Container, Server]], rooms: Mapping[str, Room], deployment: Deployment
    ) -> tuple[dict[ServerKey, Instance], dict[str, Room]]:
        """Boot each container's guest with fresh disks; the servers, not started, and the rooms with their nodes.

        Raises:
            TrialError: a guest does not come up, or a disk cannot be packed.
            CapabilityError: what guests need is missing, or there is too little disk.
        """
        if not wanted:
            return {}, {}
        runtime, node = self._runtime, self._session.node
        held: dict[str, list[ServerKey]] = {}
        for key in wanted:
            held.setdefault(key[0], []).append(key)
        disks: dict[str, list[Disk]] = {}
        for name, keys in held.items():
            servers = {key: wanted[key][1] for key in keys}
            runtime.end(name)  # nothing may have the old disks open
            disks[name] = self._disks.furnish(name, servers, deployment, self._made(list(servers.values())).root.account)
        # What guests boot from is read anew: its page cache would be charged to a guest that is gone, or to the first of an earlier trial.
        booted = [self._made([wanted[key][1] for key in keys]) for keys in held.values()]
        clones.drop_cache(node, sorted({path for made in booted for path in (made.root.path, made.boot, made.initrd)}))
        for name, keys in held.items():
            sockets = self._session.sockets / f"v{next(self._names)}"
            node.make_dir(str(sockets), mode=0o700, user=self._session.account)
            container, made = wanted[keys[0]][0], self._made([wanted[key][1] for key in keys])
            runtime.boot(container, rooms[name], made, disks[name], str(sockets), len(keys), self._session.account)
        self._watcher.setup(f"booting {len(held)} guests ({next(iter(self._images.values())).hypervisor.sentence()})")
        found: dict[ServerKey, Instance] = {}
        entered: dict[str, Room] = {}
        for name, keys in held.items():
            try:
                inside = runtime.connect(name)
            except OSError as error:
                machine = runtime.machines()[name]
                if machine.ended():
                    raise TrialError(f"guest {name} {machine.ending()} while it came up; {machine.last_words()}") from None
                raise TrialError(f"guest {name} does not answer: {error}") from None
            self._devices[name] = guest_disks.devices(inside)
            entered[name] = replace(rooms[name], node=inside, clock=inside.clock, balloons=runtime.balloons)
            for number, key in enumerate(keys):
                found[key] = self._instance(key, wanted[key][1], number, inside)
        passwords = str(self._session.work / "passwords")
        tcp_access.write_password_file(passwords, list(self._access.values()), self._session.account)
        return found, entered

    def views(self) -> list[GuestView]:
        """The guests that run."""
        if not self._access:
            return []
        return [
            GuestView(name, one.pid, one.guest.memory, self._drives(name), one.guest.merge)
            for name, one in self._runtime.machines().items()
            if one.running
        ]

    def _drives(self, container: str) -> list[GuestDrive]:
        known = self._devices.get(container, {})
        return [
            GuestDrive(one.disk.serial, known.get(one.disk.serial, ""), one.disk.path, one.role, "/".join(one.server))
            for one in self._disks.of(container)
        ]

    def readings(self) -> dict[str, dict[str, float]]:
        """Whether each guest's processors are emulated, by entity."""
        if not self._access:
            return {}
        machines = self._runtime.machines()
        return {f"guest:{name}": {MARK: float(one.hypervisor.functional_only)} for name, one in machines.items() if name in self._disks}

    def check(self) -> None:
        """Raise TrialError with the last words of a guest that has ended."""
        for name, machine in self._runtime.machines().items() if self._access else ():
            if not machine.running or (name in self._runtime.lost() and machine.ended()):
                raise TrialError(f"guest {name} {machine.ending()} during the trial; {machine.last_words()}")
        if mute := self.mute():
            raise TrialError(
                f"guest {', '.join(mute)} does not answer any more, though its machine runs: it is frozen, or has no memory left"
            )

    def mute(self) -> list[str]:
        """The containers whose guests run and have left the last question without an answer."""
        return self._runtime.mute() if self._access else []

    def memory_kills(self, container: str) -> str:
        """What the kernel of a container's guest has ended for want of memory, in a sentence with what to do; '' where it is no guest."""
        machine = self._runtime.machines().get(container) if self._access else None
        killed = machine.memory_kills() if machine is not None else []
        if not killed:
            return ""
        named = ", ".join(sorted(set(killed)))
        return (
            f"guest {container} ran out of memory, and its kernel ended {processes.counted(len(killed))} in it ({named}): raise --memory, "
            "or lower --scale or --set shared_buffers"
        )

    def kills(self) -> tuple[MemoryKill, ...]:
        """What the guests' own kernels have ended for want of memory since they were booted: after such a trial a guest is booted anew."""
        now = self._session.node.now()
        machines = self._runtime.machines() if self._access else {}
        ended = {name: machine.memory_kills() for name, machine in machines.items()}
        return tuple(
            MemoryKill(container=name, processes=len(some), at=now, names=tuple(sorted(set(some))), limit="container")
            for name, some in ended.items()
            if some
        )

    def end(self, containers: Iterable[str]) -> None:
        """End those of them that are guests, whose servers have stopped: what they have of the host's memory is free then."""
        for container in containers:
            if container in self._disks:
                self._runtime.end(container)

    def forget(self, container: str) -> None:
        """The container goes: its disks too."""
        self._access = {key: way for key, way in self._access.items() if key[0] != container}
        if container in self._disks:
            self._runtime.end(container)
            self._disks.remove(container)

    def populate(self, key: ServerKey, instance: Instance, databases: Sequence[str]) -> None:
        """Spread a server's databases over its tablespaces, as ``GuestDisks.populate``."""
        self._disks.populate(key, instance, databases)

    @property
    def _runtime(self) -> VmRuntime:
        runtime = self._session.runtime("vm")
        assert isinstance(runtime, VmRuntime)
        return runtime

    def _made(self, servers: Sequence[Server]) -> Images:
        """What a guest with these servers boots from: their PostgreSQL, and the directories from which they load modules of ours."""
        if len({server.bin for server in servers}) > 1:
            raise CapabilityError("servers of different PostgreSQL installations cannot be in one guest; give each a container of its own")
        wanted = (servers[0].bin, *sorted({one for server in servers for one in _modules(server)}))
        if wanted not in self._images:
            scratch = self._session.work / f"images-{len(self._images)}"
            self._session.node.make_dir(str(scratch), mode=0o755)
            self._images[wanted] = images.build(
                self._session.node,
                self._installations[servers[0].bin],
                self._session.account,
                str(self._session.cache),
                str(scratch),
                extra=wanted[1:],
                say=self._watcher.setup,
            )
        return self._images[wanted]

    def _instance(self, key: ServerKey, server: Server, number: int, node: Node) -> Instance:
        port = self._runtime.machines()[key[0]].guest.ports[number]
        access = TcpAccess("127.0.0.1", port, str(self._session.work / "passwords"), tcp_access.generate())
        self._access[key] = (access, Instance.user)
        return Instance(
            node=node,
            installation=self._installations[server.bin],
            data_dir=f"{MOUNT}{suffix(number)}/data",
            socket_dir=SOCKETS,
            port=PORT + number,
            account=self._made([server]).root.account,
            name="/".join(key),
            access=access,
        )


def _modules(server: Server) -> list[str]:
    """Directories of this machine from which the server loads modules beside PostgreSQL's own: they must be in its guest too."""
    return [path for path in server.settings.get("dynamic_library_path", "").split(":") if path.startswith("/")]
