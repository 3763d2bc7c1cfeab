-- Writes and reads 64 MB of private memory: memory bandwidth and the processor's cache.
SELECT length(repeat(repeat('x', 1048576), 32));
