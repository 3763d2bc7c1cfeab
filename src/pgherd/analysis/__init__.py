"""Numerical analysis: numbers in, findings out. No I/O."""
