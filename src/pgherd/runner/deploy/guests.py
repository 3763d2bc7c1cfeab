"""Servers in virtual machines: disks packed from templates, booted guests, and servers as the host reaches them."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pgherd.host import processes, storage
from pgherd.metrics.sampler import GuestDrive, GuestView
from pgherd.model.deployment import Container, Deployment, Role, Server, Volume
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.model.result import OomKill
from pgherd.node.protocol import Command, Node
from pgherd.postgres import clones, tcp_access
from pgherd.postgres.disk_space import check_space
from pgherd.postgres.installations import Installation
from pgherd.postgres.instance import Instance
from pgherd.postgres.relation_files import TablespaceDirs, create
from pgherd.postgres.settings import max_wal_bytes
from pgherd.postgres.tcp_access import TcpAccess
from pgherd.runner.deploy.data_directories import PORT, Templates
from pgherd.runner.deploy.transition_plan import ServerKey
from pgherd.runner.deploy.volumes import Volumes, spread_over, used_by
from pgherd.runner.progress import RunObserver
from pgherd.runner.session import RunSession
from pgherd.runtimes.runtime import ContainerHandle
from pgherd.runtimes.vm import boot_images, disk_image
from pgherd.runtimes.vm.boot_images import BootImages
from pgherd.runtimes.vm.qemu import Disk
from pgherd.runtimes.vm.runtime import DEFAULT_BOOT, BootOptions, VmRuntime
from pgherd.runtimes.vm.virtual_machine import VirtualMachine
from pgherd.study.guests import EMULATED_METRIC

MOUNT = "/srv/pgherd"
"""Mount point in a guest of the disk with its server's data. Further servers get a number as suffix."""
FREE_BYTES = 3 * 2**29
"""Bytes that a guest's server may write beyond its template and its WAL. The disk is sparse."""
MIN_WAL_BYTES = 2**30
"""Minimum bytes for WAL."""
FREE_PER_TEMPLATE = 4
"""Free space of a disk as a multiple of its template's size."""
_COPY_TIMEOUT_S = 3600.0


def suffix(number: int) -> str:
    """Return the suffix of the disks of a guest's second and further servers; '' for the first."""
    return f"-{number + 1}" if number else ""


def devices(guest: Node) -> dict[str, str]:
    """Return serial → device (``vdb``) of a guest's disks, or {} if they cannot be read."""
    try:
        names = [name for name in guest.listdir("/sys/block") if name.startswith("vd")]
        return {guest.read(f"/sys/block/{name}/serial").decode(errors="replace").strip(): name for name in names}
    except OSError:
        return {}


@dataclass(frozen=True)
class GuestDisk:
    """Disk, and the server and role that it belongs to."""

    disk: Disk
    server: ServerKey
    role: Role


@dataclass
class _DiskSet:
    disks: list[GuestDisk] = field(default_factory=list)
    homes: list[str] = field(default_factory=list)
    spaces: dict[ServerKey, TablespaceDirs] = field(default_factory=dict)


