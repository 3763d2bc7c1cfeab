"""Swap for one run: a compressed device in memory, or a file. Made and removed through the journal; what was there stays as it is.

Swap serves the whole machine: the kernel does not say which control group's pages go to which area. What is made here has the
highest priority, so that it is filled first, and the run's groups are limited to its size (see pgherd.host.cgroups).
"""

from __future__ import annotations

import contextlib
import posixpath
import re
import uuid
from dataclasses import dataclass

from pgherd.host.cgroup_layout import text_of
from pgherd.host.journal import Journal
from pgherd.host.swap_areas import CONTROL, areas, zram_knob, zram_numbers, zram_path
from pgherd.host.undo import RemoveSwapFile, RemoveZram
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.run import Swap
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Command, Node

LEAST = 2**20
"""Bytes of the smallest swap that is made: below that the header and a few pages are all there is."""
RESERVE = 512 * 2**20
"""Bytes that stay free on the file system of a swap file."""
_LOWEST_PRIORITY, _HIGHEST_PRIORITY = 100, 32767
_PAGE = 4096
_CANNOT = {
    "tmpfs": "lies in memory",
    "ramfs": "lies in memory",
    "overlay": "has no blocks of its own",
    "nfs": "is somewhere else",
    "nfs4": "is somewhere else",
    "cifs": "is somewhere else",
    "zfs": "moves its blocks",
    "fuse": "is served by a program, which may itself be swapped out",
    "fuseblk": "is served by a program, which may itself be swapped out",
    "9p": "is somewhere else",
    "virtiofs": "is somewhere else",
    "squashfs": "cannot be written",
}
"""File systems that cannot hold swap, and why."""


@dataclass(frozen=True)
class Made:
    """Swap of ours that is in use: ``path`` of device or file, ``number`` of its entry in the journal, ``zram`` the device's number."""

    path: str
    number: int
    zram: int | None = None


def check(node: Node, swap: Swap) -> None:
    """Insist that such swap could be made, as far as can be told without trying. Changes nothing.

    Raises:
        CapabilityError: this user may not, the kernel cannot, or the file system cannot hold it.
        UsageError: it is too large, too small, or its directory is none.
    """
    if swap.kind == "none":
        return
    if swap.size < LEAST:
        raise UsageError(f"swap of {format_bytes(swap.size)} is too small; give at least {format_bytes(LEAST)}")
    if node.run(Command(("id", "-u"))).out.strip() != "0":
        raise CapabilityError(
            f"--swap {swap.kind} makes swap for the run, which takes root; run pgherd as root, have root make swap and leave --swap out, "
            "or use --swap none"
        )
    for tool in ("mkswap", "swapon", "swapoff"):
        if node.run(Command((tool, "--version"))).code:
            raise CapabilityError(f"--swap {swap.kind} needs {tool}, which is not installed; it is in the package util-linux (or mount)")
    if swap.kind == "zram":
        _check_zram(node, swap)
    else:
        _check_file(node, swap)


def make(node: Node, journal: Journal, swap: Swap, directory: str) -> Made | None:
    """Make swap and switch it on; ``journal.undo`` of its number switches it off and removes it. None: nothing was to be made.

    ``directory`` is where a file lies if ``swap`` names no other; it is made if need be.

    Raises:
        CapabilityError, UsageError: it cannot be made; what was begun is taken back.
    """
    swap = swap if swap.path or swap.kind != "file" else swap.model_copy(update={"path": directory})
    if swap.kind == "file":
        with contextlib.suppress(OSError):
            node.make_dir(directory, mode=0o711)
    check(node, swap)
    if swap.kind == "none":
        return None
    return _make_zram(node, journal, swap) if swap.kind == "zram" else _make_file(node, journal, swap)


def algorithms(node: Node) -> list[str]:
    """The compressions that zram has here; empty where no device tells (they are known only of a device)."""
    for number in zram_numbers(node):
        text = text_of(node, zram_knob(number, "comp_algorithm"))
        if text:
            return text.replace("[", "").replace("]", "").split()
    return []


def _check_zram(node: Node, swap: Swap) -> None:
    if not node.exists(f"{CONTROL}/hot_add"):
        raise CapabilityError(
            "--swap zram needs the kernel's module zram, which is not loaded: have root run 'modprobe zram', or use --swap file"
        )
    known = algorithms(node)
    if swap.algorithm is not None and known and swap.algorithm not in known:
        raise CapabilityError(f"zram cannot compress with '{swap.algorithm}' on this kernel; it has {', '.join(known)}: name one of them")


