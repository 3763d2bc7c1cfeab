-- Sizes below depend on these settings of pg_balloon.conf, with which the tests' own server starts.
SELECT name, setting, unit FROM pg_settings
 WHERE name IN ('block_size', 'shared_buffers', 'pg_balloon.min_buffers', 'pg_balloon.min_buffers_per_backend', 'pg_balloon.max_balloon_percent')
 ORDER BY name COLLATE "C";

-- Objects, parameters and their units, and errors of wrong input.
CREATE EXTENSION pg_balloon;
SELECT extversion FROM pg_extension WHERE extname = 'pg_balloon';
SELECT name, unit, context, vartype, boot_val FROM pg_settings WHERE name LIKE 'pg\_balloon.%' ORDER BY name COLLATE "C";
SET pg_balloon.enabled = on;
SET pg_balloon.no_such_setting = 1;

-- The worker starts within a moment.
DO $$
BEGIN
    FOR i IN 1..600 LOOP
        EXIT WHEN (SELECT worker_pid FROM pg_balloon_status()) IN (SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_balloon');
        PERFORM pg_sleep(0.1), pg_stat_clear_snapshot();
    END LOOP;
END $$;
SELECT backend_type FROM pg_stat_activity WHERE backend_type LIKE 'pg_balloon%';

-- Status and counters return one row each before the first use.
SELECT usable, unusable_reason, enabled, shared_buffers_bytes, ballooned_bytes, target_bytes, floor_bytes, ceiling_bytes,
       resident_bytes BETWEEN 1 AND shared_buffers_bytes AS resident, balloon_resident_bytes, decision, worker_pid IS NOT NULL AS worker
  FROM pg_balloon_status();
SELECT inflations, deflations, inflated_unused, released_bytes, inflate_decisions, deflate_decisions, inflate_ms, stats_reset <= now() AS reset_before FROM pg_stat_balloon;

-- Wrong input.
SELECT pg_balloon_inflate(-1);
SELECT pg_balloon_deflate(-8192);
SELECT pg_balloon_inflate(NULL) IS NULL AS null_in_null_out;
SELECT pg_balloon_inflate(0), pg_balloon_deflate(0), pg_balloon_inflate(8191);

-- A script whose version differs from the library's.
CREATE FUNCTION balloon_counters_of_another_version(OUT inflations bigint, OUT deflations bigint)
    AS '$libdir/pg_balloon', 'pg_balloon_counters' LANGUAGE C STRICT;
SELECT balloon_counters_of_another_version();
DROP FUNCTION balloon_counters_of_another_version;
SELECT pg_balloon_check();
