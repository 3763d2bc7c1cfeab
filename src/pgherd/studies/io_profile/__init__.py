"""I/O profile (E11, E13): what the devices below a server do, what checkpoints change, and what a setting changes."""