class GuestDisks:
    """Disks of a run's guests. Each template is packed once, and copied each time a guest is restored.

    A disk is a sparse image on this machine, either in the run's work directory or on the volume requested for the
    server's data, WAL, temporary files or tablespaces. In the guest each is a virtio disk with a file system, mounted
    next to that of the data.
    """

    def __init__(self, session: RunSession, templates: Templates, volumes: Volumes, watcher: RunObserver) -> None:
        self._session, self._templates, self._volumes, self._watcher = session, templates, volumes, watcher
        self._packed: dict[tuple[str, int, str], tuple[str, ...]] = {}
        self._disk_sets: dict[str, _DiskSet] = {}
        self._names = itertools.count(1)

    def __contains__(self, container: object) -> bool:
        return container in self._disk_sets

    def furnish(self, container: str, servers: Mapping[ServerKey, Server], deployment: Deployment, account: str) -> list[Disk]:
        """Create a container's disks again. Its guest must have ended; earlier disks are removed.

        Args:
            container: the guest's name.
            servers: servers of the guest. Data of the first are mounted at ``MOUNT`` and hold its cluster as
                ``data``; the others have a suffix.
            deployment: has the volumes that the servers name.
            account: the servers' user in the guest.

        Raises:
            TrialError: a disk cannot be packed or copied.
            CapabilityError: a volume is gone, or there is too little space.
        """
        self.remove(container)
        disk_set = self._disk_sets[container] = _DiskSet()
        try:
            for number, (key, server) in enumerate(servers.items()):
                self._add_server(disk_set, key, server, deployment, account, suffix(number))
        except BaseException:
            self.remove(container)
            raise
        # Write the copies back now, not during the trial. Their page cache would be free memory for the guest.
        clones.drop_cache(self._session.node, disk_set.homes)
        return [guest_disk.disk for guest_disk in disk_set.disks]

    def populate(self, key: ServerKey, instance: Instance, databases: Sequence[str]) -> None:
        """Create the tablespaces of a server just started with new disks, and spread its databases over them, once.

        Raises:
            psycopg.Error: the server refuses it.
        """
        disk_set = self._disk_sets.get(key[0])
        spaces = disk_set.spaces.pop(key, None) if disk_set is not None else None
        if spaces is not None:
            create(instance, databases, spaces)

    def of(self, container: str) -> list[GuestDisk]:
        """Return a container's disks, in the order in which its guest finds them after the system disk."""
        return list(self._disk_sets[container].disks) if container in self._disk_sets else []

    def remove(self, container: str) -> None:
        """Remove a container's disks, if there are any. Its guest must have ended."""
        disk_set = self._disk_sets.pop(container, None)
        if disk_set is not None:
            self._volumes.remove(tuple(disk_set.homes))

    def _add_server(self, disk_set: _DiskSet, key: ServerKey, server: Server, deployment: Deployment, account: str, number: str) -> None:
        used, spread = used_by(server, deployment), spread_over(server, deployment)
        name = f"{next(self._names):03d}-{key[0]}-{key[1]}"
        wal = f"{MOUNT}-wal{number}" if "wal" in used else ""
        data, *separate = self._pack(server, account, wal)
        home = self._home(disk_set, used.get("data"), name, key[0])
        disk_set.disks.append(GuestDisk(self._copy_image(data, home, f"data{number}", MOUNT + number), key, "data"))
        for image in separate:
            home = self._home(disk_set, used["wal"], name, key[0])
            disk_set.disks.append(GuestDisk(self._copy_image(image, home, f"wal{number}", wal), key, "wal"))
        empty: list[tuple[Role, str, Volume]] = [("temp", "temp", used["temp"])] if "temp" in used else []
        empty += [("tablespace", f"space{position}", volume) for position, volume in enumerate(spread)]
        for role, label, volume in empty:
            home = self._home(disk_set, volume, name, key[0])
            disk_set.disks.append(GuestDisk(self._empty_disk(home, account, f"{label}{number}", f"{MOUNT}-{label}{number}"), key, role))
        files = {label: f"{MOUNT}-{label}{number}/files" for _, label, _ in empty}
        if files:
            disk_set.spaces[key] = TablespaceDirs(files.pop("temp", None), tuple(files.values()))

    def _home(self, disk_set: _DiskSet, volume: Volume | None, name: str, container: str) -> str:
        """Return the directory of an image. The user that QEMU runs as can enter it, and owns only the image."""
        if volume is not None:
            home = self._volumes.home(volume, name)
        else:
            home = str(self._session.work / f"guest-{container}")
            self._session.node.make_dir(home, mode=0o711)
        if home not in disk_set.homes:
            disk_set.homes.append(home)
        return home

    def _pack(self, server: Server, account: str, wal_mount: str) -> tuple[str, ...]:
        """Return the images of the server's template: data, and WAL if it has a separate mount point.

        Each is packed once, with the free space that it may need.
        """
        template = self._templates.of(server)
        wal = max(max_wal_bytes(server.settings), MIN_WAL_BYTES)
        key = (template.key, FREE_BYTES + wal + FREE_PER_TEMPLATE * template.bytes, wal_mount)
        if key not in self._packed:
            self._watcher.setup(f"packing template {template.key} into a disk")
            image = str(self._session.work / f"packed-{len(self._packed)}.raw")
            packed = disk_image.pack_template(
                self._session.node,
                template,
                str(self._session.work / "stage"),
                image,
                free=key[1],
                account=account,
                wal=f"{image}.wal" if wal_mount else None,
                wal_mount=wal_mount,
                wal_free=FREE_BYTES + wal,
            )
            self._packed[key] = tuple(disk.path for disk in packed)
        return self._packed[key]

    def _copy_image(self, packed: str, home: str, serial: str, mount: str) -> Disk:
        node, image = self._session.node, os.path.join(home, f"{serial}.raw")
        spare = FREE_BYTES if Path(home).is_relative_to(self._session.work) else 0  # space on volumes was checked before the run
        check_space(node, home, os.stat(packed).st_blocks * 512 + spare, f"the disk '{serial}' of a guest")
        result = node.run(Command(["cp", "--reflink=auto", "--sparse=always", "--", packed, image]), timeout=_COPY_TIMEOUT_S)
        if result.code != 0:
            reason = (result.err.strip() or "no reason given").splitlines()[-1]
            raise TrialError(f"the disk '{serial}' of a guest cannot be copied: {reason}")
        return self._with_owner(Disk(serial, image, mount, direct=storage.direct_io_works(home)))

    def _empty_disk(self, home: str, account: str, serial: str, mount: str) -> Disk:
        """Create a disk with one empty directory, ``files``, owned by the servers' user in the guest."""
        node, image, stage = self._session.node, os.path.join(home, f"{serial}.raw"), self._session.work / "stage"
        try:
            node.make_dir(str(stage), mode=0o700)  # mkfs reads files by their paths
            node.make_dir(str(stage / "disk"), mode=0o755)
            node.make_dir(str(stage / "disk/files"), mode=0o700, user=account)
            disk_image.pack(node, str(stage / "disk"), image, free=FREE_BYTES)
        finally:
            node.remove_tree(str(stage))
        return self._with_owner(Disk(serial, image, mount, direct=storage.direct_io_works(home)))

    def _with_owner(self, disk: Disk) -> Disk:
        """Give the image to the user that QEMU runs as. Nobody else can read it."""
        account = self._session.account
        owner = [] if account is None else [["chown", "-h", f"{account}:", "--", disk.path]]
        for argv in (["chmod", "0600", "--", disk.path], *owner):
            result = self._session.node.run(Command(argv))
            if result.code != 0:
                raise TrialError(f"the disk '{disk.serial}' of a guest cannot be given to user {account}: {result.err.strip()}")
        return disk


