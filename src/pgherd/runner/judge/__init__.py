"""Verdicts: what was observed in a trial against what is wanted. Pure."""
