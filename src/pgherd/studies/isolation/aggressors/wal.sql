-- Writes 1 MB of WAL and waits until it is on the disk.
SELECT pg_logical_emit_message(true, 'pgherd', repeat('x', 1048576));
