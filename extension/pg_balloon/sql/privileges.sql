-- Status and counters are for monitoring, the rest for superusers.
CREATE ROLE balloon_user;
CREATE ROLE balloon_monitor IN ROLE pg_monitor;

SET ROLE balloon_user;
SELECT pg_balloon_inflate(0);
SELECT pg_balloon_deflate(0);
SELECT pg_balloon_check();
SELECT pg_balloon_reset();
SELECT pg_balloon_status();
SELECT count(*) FROM pg_stat_balloon;

SET ROLE balloon_monitor;
SELECT pg_balloon_inflate(0);
SELECT pg_balloon_check();
SELECT pg_balloon_reset();
SELECT usable FROM pg_balloon_status();
SELECT count(*) FROM pg_stat_balloon;

RESET ROLE;
DROP ROLE balloon_user, balloon_monitor;
