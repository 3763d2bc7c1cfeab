"""A trial's phases: drivers started and ended at one instant, what is watched meanwhile, and what it came to."""
