"""Immutable models of pgherd's terms. No I/O, and no import from other packages of pgherd."""
