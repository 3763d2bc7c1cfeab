"""Captured load: the statements, schema and statistics of a server, as scripts and a generator without its data."""
