"""Kinds of undo, one for each kind of host change.

An undo is noted in the journal before its change. Therefore it has no effect if the change was never made, and it may be
repeated. ``play`` describes its action in a sentence, or returns None if there was nothing to do. It raises OSError if
something remains.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import re
import uuid
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, TypeAdapter, field_validator

from pgherd.host import processes, shared_memory, shared_settings, storage, swap_areas
from pgherd.model.base import Model
from pgherd.node.files import Directory, UnsafeFileError
from pgherd.node.protocol import Command, Node

MARKER = ".pgherd"
"""Name of the file with the identifier of the journal that a directory belongs to."""
PREFIX = "pgherd-"
"""Prefix of the cgroups that pgherd creates, and of its directories on a user's volume."""
PROGRAMS = ("postgres", "pgbench", "psql", "initdb", "cp", "fio")
"""Programs that pgherd starts in its directories. Others there, such as a user's shell, are left running."""

_MAX_MARKER_BYTES = 100
_END_TIMEOUT_S = 5.0
_UNMOUNT_TIMEOUT_S = 10.0
"""Servers and drivers end with their pgherd, but take a moment, during which a mount is busy."""


@dataclass(frozen=True)
class UndoContext:
    """Context of an undo: node, identifier of the journal, no boot since the change."""

    node: Node
    journal: str
    same_boot: bool = True


def absolute(path: str) -> str:
    """Return the path.

    Raises ValueError unless it is absolute and normalised, and not the root.
    """
    if not path.startswith("/") or posixpath.normpath(path) != path or path == "/":
        raise ValueError(f"'{path}' is not a plain absolute path")
    return path


def _created(path: str) -> str:
    if not any(part.startswith(PREFIX) for part in absolute(path).split("/")):
        raise ValueError(f"'{path}' is not in a directory or cgroup that pgherd created")
    return path


AbsolutePath = Annotated[str, AfterValidator(absolute)]
CreatedPath = Annotated[str, AfterValidator(_created)]
"""Path in a directory or cgroup that pgherd created, as its name shows."""


class Kill(Model):
    """Kill the process that started at ``start`` (clock ticks since boot)."""

    rank: ClassVar[int] = 0
    kind: Literal["kill"] = "kill"
    pid: int = Field(gt=1)
    start: int

    def play(self, scene: UndoContext) -> str | None:
        node = scene.node
        if not scene.same_boot or processes.start_time(node, self.pid) != self.start:
            return None
        processes.kill(node, [self.pid])
        if not processes.wait_until(lambda: processes.start_time(node, self.pid) != self.start):
            raise OSError(f"process {self.pid} does not end on SIGKILL")
        return f"ended process {self.pid}"


class RemoveCgroup(Model):
    """Kill all processes in cgroups and remove the groups, including those below."""

    rank: ClassVar[int] = 1
    kind: Literal["remove_cgroup"] = "remove_cgroup"
    paths: tuple[CreatedPath, ...]

    def play(self, scene: UndoContext) -> str | None:
        node = scene.node
        present = [path for path in self.paths if node.exists(f"{path}/cgroup.procs")]
        groups = [group for path in present for group in _subtree(node, path)]
        killed = _kill_all(node, present, groups)
        for group in reversed(groups):  # innermost groups first
            _remove_group(node, group)
        if not groups:
            return None
        return f"removed cgroup {present[0]}" + (f" and ended {processes.counted(killed)} in it" if killed else "")


