"""Files of servers on volumes of the user's: checked before anything is begun, placed, and taken away again.

Whatever lies on a volume lies in one directory there that this run makes, marks as its own and removes; nothing else on
it is touched.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from pgherd.host import file_systems, mounts, paths
from pgherd.host.journal import Journal
from pgherd.host.undo import PREFIX
from pgherd.model.deployment import Deployment, Server, Volume
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Command, Node
from pgherd.postgres import disk
from pgherd.postgres.instance import Instance
from pgherd.postgres.relations import Spaces, create

VOLUME_RESERVE = 256 * 2**20
"""Bytes that must stay free on a volume."""
TEMP_BYTES = 256 * 2**20
"""Room that a server's temporary files are given."""
_FIRST_SEGMENTS = 64 * 2**20
_WRITTEN = 2**30


def wal_bytes(servers: int, read_only: bool) -> int:
    """Disk that so many servers' WAL may take, bytes: the first segments, and what writing fills in a trial's time."""
    return servers * (_FIRST_SEGMENTS + (0 if read_only else _WRITTEN))


def check_directory(
    node: Node, directory: str, account: str | None, needed: int, option: str = "--volume", what: str = "what is to lie there"
) -> int:
    """Insist on a directory in which files of a run can lie, and return the bytes that are free there; nothing is made.

    Raises:
        UsageError: it is not there, is no directory, or holds too little.
        CapabilityError: we cannot make a directory in it, or the ``account`` cannot enter it.
    """
    if not node.exists(directory):
        raise UsageError(f"{option} {directory} does not exist; make the directory, or name another one")
    if node.run(Command(["test", "-d", directory])).code != 0:
        raise UsageError(f"{option} {directory} is not a directory; name the one below which {what} may lie")
    if node.run(Command(["test", "-w", directory, "-a", "-x", directory])).code != 0:
        mount = mounts.mount_of(node, os.path.realpath(directory))
        why = f" ({mount.target} is mounted read-only)" if mount is not None and mount.read_only else ""
        raise CapabilityError(f"{option} {directory} cannot be written to{why}; make it writable, or name another directory")
    blocked = paths.unreachable(directory, account)
    if blocked is not None:
        raise CapabilityError(f"{option} {directory}: servers run as '{account}', which cannot enter {blocked}; name another directory")
    free = disk.free_bytes(node, directory)
    if free < needed + VOLUME_RESERVE:
        raise UsageError(
            f"{option} {directory} has {format_bytes(free)} free, but {what} may need {format_bytes(needed)} and "
            f"{format_bytes(VOLUME_RESERVE)} are to stay free; make room, or name another directory"
        )
    return free


def same_device(node: Node, one: str, other: str) -> bool:
    """Whether two directories lie on one file system; what does not exist yet is judged by the directory around it."""
    return _device(node, one) == _device(node, other)


def _device(node: Node, directory: str) -> str:
    while not node.exists(directory) and directory not in ("/", ""):
        directory = os.path.dirname(directory)
    return node.run(Command(["stat", "--format=%d", "--", directory])).out.strip()


def used_by(server: Server, deployment: Deployment) -> dict[str, Volume]:
    """Role → volume of what a server keeps apart from its work directory."""
    volumes = {volume.name: volume for volume in deployment.volumes}
    return {role: volumes[name] for role, name in server.volumes.items()}


def spread_over(server: Server, deployment: Deployment) -> tuple[Volume, ...]:
    """The volumes over which a server's tables and indexes are spread."""
    volumes = {volume.name: volume for volume in deployment.volumes}
    return tuple(volumes[name] for name in server.tablespaces)


