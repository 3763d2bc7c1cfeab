"""Several hosts as one: agents called together, trials divided into parts, and results merged."""
