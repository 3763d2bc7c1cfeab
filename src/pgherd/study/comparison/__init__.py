"""Comparison of variants in randomized blocks: options, trials, statistics, answer. No I/O."""
