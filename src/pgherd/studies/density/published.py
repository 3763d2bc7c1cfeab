"""What E1 and E2 published (reference: Gary Little, n0derunner.com; Nutanix, 4 hosts of 40 cores)."""

from __future__ import annotations

from typing import Any

SOURCE = "E1, Gary Little, n0derunner.com"

E1 = (
    # databases, fraction of the cores, thousand transactions/s
    (1, 0.025, 64.0),
    (4, 0.1, 256.0),
    (8, 0.2, 512.0),
    (16, 0.4, 1045.0),
    (24, 0.6, 1540.0),
    (32, 0.8, 1957.0),
    (40, 1.0, 2194.0),
)

CLOSE = 0.02
"""A point stands beside a published one where their fractions of the cores differ by no more than this."""

EFFICIENCY_AT_SATURATION = "85.7 % of perfect with all 160 cores given out (the article's text says > 85 %, its summary about 90 %)"
END_OF_LINEAR = "linear up to 80 % of the cores (32 of 40 databases)"
CPU_BOUND = "each database at 98 % of its 4 vCPUs"
OVERHEAD_INFERRED = "about 5 % of 160 cores = 8 cores, 2 per host"
OVERHEAD_DIRECT = "16 vCPUs 12 % busy: about 2 vCPUs per host"


def efficiency(row: tuple[int, float, float]) -> float:
    """Measured over the one-database value × N, of a published row."""
    databases, _, throughput = row
    return throughput / (databases * E1[0][2])


def efficiency_at(fraction: float) -> float | None:
    """E1's efficiency at this fraction of the cores, where it measured one close by; else None."""
    nearest = min(E1, key=lambda row: abs(row[1] - fraction))
    return efficiency(nearest) if abs(nearest[1] - fraction) <= CLOSE + 1e-9 else None


def figure() -> list[dict[str, Any]]:
    """E1's rows for the overlay: fraction, efficiency, databases, source."""
    return [{"fraction": row[1], "efficiency": efficiency(row), "databases": row[0], "source": SOURCE} for row in E1]
