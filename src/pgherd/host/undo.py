"""The kinds of undo: each says how one change of this host is taken back, and does it.

An undo may be played when the change was never made (the journal is written first) and more than once. ``play``
returns a sentence on what it did, or None when there was nothing to do; it raises OSError when something is left.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field, TypeAdapter, field_validator

from pgherd.host import holds, mounts, processes, shared_memory, swap_areas
from pgherd.host.undo_base import MARKER, PREFIX, Scene, absolute
from pgherd.host.undo_mounts import DetachLoop, Unmount, WipeFileSystem
from pgherd.model.base import Model
from pgherd.node.protocol import Command, Node

__all__ = ["MARKER", "PREFIX", "UNDO", "DetachLoop", "Scene", "Undo", "Unmount", "WipeFileSystem", "end_in"]

PROGRAMS = ("postgres", "pgbench", "psql", "initdb", "cp", "fio")
"""Programs that we start in directories of ours; whoever else stands there (somebody's shell) is left alone."""
_GRACE_SECONDS = 5.0


class Kill(Model):
    """End a process, if the pid still names the process that started at ``start`` (clock ticks since boot)."""

    rank: ClassVar[int] = 0
    kind: Literal["kill"] = "kill"
    pid: int = Field(gt=1)
    start: int

    def play(self, scene: Scene) -> str | None:
        """Send SIGKILL and wait for its end."""
        node = scene.node
        if not scene.same_boot or processes.start_time(node, self.pid) != self.start:
            return None
        processes.kill(node, [self.pid])
        if not processes.wait_until(lambda: processes.start_time(node, self.pid) != self.start):
            raise OSError(f"process {self.pid} does not end on SIGKILL")
        return f"ended process {self.pid}"


class RemoveCgroup(Model):
    """Remove control groups with all groups below them, after killing what runs in them."""

    rank: ClassVar[int] = 1
    kind: Literal["remove_cgroup"] = "remove_cgroup"
    paths: tuple[str, ...]

    @field_validator("paths")
    @classmethod
    def _ours(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        for path in paths:
            if not any(part.startswith(PREFIX) for part in absolute(path).split("/")):
                raise ValueError(f"'{path}' does not lie in a group that pgherd made")
        return paths

    def play(self, scene: Scene) -> str | None:
        """Kill, then remove the innermost groups first."""
        node = scene.node
        present = [path for path in self.paths if node.exists(f"{path}/cgroup.procs")]
        groups = [group for path in present for group in _subtree(node, path)]
        killed = _empty(node, present, groups)
        for group in reversed(groups):
            _remove_group(node, group)
        if not groups:
            return None
        return f"removed control group {present[0]}" + (f" and ended {processes.counted(killed)} in it" if killed else "")


class RestoreSubtree(Model):
    """Take our controllers from a v2 group and bring its processes back out of the leaf that they were moved into.

    Nothing is killed: the processes in the leaf are those that started pgherd.
    """

    rank: ClassVar[int] = 1
    kind: Literal["restore_subtree"] = "restore_subtree"
    group: str
    controllers: tuple[str, ...]
    leaf: str | None = None

    def play(self, scene: Scene) -> str | None:
        """Raises OSError while another run has its group here, which needs the controllers."""
        node = scene.node
        if not node.exists(f"{self.group}/cgroup.procs"):
            return None
        others = [name for name in node.listdir(self.group) if name.startswith(PREFIX) and f"{self.group}/{name}" != self.leaf]
        if any(node.exists(f"{self.group}/{name}/cgroup.procs") for name in others):
            raise OSError(f"control group {self.group} holds the groups of another run; 'pgherd clean' restores it once that has ended")
        enabled = node.read(f"{self.group}/cgroup.subtree_control").decode().split()
        ours = [name for name in self.controllers if name in enabled]
        if ours:
            node.write(f"{self.group}/cgroup.subtree_control", " ".join(f"-{name}" for name in ours).encode())
        if self.leaf and node.exists(f"{self.leaf}/cgroup.procs"):
            for pid in _pids(node, self.leaf):
                _move(node, pid, self.group)
            _remove_group(node, self.leaf)
        elif not ours:
            return None
        return f"restored control group {self.group}"


class Write(Model):
    """Write an earlier value back into a kernel knob."""

    rank: ClassVar[int] = 2
    kind: Literal["write"] = "write"
    path: str
    value: str

    def play(self, scene: Scene) -> str | None:
        """After a boot knobs are at their defaults, and are left alone."""
        if not scene.same_boot or not scene.node.exists(self.path):
            return None
        if scene.node.read(self.path).decode(errors="replace").strip() == self.value.strip():
            return None
        scene.node.write(self.path, self.value.encode())
        return f"wrote {self.value.strip()} back to {self.path}"


class GiveBack(Model):
    """Give back huge pages, or a word in a kernel setting, that this run holds beside others (see pgherd.host.holds)."""

    rank: ClassVar[int] = 2
    kind: Literal["give_back"] = "give_back"
    key: str

    def play(self, scene: Scene) -> str | None:
        """Nothing is held after a boot."""
        return "; ".join(holds.give_back(scene.node, self.key)) or None if scene.same_boot else None


class ReleaseSharedMemory(Model):
    """Remove the shared memory that a killed server of this data directory left, and end what still uses it."""

    rank: ClassVar[int] = 3
    kind: Literal["release_shared_memory"] = "release_shared_memory"
    data_directory: str

    def play(self, scene: Scene) -> str | None:
        """Nothing survives a boot."""
        return shared_memory.release(scene.node, self.data_directory) if scene.same_boot else None


class RemoveZram(Model):
    """Switch off and remove a compressed swap device that this journal's run made, known by the UUID ``mark`` in its header.

    The number may have been somebody else's before the journal was played: what has another size or header is left alone.
    """

    rank: ClassVar[int] = 4
    kind: Literal["remove_zram"] = "remove_zram"
    device: int = Field(ge=0)
    mark: str
    size: int = Field(gt=0)

    def play(self, scene: Scene) -> str | None:
        """Nothing of it survives a boot."""
        return swap_areas.remove_zram(scene.node, self.device, self.mark, self.size) if scene.same_boot else None


class RemoveSwapFile(Model):
    """Switch off and remove a swap file that this journal's run made; its name holds the beginning of the journal's."""

    rank: ClassVar[int] = 4
    kind: Literal["remove_swap_file"] = "remove_swap_file"
    path: str

    @field_validator("path")
    @classmethod
    def _ours(cls, path: str) -> str:
        if not re.fullmatch(rf"{PREFIX}[0-9a-f]{{8}}\.swap", posixpath.basename(absolute(path))):
            raise ValueError(f"'{path}' is not the name of a swap file that pgherd makes")
        return path

    def play(self, scene: Scene) -> str | None:
        """After a boot it is not in use, but still there."""
        if posixpath.basename(self.path) != f"{PREFIX}{scene.journal[:8]}.swap":
            raise OSError(f"{self.path} does not belong to this run; it is left alone")
        return swap_areas.remove_file(scene.node, self.path)


class RemoveTree(Model):
    """Remove a directory that this journal's run made.

    It, or a directory around it, must hold the marker file with the journal's identifier; an empty directory without
    one may go too (the marker is written just after the directory). Before anything in it is removed it gets a name that
    says whose it is: a removal cut short could have taken the marker first.
    """

    rank: ClassVar[int] = 5
    kind: Literal["remove_tree"] = "remove_tree"
    path: str

    @field_validator("path")
    @classmethod
    def _plain(cls, path: str) -> str:
        return absolute(path)

    def play(self, scene: Scene) -> str | None:
        """Refuses (OSError) what carries no marker of this journal."""
        node = scene.node
        doomed = f"{self.path}.removed-{scene.journal}"
        mounted = [target for path in (self.path, doomed) for target in mounts.below(node, path)]
        if mounted:
            raise OSError(f"something is still mounted at {mounted[0]}, so {self.path} is left alone; unmount it first")
        if not node.exists(self.path) and not node.exists(doomed):
            return None
        if node.exists(self.path) and not self._marked(scene):
            if node.listdir(self.path):
                raise OSError(
                    f"{self.path} carries no {MARKER} file of this run, so it is left alone; remove it by hand if it is not needed"
                )
            node.remove_dir(self.path)
        elif node.exists(self.path):
            end_in(node, self.path)
            moved = node.run(Command(("mv", "-T", "--", self.path, doomed)))
            if moved.code:
                raise OSError(f"{self.path} can't be moved out of the way: {moved.err.strip()}")
        node.remove_tree(doomed)
        return f"removed {self.path}"

    def _marked(self, scene: Scene) -> bool:
        path = self.path
        while path != "/":
            try:
                if scene.node.read(f"{path}/{MARKER}").decode(errors="replace").strip() == scene.journal:
                    return True
            except OSError:
                pass
            path = posixpath.dirname(path)
        return False


Undo = (
    Kill
    | RemoveCgroup
    | RestoreSubtree
    | Write
    | GiveBack
    | ReleaseSharedMemory
    | RemoveZram
    | RemoveSwapFile
    | Unmount
    | DetachLoop
    | WipeFileSystem
    | RemoveTree
)
"""All kinds. Swap goes when nothing of the run is in memory any more, mounts before the directories that they are in."""

UNDO: TypeAdapter[Undo] = TypeAdapter(Annotated[Undo, Field(discriminator="kind")])


def end_in(node: Node, directory: str) -> None:
    """End servers and drivers that still work in a directory of ours which is about to be removed.

    They end with the pgherd that started them, but may take a moment for it, after which they are killed.
    """

    def ended() -> bool:
        return not processes.working_in(node, directory, PROGRAMS)

    if not processes.wait_until(ended, _GRACE_SECONDS):
        processes.kill(node, processes.working_in(node, directory, PROGRAMS))
        if not processes.wait_until(ended):
            raise OSError(f"processes in {directory} do not end on SIGKILL")


def _subtree(node: Node, path: str) -> list[str]:
    """The group and all groups below it, outermost first."""
    found = [path]
    for name in node.listdir(path):
        if node.exists(f"{path}/{name}/cgroup.procs"):
            found += _subtree(node, f"{path}/{name}")
    return found


def _pids(node: Node, group: str) -> list[int]:
    try:
        return [int(word) for word in node.read(f"{group}/cgroup.procs").split() if word != b"0"]
    except FileNotFoundError:
        return []


def _move(node: Node, pid: int, group: str) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
        node.write(f"{group}/cgroup.procs", str(pid).encode())


def _empty(node: Node, tops: list[str], groups: list[str]) -> int:
    """Kill everything in the groups until they are empty; how many processes there were."""
    seen: set[int] = set()

    def emptied() -> bool:
        inside = {pid for group in groups for pid in _pids(node, group)}
        seen.update(inside)
        if os.getpid() in inside:
            raise OSError(f"this process runs inside control group {tops[0]}; run 'pgherd clean' from outside it")
        if inside:
            for top in tops:
                if node.exists(f"{top}/cgroup.kill"):  # v2, Linux 5.14 and later: no fork can escape it
                    node.write(f"{top}/cgroup.kill", b"1")
            processes.kill(node, sorted({pid for group in groups for pid in _pids(node, group)}))
        return not inside

    if not processes.wait_until(emptied):
        raise OSError(f"processes in control group {tops[0]} do not end on SIGKILL")
    return len(seen)


def _remove_group(node: Node, group: str) -> None:
    """A group stays busy for a moment after its last process has ended."""
    failure: OSError | None = None

    def gone() -> bool:
        nonlocal failure
        try:
            node.remove_dir(group)
        except FileNotFoundError:
            return True
        except OSError as error:
            failure = error
            return False
        return True

    if not processes.wait_until(gone):
        raise OSError(f"control group {group} can't be removed: {failure}")
