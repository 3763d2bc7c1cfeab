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
#include "storage/proc.h"

#include "compat.h"
#include "floors.h"
#include "settings.h"
#include "state.h"

/* Pins of plain scans, index scans and cursors that a process may have besides reading ahead. */
#define PLAIN_PINS 32

/* bufmgr.c extends a relation by so many pages at once at most (16 and later). */
#define EXTENSION_PINS 64

/* Streams that read ahead at the same time in one process. */
#define STREAMS 2

/* Checkpointer, background writer, startup process, WAL writer, archiver, WAL receiver. */
#define AUXILIARY_PROCESSES 6

/* Buffers that one process may pin at once. */
static int64
pins_per_backend(void)
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
	return Min(NBuffers, Max(floor, processes * pins_per_backend()));
}

/* Buffers that may be in the balloon at most. */
int64
balloon_ceiling(void)
{
	return (int64) NBuffers * balloon_ceiling_percent / 100;
}
