"""A directory that becomes a guest's root file system: files of this machine at their own absolute paths, and some of our own."""

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

_MOST_LINKS = 40
"""As the kernel follows in one path (path_resolution(7))."""

Source = tuple[str, int, int]
"""A file of this machine that went into a tree: path, size in bytes, time of its last change in nanoseconds."""


class GuestTree:
    """Copies into ``root``. Symbolic links on the way to a file are made as they are here, so that every path means the same there."""

    def __init__(self, root: Path) -> None:
        """``root`` is made if it is not there."""
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
            shutil.copy2(real, target)  # with its time: Python trusts compiled files by the time of their source
            found = os.stat(real)
        except OSError as error:
            raise CapabilityError(f"{path} is needed in a guest and cannot be copied: {error.strerror or error}") from None
        target.chmod(0o755 if found.st_mode & 0o111 else 0o644)
        self.sources[real] = (real, found.st_size, found.st_mtime_ns)
        return real

    def add_all(self, directory: str, *, skip: Sequence[str] = ()) -> list[str]:
        """Copy a directory with what is in it, and return the paths of its files; ``skip`` are patterns of names left out."""
        top = self._way(directory)
        copied: list[str] = []
        for place, directories, files in os.walk(top):
            directories[:] = sorted(name for name in directories if not _skipped(name, skip))
            for name in sorted(directories):
                self._way(os.path.join(place, name))
            for name in sorted(files):
                path = os.path.join(place, name)
                if not _skipped(name, skip) and os.path.exists(path):
                    copied.append(self.add(path))
        return copied

    def write(self, path: str, text: str | bytes, mode: int = 0o644) -> None:
        """A file of our own."""
        target = self._inside(self._way(path))
        target.write_bytes(text.encode() if isinstance(text, str) else text)
        target.chmod(mode)

    def link(self, path: str, to: str) -> None:
        """A symbolic link of our own; one that is there stays."""
        self.make(os.path.dirname(path))
        target = self._inside(os.path.join(self._way(os.path.dirname(path)), os.path.basename(path)))
        if not os.path.lexists(target):
            target.symlink_to(to)

    def make(self, path: str, mode: int = 0o755) -> None:
        """A directory."""
        target = self._inside(self._way(path))
        target.mkdir(parents=True, exist_ok=True)
        target.chmod(mode)

    def size(self) -> tuple[int, int]:
        """(bytes in blocks of 4 kB, files) of the tree."""
        blocks = entries = 0
        for place, directories, files in os.walk(self.root):
            entries += len(directories) + len(files)
            blocks += len(directories)
            for name in files:
                blocks += -(-os.lstat(os.path.join(place, name)).st_size // 4096)
        return blocks * 4096, entries

    def _inside(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def _way(self, path: str, links: int = 0) -> str:
        """Make the directories and links that lead to an absolute path, and return it without links."""
        if path in ("", "/"):
            return "/"
        if path in self._ways:
            return self._ways[path]
        if links > _MOST_LINKS:
            raise CapabilityError(f"{path} leads through more symbolic links than can be followed")
        head, last = os.path.split(path.rstrip("/"))
        here = self._way(head, links)
        self._inside(here).mkdir(mode=0o755, exist_ok=True)
        found = step = os.path.join(here, last)
        if last in (".", ".."):
            found = here if last == "." else os.path.dirname(here)
        elif os.path.islink(step):
            to = os.readlink(step)
            inside = self._inside(step)
            if not os.path.lexists(inside):
                inside.symlink_to(to)
            found = self._way(os.path.join(here, to), links + 1)
        elif os.path.isdir(step):
            self._inside(step).mkdir(mode=0o755, exist_ok=True)
        self._ways[path] = found
        return found


def _skipped(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


_AT_ONCE = 100
_FOUND = re.compile(r"^\t(?:\S.* => )?(/\S.*?) \(0x[0-9a-f]+\)$")
_MISSING = re.compile(r"^\t(\S+) => not found$")
_PROGRAM_INTERPRETER = 3


@dataclass(frozen=True)
class Needs:
    """What one file needs: paths of libraries as the loader finds them (the loader among them), and names that it does not find."""

    found: tuple[str, ...]
    missing: tuple[str, ...] = ()


def needs(node: Node, files: Sequence[str]) -> dict[str, Needs]:
    """What each program or library needs, itself and through others, as ldd(1) says; nothing for one that is static.

    Raises:
        CapabilityError: ldd is missing.
    """
    told: dict[str, Needs] = {}
    for first in range(0, len(files), _AT_ONCE):
        some = files[first : first + _AT_ONCE]
        try:
            said = node.run(Command(["ldd", *some]), timeout=120).out
        except OSError as error:
            raise CapabilityError(f"ldd cannot be run ({error}), which tells the libraries that a guest's programs need") from None
        told |= parse(said, some)
    return told


def parse(text: str, files: Sequence[str]) -> dict[str, Needs]:
    """What ldd said of these files: with one file it names it in no heading, with several it does."""
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
    return {name: Needs(tuple(found[name]), tuple(missing[name])) for name in files}


def libraries(node: Node, programs: Sequence[str], modules: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """(paths of all libraries that the programs and loadable modules need, modules that can be used).

    A module of which a library is missing on this machine is left out: it could not be loaded here either.

    Raises:
        CapabilityError: a program's library is missing.
    """
    told = needs(node, [*programs, *modules])
    for program in programs:
        if told[program].missing:
            raise CapabilityError(f"{program} needs {', '.join(told[program].missing)}, which this machine does not have; mend its package")
    usable = [module for module in modules if not told[module].missing]
    paths = dict.fromkeys(path for name in (*programs, *usable) for path in told[name].found)
    return list(paths), usable


def is_static(elf: bytes) -> bool:
    """Whether a 64-bit ELF program names no program interpreter (elf(5): PT_INTERP), and so runs without shared libraries."""
    if len(elf) < 64 or elf[:5] != b"\x7fELF\x02":
        return False
    begin, size, count = struct.unpack_from("<Q", elf, 32)[0], *struct.unpack_from("<HH", elf, 54)
    kinds = [struct.unpack_from("<I", elf, begin + number * size)[0] for number in range(count)]
    return _PROGRAM_INTERPRETER not in kinds