class Volumes:
    """This run's directories on volumes: one per volume, made when the first server or load needs it, the volume too if it is one
    that pgherd makes."""

    def __init__(self, node: Node, journal: Journal, account: str | None, work: str = "") -> None:
        """``account`` owns the servers' files; ``work`` is the run's own directory, in which volumes are mounted."""
        self._node, self._journal, self._account, self._work = node, journal, account, work
        self._roots: dict[str, str] = {}
        self._mounted: dict[str, str] = {}
        self._spaces: dict[str, Spaces] = {}

    def home(self, volume: Volume, name: str) -> str:
        """The directory in which a server's data are to be put on a volume; raises as ``place``."""
        return self._server(volume, name)

    def place(self, volumes: Mapping[str, Volume], data_dir: str, name: str, tablespaces: Sequence[Volume] = ()) -> tuple[str, ...]:
        """Move the parts of a stopped server's cluster to where its ``volumes`` (role → volume) are; returns what to ``remove``.
        Directories for temporary files and ``tablespaces`` are made, and used once the server runs (``populate``). Its data must
        lie in their ``home`` already.

        ``name`` names the server's directories and must not have been used before.

        Raises:
            UsageError: a kind or role of volume that cannot be had.
            CapabilityError: the volume is not there any more.
            TrialError: it cannot be moved.
        """
        for role, volume in volumes.items():
            if volume.kind == "directory" and volume.path is None:
                raise UsageError(f"volume '{volume.name}' names no directory, so a server's {role} cannot lie on it")
        made: tuple[str, ...] = ()
        try:
            for role, volume in volumes.items():
                directory = self._server(volume, name)
                made = (*made, directory)
                if role == "wal":
                    disk.move_wal(self._node, data_dir, directory)
            temp = volumes.get("temp")
            spaces = Spaces(
                temp=None if temp is None else self._space(temp, name, "temp"),
                data=tuple(self._space(volume, name, "space") for volume in tablespaces),
            )
            made = (*made, *(self._server(volume, name) for volume in tablespaces))
            if spaces != Spaces():
                self._spaces[data_dir] = spaces
        except BaseException:
            self.remove(made)
            raise
        return made

    def directory(self, volume: Volume) -> str:
        """A directory on the volume for a driver's files, owned by the servers' account; the same for every trial of the run.

        Raises:
            UsageError: a device that is not empty.
            CapabilityError: the volume is not there any more, or cannot be made.
        """
        directory = f"{self._root(volume)}/{volume.name}-load"
        self._node.make_dir(directory, mode=0o700, user=self._account)
        return directory

    def check(self) -> None:
        """Raise TrialError where a volume of ours is not mounted any more."""
        for target in self._mounted.values():
            file_systems.still_there(self._node, target)

    def populate(self, instance: Instance, databases: Sequence[str]) -> None:
        """Make the tablespaces of a server that has been placed and started, and spread its databases over them; once.

        Raises:
            psycopg.Error: the server refuses it.
        """
        spaces = self._spaces.pop(instance.data_dir, None)
        if spaces is not None:
            create(instance, databases, spaces)

    def _server(self, volume: Volume, name: str) -> str:
        directory = f"{self._root(volume)}/{name}"
        self._node.make_dir(directory, mode=0o700, user=self._account)
        return directory

    def _space(self, volume: Volume, name: str, what: str) -> str:
        directory = f"{self._server(volume, name)}/{what}"
        self._node.make_dir(directory, mode=0o700, user=self._account)
        return directory

    def remove(self, directories: tuple[str, ...]) -> None:
        """Remove what ``place`` made for one server."""
        for directory in dict.fromkeys(directories):
            self._node.remove_tree(directory)

    def _root(self, volume: Volume) -> str:
        """The run's directory on a volume, made at the first call."""
        at = volume.path if volume.kind == "directory" else volume.model_dump_json()
        assert at is not None
        if at not in self._roots:
            self._roots[at] = self._marked(at) if volume.kind == "directory" else self._made(volume, at)
        return self._roots[at]

    def _marked(self, path: str) -> str:
        """A directory of ours in an existing one."""
        if not self._node.exists(path):  # to make it would be to put files where nobody wanted them
            raise CapabilityError(f"{path}, which was to hold files of this run, is not there any more")
        root = f"{path.rstrip('/')}/{PREFIX}volume-{self._journal.id[:8]}"
        if not self._node.exists(root):
            self._journal.make_tree(root, mode=0o711)
        return root

    def _made(self, volume: Volume, at: str) -> str:
        """A directory on a file system that is made for this run."""
        home = self._marked(volume.path or self._work) if volume.kind == "loop" else self._marked(self._work)
        # Two deployments of one run may call different volumes by the same name.
        name = volume.name if not self._node.exists(f"{home}/{volume.name}") else f"{volume.name}-{len(self._mounted)}"
        if volume.kind == "loop":
            assert volume.size is not None
            target = file_systems.make_loop(self._node, self._journal, home, name, volume.size)
        else:
            assert volume.path is not None
            target = file_systems.make_on_device(self._node, self._journal, home, name, volume.path)
        self._mounted[at] = target
        self._node.make_dir(f"{target}/files", mode=0o711)
        return f"{target}/files"
