/* pg_balloon--1.0.sql: functions and views of pg_balloon. Copyright (c) 2026, pgherd maintainers */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION pg_balloon" to load this file. \quit

CREATE FUNCTION pg_balloon_inflate(bytes bigint, write boolean DEFAULT true) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_balloon_inflate(bigint, boolean) IS
    'moves up to that many bytes of the buffer pool into the balloon, and returns how many; writes dirty pages if "write"';

CREATE FUNCTION pg_balloon_deflate(bytes bigint) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_balloon_deflate(bigint) IS
    'returns up to that many bytes to the buffer pool, and returns how many';

CREATE FUNCTION pg_balloon_check() RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_balloon_check() IS
    'counts the buffers that break a rule of the balloon; more than 0 is a bug';

CREATE FUNCTION pg_balloon_reset() RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_balloon_reset() IS 'sets the counters of pg_stat_balloon to zero';

CREATE FUNCTION pg_balloon_status(
    OUT usable boolean,                 -- the balloon works on this server
    OUT unusable_reason text,           -- reason why it does not
    OUT enabled boolean,                -- pg_balloon.enabled
    OUT shared_buffers_bytes bigint,
    OUT ballooned_bytes bigint,         -- part of the pool that is in the balloon
    OUT target_bytes bigint,            -- pg_balloon.target; null: automatic
    OUT floor_bytes bigint,             -- part of the pool that must stay outside the balloon now
    OUT ceiling_bytes bigint,           -- maximum size of the balloon
    OUT resident_bytes bigint,          -- part of the pool that is in memory
    OUT balloon_resident_bytes bigint,  -- part of the balloon that is in memory; should be 0
    OUT working_set_bytes bigint,       -- part of the pool accessed within pg_balloon.idle_after
    OUT source text,                    -- source of the memory signals
    OUT cgroup_path text,               -- cgroup with the tightest limit
    OUT limit_bytes bigint,             -- its limit
    OUT available_bytes bigint,         -- memory available below it without swapping
    OUT refaults_per_s double precision,
    OUT swap_out_bytes_per_s double precision,  -- growth of the memory in swap
    OUT psi_share double precision,     -- share of time with a task waiting for memory or I/O
    OUT misses_per_s double precision,
    OUT page_read_ms double precision,  -- time to read one page back
    OUT state text,                     -- reason of the last tick's decision
    OUT decision text,                  -- last decision that changed something
    OUT decision_bytes bigint,
    OUT decision_reason text,
    OUT decision_at timestamptz,
    OUT worker_pid integer)
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_balloon_status() IS
    'current sizes, memory signals, and the last decision with its reason';

CREATE FUNCTION pg_balloon_counters(
    OUT inflations bigint,
    OUT deflations bigint,
    OUT inflated_unused bigint,
    OUT inflated_clean bigint,
    OUT buffers_written bigint,
    OUT skipped_busy bigint,
    OUT deflated bigint,
    OUT released_bytes bigint,
    OUT limit_hits bigint,
    OUT prefetched bigint,
    OUT prefetch_skipped bigint,
    OUT ticks bigint,
    OUT light_ticks bigint,
    OUT inflate_decisions bigint,
    OUT deflate_decisions bigint,
    OUT inflate_ms double precision,
    OUT deflate_ms double precision,
    OUT prefetch_ms double precision,
    OUT stats_reset timestamptz)
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

CREATE VIEW pg_stat_balloon AS SELECT * FROM pg_balloon_counters();
COMMENT ON VIEW pg_stat_balloon IS
    'activity of the balloon since stats_reset; counts of buffers by default';

REVOKE ALL ON FUNCTION pg_balloon_inflate(bigint, boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION pg_balloon_deflate(bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION pg_balloon_check() FROM PUBLIC;
REVOKE ALL ON FUNCTION pg_balloon_reset() FROM PUBLIC;
REVOKE ALL ON FUNCTION pg_balloon_status() FROM PUBLIC;
REVOKE ALL ON FUNCTION pg_balloon_counters() FROM PUBLIC;
REVOKE ALL ON pg_stat_balloon FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pg_balloon_status() TO pg_monitor;
GRANT EXECUTE ON FUNCTION pg_balloon_counters() TO pg_monitor;
GRANT SELECT ON pg_stat_balloon TO pg_monitor;
