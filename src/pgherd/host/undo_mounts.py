"""Undoing mounts, loop devices and file systems on block devices. See pgherd.host.file_systems, which makes them."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, field_validator

from pgherd.host import mounts, processes
from pgherd.host.undo_base import PREFIX, Scene, absolute
from pgherd.model.base import Model
from pgherd.node.protocol import Command, Node

PATIENCE = 10.0
"""Seconds for what still works on a mount to end: servers and drivers die with their pgherd, but not in an instant."""


def _ours(path: str) -> str:
    if not any(part.startswith(PREFIX) for part in absolute(path).split("/")):
        raise ValueError(f"'{path}' does not lie in a directory that pgherd made")
    return path


class Unmount(Model):
    """Unmount what this journal's run mounted from ``source`` at ``target``, a place in a directory of ours."""

    rank: ClassVar[int] = 4
    kind: Literal["unmount"] = "unmount"
    target: str
    source: str

    @field_validator("target")
    @classmethod
    def _in_ours(cls, target: str) -> str:
        return _ours(target)

    def play(self, scene: Scene) -> str | None:
        """No mount survives a boot. What somebody has mounted there since is left alone (OSError)."""
        node = scene.node
        there = mounts.at(node, self.target) if scene.same_boot else None
        if there is None:
            return None
        if there not in mounts.of_device(node, self.source):
            raise OSError(f"{there.source} is mounted at {self.target} and not {self.source}: it is left alone")
        failure = ""

        def gone() -> bool:
            nonlocal failure
            done = node.run(Command(("umount", "--", self.target)))
            failure = done.err.strip()
            return mounts.at(node, self.target) is None

        if not processes.wait_until(gone, PATIENCE):
            raise OSError(f"{self.target} cannot be unmounted: {failure}; end what works there ('fuser --mount {self.target}' lists it)")
        return f"unmounted {self.target}"


class DetachLoop(Model):
    """Free the loop devices on a file of ours."""

    rank: ClassVar[int] = 4
    kind: Literal["detach_loop"] = "detach_loop"
    path: str

    @field_validator("path")
    @classmethod
    def _in_ours(cls, path: str) -> str:
        return _ours(path)

    def play(self, scene: Scene) -> str | None:
        """No loop device survives a boot."""
        devices = loops_on(scene.node, self.path) if scene.same_boot else []
        for device in devices:
            done = scene.node.run(Command(("losetup", "--detach", device)))
            if done.code and device in loops_on(scene.node, self.path):
                raise OSError(f"{device} on {self.path} cannot be freed: {done.err.strip()}")
        return f"freed {', '.join(devices)}" if devices else None


class WipeFileSystem(Model):
    """Empty a block device again that we formatted: only while its file system's UUID is still the one that we gave it."""

    rank: ClassVar[int] = 4
    kind: Literal["wipe_file_system"] = "wipe_file_system"
    device: str = Field(pattern=r"^/dev/.+")
    mark: str = Field(pattern=r"^[0-9a-f-]{36}$")

    def play(self, scene: Scene) -> str | None:
        """The file system survives a boot, and is ours by its UUID. The first megabyte is zeroed: it holds all that tells of it."""
        node = scene.node
        if not node.exists(self.device):
            return None
        probe = node.run(Command(("blkid", "--probe", "--output", "value", "--match-tag", "UUID", "--", self.device)))
        if probe.out.strip() != self.mark:
            return None
        used = [mount.target for mount in mounts.of_device(node, self.device)]
        if used:
            raise OSError(f"{self.device} is still mounted at {used[0]}, and keeps its file system until 'pgherd clean' can unmount it")
        for argv in (
            ("dd", "if=/dev/zero", f"of={self.device}", "bs=1M", "count=1", "conv=fsync,nocreat", "status=none"),
            ("wipefs", "--all", "--quiet", "--", self.device),
        ):
            done = node.run(Command(argv))
            if done.code:
                raise OSError(f"{self.device} cannot be emptied: {done.err.strip()}")
        return f"emptied {self.device}"


def loops_on(node: Node, path: str) -> list[str]:
    """The loop devices on a file, as device files."""
    done = node.run(Command(("losetup", "--associated", path, "--noheadings", "--output", "NAME")))
    return done.out.split() if done.code == 0 else []
