"""A node whose files are below a directory, with a simulated cgroup v2 tree in it.

The simulation keeps the kernel's rules that matter here (admin-guide/cgroup-v2.rst): interface files appear with the
controllers that the parent hands out; a group that hands out controllers takes no processes, except the root; a group with
processes or children can't be removed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command, Completed

UNIFIED = "/sys/fs/cgroup"
_FILES = {
    "cpu": {"cpu.max": "max 100000", "cpu.weight": "100"},
    "memory": {"memory.max": "max", "memory.swap.max": "max", "memory.current": "0", "memory.stat": "anon 0\ninactive_file 0"},
    "cpuset": {"cpuset.cpus": "", "cpuset.mems": ""},
    "io": {"io.max": ""},
    "pids": {"pids.max": "max"},
}


class FakeNode(LocalNode):
    """All paths are remapped below ``root``; processes are entries in /proc and in cgroup.procs."""

    def __init__(self, root: Path, files: Mapping[str, str] | None = None, *, may_write: str = "/") -> None:
        super().__init__()
        self.root, self.may_write = root, may_write
        self.killed: list[int] = []
        for path, text in (files or {}).items():
            target = root / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)

    # --- the node's calls ---
    def read(self, path: str) -> bytes:
        if path == "/proc/self/stat":
            path = f"/proc/{os.getpid()}/stat"
        elif path == "/proc/self/cgroup" and (self._at(UNIFIED) / "cgroup.procs").exists():
            return f"0::{self.group_of(os.getpid())}\n".encode()
        return self._at(path).read_bytes()

    def exists(self, path: str) -> bool:
        return self._at(path).exists()

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(self._at(path)))

    def write(self, path: str, data: bytes) -> None:
        self._permit(path)
        file = self._at(path)
        if not self._in_cgroups(path):
            if file.name != "cgroup.procs":  # a v1 group, of which only the directory is simulated
                file.write_bytes(data)
        elif not file.exists():
            raise PermissionError(errno.EACCES, "Permission denied", path)
        elif file.name == "cgroup.procs":
            self._move(int(data), file.parent)
        elif file.name == "cgroup.subtree_control":
            self._hand_out(file.parent, data.decode().split())
        elif file.name == "cgroup.kill":
            self._kill_in(file.parent)
        else:
            file.write_bytes(data)

    def make_dir(self, path: str, *, mode: int = 0o700, user: str | None = None) -> None:
        self._permit(path)
        directory = self._at(path)
        directory.mkdir(parents=True, exist_ok=True)
        if self._in_cgroups(path):
            tokens = (directory.parent / "cgroup.subtree_control").read_text().split()
            populate(directory, tokens)

    def remove_dir(self, path: str) -> None:
        self._permit(path)
        directory = self._at(path)
        if not self._in_cgroups(path):
            directory.rmdir()
            return
        if not directory.exists():
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        if (directory / "cgroup.procs").read_text().split() or any(entry.is_dir() for entry in directory.iterdir()):
            raise OSError(errno.EBUSY, "Device or resource busy", path)
        shutil.rmtree(directory)

    def remove_tree(self, path: str) -> None:
        super().remove_tree(str(self._at(path)))

    def run(self, command: Command, timeout: float = 60.0) -> Completed:
        argv = list(command.argv)
        if argv == ["true"]:
            try:
                self.add_process(999_999)
                for file in command.join:
                    self.write(file, b"999999")
            except OSError as error:
                return Completed(97, "", str(error))
            finally:
                self._end(999_999)
            return Completed(0, "", "")
        if argv[0] == "/bin/sh" and "kill -s KILL" in argv[2]:
            for word in argv[4:]:
                self._end(int(word))
            return Completed(0, "", "")
        raise NotImplementedError(argv)

    # --- for tests ---
    def add_process(self, pid: int, group: str | None = None, *, session: int = 1, start: int = 100) -> None:
        """Make a process, in a group of the unified tree (its path below the mount)."""
        directory = self.root / f"proc/{pid}"
        directory.mkdir(parents=True, exist_ok=True)
        fields = ["S", "1", str(pid), str(session), *["0"] * 15, str(start), *["0"] * 30]
        (directory / "stat").write_text(f"{pid} (a (b) c) {' '.join(fields)}\n")
        if group is not None:
            self._move(pid, self._at(UNIFIED) / group.strip("/"))

    def group_of(self, pid: int) -> str:
        top = self._at(UNIFIED)
        for procs in sorted(top.rglob("cgroup.procs")):
            if str(pid) in procs.read_text().split():
                below = procs.parent.relative_to(top)
                return "/" if below == Path() else f"/{below}"
        return "/"

    # --- the kernel ---
    def _at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def _in_cgroups(self, path: str) -> bool:
        return path.startswith(UNIFIED + "/") and (self._at(UNIFIED) / "cgroup.controllers").exists()

    def _permit(self, path: str) -> None:
        if self._in_cgroups(path) and not (path + "/").startswith(self.may_write.rstrip("/") + "/"):
            raise PermissionError(errno.EACCES, "Permission denied", path)

    def _move(self, pid: int, group: Path) -> None:
        if not (self.root / f"proc/{pid}").exists():
            raise ProcessLookupError(errno.ESRCH, "No such process")
        if not _is_root(group) and (group / "cgroup.subtree_control").read_text().split():
            raise OSError(errno.EBUSY, "Device or resource busy", str(group))
        self._leave(pid)
        with (group / "cgroup.procs").open("a") as file:
            file.write(f"{pid}\n")

    def _leave(self, pid: int) -> None:
        for procs in self._at(UNIFIED).rglob("cgroup.procs"):
            text = procs.read_text().split()
            if str(pid) in text:
                procs.write_text("".join(f"{word}\n" for word in text if word != str(pid)))

    def _end(self, pid: int) -> None:
        self._leave(pid)
        shutil.rmtree(self.root / f"proc/{pid}", ignore_errors=True)
        if pid != 999_999:
            self.killed.append(pid)

    def _kill_in(self, group: Path) -> None:
        for procs in group.rglob("cgroup.procs"):
            for word in procs.read_text().split():
                self._end(int(word))

    def _hand_out(self, group: Path, words: list[str]) -> None:
        control = group / "cgroup.subtree_control"
        enabled = set(control.read_text().split())
        available = set((group / "cgroup.controllers").read_text().split())
        children = [entry for entry in group.iterdir() if entry.is_dir()]
        for word in words:
            sign, name = word[0], word[1:]
            if sign == "+" and name not in enabled:
                if name not in available:
                    raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(control))
                if not _is_root(group) and (group / "cgroup.procs").read_text().split():
                    raise OSError(errno.EBUSY, "Device or resource busy", str(control))
                enabled.add(name)
            elif sign == "-" and name in enabled:
                if any(name in (child / "cgroup.subtree_control").read_text().split() for child in children):
                    raise OSError(errno.EBUSY, "Device or resource busy", str(control))
                enabled.discard(name)
        control.write_text(" ".join(sorted(enabled)))
        for child in children:
            populate(child, sorted(enabled))


def _is_root(group: Path) -> bool:
    return not (group / "cgroup.type").exists()


def populate(directory: Path, controllers: list[str], *, root: bool = False) -> None:
    """Give a group the interface files of these controllers, and take those of others."""
    expected = {"cgroup.procs": "", "cgroup.subtree_control": "", "cgroup.kill": ""}
    if not root:
        expected |= {"cgroup.type": "domain", "cgroup.events": "populated 0"}
        for controller in controllers:
            expected |= _FILES.get(controller, {})
    for name, text in expected.items():
        with contextlib.suppress(FileExistsError), (directory / name).open("x") as file:
            file.write(text)
    for controller, files in _FILES.items():
        if controller not in controllers:
            for name in files:
                (directory / name).unlink(missing_ok=True)
    (directory / "cgroup.controllers").write_text(" ".join(controllers))


_MOUNT = f"30 23 0:26 / {UNIFIED} rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"


def unified(
    root: Path,
    own: str,
    *,
    controllers: str = "cpuset cpu io memory pids",
    namespace: bool = False,
    may_write: str = "/",
    files: Mapping[str, str] | None = None,
) -> FakeNode:
    """A machine with cgroup v2 whose top is the root group (or, with ``namespace``, a container's own group).

    This process is in group ``own``. All controllers are enabled down to its parent.
    """
    node = FakeNode(
        root,
        {
            "/proc/self/mountinfo": _MOUNT,
            "/proc/self/cgroup": "0::/\n",
            "/proc/self/status": "Name:\tpython3\nUid:\t1000\t1000\t1000\t1000\nCpus_allowed_list:\t0-3\n",
            "/proc/sys/kernel/random/boot_id": "11111111-2222-3333-4444-555555555555\n",
            **(files or {}),
        },
    )
    path = root / UNIFIED.lstrip("/")
    path.mkdir(parents=True)
    populate(path, controllers.split(), root=not namespace)
    for part in [part for part in own.split("/") if part]:
        node._hand_out(path, [f"+{name}" for name in controllers.split()])
        path = path / part
        path.mkdir()
        populate(path, controllers.split())
    node.add_process(os.getpid(), own, session=os.getsid(0))
    node.may_write = may_write
    return node
