# Copyright (c) 2026, pgherd maintainers
#
# What the tests of pg_balloon share: a server with the extension, and a check for damage.
package Balloon;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(start_server sound background finished);

my $settings = q{
shared_preload_libraries = 'pg_balloon'
shared_buffers = 64MB
max_connections = 40
autovacuum = off
restart_after_crash = on
pg_balloon.min_buffers = 8MB
pg_balloon.min_buffers_per_backend = 64kB
pg_balloon.interval = 20ms
};

# Start a primary with page checksums, the extension, and further settings.
sub start_server
{
	my ($name, $more) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init(allows_streaming => 1, extra => ['--data-checksums']);
	$node->append_conf('postgresql.conf', $settings . ($more || ''));
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION pg_balloon; CREATE EXTENSION amcheck');
	return $node;
}

# No rule of the balloon is broken, no page is damaged, and indexes match their tables.
sub sound
{
	my ($node, $name) = @_;
	is( $node->safe_psql(
			'postgres', q{
SELECT pg_balloon_check() + (SELECT count(*) FROM pg_class, verify_heapam(oid::regclass)
	WHERE relkind = 'r' AND relpersistence = 'p')}),
		'0', "$name: nothing is damaged");
	$node->safe_psql(
		'postgres', q{
SELECT bt_index_check(c.oid, true) FROM pg_class c JOIN pg_am a ON a.oid = relam
	WHERE amname = 'btree' AND relkind = 'i' AND relpersistence = 'p'});
	my $log = slurp_file($node->logfile);
	unlike($log, qr/PANIC|TRAP|no unpinned buffers|invalid page|could not release memory/,
		"$name: nothing of that kind in the log");
	return;
}

# Start pgbench with these arguments, and a script if one is given.
sub background
{
	my ($node, $script, @arguments) = @_;
	my %process = (out => '', err => '');
	if (defined $script)
	{
		my $file = $node->basedir . '/script' . int(rand(1e9)) . '.sql';
		append_to_file($file, $script);
		push @arguments, '-f', $file;
	}
	local $ENV{PGAPPNAME} = 'background';
	$process{handle} = IPC::Run::start(
		[ 'pgbench', '-n', '-h', $node->host, '-p', $node->port, @arguments, 'postgres' ],
		'<', \undef, '>', \$process{out}, '2>', \$process{err});
	return \%process;
}

# Wait for it. Returns true if it succeeded.
sub finished
{
	my ($process) = @_;
	return IPC::Run::finish($process->{handle});
}

1;
