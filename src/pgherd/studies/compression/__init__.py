"""Compression (E15): how far each kind of data compresses, by codec and block size, and what encryption leaves of it."""
