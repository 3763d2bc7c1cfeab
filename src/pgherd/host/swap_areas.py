"""What swap a machine has (proc(5) ``/proc/swaps``), whose a swap area is, and how one of ours is taken away again."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

from pgherd.host.cgroup_layout import text_of
from pgherd.node.protocol import Command, Node

CONTROL = "/sys/class/zram-control"
"""Where compressed block devices are made and removed (Documentation/admin-guide/blockdev/zram.rst)."""
HEADER = 4096
"""Bytes of a swap area's header page on this kernel's usual page size; its UUID stands at byte 1036 whatever the page size."""
_UUID_AT = 1024 + 12
PATIENCE = 600.0
"""Seconds for swapoff: what is still swapped out is read back, block by block from a disk."""


@dataclass(frozen=True)
class Area:
    """One swap area in use: sizes in bytes; ``priority`` decides which is filled first, the highest."""

    path: str
    kind: str
    size: int
    used: int
    priority: int


def areas(node: Node) -> list[Area]:
    """All swap areas in use; empty where there are none or /proc is not to be read."""
    return parse_areas(text_of(node, "/proc/swaps"))


def parse_areas(text: str) -> list[Area]:
    """The areas in the text of /proc/swaps, which counts in kB of 1024 bytes and writes blanks as octal escapes."""
    found = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 5 and fields[-3].isdigit() and fields[-2].isdigit() and re.fullmatch(r"-?\d+", fields[-1]):
            path = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[0])
            found.append(Area(path, fields[-4], int(fields[-3]) * 1024, int(fields[-2]) * 1024, int(fields[-1])))
    return found


def zram_path(number: int) -> str:
    """The device file of a zram device."""
    return f"/dev/zram{number}"


def zram_knob(number: int, name: str) -> str:
    """A file of a zram device in sysfs."""
    return f"/sys/block/zram{number}/{name}"


def zram_numbers(node: Node) -> list[int]:
    """The zram devices that there are, in use or not."""
    try:
        names = node.listdir("/sys/block")
    except OSError:
        return []
    return sorted(int(name[4:]) for name in names if re.fullmatch(r"zram\d+", name))


def off(node: Node, path: str) -> bool:
    """Switch an area off if it is in use; whether it was. Raises OSError when it stays."""
    if path not in {area.path for area in areas(node)}:
        return False
    done = node.run(Command(("swapoff", "--", path)), timeout=PATIENCE)
    if done.code and path in {area.path for area in areas(node)}:
        raise OSError(f"swap {path} cannot be switched off: {done.err.strip() or f'exit code {done.code}'}; end what is swapped out to it")
    return True


def is_ours(node: Node, number: int, mark: str, size: int) -> bool:
    """Whether a zram device is the one that we marked with the UUID ``mark``, or is about to be: nothing stands on it yet.

    One that has another size than ours, or whose first page holds something else, is somebody else's.
    """
    found = text_of(node, zram_knob(number, "disksize"))
    if found == "0":
        return zram_path(number) not in {area.path for area in areas(node)}
    if found != str(size):
        return False
    head = node.run(Command(("head", "-c", str(HEADER), "--", zram_path(number)))).out
    first = head.encode("utf-8", "replace")
    if not first.strip(b"\0"):
        return zram_path(number) not in {area.path for area in areas(node)}
    return _uuid(node, number) == mark


def _uuid(node: Node, number: int) -> str:
    """The UUID in a swap area's header (linux/swap.h: union swap_header); '' where there is none."""
    wanted = ("od", "-An", "-v", "-tx1", "-j", str(_UUID_AT), "-N", "16", "--", zram_path(number))
    digits = re.sub(r"\s", "", node.run(Command(wanted)).out)
    return str(uuid.UUID(digits)) if re.fullmatch(r"[0-9a-f]{32}", digits) else ""


def remove_zram(node: Node, number: int, mark: str, size: int) -> str | None:
    """Switch off and remove our zram device; a sentence, or None where it is gone or never was ours. Raises OSError."""
    if not node.exists(zram_knob(number, "disksize")) or not is_ours(node, number, mark, size):
        return None
    used = off(node, zram_path(number))
    node.write(zram_knob(number, "reset"), b"1")
    node.write(f"{CONTROL}/hot_remove", str(number).encode())
    return f"{'switched off and removed' if used else 'removed'} compressed swap {zram_path(number)}"


def remove_file(node: Node, path: str) -> str | None:
    """Switch off and remove our swap file; a sentence, or None where it is gone. Raises OSError."""
    used = off(node, path)
    if not node.exists(path):
        return None
    done = node.run(Command(("rm", "-f", "--", path)))
    if done.code:
        raise OSError(f"swap file {path} cannot be removed: {done.err.strip()}")
    return f"{'switched off and removed' if used else 'removed'} swap file {path}"
