/*
 * floors.c
 *		How many buffers must stay outside the balloon.
 *
 * A statement fails with "no unpinned buffers available" when every buffer is
 * pinned. Buffers in the balloon are pinned too, so as many must stay outside
 * as the server's processes may pin together. Since 16 PostgreSQL lets a
 * process take further pins for reading ahead and for extending only up to
 * its share of the pool, NBuffers / (MaxBackends + auxiliary processes); reading
 * ahead wants effective_io_concurrency reads of io_combine_limit pages.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/autovacuum.h"
#include "postmaster/bgworker_internals.h"
#include "storage/bufmgr.h"
#include "storage/ipc.h"
#include "storage/proc.h"

#include "pg_balloon.h"

/* Pins of plain scans, index scans and cursors that a process may have besides reading ahead. */
#define PLAIN_PINS 32

/* bufmgr.c extends a relation by so many pages at once at most (16 and later). */
#define EXTENSION_PINS 64

/* Streams that read ahead at the same time in one process. */
#define STREAMS 2

/* Checkpointer, background writer, startup process, WAL writer, archiver, WAL receiver. */
#define AUXILIARY_PROCESSES 6

/*
 * From libpq/auth.h, which is not included because it wants the headers of
 * Kerberos where the server was built with it. Nothing of a Port is looked at.
 */
struct Port;
typedef void (*authentication_hook) (struct Port *port, int status);
extern PGDLLIMPORT authentication_hook ClientAuthentication_hook;

static authentication_hook previous_authentication = NULL;

/* Buffers that one process may pin at once. */
int64
balloon_pins_per_backend(void)
{
	if (balloon_floor_per_backend_kb >= 0)
		return (int64) balloon_floor_per_backend_kb * 1024 / BLCKSZ;
#if PG_VERSION_NUM >= 170000
	{
		int64		share = NBuffers / (MaxBackends + NUM_AUXILIARY_PROCS);
		int64		ahead = ((int64) Max(effective_io_concurrency, maintenance_io_concurrency) + 1) * io_combine_limit;

		return PLAIN_PINS + Min(share, STREAMS * Max(ahead, EXTENSION_PINS));
	}
#elif PG_VERSION_NUM >= 160000
	return PLAIN_PINS + Min(NBuffers / (MaxBackends + NUM_AUXILIARY_PROCS), EXTENSION_PINS);
#else
	return 2 * PLAIN_PINS;
#endif
}

/* Buffers that must stay outside the balloon now. */
int64
balloon_floor(void)
{
	int64		processes = pg_atomic_read_u32(&balloon->clients);
	int64		floor = (int64) balloon_floor_mb * 1024 * 1024 / BLCKSZ;

	processes += max_worker_processes + AUXILIARY_PROCESSES;
#if PG_VERSION_NUM >= 180000
	processes += Min(autovacuum_max_workers, autovacuum_worker_slots);
#else
	processes += autovacuum_max_workers;
#endif
	return Min(NBuffers, Max(floor, processes * balloon_pins_per_backend()));
}

/* Buffers that may be in the balloon at most. */
int64
balloon_ceiling(void)
{
	return (int64) NBuffers * balloon_ceiling_percent / 100;
}

static void
client_leaves(int code, Datum argument)
{
	pg_atomic_fetch_sub_u32(&balloon->clients, 1);
}

/*
 * Each new session raises the floor, and gives buffers back itself if it has
 * to: it cannot wait for the worker.
 */
static void
client_comes(struct Port *port, int status)
{
	int64		missing;

	if (previous_authentication)
		previous_authentication(port, status);
	if (status != STATUS_OK || balloon == NULL)
		return;
	before_shmem_exit(client_leaves, (Datum) 0);
	pg_atomic_fetch_add_u32(&balloon->clients, 1);
	if (balloon->nballooned == 0)
		return;

	/* With the lock, so that a chunk that somebody is just taking by the old floor is seen. */
	LWLockAcquire(balloon->lock, LW_SHARED);
	missing = Min(balloon->nballooned, balloon_floor() - (NBuffers - balloon->nballooned));
	LWLockRelease(balloon->lock);
	if (missing > 0)
		balloon_deflate(missing);
}

void
balloon_watch_clients(void)
{
	previous_authentication = ClientAuthentication_hook;
	ClientAuthentication_hook = client_comes;
}
