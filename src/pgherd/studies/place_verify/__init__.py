"""Verification of a placement: its hosts on this host, scaled down, with the planned CPU of each slot as load."""
