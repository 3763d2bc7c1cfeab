/*
 * pool_limits.c
 *		Minimum size of the pool outside the balloon, maximum size of the
 *		balloon, and the sessions that raise the minimum.
 *
 * A statement fails with "no unpinned buffers available" if every buffer is
 * pinned. Buffers in the balloon are pinned, so enough must stay outside for
 * all pins that the server's processes can hold together. Since 16, PostgreSQL
 * lets a process take extra pins for read-ahead and for extending only up to
 * its share of the pool, NBuffers / (MaxBackends + auxiliary processes).
 * Read-ahead takes effective_io_concurrency reads of io_combine_limit pages.
 *
 * BalloonShared.sessions counts client sessions from authentication to exit. A
 * session first increments the count and then checks the balloon.
 * inflate_chunk() reads the floor with the balloon's lock held exclusively. So
 * one of the two notices the other. Only one process at a time can hold the
 * lock with the previous floor, and it inflates at most one chunk before it
 * reads the floor again. If there is room for that chunk, the session need not
 * wait for the lock.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/autovacuum.h"
#include "postmaster/bgworker_internals.h"
#include "storage/bufmgr.h"
#include "storage/ipc.h"
#include "storage/proc.h"

#include "actuator.h"
#include "buffers.h"
#include "compat.h"
#include "guc.h"
#include "pool_limits.h"
#include "shared_state.h"

/*
 * Pins of plain scans, index scans and cursors that a process may hold in
 * addition to read-ahead.
 */
#define PLAIN_PINS 32

/* bufmgr.c extends a relation by at most that many pages at once (16 and later). */
#define EXTENSION_PINS 64

/* Streams that read ahead at the same time in one process. */
#define STREAMS 2

/*
 * Checkpointer, background writer, startup process, WAL writer, archiver, WAL
 * receiver.
 */
#define AUXILIARY_PROCESSES 6

/* Return the number of buffers that one process may pin at once. */
static int64
pins_per_backend(void)
{
	if (balloon_min_buffers_per_backend_kb >= 0)
		return (int64) balloon_min_buffers_per_backend_kb * 1024 / BLCKSZ;
#if PG_VERSION_NUM >= 170000
	{
		int64		share = NBuffers / (MaxBackends + NUM_AUXILIARY_PROCS);
		int64		reads = Max(effective_io_concurrency, maintenance_io_concurrency) + (int64) 1;
		int64		ahead = reads * io_combine_limit;

		return PLAIN_PINS + Min(share, STREAMS * Max(ahead, EXTENSION_PINS));
	}
#elif PG_VERSION_NUM >= 160000
	return PLAIN_PINS + Min(NBuffers / (MaxBackends + NUM_AUXILIARY_PROCS), EXTENSION_PINS);
#else
	return 2 * PLAIN_PINS;
#endif
}

/* Return the number of buffers that must stay outside the balloon now. */
int64
balloon_floor(void)
{
	int64		processes = pg_atomic_read_u32(&balloon->sessions);
	int64		floor = (int64) balloon_min_buffers_mb * 1024 * 1024 / BLCKSZ;

	processes += max_worker_processes + AUXILIARY_PROCESSES;
#if PG_VERSION_NUM >= 180000
	processes += Min(autovacuum_max_workers, autovacuum_worker_slots);
#else
	processes += autovacuum_max_workers;
#endif
	return Min(NBuffers, Max(floor, processes * pins_per_backend()));
}

/* Return the maximum number of buffers in the balloon. */
int64
balloon_ceiling(void)
{
	return (int64) NBuffers * balloon_max_percent / 100;
}

/*
 * From libpq/auth.h, which is not included because it needs the headers of
 * Kerberos if the server was built with it. This file accesses no member of a
 * Port.
 */
struct Port;
typedef void (*authentication_hook) (struct Port *port, int status);
extern PGDLLIMPORT authentication_hook ClientAuthentication_hook;

static authentication_hook previous_authentication = NULL;

/* Count a session that ends. */
static void
session_ends(int code, Datum argument)
{
	pg_atomic_fetch_sub_u32(&balloon->sessions, 1);
}

/*
 * Deflate what the floor requires, at most a chunk. Returns how many buffers.
 *
 * The shortfall is computed with the lock held, so that a chunk that another
 * process is inflating by the previous floor is included.
 */
static int64
deflate_to_floor(void)
{
	int64		missing;

	LWLockAcquire(balloon->lock, LW_SHARED);
	missing = Min(balloon->nballooned, balloon_floor() - (NBuffers - balloon->nballooned));
	LWLockRelease(balloon->lock);
	return missing > 0 ? balloon_deflate(Min(missing, BALLOON_CHUNK)) : 0;
}

/*
 * Count a new session, and deflate if its floor requires it. It cannot wait
 * for the worker to do so.
 */
static void
session_starts(struct Port *port, int status)
{
	if (previous_authentication)
		previous_authentication(port, status);
	if (status != STATUS_OK || balloon == NULL)
		return;
	/* after its transaction has ended and released its pins */
	on_shmem_exit(session_ends, (Datum) 0);
	pg_atomic_fetch_add_u32(&balloon->sessions, 1);	/* full barrier: reads below are not older */

	/*
	 * An inflating process takes the lock again at once, so avoid waiting for
	 * it if possible.
	 */
	if (balloon->nballooned + BALLOON_CHUNK <= NBuffers - balloon_floor())
		return;

	/*
	 * One chunk at a time: if many sessions start at once, each sees the
	 * shortfall of all.
	 */
	while (deflate_to_floor() > 0)
		;
}

/* Install the hook that counts sessions. */
void
balloon_count_sessions(void)
{
	previous_authentication = ClientAuthentication_hook;
	ClientAuthentication_hook = session_starts;
}
