"""What E11 and E13 published (reference: Gary Little, n0derunner.com)."""

from __future__ import annotations

SOURCE = "E11, Gary Little, n0derunner.com"
BURST_RATIO = "bursts of data writes at about 10 × the WAL's rate"
WAL_SIZE = "16–32 kB, steady, sequential, low concurrency"
WRITE_AWAIT = "1.5 ms on average, even in bursts"
STALLS = "at a completion target of 0.5 WAL writes stalled in checkpoints, at 0.9 they did not"
IOPS = "more than 500,000 IOPS under 1 ms (32 PostgreSQL VMs on 4 hosts)"
"""E13's."""
MANY_DISKS = "one database spread over several disks made more than 2 × what it made on one (E13)"
