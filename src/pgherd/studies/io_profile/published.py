"""What E11 and E13 published (reference: Gary Little, n0derunner.com)."""

from __future__ import annotations

SOURCE = "Gary Little, n0derunner.com"
BURST_RATIO = f"bursts of data writes at about 10 × the WAL's rate ({SOURCE})"
WAL_SIZE = f"16–32 kB, steady, sequential, low concurrency ({SOURCE})"
WRITE_AWAIT = f"1.5 ms on average, even in bursts ({SOURCE})"
STALLS = f"at a completion target of 0.5 WAL writes stalled in checkpoints, at 0.9 they did not ({SOURCE})"
IOPS = f"more than 500,000 IOPS under 1 ms: 32 PostgreSQL VMs on 4 hosts ({SOURCE})"
"""E13's."""
MANY_DISKS = f"one database spread over several disks made more than 2 × what it made on one ({SOURCE})"
