"""Several hosts as one: their agents called together, a trial cut into parts, the results put together."""
