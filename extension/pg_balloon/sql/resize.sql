-- Buffers leave the pool and come back; nothing is lost, and floor and ceiling hold.
CREATE TABLE numbers (id int PRIMARY KEY, filler text);
INSERT INTO numbers SELECT g, repeat('x', 500) FROM generate_series(1, 40000) g;
SELECT pg_balloon_reset();

-- What was asked for is what is moved. Some dirty pages must be written for it.
SELECT pg_balloon_inflate(48 * 1024 * 1024);
SELECT ballooned_bytes, stuck_bytes, resident_bytes <= pool_bytes - ballooned_bytes + 1024 * 1024 AS returned FROM pg_balloon_status();
SELECT inflations, taken_unused + taken_clean AS taken, written > 0 AS wrote, punched_bytes, floor_hits FROM pg_stat_balloon;
SELECT pg_balloon_check();
SELECT count(*), sum(id), sum(length(filler)) FROM numbers;

-- Not below the floor of 8 MB, whatever is asked for.
SELECT pg_balloon_inflate(1024 * 1024 * 1024) <= 8 * 1024 * 1024 AS rest;
SELECT pool_bytes - ballooned_bytes >= floor_bytes AS floor_holds, pool_bytes - ballooned_bytes < floor_bytes + 1024 * 1024 AS nearly_reached
  FROM pg_balloon_status();
SELECT floor_hits > 0 AS floor_hit FROM pg_stat_balloon;

-- The server works in what is left, also with sorts, parallel scans and index builds.
SET max_parallel_workers_per_gather = 2;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SELECT count(*), sum(id) FROM numbers;
CREATE INDEX numbers_id_filler ON numbers (id, filler);
SELECT count(*) FROM numbers a JOIN numbers b USING (id);
UPDATE numbers SET filler = filler || 'y' WHERE id % 10 = 0;
SELECT count(*), sum(id), sum(length(filler)) FROM numbers;
SELECT pg_balloon_check();

-- Part of it back, then the rest; more than there is is no error.
SELECT pg_balloon_deflate(16 * 1024 * 1024);
SELECT pg_balloon_deflate(1024 * 1024 * 1024) > 0 AS rest;
SELECT pg_balloon_deflate(1024 * 1024 * 1024);
SELECT ballooned_bytes FROM pg_balloon_status();
SELECT inflations >= 2 AS inflations, deflations, given_back = taken_unused + taken_clean AS all_back FROM pg_stat_balloon;
SELECT count(*), sum(id), sum(length(filler)) FROM numbers;
SELECT pg_balloon_check();

-- Without writing, dirty pages stay in the pool.
SELECT pg_balloon_reset();
UPDATE numbers SET filler = filler || 'z';
SELECT pg_balloon_inflate(1024 * 1024 * 1024, write => false) > 0 AS some;
SELECT written FROM pg_stat_balloon;
SELECT pg_balloon_deflate(1024 * 1024 * 1024) > 0 AS back;

-- In a transaction that is rolled back, and in a cursor's loop.
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM numbers ORDER BY id;
FETCH 2 FROM c;
SELECT pg_balloon_inflate(40 * 1024 * 1024) AS inflated;
FETCH 2 FROM c;
ROLLBACK;
SELECT ballooned_bytes FROM pg_balloon_status();
SELECT pg_balloon_check();
SELECT pg_balloon_deflate(1024 * 1024 * 1024);
DROP TABLE numbers;
