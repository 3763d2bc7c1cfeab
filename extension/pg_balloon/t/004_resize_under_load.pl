# Copyright (c) 2026, pgherd maintainers
#
# The pool shrinks and grows under a load that writes, while tables and databases come and go:
# no transaction fails, and no update is lost.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Balloon;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my $node = start_server('load', "fsync = off\npg_balloon.enabled = on\n");
my $seconds = $ENV{BALLOON_SECONDS} || 8;
my $sums = q{
SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)
	AND (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(bbalance) FROM pgbench_branches)
	AND (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(tbalance) FROM pgbench_tellers)};
my $change = q{
DROP TABLE IF EXISTS made;
CREATE TABLE made AS SELECT g AS id, repeat('x', 200) AS p FROM generate_series(1, 8000) g;
CREATE INDEX ON made (id);
DELETE FROM made WHERE id % 3 = 0;
VACUUM made;
TRUNCATE made;
CREATE DATABASE copied;
DROP DATABASE copied;
CHECKPOINT;
};

$node->command_ok([ 'pgbench', '-i', '-q', '-s', '4', '-h', $node->host, '-p', $node->port, 'postgres' ], 'tables are made');
my $load = background($node, undef, '-T', $seconds, '-c', '4', '-j', '2');
my $changes = background($node, $change, '-T', $seconds);
my $end = time + $seconds;
my $rounds = 0;
while (time < $end || $rounds < 3)
{
	for my $target ('50MB', '25MB', '0')
	{
		$node->append_conf('postgresql.conf', "pg_balloon.target = $target\n");
		$node->reload;
		my $reached = $target eq '50MB' ? '> 45' : $target eq '25MB' ? '= 25' : '= 0';
		$node->poll_query_until('postgres', "SELECT ballooned_bytes / 1024 / 1024 $reached FROM pg_balloon_status()")
			or die "target $target was not reached";
	}
	$rounds++;
}
pass("$rounds times down and up");
ok(finished($load), 'no transaction of the load failed') or diag($load->{err});
ok(finished($changes), 'nor any other') or diag($changes->{err});
is($node->safe_psql('postgres', $sums), 't', 'the sums of TPC-B agree');
is($node->safe_psql('postgres', 'SELECT prefetched > 0 FROM pg_stat_balloon'), 't', 'pages were read back');
sound($node, 'under load');
$node->stop;
$node->start;
is($node->safe_psql('postgres', $sums), 't', 'and after a restart');
sound($node, 'after a restart');
$node->stop;

done_testing();
