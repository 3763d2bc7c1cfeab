"""Servers in guests: their disks packed from golden copies, the machines booted, the servers as the host reaches them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pgherd.host import direct_io, processes
from pgherd.metrics.sampler import GuestDrive, GuestView
from pgherd.model.deployment import Container, Deployment, Role, Server, Volume
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.model.result import MemoryKill
from pgherd.model.units import parse_bytes
from pgherd.node.protocol import Command, Node
from pgherd.postgres import clones, tcp_access
from pgherd.postgres.disk import check_space
from pgherd.postgres.installations import Installation
from pgherd.postgres.instance import Instance
from pgherd.postgres.tablespaces import Spaces, create
from pgherd.postgres.tcp_access import TcpAccess
from pgherd.runner.deploy.housing import PORT, Goldens
from pgherd.runner.deploy.transition import ServerKey
from pgherd.runner.deploy.volumes import Volumes, spread_over, used_by
from pgherd.runner.session import Session
from pgherd.runner.watcher import Watcher
from pgherd.runtimes.runtime import Room
from pgherd.runtimes.vm import disk_image, images
from pgherd.runtimes.vm.images import Images
from pgherd.runtimes.vm.qemu import Disk
from pgherd.runtimes.vm.runtime import VmRuntime
from pgherd.studies.emulated import MARK

MOUNT = "/srv/pgherd"
"""Where a guest mounts the disk with its server's data; those of further servers have a number behind it."""
FREE = 3 * 2**29
"""Bytes that a guest's server may write beyond its golden copy and its WAL, whatever its size; more for large ones. The disk is sparse."""
LEAST_WAL = 2**30
"""Bytes of room for WAL, however little of it the server is told to keep."""
GROWTH = 4
"""A disk has room for its golden copy so many times more."""
_COPY_SECONDS = 3600.0


def suffix(number: int) -> str:
    """What tells a guest's second and further servers' disks from that of the first."""
    return f"-{number + 1}" if number else ""


def devices(guest: Node) -> dict[str, str]:
    """Serial → device (``vdb``) of the disks of a guest; empty where it does not tell."""
    try:
        names = [name for name in guest.listdir("/sys/block") if name.startswith("vd")]
        return {guest.read(f"/sys/block/{name}/serial").decode(errors="replace").strip(): name for name in names}
    except OSError:
        return {}


@dataclass(frozen=True)
class GuestDisk:
    """A disk, and what of which server lies on it."""

    disk: Disk
    server: ServerKey
    role: Role


@dataclass
class _Furnished:
    disks: list[GuestDisk] = field(default_factory=list)
    homes: list[str] = field(default_factory=list)
    spaces: dict[ServerKey, Spaces] = field(default_factory=dict)


