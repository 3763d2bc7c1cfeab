"""Transitions, phases, checks, the loop over proposals, resume."""