def _check_file(node: Node, swap: Swap) -> None:
    if swap.path is None:
        return  # pgherd's own cache, which is looked at when it is there
    if not swap.path.startswith("/") or node.run(Command(("test", "-d", swap.path))).code:
        raise UsageError(f"the swap file cannot lie in {swap.path}: that is no directory; name one with --swap-dir")
    kind, free = _file_system(node, swap.path)
    base = kind.partition(".")[0]
    if base in _CANNOT:
        raise CapabilityError(
            f"the swap file cannot lie in {swap.path}: its file system, {kind}, {_CANNOT[base]}; name a directory on a local disk "
            "(ext4, xfs, btrfs) with --swap-dir, or use --swap zram"
        )
    if free is not None and swap.size + RESERVE > free:
        raise UsageError(
            f"a swap file of {format_bytes(swap.size)} and {format_bytes(RESERVE)} to spare do not fit {swap.path}, which has "
            f"{format_bytes(free)} free; lower --swap-size, or name another directory with --swap-dir"
        )


def _file_system(node: Node, directory: str) -> tuple[str, int | None]:
    """Type of the file system, as mounted, and its free bytes (None: not to be had)."""
    done = node.run(Command(("df", "--output=fstype,avail", "-B1", "--", directory)))
    fields = done.out.splitlines()[-1].split() if done.code == 0 and done.out.strip() else []
    if len(fields) != 2:
        return "", None
    return fields[0], int(fields[1]) if fields[1].isdigit() else None


def _make_zram(node: Node, journal: Journal, swap: Swap) -> Made:
    mark, size = str(uuid.uuid4()), -(-swap.size // _PAGE) * _PAGE
    there = zram_numbers(node)
    expected = next(number for number in range(len(there) + 1) if number not in there)  # the kernel takes the lowest that is free
    entry = journal.note(RemoveZram(device=expected, mark=mark, size=size))
    try:
        device = int(node.read(f"{CONTROL}/hot_add"))
        if device != expected:  # somebody else made one in this very moment
            later = journal.note(RemoveZram(device=device, mark=mark, size=size))
            journal.done(entry)
            entry = later
        if swap.algorithm is not None:
            _knob(node, device, "comp_algorithm", swap.algorithm)
        _knob(node, device, "disksize", str(size))
        if swap.memory is not None:
            _knob(node, device, "mem_limit", str(swap.memory))
        _switch_on(node, zram_path(device), mark)
    except (OSError, ValueError) as error:
        _take_back(journal, entry)
        raise CapabilityError(f"compressed swap cannot be made: {error}; use --swap file, or see the kernel's log (dmesg)") from error
    except BaseException:
        _take_back(journal, entry)
        raise
    return Made(zram_path(device), entry, device)


def _knob(node: Node, device: int, name: str, value: str) -> None:
    try:
        node.write(zram_knob(device, name), value.encode())
    except OSError as error:
        raise OSError(f"the kernel does not take {value} for {zram_knob(device, name)} ({error.strerror})") from error


def _make_file(node: Node, journal: Journal, swap: Swap) -> Made:
    assert swap.path is not None
    path = posixpath.join(posixpath.realpath(swap.path), f"pgherd-{journal.id[:8]}.swap")
    size = -(-swap.size // _PAGE) * _PAGE
    if node.exists(path):
        raise CapabilityError(f"{path} exists already; remove it, or name another directory with --swap-dir")
    entry = journal.note(RemoveSwapFile(path=path))
    try:
        node.write(path, b"")  # mode 0600 before anything is in it: what is swapped out is anybody's memory
        if _file_system(node, swap.path)[0] == "btrfs":
            _insist(node, ("chattr", "+C", "--", path), "made free of copy-on-write")
        # Not sparse, since the kernel writes to its blocks directly.
        done = node.run(Command(("fallocate", "-l", str(size), "--", path)), timeout=600)
        if done.code:
            blocks = f"count={-(-size // 2**20)}"
            _insist(node, ("dd", "if=/dev/zero", f"of={path}", "bs=1M", blocks, "conv=fsync", "status=none"), "filled")
        _switch_on(node, path, str(uuid.uuid4()))
    except OSError as error:
        _take_back(journal, entry)
        raise CapabilityError(f"swap file {path} cannot be made: {error}; name another directory with --swap-dir") from error
    except BaseException:
        _take_back(journal, entry)
        raise
    return Made(path, entry)


def _switch_on(node: Node, path: str, mark: str) -> None:
    _insist(node, ("mkswap", "-q", "-U", mark, "-L", "pgherd", "--", path), "formatted")
    priority = max([_LOWEST_PRIORITY, *(area.priority + 1 for area in areas(node))])
    _insist(node, ("swapon", "-p", str(min(priority, _HIGHEST_PRIORITY)), "--", path), "switched on")


def _insist(node: Node, argv: tuple[str, ...], what: str) -> None:
    done = node.run(Command(argv), timeout=600)
    if done.code:
        said = re.sub(r"\s+", " ", done.err.strip()) or f"{argv[0]} ended with exit code {done.code}"
        raise OSError(f"it cannot be {what} ({said})")


def _take_back(journal: Journal, entry: int) -> None:
    with contextlib.suppress(OSError):  # it stays in the journal, which is played at the end
        journal.undo(entry)
