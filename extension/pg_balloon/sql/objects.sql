-- Operations that scan the whole pool, while most of it is in the balloon.
CREATE TABLE kept AS SELECT g AS id, repeat('k', 300) AS filler FROM generate_series(1, 20000) g;
CREATE TABLE dropped AS SELECT * FROM kept;
CREATE TABLE truncated AS SELECT * FROM kept;
CREATE UNLOGGED TABLE unlogged AS SELECT * FROM kept;
CREATE TEMP TABLE temporary AS SELECT * FROM kept;
SELECT pg_balloon_inflate(40 * 1024 * 1024);

CHECKPOINT;
TRUNCATE truncated;
DROP TABLE dropped;
VACUUM FULL kept;
VACUUM (FREEZE) unlogged;
REINDEX TABLE kept;
ALTER TABLE unlogged SET LOGGED;
SELECT count(*), sum(id) FROM kept;
SELECT count(*) FROM truncated;
SELECT count(*), sum(id) FROM unlogged;
SELECT count(*), sum(id) FROM temporary;

CREATE DATABASE balloon_copied;
CREATE DATABASE balloon_logged STRATEGY wal_log;
CREATE DATABASE balloon_files STRATEGY file_copy;
DROP DATABASE balloon_copied;
DROP DATABASE balloon_logged;
DROP DATABASE balloon_files;

SELECT ballooned_bytes FROM pg_balloon_status();
SELECT pg_balloon_check();
SELECT pg_balloon_deflate(1024 * 1024 * 1024);
DROP TABLE kept, truncated, unlogged, temporary;
DROP EXTENSION pg_balloon;
