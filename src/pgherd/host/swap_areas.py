"""Swap areas of a machine (proc(5)), and removal of those that pgherd created."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

from pgherd.host.kernel_files import names_in, text_of, unescape
from pgherd.node.protocol import Command, Node

CONTROL = "/sys/class/zram-control"
"""Directory to create and remove compressed block devices (Documentation/admin-guide/blockdev/zram.rst)."""
HEADER = 4096
"""Size of a swap area's header page in bytes, with pages of 4 kB."""
_UUID_OFFSET = 1024 + 12
"""Position of the UUID in the header, with any page size."""
_SWAPOFF_TIMEOUT_S = 600.0
"""swapoff reads swapped-out pages back, one by one."""


@dataclass(frozen=True)
class SwapArea:
    """Swap area in use, with sizes in bytes.

    The kernel fills the area with the highest ``priority`` first.
    """

    path: str
    kind: str
    size: int
    used: int
    priority: int


def areas(node: Node) -> list[SwapArea]:
    """Return all swap areas in use; empty if /proc is unreadable."""
    return parse_areas(text_of(node, "/proc/swaps"))


def parse_areas(text: str) -> list[SwapArea]:
    """Parse the text of /proc/swaps, whose sizes are in kB of 1024 bytes."""
    parsed = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 5 and fields[-3].isdigit() and fields[-2].isdigit() and re.fullmatch(r"-?\d+", fields[-1]):
            parsed.append(SwapArea(unescape(fields[0]), fields[-4], int(fields[-3]) * 1024, int(fields[-2]) * 1024, int(fields[-1])))
    return parsed


def zram_path(number: int) -> str:
    return f"/dev/zram{number}"


def zram_knob(number: int, name: str) -> str:
    """Return the path of a zram device's file in sysfs."""
    return f"/sys/block/zram{number}/{name}"


def zram_numbers(node: Node) -> list[int]:
    """Return the numbers of all zram devices, in use or not."""
    return sorted(int(name[4:]) for name in names_in(node, "/sys/block") if re.fullmatch(r"zram\d+", name))


def off(node: Node, path: str) -> bool:
    """Switch an area off, and return whether it was in use.

    Raises OSError if it stays in use.
    """
    if path not in {area.path for area in areas(node)}:
        return False
    result = node.run(Command(("swapoff", "--", path)), timeout=_SWAPOFF_TIMEOUT_S)
    if result.code and path in {area.path for area in areas(node)}:
        raise OSError(
            f"swap {path} cannot be switched off: {result.err.strip() or f'exit code {result.code}'}; end the processes that use it"
        )
    return True


def is_ours(node: Node, number: int, mark: str, size: int) -> bool:
    """Return whether a zram device has the UUID ``mark``, or is still unused.

    A device with another size, or with other data in its first page, belongs to another program.
    """
    device_size = text_of(node, zram_knob(number, "disksize"))
    if device_size == "0":
        return zram_path(number) not in {area.path for area in areas(node)}
    if device_size != str(size):
        return False
    header = node.run(Command(("head", "-c", str(HEADER), "--", zram_path(number)))).out
    if not header.encode("utf-8", "replace").strip(b"\0"):
        return zram_path(number) not in {area.path for area in areas(node)}
    return _uuid(node, number) == mark


def _uuid(node: Node, number: int) -> str:
    """Return the UUID in a swap area's header (linux/swap.h: union swap_header).

    The result is '' if there is none.
    """
    argv = ("od", "-An", "-v", "-tx1", "-j", str(_UUID_OFFSET), "-N", "16", "--", zram_path(number))
    digits = re.sub(r"\s", "", node.run(Command(argv)).out)
    return str(uuid.UUID(digits)) if re.fullmatch(r"[0-9a-f]{32}", digits) else ""


def remove_zram(node: Node, number: int, mark: str, size: int) -> str | None:
    """Switch off and remove pgherd's zram device.

    Describe the action, or return None for another device. Raises OSError.
    """
    if not node.exists(zram_knob(number, "disksize")) or not is_ours(node, number, mark, size):
        return None
    was_used = off(node, zram_path(number))
    node.write(zram_knob(number, "reset"), b"1")
    node.write(f"{CONTROL}/hot_remove", str(number).encode())
    return f"{'switched off and removed' if was_used else 'removed'} compressed swap {zram_path(number)}"


def remove_file(node: Node, path: str) -> str | None:
    """Switch off and remove pgherd's swap file.

    Describe the action, or return None if it is missing. Raises OSError.
    """
    was_used = off(node, path)
    if not node.exists(path):
        return None
    result = node.run(Command(("rm", "-f", "--", path)))
    if result.code:
        raise OSError(f"swap file {path} cannot be removed: {result.err.strip()}")
    return f"{'switched off and removed' if was_used else 'removed'} swap file {path}"
