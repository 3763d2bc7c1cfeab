# The balloon on a primary and its standby: replay goes on while the standby's pool is mostly in the balloon, and after promotion both work.
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
pg_balloon.floor = 8MB
pg_balloon.floor_per_backend = 64kB
};

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->append_conf('postgresql.conf', $settings);
$primary->start;
$primary->safe_psql('postgres', 'CREATE EXTENSION pg_balloon');
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

$standby->promote;
$standby->safe_psql('postgres', "INSERT INTO t SELECT g, 'new' FROM generate_series(1, 5000) g");
is($standby->safe_psql('postgres', 'SELECT count(*) FROM t'), '24000', 'promoted, it is written');
is($standby->safe_psql('postgres', 'SELECT pg_balloon_deflate(1024 * 1024 * 1024) > 0 AND pg_balloon_check() = 0'), 't', 'and deflates');

# A crash of the whole cluster leaves no balloon, and nothing is lost.
$standby->safe_psql('postgres', 'SELECT pg_balloon_inflate(40 * 1024 * 1024)');
$standby->stop('immediate');
$standby->start;
is($standby->safe_psql('postgres', 'SELECT ballooned_bytes FROM pg_balloon_status()'), '0', 'no balloon after a restart');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM t'), '24000', 'all rows');

$standby->stop;
$primary->stop;
done_testing();
