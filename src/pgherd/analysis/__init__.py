"""Numbers in, findings out: scaling models, statistics of repeats. No I/O."""
