-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION pg_balloon" to load this file. \quit

CREATE FUNCTION pg_balloon_inflate(bytes bigint, write boolean DEFAULT true) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_balloon_inflate(bigint, boolean) IS
    'moves up to so many bytes of the buffer pool into the balloon, writing dirty pages if need be; returns how many';

CREATE FUNCTION pg_balloon_deflate(bytes bigint) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_balloon_deflate(bigint) IS 'gives up to so many bytes back to the buffer pool; returns how many';

CREATE FUNCTION pg_balloon_check() RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_balloon_check() IS 'number of buffers that break a rule of the balloon; anything but 0 is a defect';

CREATE FUNCTION pg_balloon_reset() RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_balloon_reset() IS 'sets the counters of pg_stat_balloon to zero';

CREATE FUNCTION pg_balloon_status(
    OUT usable boolean,               -- this server can have a balloon
    OUT why_not text,                 -- … or why it cannot
    OUT enabled boolean,              -- pg_balloon.enabled
    OUT pool_bytes bigint,            -- shared_buffers
    OUT ballooned_bytes bigint,
    OUT target_bytes bigint,          -- pg_balloon.target; null: found by itself
    OUT floor_bytes bigint,           -- of the pool that must stay outside the balloon now
    OUT ceiling_bytes bigint,         -- that may be in the balloon at most
    OUT resident_bytes bigint,        -- of the pool that is in memory
    OUT stuck_bytes bigint,           -- of the balloon that is in memory all the same
    OUT working_set_bytes bigint,     -- of the pool, touched within the horizon
    OUT source text,                  -- where the signals come from
    OUT place text,                   -- the group with the tightest limit
    OUT limit_bytes bigint,           -- memory that there is
    OUT available_bytes bigint,       -- … and of it what could be had without swapping
    OUT refaults_per_s double precision,
    OUT swapping_bytes_per_s double precision,
    OUT stall double precision,       -- share of the time with somebody waiting for memory or I/O
    OUT misses_per_s double precision,
    OUT miss_ms double precision,     -- what reading one page back took
    OUT state text,                   -- what the last tick made of it
    OUT decision text,                -- the last that changed something
    OUT decision_bytes bigint,
    OUT decision_reason text,
    OUT decision_at timestamptz,
    OUT worker_pid integer)
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pg_balloon_status() IS 'the balloon now: sizes, signals, and the last decision with its reason';

CREATE FUNCTION pg_balloon_counters(
    OUT inflations bigint,
    OUT deflations bigint,
    OUT taken_unused bigint,
    OUT taken_clean bigint,
    OUT written bigint,
    OUT busy bigint,
    OUT given_back bigint,
    OUT punched_bytes bigint,
    OUT floor_hits bigint,
    OUT prefetched bigint,
    OUT prefetch_stale bigint,
    OUT ticks bigint,
    OUT glances bigint,              -- ticks at peace, for which little was read
    OUT gives bigint,
    OUT takes bigint,
    OUT inflate_ms double precision,
    OUT deflate_ms double precision,
    OUT prefetch_ms double precision,
    OUT stats_reset timestamptz)
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

CREATE VIEW pg_stat_balloon AS SELECT * FROM pg_balloon_counters();
COMMENT ON VIEW pg_stat_balloon IS 'what the balloon has done since stats_reset; counts of buffers unless a name says otherwise';

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
