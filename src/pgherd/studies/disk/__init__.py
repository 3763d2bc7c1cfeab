"""Disk (E12): how many I/Os a volume serves, how fast, at which latency, and the bottleneck of each figure."""