class RestoreSubtree(Model):
    """Disable controllers of a v2 group and move its processes back out of the leaf.

    The processes in the leaf are left running, because they started pgherd.
    """

    rank: ClassVar[int] = 1
    kind: Literal["restore_subtree"] = "restore_subtree"
    group: str
    controllers: tuple[str, ...]
    leaf: str | None = None

    def play(self, scene: UndoContext) -> str | None:
        """Without effect after a boot, which resets the controllers. Those that other programs use by now stay enabled.

        Raises OSError while another run needs the controllers, or other programs prevent the move.
        """
        node = scene.node
        if not scene.same_boot or not node.exists(f"{self.group}/cgroup.procs"):
            return None
        others = [name for name in node.listdir(self.group) if name.startswith(PREFIX) and f"{self.group}/{name}" != self.leaf]
        if any(node.exists(f"{self.group}/{name}/cgroup.procs") for name in others):
            raise OSError(f"cgroup {self.group} holds the groups of another run; run 'pgherd clean' after the end of that run")
        enabled = node.read(f"{self.group}/cgroup.subtree_control").decode().split()
        disabled = {name: self._disable(node, name) for name in self.controllers if name in enabled}
        if self.leaf and node.exists(f"{self.leaf}/cgroup.procs"):
            if not all(disabled.values()):  # a group with controllers for its children takes no processes
                raise OSError(
                    f"groups of another program in cgroup {self.group} use its controllers, so processes stay in {self.leaf}; "
                    "run 'pgherd clean' after the end of that program"
                )
            for pid in _pids(node, self.leaf):
                _move(node, pid, self.group)
            _remove_group(node, self.leaf)
        elif not any(disabled.values()):
            return None
        return f"restored cgroup {self.group}"

    def _disable(self, node: Node, controller: str) -> bool:
        """Return False if the kernel refuses it, because a group of another program has enabled the controller too."""
        try:
            node.write(f"{self.group}/cgroup.subtree_control", f"-{controller}".encode())
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return False
        return True


class ReleaseSetting(Model):
    """Release a run's hold on a shared kernel setting (see pgherd.host.shared_settings)."""

    rank: ClassVar[int] = 2
    kind: Literal["give_back"] = "give_back"
    key: str

    @classmethod
    def for_journal(cls, journal: str) -> ReleaseSetting:
        """Return an undo with a new key, for a journal's identifier."""
        return cls(key=f"{journal}-{uuid.uuid4().hex[:8]}")

    def play(self, scene: UndoContext) -> str | None:
        """Without effect after a boot, which empties the ledger."""
        return "; ".join(shared_settings.give_back(scene.node, self.key)) or None if scene.same_boot else None


class ReleaseSharedMemory(Model):
    """Remove the shared memory of a killed server, and kill its other users."""

    rank: ClassVar[int] = 3
    kind: Literal["release_shared_memory"] = "release_shared_memory"
    data_directory: str

    def play(self, scene: UndoContext) -> str | None:
        """Without effect after a boot, which removes all shared memory."""
        return shared_memory.release(scene.node, self.data_directory) if scene.same_boot else None


class RemoveZram(Model):
    """Remove this run's compressed swap, recognised by the UUID ``mark``.

    By the time of the undo, its number may belong to another device. A device with another size or header stays.
    """

    rank: ClassVar[int] = 4
    kind: Literal["remove_zram"] = "remove_zram"
    device: int = Field(ge=0)
    mark: str
    size: int = Field(gt=0)

    def play(self, scene: UndoContext) -> str | None:
        """Without effect after a boot, which removes all zram devices."""
        return swap_areas.remove_zram(scene.node, self.device, self.mark, self.size) if scene.same_boot else None


class RemoveSwapFile(Model):
    """Remove this run's swap file, whose name has the start of the journal's id."""

    rank: ClassVar[int] = 4
    kind: Literal["remove_swap_file"] = "remove_swap_file"
    path: AbsolutePath

    @field_validator("path")
    @classmethod
    def _is_swap_file(cls, path: str) -> str:
        if not re.fullmatch(rf"{PREFIX}[0-9a-f]{{8}}\.swap", posixpath.basename(path)):
            raise ValueError(f"'{path}' is not a name of pgherd's swap files")
        return path

    def play(self, scene: UndoContext) -> str | None:
        """After a boot, the file still exists but is not in use."""
        if posixpath.basename(self.path) != f"{PREFIX}{scene.journal[:8]}.swap":
            raise OSError(f"{self.path} does not belong to this run and stays")
        return swap_areas.remove_file(scene.node, self.path)


class Unmount(Model):
    """Unmount ``source`` at ``target``, in a directory that pgherd created."""

    rank: ClassVar[int] = 4
    kind: Literal["unmount"] = "unmount"
    target: CreatedPath
    source: str

    def play(self, scene: UndoContext) -> str | None:
        """Without effect after a boot.

        Raises OSError if another source is mounted at the target.
        """
        node = scene.node
        mount = storage.mount_at(node, self.target) if scene.same_boot else None
        if mount is None:
            return None
        if mount not in storage.mounts_of_device(node, self.source):
            raise OSError(f"{mount.source} is mounted at {self.target} and not {self.source}; it stays mounted")
        failure = ""

        def unmounted() -> bool:
            nonlocal failure
            failure = node.run(Command(("umount", "--", self.target))).err.strip()
            return storage.mount_at(node, self.target) is None

        if not processes.wait_until(unmounted, _UNMOUNT_TIMEOUT_S):
            raise OSError(
                f"{self.target} cannot be unmounted: {failure}; end the processes that use it ('fuser --mount {self.target}' lists them)"
            )
        return f"unmounted {self.target}"


