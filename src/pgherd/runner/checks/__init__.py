"""Checks of a trial's results against its requirements. Pure."""
