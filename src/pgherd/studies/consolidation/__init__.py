"""Consolidation (E4, E5, E6): the best layout for databases with different busy hours, and safe overcommitment of their memory."""
