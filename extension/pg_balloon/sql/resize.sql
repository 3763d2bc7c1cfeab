-- Buffers leave the pool and return; no data is lost, and floor and ceiling hold.
CREATE TABLE numbers (id int PRIMARY KEY, filler text);
INSERT INTO numbers SELECT g, repeat('x', 500) FROM generate_series(1, 40000) g;
SELECT pg_balloon_reset();

-- The requested size is moved. Some dirty pages must be written for it.
SELECT pg_balloon_inflate(48 * 1024 * 1024);
SELECT ballooned_bytes, balloon_resident_bytes, resident_bytes <= shared_buffers_bytes - ballooned_bytes + 1024 * 1024 AS returned FROM pg_balloon_status();
SELECT inflations, inflated_unused + inflated_clean AS taken, buffers_written > 0 AS wrote, released_bytes, limit_hits FROM pg_stat_balloon;
SELECT pg_balloon_check();
SELECT count(*), sum(id), sum(length(filler)) FROM numbers;

-- The floor of 8 MB holds for any request.
SELECT pg_balloon_inflate(1024 * 1024 * 1024) <= 8 * 1024 * 1024 AS rest;
SELECT shared_buffers_bytes - ballooned_bytes >= floor_bytes AS floor_holds, shared_buffers_bytes - ballooned_bytes < floor_bytes + 1024 * 1024 AS nearly_reached
  FROM pg_balloon_status();
SELECT limit_hits > 0 AS floor_hit FROM pg_stat_balloon;

-- The server works in the remaining pool, also with sorts, parallel scans and index builds.
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

-- Deflate a part, then the rest. Requesting more than the balloon holds is no error.
SELECT pg_balloon_deflate(16 * 1024 * 1024);
SELECT pg_balloon_deflate(1024 * 1024 * 1024) > 0 AS rest;
SELECT pg_balloon_deflate(1024 * 1024 * 1024);
SELECT ballooned_bytes FROM pg_balloon_status();
SELECT inflations >= 2 AS inflations, deflations, deflated = inflated_unused + inflated_clean AS all_back FROM pg_stat_balloon;
SELECT count(*), sum(id), sum(length(filler)) FROM numbers;
SELECT pg_balloon_check();

-- Without writing, dirty pages stay in the pool.
SELECT pg_balloon_reset();
UPDATE numbers SET filler = filler || 'z';
SELECT pg_balloon_inflate(1024 * 1024 * 1024, write => false) > 0 AS some;
SELECT buffers_written FROM pg_stat_balloon;
SELECT pg_balloon_deflate(1024 * 1024 * 1024) > 0 AS back;

-- In a transaction that is rolled back, and during a cursor's loop.
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
