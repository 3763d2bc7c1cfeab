"""Workload ``orders``: order entry, derived from the TPC-C specification. Results are not comparable with published TPC results."""