class DetachLoop(Model):
    """Detach the loop devices of a file that pgherd created."""

    rank: ClassVar[int] = 4
    kind: Literal["detach_loop"] = "detach_loop"
    path: CreatedPath

    def play(self, scene: UndoContext) -> str | None:
        """Without effect after a boot, which detaches all loop devices."""
        devices = loops_on(scene.node, self.path) if scene.same_boot else []
        for device in devices:
            result = scene.node.run(Command(("losetup", "--detach", device)))
            if result.code and device in loops_on(scene.node, self.path):
                raise OSError(f"{device} on {self.path} cannot be detached: {result.err.strip()}")
        return f"detached {', '.join(devices)}" if devices else None


class WipeFileSystem(Model):
    """Erase the file system with UUID ``mark`` that this run created on a device."""

    rank: ClassVar[int] = 4
    kind: Literal["wipe_file_system"] = "wipe_file_system"
    device: str = Field(pattern=r"^/dev/.+")
    mark: str = Field(pattern=r"^[0-9a-f-]{36}$")

    def play(self, scene: UndoContext) -> str | None:
        """Zero the first megabyte, which has all signatures.

        This also applies after a boot, which the file system survives. The device may then have another name. Raises OSError
        if it is missing.
        """
        node, device = scene.node, self.device
        if not self._is_on(node, device):
            if node.exists(device) and scene.same_boot:
                return None
            device = node.run(Command(("blkid", "--uuid", self.mark))).out.strip()
            if not device or not self._is_on(node, device):
                if not node.exists(self.device):
                    raise OSError(
                        f"{self.device} is missing, and may have a file system of this run (UUID {self.mark}); attach it, then run 'pgherd "
                        "clean'; if it is gone for good, remove the file of this run in /var/lib/pgherd/journal"
                    )
                return None
        targets = [mount.target for mount in storage.mounts_of_device(node, device)]
        if targets:
            raise OSError(f"{device} is still mounted at {targets[0]}; unmount it, then run 'pgherd clean'")
        for argv in (
            ("dd", "if=/dev/zero", f"of={device}", "bs=1M", "count=1", "conv=fsync,nocreat", "status=none"),
            ("wipefs", "--all", "--quiet", "--", device),
        ):
            result = node.run(Command(argv))
            if result.code:
                raise OSError(f"{device} cannot be erased: {result.err.strip()}")
        return f"erased {device}"

    def _is_on(self, node: Node, device: str) -> bool:
        if not node.exists(device):
            return False
        probe = node.run(Command(("blkid", "--probe", "--output", "value", "--match-tag", "UUID", "--", device)))
        return probe.out.strip() == self.mark


class RemoveTree(Model):
    """Remove a directory that this run created.

    The directory itself must contain the marker file with the journal's identifier, and the file must be ours. The marker is
    written just after the directory, so it may be missing in an empty directory, and empty in one without other files. Before
    the removal, the directory is renamed to include the journal's identifier, because an interrupted removal may already have
    deleted the marker.
    """

    rank: ClassVar[int] = 5
    kind: Literal["remove_tree"] = "remove_tree"
    path: AbsolutePath

    def play(self, scene: UndoContext) -> str | None:
        """Raises OSError without this journal's marker, or with a mount inside."""
        node = scene.node
        renamed = f"{self.path}.removed-{scene.journal}"
        mounted = [target for path in (self.path, renamed) for target in storage.mounts_below(node, path)]
        if mounted:
            raise OSError(f"something is still mounted at {mounted[0]}, so {self.path} stays; unmount it first")
        if not node.exists(self.path) and not node.exists(renamed):
            return None
        if node.exists(self.path) and (marker := self._marker()) != scene.journal:
            if marker == "" and node.listdir(self.path) == [MARKER]:
                with Directory.open(self.path) as tree:
                    tree.remove(MARKER)
            if node.listdir(self.path):
                raise OSError(f"{self.path} has no {MARKER} file of this run, so it stays; remove it by hand if it is not needed")
            node.remove_dir(self.path)
        elif node.exists(self.path):
            end_in(node, self.path)
            result = node.run(Command(("mv", "-T", "--", self.path, renamed)))
            if result.code:
                raise OSError(f"{self.path} can't be renamed: {result.err.strip()}")
        node.remove_tree(renamed)
        return f"removed {self.path}"

    def _marker(self) -> str | None:
        """Return the text of the marker, or None without a marker that is ours."""
        try:
            with Directory.open(self.path) as tree:
                number = tree.own_descriptor(MARKER)
        except (OSError, UnsafeFileError):
            return None
        with open(number, "rb") as marker:
            return marker.read(_MAX_MARKER_BYTES).decode(errors="replace").strip()


