"""Text formats of the kernel: flat keyed (``key value`` lines), nested keyed (``key sub=value …`` lines) and /proc/PID/stat.

The names of the first two are from the kernel's cgroup v2 documentation. The module also sets the interval of per-container sources.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

MANY_CONTAINERS = 10
"""With more containers than this, slowly changing files are read on every fifth tick, to keep sampling cheap."""

TICKS = os.sysconf("SC_CLK_TCK")
"""Clock ticks per second of CPU times in /proc. All current Linux ports use 100, so the value also fits another node."""


def cadence(containers: int) -> int:
    """Return ``every`` for a source that exists once per container and need not be read each second."""
    return 1 if containers <= MANY_CONTAINERS else 5


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
