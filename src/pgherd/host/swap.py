"""Swap for one run: a compressed device in memory (zram), or a file.

Existing swap areas stay unchanged.

Swap areas belong to the machine: the kernel cannot assign a cgroup's pages to one of them. Therefore the new area has the
highest priority, so that it is filled first, and the run's cgroups are limited to its size (see pgherd.host.cgroups).
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import uuid
from dataclasses import dataclass

from pgherd.host.journal import Journal
from pgherd.host.kernel_files import text_of
from pgherd.host.swap_areas import CONTROL, areas, zram_knob, zram_numbers, zram_path
from pgherd.host.undo_actions import RemoveSwapFile, RemoveZram
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.run import Swap
from pgherd.model.units import format_bytes
from pgherd.node.files import trusted
from pgherd.node.protocol import Command, Node

LEAST = 2**20
"""Minimum size of swap in bytes: a smaller area has room for the header and a few pages only."""
RESERVE = 512 * 2**20
"""Bytes that stay free on the file system of a swap file."""
_LOWEST_PRIORITY, _HIGHEST_PRIORITY = 100, 32767
_TOOLS = {"mkswap": "util-linux", "swapon": "mount", "swapoff": "mount"}
"""Tools for swap, and the Debian package of each."""
_PAGE = 65536
"""Largest page of a kernel in bytes. No kernel rounds a multiple of it, so the size of an area is known."""
_UNSUITABLE = {
    "tmpfs": "is in memory",
    "ramfs": "is in memory",
    "overlay": "has no block device",
    "nfs": "is remote",
    "nfs4": "is remote",
    "cifs": "is remote",
    "zfs": "moves its blocks",
    "fuse": "depends on a process, which may be swapped out",
    "fuseblk": "depends on a process, which may be swapped out",
    "9p": "is remote",
    "virtiofs": "is remote",
    "squashfs": "is read-only",
}
"""File systems that cannot contain swap, and the reason."""


@dataclass(frozen=True)
class ActiveSwap:
    """Active swap of a run: path, number of its journal entry, zram device."""

    path: str
    number: int
    zram: int | None = None


def check(node: Node, swap: Swap) -> None:
    """Require that this swap can be created, as far as visible without a change.

    Raises:
        CapabilityError: missing permission, no support by the kernel, or an unsuitable file system.
        UsageError: the size is too large or too small, or the directory does not exist.
    """
    if swap.kind == "none":
        return
    if swap.size < LEAST:
        raise UsageError(f"swap of {format_bytes(swap.size)} is too small; use at least {format_bytes(LEAST)}")
    if node.run(Command(("id", "-u"))).out.strip() != "0":
        raise CapabilityError(
            f"--swap {swap.kind} creates swap for the run, which needs root; run pgherd as root, let root create swap and "
            "leave out --swap, or use --swap none"
        )
    for tool, package in _TOOLS.items():
        if node.run(Command((tool, "--version"))).code:
            raise CapabilityError(f"--swap {swap.kind} needs {tool}, which is not installed; install the package {package}")
    if swap.kind == "zram":
        _check_zram(node, swap)
    else:
        _check_file(node, swap)


def make(node: Node, journal: Journal, swap: Swap, directory: str) -> ActiveSwap | None:
    """Create swap and switch it on.

    The result is None if ``swap`` is of kind 'none'. Undo of its journal entry removes it.

    ``directory`` is the place of a file if ``swap`` has no path. It is created if missing.

    Raises:
        CapabilityError, UsageError: the swap cannot be created; partial changes are undone.
    """
    if swap.kind == "file" and not swap.path:
        swap = swap.model_copy(update={"path": directory})
        with contextlib.suppress(OSError):
            node.make_dir(directory, mode=0o711)
    check(node, swap)
    if swap.kind == "none":
        return None
    return _make_zram(node, journal, swap) if swap.kind == "zram" else _make_file(node, journal, swap)


def algorithms(node: Node) -> list[str]:
    """Return the compression algorithms of zram.

    The result is empty without a device, because only devices list them.
    """
    for number in zram_numbers(node):
        text = text_of(node, zram_knob(number, "comp_algorithm"))
        if text:
            return text.replace("[", "").replace("]", "").split()
    return []


def _check_zram(node: Node, swap: Swap) -> None:
    if not node.exists(f"{CONTROL}/hot_add"):
        raise CapabilityError(
            "--swap zram needs the kernel's module zram, which is not loaded; run 'modprobe zram' as root, or use --swap file"
        )
    available = algorithms(node)
    if swap.algorithm is not None and available and swap.algorithm not in available:
        raise CapabilityError(f"zram cannot compress with '{swap.algorithm}' on this kernel; use one of: {', '.join(available)}")


def _check_file(node: Node, swap: Swap) -> None:
    if swap.path is None:
        return  # the cache of pgherd, which is checked after its creation
    if not swap.path.startswith("/") or node.run(Command(("test", "-d", swap.path))).code:
        raise UsageError(f"the swap file cannot be in {swap.path}: that is no directory; choose one with --swap-dir")
    if os.path.isdir(swap.path) and not trusted(swap.path, os.geteuid(), inside=True):
        raise CapabilityError(
            f"the swap file cannot be in {swap.path}: the directory or one above it belongs to another user, or others may write to it, so "
            "they could exchange the file; choose a directory of root with --swap-dir"
        )
    kind, free = _file_system(node, swap.path)
    base = kind.partition(".")[0]
    if base in _UNSUITABLE:
        raise CapabilityError(
            f"the swap file cannot be in {swap.path}: its file system, {kind}, {_UNSUITABLE[base]}; choose a directory on a local disk "
            "(ext4, xfs, btrfs) with --swap-dir, or use --swap zram"
        )
    if free is not None and swap.size + RESERVE > free:
        raise UsageError(
            f"a swap file of {format_bytes(swap.size)} and a reserve of {format_bytes(RESERVE)} do not fit in {swap.path}, which has "
            f"{format_bytes(free)} free; reduce --swap-size, or choose another directory with --swap-dir"
        )


def _file_system(node: Node, directory: str) -> tuple[str, int | None]:
    """Return type and free bytes of a directory's file system.

    The result is ('', None) if df fails.
    """
    result = node.run(Command(("df", "--output=fstype,avail", "-B1", "--", directory)))
    fields = result.out.splitlines()[-1].split() if result.code == 0 and result.out.strip() else []
    if len(fields) != 2:
        return "", None
    return fields[0], int(fields[1]) if fields[1].isdigit() else None


def _make_zram(node: Node, journal: Journal, swap: Swap) -> ActiveSwap:
    mark, size = str(uuid.uuid4()), -(-swap.size // _PAGE) * _PAGE
    existing = zram_numbers(node)
    expected = next(number for number in range(len(existing) + 1) if number not in existing)  # the kernel uses the lowest free one
    entry = journal.note(RemoveZram(device=expected, mark=mark, size=size))
    try:
        device = int(node.read(f"{CONTROL}/hot_add"))
        if device != expected:  # another program created one at the same time
            corrected = journal.note(RemoveZram(device=device, mark=mark, size=size))
            journal.done(entry)
            entry = corrected
        if swap.algorithm is not None:
            _write_zram(node, device, "comp_algorithm", swap.algorithm)
        _write_zram(node, device, "disksize", str(size))
        if swap.memory is not None:
            _write_zram(node, device, "mem_limit", str(swap.memory))
        _switch_on(node, zram_path(device), mark)
    except (OSError, ValueError) as error:
        _undo(journal, entry)
        raise CapabilityError(f"compressed swap cannot be created: {error}; use --swap file, or see the kernel's log (dmesg)") from error
    except BaseException:
        _undo(journal, entry)
        raise
    return ActiveSwap(zram_path(device), entry, device)


def _write_zram(node: Node, device: int, name: str, value: str) -> None:
    try:
        node.write(zram_knob(device, name), value.encode())
    except OSError as error:
        raise OSError(f"the kernel does not take {value} for {zram_knob(device, name)} ({error.strerror})") from error


def _make_file(node: Node, journal: Journal, swap: Swap) -> ActiveSwap:
    assert swap.path is not None
    path = posixpath.join(posixpath.realpath(swap.path), f"pgherd-{journal.id[:8]}.swap")
    size = -(-swap.size // _PAGE) * _PAGE
    if node.exists(path):
        raise CapabilityError(f"{path} exists already; remove it, or choose another directory with --swap-dir")
    entry = journal.note(RemoveSwapFile(path=path))
    try:
        node.write(path, b"")  # mode 0600 while it is empty, because it will contain memory of other users
        if _file_system(node, swap.path)[0] == "btrfs":
            _run(node, ("chattr", "+C", "--", path), "excluded from copy-on-write")
        # Not sparse, because the kernel writes to its blocks directly.
        result = node.run(Command(("fallocate", "-l", str(size), "--", path)), timeout=600)
        if result.code:
            blocks = f"count={-(-size // 2**20)}"
            _run(node, ("dd", "if=/dev/zero", f"of={path}", "bs=1M", blocks, "conv=fsync", "status=none"), "filled")
        _switch_on(node, path, str(uuid.uuid4()))
    except OSError as error:
        _undo(journal, entry)
        raise CapabilityError(f"swap file {path} cannot be created: {error}; choose another directory with --swap-dir") from error
    except BaseException:
        _undo(journal, entry)
        raise
    return ActiveSwap(path, entry)


def _switch_on(node: Node, path: str, mark: str) -> None:
    _run(node, ("mkswap", "-U", mark, "-L", "pgherd", "--", path), "formatted")
    priority = max([_LOWEST_PRIORITY, *(area.priority + 1 for area in areas(node))])
    _run(node, ("swapon", "-p", str(min(priority, _HIGHEST_PRIORITY)), "--", path), "switched on")


def _run(node: Node, argv: tuple[str, ...], participle: str) -> None:
    result = node.run(Command(argv), timeout=600)
    if result.code:
        message = re.sub(r"\s+", " ", result.err.strip()) or f"{argv[0]} ended with exit code {result.code}"
        raise OSError(f"it cannot be {participle} ({message})")


def _undo(journal: Journal, entry: int) -> None:
    with contextlib.suppress(OSError):  # the entry stays in the journal, which is undone at the end
        journal.undo(entry)
