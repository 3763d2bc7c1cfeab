"""The disks of servers in guests: data packed from a golden copy, and what is to lie apart on disks of its own.

A disk is a sparse image on this machine: below the run's work directory, or on the volume that the server's data, WAL, temporary files
or tablespaces were asked to lie on. In the guest each is a virtio disk with a file system, mounted beside that of the data.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pgherd.host import direct_io
from pgherd.model.deployment import Deployment, Role, Server, Volume
from pgherd.model.errors import TrialError
from pgherd.model.units import parse_bytes
from pgherd.node.protocol import Command, Node
from pgherd.postgres import clones
from pgherd.postgres.disk import check_space
from pgherd.postgres.instance import Instance
from pgherd.postgres.relations import Spaces, create
from pgherd.runner.deploy.housing import Goldens
from pgherd.runner.deploy.transition import ServerKey
from pgherd.runner.deploy.volumes import Volumes, spread_over, used_by
from pgherd.runner.session import Session
from pgherd.runner.watcher import Watcher
from pgherd.runtimes.vm import disk_image
from pgherd.runtimes.vm.qemu import Disk

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
