# Copyright (c) 2026, pgherd maintainers
#
# The balloon on a primary and its standby: replay continues while buffers of the standby's pool
# leave and return, pages are read back there, and after promotion both work.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $settings = q{
shared_preload_libraries = 'pg_balloon'
shared_buffers = 64MB
max_connections = 20
autovacuum = off
pg_balloon.min_buffers = 8MB
pg_balloon.min_buffers_per_backend = 64kB
pg_balloon.interval = 20ms
};
my $damage = q{
SELECT (SELECT count(*) FROM pg_class, verify_heapam(oid::regclass) WHERE relkind = 'r' AND relpersistence = 'p')
	+ pg_balloon_check()
};

my $indexes = q{
SELECT bt_index_check(c.oid, true) FROM pg_class c JOIN pg_am a ON a.oid = relam
	WHERE amname = 'btree' AND relkind = 'i' AND relpersistence = 'p'
};

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1, extra => ['--data-checksums']);
$primary->append_conf('postgresql.conf', $settings);
$primary->start;
$primary->safe_psql('postgres', 'CREATE EXTENSION pg_balloon; CREATE EXTENSION amcheck');
$primary->safe_psql('postgres', "CREATE TABLE t AS SELECT g AS id, repeat('x', 400) AS p FROM generate_series(1, 20000) g");
$primary->backup('copy');

my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'copy', has_streaming => 1);
$standby->start;
$primary->wait_for_catchup($standby);

is($standby->safe_psql('postgres', 'SELECT pg_balloon_inflate(40 * 1024 * 1024)'), '41943040', 'a standby inflates');
is($standby->safe_psql('postgres', 'SELECT sum(id) FROM t'), '200010000', 'and is read');

$primary->safe_psql('postgres', "UPDATE t SET p = p || 'y'; CREATE INDEX ON t (id); DELETE FROM t WHERE id > 19000; VACUUM t");
$primary->safe_psql('postgres', 'CREATE TABLE gone AS SELECT * FROM t; TRUNCATE gone; DROP TABLE gone');
$primary->wait_for_catchup($standby);
is($standby->safe_psql('postgres', 'SELECT count(*) FROM t'), '19000', 'replay goes on');
is($standby->safe_psql('postgres', 'SELECT pg_balloon_inflate(1024 * 1024 * 1024) > 0 AND pg_balloon_check() = 0'), 't', 'to the floor');

# The worker follows targets during heavy replay, and reads evicted pages back.
$standby->append_conf('postgresql.conf', 'pg_balloon.enabled = on');
for my $round (1 .. 3)
{
	$primary->safe_psql('postgres', "CREATE TABLE more$round AS SELECT g AS id, repeat('m', 400) AS p FROM generate_series(1, 20000) g");
	for my $target ('50MB', '0')
	{
		$standby->append_conf('postgresql.conf', "pg_balloon.target = $target");
		$standby->reload;
		$primary->safe_psql('postgres', "UPDATE t SET p = p || 'z' WHERE id % 4 = $round; VACUUM t");
	}
	$primary->safe_psql('postgres', $round == 2 ? "TRUNCATE more$round" : "DROP TABLE more$round");
}
ok($standby->poll_query_until('postgres', 'SELECT prefetched > 0 FROM pg_stat_balloon'), 'pages are read back on a standby');
$standby->append_conf('postgresql.conf', 'pg_balloon.enabled = off');
$standby->reload;
ok($standby->poll_query_until('postgres', 'SELECT ballooned_bytes = 0 FROM pg_balloon_status()'), 'switched off, everything is given back');
$standby->safe_psql('postgres', 'SELECT pg_balloon_inflate(40 * 1024 * 1024)');
$primary->wait_for_catchup($standby);
is($standby->safe_psql('postgres', 'SELECT sum(id) FROM t'), '180509500', 'all rows are there');
is($standby->safe_psql('postgres', $damage), '0', 'and nothing is damaged');
$standby->safe_psql('postgres', $indexes);	# fails if one differs from its table

$standby->promote;
$standby->safe_psql('postgres', "INSERT INTO t SELECT g, 'new' FROM generate_series(1, 5000) g");
is($standby->safe_psql('postgres', 'SELECT count(*) FROM t'), '24000', 'promoted, it is written');
is($standby->safe_psql('postgres', 'SELECT pg_balloon_deflate(1024 * 1024 * 1024) > 0 AND pg_balloon_check() = 0'), 't', 'and deflates');

# A crash of the whole cluster leaves no balloon, and no data is lost.
$standby->safe_psql('postgres', 'SELECT pg_balloon_inflate(40 * 1024 * 1024)');
$standby->stop('immediate');
$standby->start;
is($standby->safe_psql('postgres', 'SELECT ballooned_bytes FROM pg_balloon_status()'), '0', 'no balloon after a restart');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM t'), '24000', 'all rows');
is($standby->safe_psql('postgres', $damage), '0', 'and nothing is damaged');
$standby->safe_psql('postgres', $indexes);

$standby->stop;
$primary->stop;
done_testing();
