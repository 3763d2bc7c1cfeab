"""Execution of one trial: start drivers, sample, and count."""