SOCKETS = "/run/pgherd-sockets"
"""Directory of the servers' Unix sockets in a guest."""


@dataclass(frozen=True)
class BootedGuest:
    """Running guest: its boot images, its virtual machine, and the guest as a node.

    ``seconds`` has the durations of "packing the disk", "booting" and "first answer of the agent".
    """

    images: BootImages
    machine: VirtualMachine
    node: Node
    seconds: Mapping[str, float]


class Guests:
    """Guests of a run. Each server has a separate port and data disk. The disk is created again each time its guest
    is restored.
    """

    def __init__(
        self,
        session: RunSession,
        installations: Mapping[str, Installation],
        templates: Templates,
        volumes: Volumes,
        watcher: RunObserver,
        how: BootOptions = DEFAULT_BOOT,
    ) -> None:
        self._session, self._installations, self._watcher, self._how = session, installations, watcher, how
        self._booted: dict[str, BootedGuest] = {}
        self._images: dict[tuple[str, ...], BootImages] = {}
        self._access: dict[ServerKey, tuple[TcpAccess, str]] = {}
        self._devices: dict[str, dict[str, str]] = {}
        self._disks = GuestDisks(session, templates, volumes, watcher)
        self._names = itertools.count(1)

    def restore(
        self, requested: Mapping[ServerKey, tuple[Container, Server]], handles: Mapping[str, ContainerHandle], deployment: Deployment
    ) -> tuple[dict[ServerKey, Instance], dict[str, ContainerHandle]]:
        """Boot each container's guest with fresh disks. Return the servers, not started, and the container handles with their nodes.

        Raises:
            TrialError: a guest does not boot, or a disk cannot be packed.
            CapabilityError: a requirement of guests is missing, or there is too little disk space.
        """
        if not requested:
            return {}, {}
        by_container: dict[str, tuple[Container, list[ServerKey]]] = {}
        for key, (container, _) in requested.items():
            by_container.setdefault(key[0], (container, []))[1].append(key)
        servers = {key: server for key, (_, server) in requested.items()}
        entered = self._boot(by_container, servers, handles, deployment)
        instances: dict[ServerKey, Instance] = {}
        for name, (_, keys) in by_container.items():
            for number, key in enumerate(keys):
                instances[key] = self._instance(key, servers[key], number, self._booted[name].node)
        passwords = str(self._session.work / "passwords")
        tcp_access.write_password_file(passwords, list(self._access.values()), self._session.account)
        return instances, entered

    def boot_without_server(self, container: Container, handle: ContainerHandle) -> ContainerHandle:
        """Boot a guest without servers, in which the programs of the run's first installation are present. Raises as ``restore``."""
        return self._boot({container.name: (container, [])}, {}, {container.name: handle}, Deployment(hosts=()))[container.name]

    def booted(self, container: str) -> BootedGuest:
        """Return a container's guest. Raises TrialError if it does not run."""
        if container not in self._booted:
            raise TrialError(f"container {container} has no running guest")
        return self._booted[container]

    def _boot(
        self,
        by_container: Mapping[str, tuple[Container, Sequence[ServerKey]]],
        servers: Mapping[ServerKey, Server],
        handles: Mapping[str, ContainerHandle],
        deployment: Deployment,
    ) -> dict[str, ContainerHandle]:
        """Boot the containers' guests with fresh disks, all at the same time."""
        runtime, node = self._runtime, self._session.node
        disks: dict[str, list[Disk]] = {}
        packing: dict[str, float] = {}
        images = {name: self.images_for([servers[key] for key in keys]) for name, (_, keys) in by_container.items()}
        for name, (_, keys) in by_container.items():
            began = time.monotonic()
            runtime.end(name)  # no process may have the old disks open
            disks[name] = self._disks.furnish(name, {key: servers[key] for key in keys}, deployment, images[name].root.account)
            packing[name] = time.monotonic() - began
        # Drop cached boot images, or their page cache stays charged to a removed guest or to the first guest of an earlier trial.
        clones.drop_cache(node, sorted({path for image in images.values() for path in (image.root.path, image.boot, image.initrd)}))
        for name, (container, keys) in by_container.items():
            sockets = self._session.sockets / f"v{next(self._names)}"
            node.make_dir(str(sockets), mode=0o700, user=self._session.account)
            runtime.boot(container, handles[name], images[name], disks[name], str(sockets), len(keys), self._session.account, self._how)
        self._watcher.setup(f"booting {len(by_container)} guests ({next(iter(self._images.values())).hypervisor.sentence()})")
        entered: dict[str, ContainerHandle] = {}
        for name in by_container:
            began = time.monotonic()
            try:
                guest_node = runtime.connect(name, self._how.timeout_s)
            except OSError as error:
                machine = runtime.machines()[name]
                if machine.ended():
                    raise TrialError(f"guest {name} {machine.ending()} while it booted; {machine.last_words()}") from None
                raise TrialError(f"guest {name} does not respond: {error}") from None
            self._devices[name] = devices(guest_node)
            entered[name] = replace(handles[name], node=guest_node, clock=guest_node.clock, balloons=runtime.balloons)
            machine = runtime.machines()[name]
            answer = max(time.monotonic() - began - machine.boot_seconds, 0.0)
            seconds = {"packing the disk": packing[name], "booting": machine.boot_seconds, "first answer of the agent": answer}
            self._booted[name] = BootedGuest(images[name], machine, guest_node, seconds)
        return entered

    def views(self) -> list[GuestView]:
        if not self._booted:
            return []
        return [
            GuestView(name, machine.pid, machine.guest.memory, self._drives(name), machine.guest.merge)
            for name, machine in self._runtime.machines().items()
            if machine.running
        ]

    def _drives(self, container: str) -> list[GuestDrive]:
        device_of = self._devices.get(container, {})
        return [
            GuestDrive(owned.disk.serial, device_of.get(owned.disk.serial, ""), owned.disk.path, owned.role, "/".join(owned.server))
            for owned in self._disks.of(container)
        ]

    def readings(self) -> dict[str, dict[str, float]]:
        """Return whether each guest's processors are emulated, by entity."""
        if not self._booted:
            return {}
        machines = self._runtime.machines()
        return {
            f"guest:{name}": {EMULATED_METRIC: float(machine.hypervisor.functional_only)}
            for name, machine in machines.items()
            if name in self._disks
        }

    def check(self) -> None:
        """Raise TrialError, with the end of its console, if a guest has ended or does not respond."""
        for name, machine in self._runtime.machines().items() if self._booted else ():
            if not machine.running or (name in self._runtime.lost() and machine.ended()):
                raise TrialError(f"guest {name} {machine.ending()} during the trial; {machine.last_words()}")
        if mute := self.mute():
            raise TrialError(f"guest {', '.join(mute)} stopped responding, though its virtual machine runs: it is frozen or out of memory")

    def mute(self) -> list[str]:
        """Return containers whose guests run but left the last request unanswered."""
        return self._runtime.mute() if self._booted else []

    def oom_kills(self, container: str) -> str:
        """Describe the OOM kills of a container's guest, with a remedy; '' if there are none or it is not a guest."""
        machine = self._runtime.machines().get(container) if self._booted else None
        killed = machine.oom_kills() if machine is not None else []
        if not killed:
            return ""
        names = ", ".join(sorted(set(killed)))
        return (
            f"guest {container} ran out of memory, and its kernel killed {processes.counted(len(killed))} in it ({names}): raise --memory, "
            "or lower --scale or --set shared_buffers"
        )

    def kills(self) -> tuple[OomKill, ...]:
        """Return the OOM kills by the guests' kernels since boot. A guest is booted again after such a trial (``mark_unhealthy``)."""
        now = self._session.node.now()
        machines = self._runtime.machines() if self._booted else {}
        killed = {name: machine.oom_kills() for name, machine in machines.items()}
        return tuple(
            OomKill(container=name, processes=len(victims), time=now, names=tuple(sorted(set(victims))), limit="container")
            for name, victims in killed.items()
            if victims
        )

    def end(self, containers: Iterable[str]) -> None:
        """End the guests among these containers, after their servers have stopped. That frees their memory."""
        for container in containers:
            if container in self._disks:
                self._runtime.end(container)

    def forget(self, container: str) -> None:
        """Remove a container's guest and disks."""
        self._access = {key: access for key, access in self._access.items() if key[0] != container}
        self._booted.pop(container, None)
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

    def images_for(self, servers: Sequence[Server]) -> BootImages:
        """Return boot images for a guest with these servers: their PostgreSQL, and directories of further modules.

        Without servers the images contain the run's first installation.
        """
        if len({server.bin for server in servers}) > 1:
            raise CapabilityError("servers of different PostgreSQL installations cannot share a guest; give each a separate container")
        bin_ = servers[0].bin if servers else next(iter(self._installations))
        image_key = (bin_, *sorted({directory for server in servers for directory in _module_directories(server)}))
        if image_key not in self._images:
            scratch = self._session.work / f"images-{len(self._images)}"
            self._session.node.make_dir(str(scratch), mode=0o755)
            self._images[image_key] = boot_images.build(
                self._session.node,
                self._installations[bin_],
                self._session.account,
                str(self._session.cache),
                str(scratch),
                extra=image_key[1:],
                accelerator=self._how.accelerator,
                say=self._watcher.setup,
            )
        return self._images[image_key]

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
            account=self.images_for([server]).root.account,
            name="/".join(key),
            access=access,
        )


def _module_directories(server: Server) -> list[str]:
    """Return directories of this machine from which the server loads further modules; they must exist in its guest too."""
    return [path for path in server.settings.get("dynamic_library_path", "").split(":") if path.startswith("/")]
