"""What E15 published (reference: TPCx-HCI's data set, as its users report it)."""

from __future__ import annotations

SOURCE = "Gary Little, n0derunner.com, of TPCx-HCI's data set: values made by E-Gen from real sources, 45 TB raw"

RATIO = 2.0
"""Bytes before ÷ after, LZ4."""

E15 = f"≈ 2:1 with LZ4 ({SOURCE})"

ENCRYPTED = "data encrypted first no longer compresses (Gary Little, n0derunner.com)"
