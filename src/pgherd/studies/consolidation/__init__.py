"""Consolidation (E4, E5, E6): which layout suits databases whose busy hours differ, and how far their memory may be overcommitted."""
