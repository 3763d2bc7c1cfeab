"""Transitions, phases, verdicts, the loop over proposals, resume."""
