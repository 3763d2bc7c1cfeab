"""How the readings of the probe 'compression' are named: a trial's result holds numbers by name and nothing else.

``compressed_bytes/CODEC/BLOCK/SEGMENT/RELATION`` is one segment's size after compression in blocks of BLOCK bytes, a block that does
not shrink counting whole; ``stored_bytes/…`` the same with each block rounded up to sectors, ``raw_bytes/SEGMENT/RELATION`` before
it. ``size_bytes/RELATION`` and ``segments/RELATION`` are of the whole relation. A relation's name may hold any character.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class Relation:
    """What was read of one relation: sizes in bytes by segment number."""

    size: float = 0.0
    segments: int = 0
    raw: dict[int, float] = field(default_factory=dict)
    compressed: dict[tuple[str, int], dict[int, float]] = field(default_factory=dict)
    stored: dict[tuple[str, int], dict[int, float]] = field(default_factory=dict)


def relations(probe: Mapping[str, float]) -> dict[str, Relation]:
    """The readings by relation, in the order of their names' first mention; what is not of this form is passed over."""
    found: dict[str, Relation] = {}
    for key, value in probe.items():
        what, _, rest = key.partition("/")
        if what in ("compressed_bytes", "stored_bytes"):
            codec, block, segment, name = rest.split("/", 3)
            one = found.setdefault(name, Relation())
            which = one.compressed if what == "compressed_bytes" else one.stored
            which.setdefault((codec, int(block)), {})[int(segment)] = value
        elif what == "raw_bytes":
            segment, name = rest.split("/", 1)
            found.setdefault(name, Relation()).raw[int(segment)] = value
        elif what == "size_bytes":
            found.setdefault(rest, Relation()).size = value
        elif what == "segments":
            found.setdefault(rest, Relation()).segments = int(value)
    return found
