"""The kernel's text formats: flat keyed (``key value`` lines) and nested keyed (``key sub=value …`` lines).

The names are those of the kernel's cgroup v2 documentation. Also: how often a file per container is read.
"""

from __future__ import annotations

from collections.abc import Mapping

MANY = 10
"""With more containers than this, what changes slowly is read on every fifth tick, so that sampling stays cheap."""


def cadence(containers: int) -> int:
    """``every`` of a source that exists once per container and need not be read each second."""
    return 1 if containers <= MANY else 5


def number(text: str) -> float:
    """A non-negative decimal integer.

    Raises:
        ValueError: it is something else.
    """
    if not text.isascii() or not text.isdigit() or len(text) > 20:
        raise ValueError(f"'{text[:40]}' is not a count")
    return float(text)


def flat_keyed(raw: str, wanted: Mapping[str, str], scale: float = 1.0) -> dict[str, float]:
    """Metric name → value × scale for the ``wanted`` keys (key → metric name) of ``key value`` lines.

    A colon after the key and a unit after the value (/proc/meminfo) are ignored.

    Raises:
        ValueError: there is not a single wanted key in the text.
    """
    values: dict[str, float] = {}
    for line in raw.splitlines():
        key, _, rest = line.partition(" ")
        name = wanted.get(key.rstrip(":"))
        if name is not None:
            values[name] = number(rest.split()[0] if rest.split() else "") * scale
    if not values:
        raise ValueError(f"none of {', '.join(sorted(wanted)[:4])} … in a text that begins with '{raw[:40]}'")
    return values


def nested_keyed(raw: str) -> dict[str, dict[str, str]]:
    """Key → (sub-key → text), as in ``some avg10=0.00 … total=123``."""
    nested: dict[str, dict[str, str]] = {}
    for line in raw.splitlines():
        key, *pairs = line.split()[:64] or [""]
        if key:
            nested[key] = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    return nested
