# Copyright (c) 2026, pgherd maintainers
#
# kill -9 at random moments of a process that moves buffers, of the worker, and of the postmaster,
# under load: after recovery the balloon is empty, and no committed row is lost or damaged.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Balloon;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my $seed = $ENV{BALLOON_SEED} || int(rand(1e9));
srand($seed);
note("seed: $seed (BALLOON_SEED=$seed repeats it)");

my $node = start_server('crash');
my $sums = q{
SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)
	AND (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(bbalance) FROM pgbench_branches)
	AND (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(tbalance) FROM pgbench_tellers)};
my $mover = "SELECT pg_balloon_inflate(40000000);\nSELECT pg_balloon_deflate(40000000);\n";

$node->command_ok([ 'pgbench', '-i', '-q', '-s', '2', '-h', $node->host, '-p', $node->port, 'postgres' ], 'tables are made');
$node->safe_psql('postgres', "INSERT INTO pgbench_history VALUES (1, 1, 1, 0, now(), '')");
$node->append_conf('postgresql.conf', "pg_balloon.enabled = on\npg_balloon.target = 20MB\n");
$node->reload;

# Wait until the server accepts connections.
sub ready
{
	for (1 .. 600)
	{
		return 1 if system('pg_isready', '-q', '-h', $node->host, '-p', $node->port) == 0;
		sleep(0.1);
	}
	return 0;
}

for my $round (1 .. 6)
{
	my $victim = ('mover', 'worker', 'postmaster')[ $round % 3 ];
	my $name = "round $round, $victim killed";
	my @processes = (background($node, undef, '-T', '60', '-c', '2'), background($node, $mover, '-T', '60'));
	ok($node->poll_query_until('postgres', q{SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE '%pg_balloon_inflate(4%' AND pid <> pg_backend_pid()}),
		"$name: buffers move");
	sleep(0.1 + rand(0.5));
	my $crashes = () = slurp_file($node->logfile) =~ /all server processes terminated; reinitializing/g;
	if ($victim eq 'postmaster')
	{
		$node->kill9;
	}
	else
	{
		my $pid = $node->safe_psql('postgres', $victim eq 'worker'
			? 'SELECT worker_pid FROM pg_balloon_status()'
			: q{SELECT pid FROM pg_stat_activity WHERE query LIKE '%pg_balloon_%late(4%' AND pid <> pg_backend_pid() LIMIT 1});
		is(kill('KILL', $pid), 1, "$name: it is killed");
	}
	finished($_) for @processes;
	if ($victim eq 'postmaster')
	{
		# Its orphans may still be attached to the shared memory.
		for (1 .. 600)
		{
			last if system('pg_ctl', '-s', '-w', '-D', $node->data_dir, '-l', $node->logfile, 'start') == 0;
			sleep(0.1);
		}
		$node->_update_pid(1);
	}
	else
	{
		my $now;
		for (1 .. 600)
		{
			$now = () = slurp_file($node->logfile) =~ /all server processes terminated; reinitializing/g;
			last if $now > $crashes;
			sleep(0.1);
		}
		cmp_ok($now, '>', $crashes, "$name: all processes ended");
		# A psql that is refused ends before its query is written to it, and IPC::Run dies of the broken pipe.
		ok(ready(), "$name: it serves again");
	}
	is($node->safe_psql('postgres', $sums), 't', "$name: the sums of TPC-B agree");
	sound($node, $name);
	ok($node->poll_query_until('postgres', 'SELECT ballooned_bytes = 20 * 1024 * 1024 FROM pg_balloon_status()'),
		"$name: the new worker follows the target");
}

# An immediate shutdown leaves no balloon either.
$node->append_conf('postgresql.conf', "pg_balloon.enabled = off\n");
$node->reload;
ok($node->poll_query_until('postgres', 'SELECT ballooned_bytes = 0 FROM pg_balloon_status()'), 'switched off');
$node->safe_psql('postgres', 'SELECT pg_balloon_inflate(40 * 1024 * 1024)');
$node->stop('immediate');
$node->start;
is($node->safe_psql('postgres', 'SELECT ballooned_bytes FROM pg_balloon_status()'), '0', 'no balloon after a restart');
is($node->safe_psql('postgres', $sums), 't', 'and the sums agree');
sound($node, 'at the end');
$node->stop;

done_testing();
