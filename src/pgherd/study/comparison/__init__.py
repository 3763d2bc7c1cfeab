"""Comparison of variants in randomized blocks: options, trials, statistics and answer. No I/O."""
