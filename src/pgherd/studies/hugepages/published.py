"""What E9 published (reference: Gary Little, n0derunner.com; PostgreSQL 11, 32 GB, shared_buffers 16 GB, scale 500, 10 clients)."""

from __future__ import annotations

SOURCE = "E9, Gary Little, n0derunner.com"
THROUGHPUT = {"none": 62190.0, "2MB": 66864.0, "1GB": 69702.0}
"""Kind of pages → transactions per second, SELECT-only, 600 s each."""
RESERVED = "8400 pages of 2 MB for shared_buffers of 16 GB"


def gain(kind: str) -> float | None:
    """How much more throughput than on ordinary pages, percent; None for a kind that was not measured."""
    return 100 * (THROUGHPUT[kind] / THROUGHPUT["none"] - 1) if kind in THROUGHPUT else None


def words(kind: str) -> str | None:
    """The published figure beside which ours stands."""
    found = gain(kind)
    if found is None or kind == "none":
        return None
    return f"{found:+.3g} % ({THROUGHPUT['none']:,.0f} → {THROUGHPUT[kind]:,.0f} tps; {SOURCE})"