class GuestDisks:
    """The disks of a run's guests. What is packed is packed once, and copied whenever a guest is restored."""

    def __init__(self, session: Session, goldens: Goldens, volumes: Volumes, watcher: Watcher) -> None:
        """Nothing is packed yet."""
        self._session, self._goldens, self._volumes, self._watcher = session, goldens, volumes, watcher
        self._packed: dict[tuple[str, int, str], tuple[str, ...]] = {}
        self._furnished: dict[str, _Furnished] = {}
        self._names = itertools.count(1)

    def __contains__(self, container: object) -> bool:
        """Whether a container is a guest that has disks."""
        return container in self._furnished

    def furnish(self, container: str, servers: Mapping[ServerKey, Server], deployment: Deployment, account: str) -> list[Disk]:
        """Make a container's disks anew; its guest must have ended, and what it had before is removed.

        Args:
            container: the guest's name.
            servers: those in it; the first one's data are mounted at ``MOUNT`` and hold its cluster as ``data``, the others have a suffix.
            deployment: has the volumes that the servers name.
            account: the servers' in the guest.

        Raises:
            TrialError: a disk cannot be packed or copied.
            CapabilityError: a volume is not there any more, or there is too little room.
        """
        self.remove(container)
        made = self._furnished[container] = _Furnished()
        try:
            for number, (key, server) in enumerate(servers.items()):
                self._lay(made, key, server, deployment, account, suffix(number))
        except BaseException:
            self.remove(container)
            raise
        # What the copies left is written now, and not during the trial; and it is no memory that a guest should have for nothing.
        clones.drop_cache(self._session.node, made.homes)
        return [one.disk for one in made.disks]

    def populate(self, key: ServerKey, instance: Instance, databases: Sequence[str]) -> None:
        """Make the tablespaces of a server that has just been started with new disks, and spread its databases over them; once.

        Raises:
            psycopg.Error: the server refuses it.
        """
        furnished = self._furnished.get(key[0])
        spaces = furnished.spaces.pop(key, None) if furnished is not None else None
        if spaces is not None:
            create(instance, databases, spaces)

    def of(self, container: str) -> list[GuestDisk]:
        """A container's disks, in the order in which its guest finds them, after that of its system."""
        return list(self._furnished[container].disks) if container in self._furnished else []

    def remove(self, container: str) -> None:
        """Take a container's disks away; its guest must have ended. Nothing happens where there are none."""
        furnished = self._furnished.pop(container, None)
        if furnished is not None:
            self._volumes.remove(tuple(furnished.homes))

    def _lay(self, made: _Furnished, key: ServerKey, server: Server, deployment: Deployment, account: str, number: str) -> None:
        used, spread = used_by(server, deployment), spread_over(server, deployment)
        name = f"{next(self._names):03d}-{key[0]}-{key[1]}"
        wal = f"{MOUNT}-wal{number}" if "wal" in used else ""
        data, *apart = self._pack(server, account, wal)
        home = self._home(made, used.get("data"), name, key[0])
        made.disks.append(GuestDisk(self._copied(data, home, f"data{number}", MOUNT + number), key, "data"))
        for image in apart:
            home = self._home(made, used["wal"], name, key[0])
            made.disks.append(GuestDisk(self._copied(image, home, f"wal{number}", wal), key, "wal"))
        empty: list[tuple[Role, str, Volume]] = [("temp", "temp", used["temp"])] if "temp" in used else []
        empty += [("tablespace", f"space{place}", volume) for place, volume in enumerate(spread)]
        for role, what, volume in empty:
            home = self._home(made, volume, name, key[0])
            made.disks.append(GuestDisk(self._empty(home, account, f"{what}{number}", f"{MOUNT}-{what}{number}"), key, role))
        files = {what: f"{MOUNT}-{what}{number}/files" for _, what, _ in empty}
        if files:
            made.spaces[key] = Spaces(files.pop("temp", None), tuple(files.values()))

    def _home(self, made: _Furnished, volume: Volume | None, name: str, container: str) -> str:
        """The directory of an image, which belongs to the account that QEMU runs as."""
        if volume is not None:
            home = self._volumes.home(volume, name)
        else:
            home = str(self._session.work / f"guest-{container}")
            self._session.node.make_dir(home, mode=0o700, user=self._session.account)
        if home not in made.homes:
            made.homes.append(home)
        return home

    def _pack(self, server: Server, account: str, wal_mount: str) -> tuple[str, ...]:
        """The images of the server's golden copy, packed once: its data, and its WAL apart where that is to be mounted somewhere; with the
        room that they may need."""
        golden = self._goldens.of(server)
        wal = max(parse_bytes(server.settings.get("max_wal_size", "1GB")), LEAST_WAL)
        key = (golden.key, FREE + wal + GROWTH * golden.bytes, wal_mount)
        if key not in self._packed:
            self._watcher.setup(f"packing golden copy {golden.key} into a disk")
            image = str(self._session.work / f"packed-{len(self._packed)}.raw")
            packed = disk_image.pack_golden(
                self._session.node,
                golden,
                str(self._session.work / "stage"),
                image,
                free=key[1],
                account=account,
                wal=f"{image}.wal" if wal_mount else None,
                wal_mount=wal_mount,
                wal_free=FREE + wal,
            )
            self._packed[key] = tuple(one.path for one in packed)
        return self._packed[key]

    def _copied(self, packed: str, home: str, serial: str, mount: str) -> Disk:
        node, image = self._session.node, os.path.join(home, f"{serial}.raw")
        spare = FREE if Path(home).is_relative_to(self._session.work) else 0  # of volumes it was looked at before the run
        check_space(node, home, os.stat(packed).st_blocks * 512 + spare, f"the disk '{serial}' of a guest")
        done = node.run(Command(["cp", "--reflink=auto", "--sparse=always", "--", packed, image]), timeout=_COPY_SECONDS)
        if done.code != 0:
            words = (done.err.strip() or "no reason given").splitlines()[-1]
            raise TrialError(f"the disk '{serial}' of a guest cannot be copied: {words}")
        return self._owned(Disk(serial, image, mount, direct=direct_io.possible(home)))

    def _empty(self, home: str, account: str, serial: str, mount: str) -> Disk:
        """A disk with one empty directory, ``files``, which belongs to the servers' account in the guest."""
        node, image, stage = self._session.node, os.path.join(home, f"{serial}.raw"), self._session.work / "stage"
        node.make_dir(str(stage / "files"), mode=0o700, user=account)
        try:
            disk_image.pack(node, str(stage), image, free=FREE)
        finally:
            node.remove_tree(str(stage))
        return self._owned(Disk(serial, image, mount, direct=direct_io.possible(home)))

    def _owned(self, disk: Disk) -> Disk:
        """The image belongs to the account that QEMU runs as."""
        account = self._session.account
        if account is not None:
            done = self._session.node.run(Command(["chown", f"{account}:", "--", disk.path]))
            if done.code != 0:
                raise TrialError(f"the disk '{disk.serial}' of a guest cannot be given to account {account}: {done.err.strip()}")
        return disk


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
            self._devices[name] = devices(inside)
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
