"""Servers' files on the user's volumes: checked before the run, placed, and removed again.

All files on a volume are in one marked directory that this run creates and removes. Everything outside it is left
unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from pgherd.host import file_systems, paths, storage
from pgherd.host.journal import Journal
from pgherd.host.undo_actions import PREFIX
from pgherd.model.deployment import Deployment, Server, Volume
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.units import format_bytes
from pgherd.node.files import trusted
from pgherd.node.protocol import Command, Node
from pgherd.postgres import disk_space
from pgherd.postgres.instance import Instance
from pgherd.postgres.relation_files import TablespaceDirs, create

VOLUME_RESERVE = 256 * 2**20
"""Bytes that must stay free on a volume."""
TEMP_BYTES = 256 * 2**20
"""Bytes for a server's temporary files."""
_FIRST_SEGMENTS_BYTES = 64 * 2**20
WRITTEN_BYTES = 2**30
"""Bytes that the trials of a load that writes may add to a server."""


def wal_bytes(servers: int, read_only: bool) -> int:
    """Return the bytes that these servers' WAL may take: the first segments, and what a writing trial fills."""
    return servers * (_FIRST_SEGMENTS_BYTES + (0 if read_only else WRITTEN_BYTES))


def check_directory(node: Node, directory: str, account: str | None, needed: int, option: str = "--volume", what: str = "its files") -> int:
    """Require a directory that can hold files of a run. Return its free bytes. Nothing is created.

    Raises:
        UsageError: it does not exist, is not a directory, or has too little space.
        CapabilityError: it is not writable, or the ``account`` cannot enter it.
    """
    if not node.exists(directory):
        raise UsageError(f"{option} {directory} does not exist; create it, or choose another directory")
    if node.run(Command(["test", "-d", directory])).code != 0:
        raise UsageError(f"{option} {directory} is not a directory; choose the directory for {what}")
    if node.run(Command(["test", "-w", directory, "-a", "-x", directory])).code != 0:
        mount = storage.mount_of(node, os.path.realpath(directory))
        reason = f" ({mount.target} is mounted read-only)" if mount is not None and mount.read_only else ""
        raise CapabilityError(f"{option} {directory} cannot be written to{reason}; make it writable, or choose another directory")
    blocked = paths.unreachable(directory, account)
    if os.geteuid() == 0 and not trusted(directory, 0, inside=True):
        raise CapabilityError(
            f"{option} {directory}: it or a directory above it belongs to another user, or others may write to it, so they could "
            "exchange files of this run for links that root follows; choose a directory of root"
        )
    if blocked is not None:
        raise CapabilityError(f"{option} {directory}: servers run as '{account}', which cannot enter {blocked}; choose another directory")
    free = disk_space.free_bytes(node, directory)
    if free < needed + VOLUME_RESERVE:
        raise UsageError(
            f"{option} {directory} has {format_bytes(free)} free, but {what} may need {format_bytes(needed)} and "
            f"{format_bytes(VOLUME_RESERVE)} must stay free; free some space, or choose another directory"
        )
    return free


def wal_directories(directories: Sequence[str]) -> list[str]:
    """Return the WAL directories in directories that ``Volumes.place`` returned."""
    return [path for path in (f"{directory}/pg_wal" for directory in dict.fromkeys(directories)) if os.path.lexists(path)]


def same_device(node: Node, first: str, second: str) -> bool:
    """Return whether two directories are on one file system. For a missing one, its nearest existing parent counts."""
    return device_of(node, first) == device_of(node, second)


def device_of(node: Node, directory: str) -> str:
    """Return the number of the file system of a directory, or of its nearest existing parent."""
    while not node.exists(directory) and directory not in ("/", ""):
        directory = os.path.dirname(directory)
    return node.run(Command(["stat", "--format=%d", "--", directory])).out.strip()


def used_by(server: Server, deployment: Deployment) -> dict[str, Volume]:
    """Return role → volume of the parts that a server keeps outside its work directory."""
    volumes = {volume.name: volume for volume in deployment.volumes}
    return {role: volumes[name] for role, name in server.volumes.items()}


def spread_over(server: Server, deployment: Deployment) -> tuple[Volume, ...]:
    """Return the volumes over which a server's tables and indexes are spread."""
    volumes = {volume.name: volume for volume in deployment.volumes}
    return tuple(volumes[name] for name in server.tablespaces)


