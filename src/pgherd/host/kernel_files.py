"""Text files of the kernel (/proc, /sys) and their common formats.

Formats: flat keyed (``key value`` lines) and nested keyed (``key sub=value …`` lines), with their names in the kernel's cgroup v2
documentation, and /proc/PID/stat.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from pgherd.node.protocol import Node

TICKS = os.sysconf("SC_CLK_TCK")
"""Clock ticks per second of CPU times in /proc. All current Linux ports use 100, so the value also fits another node."""


def text_of(node: Node, path: str) -> str:
    """Return a file's text without surrounding blanks.

    The result is '' if it is missing or unreadable.
    """
    try:
        return node.read(path).decode(errors="replace").strip()
    except OSError:
        return ""


def names_in(node: Node, directory: str) -> list[str]:
    """Return the sorted names in a directory; empty if it is missing or unreadable."""
    try:
        return node.listdir(directory)
    except OSError:
        return []


def active_word(text: str) -> str:
    """Return the word in brackets: ``always [madvise] never`` → ``madvise``.

    A text without brackets is returned as a whole.
    """
    match = re.search(r"\[(.+?)\]", text)
    return match[1] if match else text.strip()


def unescape(path: str) -> str:
    r"""Decode octal escapes such as ``\040`` in mountinfo and /proc/swaps."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def number(text: str) -> float:
    """Parse a non-negative decimal integer. Raises ValueError for any other text."""
    if not text.isascii() or not text.isdigit() or len(text) > 20:
        raise ValueError(f"'{text[:40]}' is not a count")
    return float(text)


def flat_keyed(raw: str, names: Mapping[str, str], scale: float = 1.0) -> dict[str, float]:
    """Parse ``key value`` lines into metric name → value × scale.

    A colon after the key and a unit after the value (/proc/meminfo) are ignored.

    Args:
        raw: the text.
        names: key → metric name. Other keys are skipped.
        scale: factor of all values.

    Raises:
        ValueError: the text has none of the keys, or a value is not a count.
    """
    values: dict[str, float] = {}
    for line in raw.splitlines():
        key, _, remainder = line.partition(" ")
        name = names.get(key.rstrip(":"))
        if name is not None:
            values[name] = number(remainder.split()[0] if remainder.split() else "") * scale
    if not values:
        raise ValueError(f"none of {', '.join(sorted(names)[:4])} … in a text that begins with '{raw[:40]}'")
    return values


def nested_keyed(raw: str) -> dict[str, dict[str, str]]:
    """Parse lines such as ``some avg10=0.00 … total=123`` into key → (sub-key → text)."""
    nested: dict[str, dict[str, str]] = {}
    for line in raw.splitlines():
        key, *pairs = line.split()[:64] or [""]
        if key:
            nested[key] = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    return nested


def process_fields(line: str, last: int) -> list[str]:
    """Split a line of /proc/PID/stat into the fields after the command's name. The first one has index 0.

    The name is in parentheses and may contain spaces and parentheses, so the last ``)`` closes it.

    Raises:
        ValueError: the line has no field with index ``last``.
    """
    fields = line[line.rfind(")") + 1 :].split()
    if "(" not in line or len(fields) <= last:
        raise ValueError(f"'{line[:40]}' is not a line of /proc/PID/stat")
    return fields
