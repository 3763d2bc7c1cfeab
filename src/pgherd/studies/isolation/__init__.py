"""Isolation: what a noisy neighbour costs a database, by kind of load and by scheme of containers."""