class Volumes:
    """This run's directories on volumes, one per volume.

    A directory, and a volume that pgherd creates, is made when the first server or load needs it.
    """

    def __init__(self, node: Node, journal: Journal, account: str | None, work: str = "") -> None:
        """Args:
        account: owner of the servers' files.
        work: the run's directory, in which volumes are mounted.
        """
        self._node, self._journal, self._account, self._work = node, journal, account, work
        self._roots: dict[str, str] = {}
        self._mounted: dict[str, str] = {}
        self._spaces: dict[str, TablespaceDirs] = {}

    def home(self, volume: Volume, name: str) -> str:
        """Return the directory for a server's data on a volume. Raises as ``place``."""
        return self._server_directory(volume, name)

    def place(self, volumes: Mapping[str, Volume], data_dir: str, name: str, tablespaces: Sequence[Volume] = ()) -> tuple[str, ...]:
        """Move parts of a stopped server's cluster to its ``volumes`` (role → volume). Return the directories for
        ``remove``.

        The cluster must still belong to the current user. ``wal_directories`` then names what ``clones.give`` must give away.
        Directories for temporary files and ``tablespaces`` are created here and used once the server runs
        (``populate``). The server's data must already be in their ``home``. ``name`` names the server's directories
        and must not have been used before.

        Raises:
            UsageError: an impossible kind or role of volume.
            CapabilityError: the volume is gone.
            TrialError: a part cannot be moved.
        """
        for role, volume in volumes.items():
            if volume.kind == "directory" and volume.path is None:
                raise UsageError(f"volume '{volume.name}' has no directory, so it cannot hold a server's {role}")
        created: tuple[str, ...] = ()
        try:
            for role, volume in volumes.items():
                directory = self._server_directory(volume, name)
                created = (*created, directory)
                if role == "wal":
                    disk_space.move_wal(self._node, data_dir, directory)
            temp = volumes.get("temp")
            spaces = TablespaceDirs(
                temp=None if temp is None else self._space_directory(temp, name, "temp"),
                data=tuple(self._space_directory(volume, name, "space") for volume in tablespaces),
            )
            created = (*created, *(self._server_directory(volume, name) for volume in tablespaces))
            if spaces != TablespaceDirs():
                self._spaces[data_dir] = spaces
        except BaseException:
            self.remove(created)
            raise
        return created

    def directory(self, volume: Volume) -> str:
        """Return a directory on the volume for a driver's files, owned by the servers' user. It is the same for every
        trial of the run.

        Raises:
            UsageError: the device is not empty.
            CapabilityError: the volume is gone, or cannot be created.
        """
        directory = f"{self._root(volume)}/{volume.name}-load"
        self._node.make_dir(directory, mode=0o700, user=self._account)
        return directory

    def check(self) -> None:
        """Raise TrialError if a volume that this run mounted is no longer mounted."""
        for target in self._mounted.values():
            file_systems.still_there(self._node, target)

    def populate(self, instance: Instance, databases: Sequence[str]) -> None:
        """Create the tablespaces of a placed and started server, and spread its databases over them, once.

        Raises:
            psycopg.Error: the server refuses it.
        """
        spaces = self._spaces.pop(instance.data_dir, None)
        if spaces is not None:
            create(instance, databases, spaces)

    def _server_directory(self, volume: Volume, name: str) -> str:
        """Return a server's directory. The servers' user can enter it, and owns only directories in it."""
        directory = f"{self._root(volume)}/{name}"
        self._node.make_dir(directory, mode=0o711)
        return directory

    def _space_directory(self, volume: Volume, name: str, kind: str) -> str:
        directory = f"{self._server_directory(volume, name)}/{kind}"
        self._node.make_dir(directory, mode=0o700, user=self._account)
        return directory

    def remove(self, directories: tuple[str, ...]) -> None:
        """Remove the directories that ``place`` created for one server."""
        for directory in dict.fromkeys(directories):
            self._node.remove_tree(directory)

    def _root(self, volume: Volume) -> str:
        """Return the run's directory on a volume, created at the first call."""
        key = volume.path if volume.kind == "directory" else volume.model_dump_json()
        assert key is not None
        if key not in self._roots:
            self._roots[key] = self._marked_directory(key) if volume.kind == "directory" else self._new_file_system(volume, key)
        return self._roots[key]

    def _marked_directory(self, path: str) -> str:
        """Return a marked directory of this run in an existing one."""
        if not self._node.exists(path):  # creating it could put files on a different file system
            raise CapabilityError(f"{path}, which holds files of this run, is gone")
        root = f"{path.rstrip('/')}/{PREFIX}volume-{self._journal.id[:8]}"
        if not self._node.exists(root):
            self._journal.make_tree(root, mode=0o711)
        return root

    def _new_file_system(self, volume: Volume, key: str) -> str:
        """Return a directory on a file system created for this run."""
        home = self._marked_directory(volume.path or self._work) if volume.kind == "loop" else self._marked_directory(self._work)
        # Two deployments of one run may give different volumes the same name.
        name = volume.name if not self._node.exists(f"{home}/{volume.name}") else f"{volume.name}-{len(self._mounted)}"
        if volume.kind == "loop":
            assert volume.size is not None
            target = file_systems.make_loop(self._node, self._journal, home, name, volume.size)
        else:
            assert volume.path is not None
            target = file_systems.make_on_device(self._node, self._journal, home, name, volume.path)
        self._mounted[key] = target
        self._node.make_dir(f"{target}/files", mode=0o711)
        return f"{target}/files"
