"""I/O profile (E11, E13): activity of the devices below a server, the effect of checkpoints, and the effect of a setting."""
