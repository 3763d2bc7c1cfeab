"""PostgreSQL: binaries, initdb, settings, start and stop, golden copies and clones."""
