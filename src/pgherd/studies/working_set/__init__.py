"""Working set (E7): how much memory a workload needs, as the knee of throughput against memory and against shared buffers."""
