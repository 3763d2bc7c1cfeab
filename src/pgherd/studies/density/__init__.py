"""Density (E1, E2, E18): how many databases a host can run, how far from linear it scales, and why."""