Undo = (
    Kill
    | RemoveCgroup
    | RestoreSubtree
    | ReleaseSetting
    | ReleaseSharedMemory
    | RemoveZram
    | RemoveSwapFile
    | Unmount
    | DetachLoop
    | WipeFileSystem
    | RemoveTree
)
"""All kinds. By rank, swap is removed after the run's processes, and mounts before their directories."""

UNDO: TypeAdapter[Undo] = TypeAdapter(Annotated[Undo, Field(discriminator="kind")])


def end_in(node: Node, directory: str) -> None:
    """Wait for the programs in a directory of pgherd to end, then kill the others.

    They end with the pgherd that started them, but may take a moment.
    """

    def ended() -> bool:
        return not processes.working_in(node, directory, PROGRAMS)

    if not processes.wait_until(ended, _END_TIMEOUT_S):
        processes.kill(node, processes.working_in(node, directory, PROGRAMS))
        if not processes.wait_until(ended):
            raise OSError(f"processes in {directory} do not end on SIGKILL")


def _subtree(node: Node, path: str) -> list[str]:
    """Return the group and all groups below it, outermost first."""
    groups = [path]
    for name in node.listdir(path):
        if node.exists(f"{path}/{name}/cgroup.procs"):
            groups += _subtree(node, f"{path}/{name}")
    return groups


def _pids(node: Node, group: str) -> list[int]:
    try:
        return [int(pid) for pid in node.read(f"{group}/cgroup.procs").split() if pid != b"0"]
    except FileNotFoundError:
        return []


def _move(node: Node, pid: int, group: str) -> None:
    with contextlib.suppress(ProcessLookupError):  # the process has ended
        node.write(f"{group}/cgroup.procs", str(pid).encode())


def _kill_all(node: Node, tops: list[str], groups: list[str]) -> int:
    """Kill all processes of the groups, and return their number."""
    killed: set[int] = set()

    def emptied() -> bool:
        inside = {pid for group in groups for pid in _pids(node, group)}
        killed.update(inside)
        if os.getpid() in inside:
            raise OSError(f"this process runs inside cgroup {tops[0]}; run 'pgherd clean' from outside it")
        if inside:
            for top in tops:
                if node.exists(f"{top}/cgroup.kill"):  # v2 since Linux 5.14, includes concurrent forks
                    node.write(f"{top}/cgroup.kill", b"1")
            processes.kill(node, sorted({pid for group in groups for pid in _pids(node, group)}))
        return not inside

    if not processes.wait_until(emptied):
        raise OSError(f"processes in cgroup {tops[0]} do not end on SIGKILL")
    return len(killed)


def _remove_group(node: Node, group: str) -> None:
    """Remove a group, with retries: it stays busy briefly after its last process."""
    failure: OSError | None = None

    def removed() -> bool:
        nonlocal failure
        try:
            node.remove_dir(group)
        except FileNotFoundError:
            return True
        except OSError as error:
            failure = error
            return False
        return True

    if not processes.wait_until(removed):
        raise OSError(f"cgroup {group} can't be removed: {failure}")


def loops_on(node: Node, path: str) -> list[str]:
    """Return the loop devices of a file, as device files."""
    result = node.run(Command(("losetup", "--associated", path, "--noheadings", "--output", "NAME")))
    return result.out.split() if result.code == 0 else []
