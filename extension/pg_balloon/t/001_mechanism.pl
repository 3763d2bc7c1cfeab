# Copyright (c) 2026, pgherd maintainers
#
# The mechanism in both kinds of shared memory: buffers leave the pool and return, the operating
# system gets their memory, floor and target hold, evicted pages are read back.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Balloon;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $mb = 1024 * 1024;
my $rows = q{SELECT count(*) || ' ' || sum(id) FROM t};

for my $kind ('mmap', 'sysv')
{
	my $node = start_server($kind, "shared_memory_type = $kind\nshared_buffers = 128MB\nhuge_pages = off\n");
	my $status = sub { $node->safe_psql('postgres', "SELECT $_[0] FROM pg_balloon_status()") };
	my $set = sub {
		$node->append_conf('postgresql.conf', join '', map { "pg_balloon.$_\n" } @_);
		$node->reload;
	};

	$node->safe_psql('postgres', q{
CREATE TABLE t AS SELECT g AS id, repeat('x', 900) AS p FROM generate_series(1, 100000) g;
CREATE INDEX ON t (id);
CHECKPOINT});
	$node->safe_psql('postgres', 'SELECT sum(length(p)) FROM t WHERE id > 0; SET enable_seqscan = off; SELECT sum(length(p)) FROM t WHERE id > 0');

	# by hand
	is($node->safe_psql('postgres', "SELECT pg_balloon_inflate(64 * $mb)"), 64 * $mb, "$kind: inflated");
	is($status->('balloon_resident_bytes'), '0', "$kind: its memory is released");
	cmp_ok($status->('resident_bytes'), '<=', 66 * $mb, "$kind: the rest is resident at most");
	is($node->safe_psql('postgres', $rows), '100000 5000050000', "$kind: all rows are there");
	$node->safe_psql('postgres', "SELECT pg_balloon_inflate(1024 * $mb)");
	is($status->('shared_buffers_bytes - ballooned_bytes >= floor_bytes'), 't', "$kind: the floor holds");
	is($node->safe_psql('postgres', $rows), '100000 5000050000', "$kind: all rows in the smallest pool");
	$node->safe_psql('postgres', "SELECT pg_balloon_deflate(1024 * $mb)");
	is($status->('ballooned_bytes'), '0', "$kind: deflated");
	sound($node, $kind);

	# by a target
	$set->('enabled = on', 'target = 96MB');
	ok($node->poll_query_until('postgres', "SELECT ballooned_bytes = 96 * $mb FROM pg_balloon_status()"), "$kind: a target is followed");
	is($status->('decision_reason'), 'pg_balloon.target', "$kind: and named as the reason");
	$set->('target = 0');
	ok($node->poll_query_until('postgres', 'SELECT ballooned_bytes = 0 FROM pg_balloon_status()'), "$kind: down to none");
	ok($node->poll_query_until('postgres', 'SELECT prefetched > 100 FROM pg_stat_balloon'), "$kind: pages are read back");
	$set->('target = 32MB');
	ok($node->poll_query_until('postgres', "SELECT ballooned_bytes = 32 * $mb FROM pg_balloon_status()"), "$kind: and up again");
	$set->('enabled = off');
	ok($node->poll_query_until('postgres', 'SELECT ballooned_bytes = 0 FROM pg_balloon_status()'), "$kind: switched off, all return");
	is($node->safe_psql('postgres', $rows), '100000 5000050000', "$kind: all rows at the end");
	sound($node, "$kind at the end");
	$node->stop;
}

done_testing();
