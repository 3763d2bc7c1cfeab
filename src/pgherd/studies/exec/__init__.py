"""Exec: any command as a load, in repeats, with sampling and checks as in any study."""
