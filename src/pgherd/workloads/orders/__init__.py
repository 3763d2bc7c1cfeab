"""Order entry: a workload derived from TPC-C's description; its results are not comparable with published TPC results."""
