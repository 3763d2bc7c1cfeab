"""Directory tree that becomes a guest's root file system: files of this machine at the same absolute paths, and generated files.

It also finds the shared libraries of programs, because the guest has no others.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pgherd.model.errors import CapabilityError
from pgherd.node.protocol import Command, Node

_MAX_LINKS = 40
"""Limit of the kernel for one path (path_resolution(7))."""

Source = tuple[str, int, int]
"""File of this machine in a tree: path, size in bytes, modification time in nanoseconds."""


class GuestTree:
    """Tree of copies below ``root``. Symbolic links in a path are copied as links, so that each path has the same target in the guest."""

    def __init__(self, root: Path) -> None:
        """``root`` is created if it does not exist."""
        self.root = root
        self.sources: dict[str, Source] = {}
        self._ways: dict[str, str] = {}
        root.mkdir(parents=True, exist_ok=True)
        root.chmod(0o755)

    def add(self, path: str) -> str:
        """Copy a file, or make a directory, and return its path without links. Raises CapabilityError where it cannot be read."""
        real = self._way(path)
        if os.path.isdir(real):
            return real
        if real in self.sources:
            return real
        target = self._inside(real)
        try:
            shutil.copy2(real, target)  # keeps the time, because Python checks compiled files against the time of their source
            status = os.stat(real)
        except OSError as error:
            raise CapabilityError(f"{path} is needed in a guest and cannot be copied: {error.strerror or error}") from None
        target.chmod(0o755 if status.st_mode & 0o111 else 0o644)
        self.sources[real] = (real, status.st_size, status.st_mtime_ns)
        return real

    def add_all(self, directory: str, *, skip: Sequence[str] = ()) -> list[str]:
        """Copy a directory with its contents, and return the paths of its files. ``skip`` are patterns of names to leave out."""
        top = self._way(directory)
        copied: list[str] = []
        for directory_path, directories, files in os.walk(top):
            directories[:] = sorted(name for name in directories if not _skipped(name, skip))
            for name in sorted(directories):
                self._way(os.path.join(directory_path, name))
            for name in sorted(files):
                path = os.path.join(directory_path, name)
                if not _skipped(name, skip) and os.path.exists(path):
                    copied.append(self.add(path))
        return copied

    def write(self, path: str, text: str | bytes, mode: int = 0o644) -> None:
        """Create a file with this text."""
        target = self._inside(self._way(path))
        target.write_bytes(text.encode() if isinstance(text, str) else text)
        target.chmod(mode)

    def link(self, path: str, to: str) -> None:
        """Create a symbolic link, unless the path exists."""
        self.make(os.path.dirname(path))
        target = self._inside(os.path.join(self._way(os.path.dirname(path)), os.path.basename(path)))
        if not os.path.lexists(target):
            target.symlink_to(to)

    def make(self, path: str, mode: int = 0o755) -> None:
        """Create a directory."""
        target = self._inside(self._way(path))
        target.mkdir(parents=True, exist_ok=True)
        target.chmod(mode)

    def size(self) -> tuple[int, int]:
        """Return (bytes in blocks of 4 kB, number of files) of the tree."""
        blocks = entries = 0
        for directory_path, directories, files in os.walk(self.root):
            entries += len(directories) + len(files)
            blocks += len(directories)
            for name in files:
                blocks += -(-os.lstat(os.path.join(directory_path, name)).st_size // 4096)
        return blocks * 4096, entries

    def _inside(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def _way(self, path: str, links: int = 0) -> str:
        """Create the directories and links of an absolute path, and return the path without links."""
        if path in ("", "/"):
            return "/"
        if path in self._ways:
            return self._ways[path]
        if links > _MAX_LINKS:
            raise CapabilityError(f"{path} has too many symbolic links")
        head, last = os.path.split(path.rstrip("/"))
        parent = self._way(head, links)
        self._inside(parent).mkdir(mode=0o755, exist_ok=True)
        resolved = step = os.path.join(parent, last)
        if last in (".", ".."):
            resolved = parent if last == "." else os.path.dirname(parent)
        elif os.path.islink(step):
            link_target = os.readlink(step)
            inside = self._inside(step)
            if not os.path.lexists(inside):
                inside.symlink_to(link_target)
            resolved = self._way(os.path.join(parent, link_target), links + 1)
        elif os.path.isdir(step):
            self._inside(step).mkdir(mode=0o755, exist_ok=True)
        self._ways[path] = resolved
        return resolved


def _skipped(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


_LDD_BATCH = 100
_FOUND = re.compile(r"^\t(?:\S.* => )?(/\S.*?) \(0x[0-9a-f]+\)$")
_MISSING = re.compile(r"^\t(\S+) => not found$")
_PROGRAM_INTERPRETER = 3


@dataclass(frozen=True)
class LibraryDependencies:
    """Libraries that one file needs: paths found by the loader (which is one of them), and names that it does not find."""

    found: tuple[str, ...]
    missing: tuple[str, ...] = ()


def library_dependencies(node: Node, files: Sequence[str]) -> dict[str, LibraryDependencies]:
    """Return the direct and indirect libraries of each program or library, from ldd(1). A static one has none.

    Raises:
        CapabilityError: ldd is missing.
    """
    by_file: dict[str, LibraryDependencies] = {}
    for first in range(0, len(files), _LDD_BATCH):
        batch = files[first : first + _LDD_BATCH]
        try:
            output = node.run(Command(["ldd", *batch]), timeout=120).out
        except OSError as error:
            raise CapabilityError(f"ldd cannot be run ({error}), which lists the libraries of a guest's programs") from None
        by_file |= parse(output, batch)
    return by_file


def parse(text: str, files: Sequence[str]) -> dict[str, LibraryDependencies]:
    """Parse the output of ldd. With several files it prints a heading for each, with one file it prints none."""
    found: dict[str, list[str]] = {name: [] for name in files}
    missing: dict[str, list[str]] = {name: [] for name in files}
    current = files[0] if len(files) == 1 else ""
    for line in text.splitlines():
        if not line.startswith("\t"):
            current = line.removesuffix(":") if line.removesuffix(":") in found else current
        elif current and (match := _FOUND.match(line)):
            found[current].append(match[1])
        elif current and (match := _MISSING.match(line)):
            missing[current].append(match[1])
    return {name: LibraryDependencies(tuple(found[name]), tuple(missing[name])) for name in files}


def libraries(node: Node, programs: Sequence[str], modules: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """Return (paths of all libraries of the programs and loadable modules, modules that can be used).

    A module with a missing library is left out, because it cannot be loaded on this machine either.

    Raises:
        CapabilityError: a program's library is missing.
    """
    by_file = library_dependencies(node, [*programs, *modules])
    for program in programs:
        if by_file[program].missing:
            raise CapabilityError(f"{program} needs {', '.join(by_file[program].missing)}, which this machine lacks; repair its package")
    usable = [module for module in modules if not by_file[module].missing]
    paths = dict.fromkeys(path for name in (*programs, *usable) for path in by_file[name].found)
    return list(paths), usable


def is_static(elf: bytes) -> bool:
    """Return whether a 64-bit ELF program has no program interpreter (elf(5): PT_INTERP), and so needs no shared libraries."""
    if len(elf) < 64 or elf[:5] != b"\x7fELF\x02":
        return False
    begin, size, count = struct.unpack_from("<Q", elf, 32)[0], *struct.unpack_from("<HH", elf, 54)
    kinds = [struct.unpack_from("<I", elf, begin + number * size)[0] for number in range(count)]
    return _PROGRAM_INTERPRETER not in kinds
