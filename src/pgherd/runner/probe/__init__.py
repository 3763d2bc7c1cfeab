"""Trials without a load: something is measured of what a deployment holds."""
