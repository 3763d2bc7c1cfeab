-- Writes and reads about 14 MB of temporary files.
SET work_mem = '64kB';
SELECT count(*) FROM generate_series(1, 1000000);
