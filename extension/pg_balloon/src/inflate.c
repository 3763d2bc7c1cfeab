/*
 * inflate.c
 *		Which buffers move into the balloon, and how many: floor and ceiling,
 *		sessions that raise the floor, and dirty pages, which are written first.
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
 * inflate_chunk() reads floor and ceiling, and the number of buffers in the
 * balloon, with BalloonShared.lock held exclusively, and releases it only after
 * the buffers have moved. So one of the two notices the other. Only one process
 * at a time can hold the lock with the previous floor, and it inflates at most
 * one chunk before it reads the floor again. If there is room for that chunk,
 * the session need not wait for the lock.
 *
 * A page is written without that lock, by an ordinary pin and with its content
 * lock shared. That lock is taken only if it is free, so no long holder blocks
 * the write. The page can be dirty again, pinned or gone when the buffer is
 * due to move. It is then passed over. Write errors are thrown while no lock
 * of this extension is held; the end of the transaction releases the rest.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#include "postgres.h"

#include <unistd.h>

#include "miscadmin.h"
#include "portability/instr_time.h"
#include "postmaster/autovacuum.h"
#include "postmaster/bgworker_internals.h"
#include "postmaster/interrupt.h"
#include "storage/bufmgr.h"
#include "storage/ipc.h"
#include "storage/proc.h"

#include "actuator.h"
#include "buffers.h"
#include "compat.h"
#include "guc.h"
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

/* Buffers of balloon_write() between two looks at interrupts and its deadline. */
#define LOOK_EVERY 1024

/*
 * Store how many buffers one process may pin at once, by the configuration
 * file. A session may have other settings, but the floor is that of all.
 */
void
balloon_store_pins(void)
{
#if PG_VERSION_NUM >= 170000
	int64		reads = Max(effective_io_concurrency, maintenance_io_concurrency) + (int64) 1;

	balloon->pins = PLAIN_PINS + Min(NBuffers / (MaxBackends + NUM_AUXILIARY_PROCS),
									 STREAMS * Max(reads * io_combine_limit, EXTENSION_PINS));
#elif PG_VERSION_NUM >= 160000
	balloon->pins = PLAIN_PINS + Min(NBuffers / (MaxBackends + NUM_AUXILIARY_PROCS), EXTENSION_PINS);
#else
	balloon->pins = 2 * PLAIN_PINS;
#endif
}

/* Return the number of buffers that must stay outside the balloon now. */
int64
balloon_floor(void)
{
	int64		processes = pg_atomic_read_u32(&balloon->sessions);
	int64		floor = (int64) balloon_min_buffers_mb * 1024 * 1024 / BLCKSZ;
	int64		pins = balloon_min_buffers_per_backend_kb < 0 ? balloon->pins :
		(int64) balloon_min_buffers_per_backend_kb * 1024 / BLCKSZ;

	processes += max_worker_processes + AUXILIARY_PROCESSES;
#if PG_VERSION_NUM >= 180000
	processes += Min(autovacuum_max_workers, autovacuum_worker_slots);
#else
	processes += autovacuum_max_workers;
#endif
	return Min(NBuffers, Max(floor, processes * pins));
}

/* Return the maximum number of buffers in the balloon. */
int64
balloon_ceiling(void)
{
	return Min((int64) NBuffers * balloon_max_percent / 100,
			   NBuffers - BALLOON_STAY * balloon_chunks());
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

/*
 * Temperature of a chunk, by which chunks are sorted. Computed without a lock,
 * so it may be out of date.
 */
typedef struct ChunkRank
{
	int			chunk;
	int			heat;			/* mean of its buffers outside the balloon */
} ChunkRank;

#define HEAT_PINNED 20			/* a pinned buffer; as much as ten accessed ones */
#define HEAT_PAGE 1				/* a buffer with a page */
#define HEAT_USE 2				/* in addition, each unit of its usage count */
#define HEAT_DIRTY 1			/* in addition, a dirty page */

/*
 * Equally cold chunks are ordered by neighborhoods of 64 MB, in small pools of
 * 1/32. They are large enough that the remaining pool takes hardly more page
 * tables than a contiguous one: one page for each 2 MB and boundary, in each
 * process. They are small enough for the clock sweep to pass over one in a
 * millisecond.
 */
#define NEIGHBOURS 32
#define NEIGHBOURHOODS 32

/* Maximum usage count of moved buffers, pass by pass. The last pass moves all. */
static const int usage_passes[] = {1, BM_MAX_USAGE_COUNT};

/*
 * Map a block into this process, and read it back if it is swapped out.
 *
 * The kernel copies written data with page faults disabled. If it meets an
 * unmapped page in the middle of a block of the file (before 16, buffers do
 * not begin at a page boundary), it first reads that block from disk.
 */
static void
fault_in_block(const char *block)
{
	static long page_size = 0;

	if (page_size == 0)
		page_size = sysconf(_SC_PAGESIZE);
	for (const volatile char *at = block; at < block + BLCKSZ; at += page_size)
		(void) *at;
	(void) *(const volatile char *) (block + BLCKSZ - 1);
}

/*
 * Write one dirty, unpinned buffer. Requires a resource owner, and no lock.
 * Returns false if the buffer is not free to write.
 */
static bool
write_one(int id)
{
	BufferDesc *buffer = GetBufferDescriptor(id);
	LWLock	   *content = BufferDescriptorGetContentLock(buffer);
	BufferTag	tag;
	uint32		state;

	state = LockBufHdr(buffer);
	tag = buffer->tag;
	UnlockBufHdr(buffer, state);
	/* A page whose last write failed must not stop others: checkpoints retry it. */
	if (BUF_STATE_GET_REFCOUNT(state) != 0 ||
		(state & (BM_VALID | BM_DIRTY | BM_IO_ERROR)) != (BM_VALID | BM_DIRTY))
		return false;

	/* An ordinary pin, taken only if the buffer still holds that page. */
	if (!ReadRecentBuffer(balloon_locator(&tag), balloon_fork(&tag), tag.blockNum, id + 1))
		return false;
	fault_in_block(BufferGetPage(id + 1));
	if (!LWLockConditionalAcquire(content, LW_SHARED))
	{
		ReleaseBuffer(id + 1);
		return false;
	}
	FlushOneBuffer(id + 1);
	LWLockRelease(content);
	ReleaseBuffer(id + 1);
	return true;
}

/* Add written pages to the counters. */
static void
count_dirty_writes(int64 written)
{
	LWLockAcquire(balloon->lock, LW_EXCLUSIVE);
	balloon->counters.buffers_written += written;
	LWLockRelease(balloon->lock);
}

/*
 * Return the sort key of a chunk. Any number of chunks at the front of this
 * order is spread evenly over the pool: neighborhoods are ordered by the
 * fractional part of multiples of the golden ratio (Knuth, The Art of Computer
 * Programming, vol. 3, 6.4, theorem S).
 */
static uint64
chunk_order(int chunk)
{
	int			neighbours = Max(1, Min(balloon_chunks() / NEIGHBOURHOODS, NEIGHBOURS));
	/* odd, so no two are equal */
	uint32		neighbourhood = (uint32) (chunk / neighbours) * UINT32_C(2654435769);

	return (uint64) neighbourhood << 32 | (uint32) chunk;
}

/* Compare chunks by heat, then by chunk_order(). */
static int
by_heat(const void *a, const void *b)
{
	const ChunkRank *x = a;
	const ChunkRank *y = b;

	if (x->heat != y->heat)
		return x->heat < y->heat ? -1 : 1;
	return chunk_order(x->chunk) < chunk_order(y->chunk) ? -1 : 1;
}

/*
 * Sort all chunks with buffers that may move into the balloon, coldest first.
 * Returns how many.
 *
 * Whole chunks are preferred to scattered buffers, because one system call
 * releases adjacent buffers, and before 16 a lone buffer frees only half of
 * its memory. Equally cold chunks, to half a usage count, are taken evenly
 * from the whole pool, because the clock sweep has to pass over each
 * contiguous part of the balloon.
 */
static int
rank_chunks(ChunkRank *ranks)
{
	int			n = 0;

	for (int chunk = 0; chunk < balloon_chunks(); chunk++)
	{
		int			first;
		int			end;
		int			outside = 0;
		int			heat = 0;

		CHECK_FOR_INTERRUPTS();
		balloon_chunk_bounds(chunk, &first, &end);
		for (int id = first; id < end; id++)
		{
			uint32		state;

			if (balloon_has(id))
				continue;
			outside++;
			state = pg_atomic_read_u32(&GetBufferDescriptor(id)->state);
			if (BUF_STATE_GET_REFCOUNT(state) != 0)
				heat += HEAT_PINNED;
			if (state & BM_TAG_VALID)
				heat += HEAT_PAGE + HEAT_USE * BUF_STATE_GET_USAGECOUNT(state) +
					((state & BM_DIRTY) ? HEAT_DIRTY : 0);
		}
		if (outside > BALLOON_STAY)
		{
			ranks[n].chunk = chunk;
			ranks[n].heat = (heat + outside / 2) / outside;
			n++;
		}
	}
	qsort(ranks, n, sizeof(ChunkRank), by_heat);
	return n;
}

/* Return true once that many seconds have passed; 0: no deadline. */
static bool
deadline_passed(instr_time since, double seconds)
{
	instr_time	now;

	if (seconds <= 0)
		return false;
	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, since);
	return INSTR_TIME_GET_DOUBLE(now) >= seconds;
}

/* Return how many buffers may be inflated until floor or ceiling is reached. */
static int64
room_left(void)
{
	return Min(NBuffers - balloon_floor(), balloon_ceiling()) - balloon->nballooned;
}

/*
 * Move up to "want" buffers of a chunk with at most that usage count into the
 * balloon. Returns how many moved.
 *
 * Dirty ones are included if "write", and written until the deadline. With
 * "memory", buffers without a page move as well, but do not count. Increments
 * *counted by those that count, and *moved by those that moved and those that
 * were written.
 */
static int
inflate_chunk(int chunk, int64 want, int usage, bool write, bool memory, instr_time since,
			  double seconds, int64 *counted, int64 *moved)
{
	static BalloonGhost ghosts[BALLOON_CHUNK];
	int			nghosts = 0;
	int			taken = 0;
	int			unused = 0;
	int			busy = 0;
	int			outside = 0;
	int64		room;
	int			first;
	int			end;
	bool		punched;
	int			saved_errno;

	balloon_chunk_bounds(chunk, &first, &end);
	if (write)
	{
		int			written = 0;

		for (int id = first; id < end && written < want && !ShutdownRequestPending &&
			 (written == 0 || !deadline_passed(since, seconds)); id++)
		{
			uint32		state = pg_atomic_read_u32(&GetBufferDescriptor(id)->state);

			CHECK_FOR_INTERRUPTS();
			if ((state & BM_DIRTY) && BUF_STATE_GET_USAGECOUNT(state) <= usage && write_one(id))
				written++;
		}
		if (written > 0)
			count_dirty_writes(written);
		*moved += written;
	}

	LWLockAcquire(balloon->lock, LW_EXCLUSIVE);
	room = room_left();
	for (int id = first; id < end; id++)
		outside += balloon_has(id) ? 0 : 1;
	room = Min(room, outside - BALLOON_STAY);
	for (int id = first; id < end && taken < room && taken - (memory ? unused : 0) < want; id++)
	{
		uint32		state = pg_atomic_read_u32(&GetBufferDescriptor(id)->state);
		bool		had_page;

		if (balloon_has(id) || (int) BUF_STATE_GET_USAGECOUNT(state) > usage)
			continue;
		if ((state & BALLOON_BUSY) || !balloon_inflate_one(id, &ghosts[nghosts], &had_page))
		{
			busy += write || !(state & BM_DIRTY);
			continue;
		}
		taken++;
		if (had_page)
			nghosts++;
		else
			unused++;
	}
	punched = taken == 0 || balloon_punch(first, end, false);
	saved_errno = errno;
	if (!punched)
	{
		/*
		 * Keeping them gains nothing. Earlier buffers of the balloon were
		 * counted when they moved in.
		 */
		for (int id = first; id < end; id++)
			if (balloon_has(id))
			{
				balloon_deflate_one(id);
				balloon->counters.deflated++;
			}
		balloon->counters.deflated -= taken;
		if (balloon->following)
			/* for the worker; while it is off, it finds out when it is switched on */
			balloon->broken = true;
		taken = unused = 0;
	}
	else
	{
		balloon->counters.inflated_unused += unused;
		balloon->counters.inflated_clean += taken - unused;
		balloon->counters.released += (int64) taken * BLCKSZ;
	}
	balloon->counters.skipped_busy += busy;
	LWLockRelease(balloon->lock);

	if (nghosts > 0)
		ghosts_add(ghosts, nghosts);
	if (!punched)
	{
		errno = saved_errno;
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("could not release memory of the buffer pool: %m")));
	}
	*moved += taken;
	*counted += memory ? taken - unused : taken;
	return taken;
}

/*
 * Move up to that many buffers into the balloon: first those without a page
 * and cold clean ones, then dirty ones, only if "write". Floor and ceiling
 * always hold. Returns how many moved.
 *
 * It moves fewer once that many seconds have passed (0: no deadline), or if
 * the worker is requested to shut down. The caller has a resource owner if
 * "write", and holds no lock.
 *
 * With "memory", the number means memory, not a size of the balloon. Buffers
 * that were never used hold none and do not count. They move all the same,
 * because evicted pages would otherwise be read back into them.
 *
 * Each call begins with clean buffers. To avoid that it spends all its time on
 * searching for a few of them, call after call, the deadline applies only
 * after a chunk's worth has moved. For dirty ones the time starts again, and
 * the deadline applies only after one was written or moved.
 */
int64
balloon_inflate(int64 buffers, bool write, bool memory, double seconds)
{
	ChunkRank  *ranks;
	int			n;
	int64		done = 0;
	int64		counted = 0;	/* those that count toward "buffers" */
	int64		moved = 0;		/* moved or written since counts_from */
	instr_time	began;
	instr_time	counts_from;
	instr_time	passed;

	if (buffers <= 0)
		return 0;
	balloon_init_wait_event();
	INSTR_TIME_SET_CURRENT(began);
	ranks = palloc_extended(sizeof(ChunkRank) * balloon_chunks(), MCXT_ALLOC_HUGE);
	n = rank_chunks(ranks);
	LWLockAcquire(balloon->lock, LW_EXCLUSIVE);
	if (room_left() < buffers)
		balloon->counters.limit_hits++;
	LWLockRelease(balloon->lock);
	INSTR_TIME_SET_CURRENT(counts_from);
	for (int pass = 0; pass < (write ? 2 : 1) * (int) lengthof(usage_passes); pass++)
	{
		int			usage = usage_passes[pass % lengthof(usage_passes)];
		bool		writing = pass >= (int) lengthof(usage_passes);

		if (pass == (int) lengthof(usage_passes))
		{
			INSTR_TIME_SET_CURRENT(counts_from);
			moved = 0;
		}
		for (int i = 0; i < n && counted < buffers && !ShutdownRequestPending; i++)
		{
			int			taken;

			CHECK_FOR_INTERRUPTS();
			taken = inflate_chunk(ranks[i].chunk, buffers - counted, usage, writing, memory,
								  counts_from, seconds, &counted, &moved);
			done += taken;
			if (taken == 0 && room_left() <= 0)
				goto enough;
			if (moved >= (writing ? 1 : BALLOON_CHUNK) && deadline_passed(counts_from, seconds))
				goto enough;
		}
	}
enough:
	pfree(ranks);

	INSTR_TIME_SET_CURRENT(passed);
	INSTR_TIME_SUBTRACT(passed, began);
	LWLockAcquire(balloon->lock, LW_EXCLUSIVE);
	balloon->counters.inflate_time += INSTR_TIME_GET_DOUBLE(passed);
	if (done > 0)
		balloon->counters.inflations++;
	LWLockRelease(balloon->lock);
	return done;
}

/*
 * Write up to that many dirty, unpinned buffers, starting where this process's
 * last call ended, until that many seconds have passed (0: no deadline).
 * Requires a resource owner. Returns how many were written.
 */
int64
balloon_write(int64 buffers, double seconds)
{
	static int	hand = 0;
	int64		done = 0;
	instr_time	began;

	INSTR_TIME_SET_CURRENT(began);
	for (int looked = 0; looked < NBuffers && done < buffers && !ShutdownRequestPending; looked++)
	{
		uint32		state;

		if (looked % LOOK_EVERY == LOOK_EVERY - 1)
		{
			CHECK_FOR_INTERRUPTS();
			if (deadline_passed(began, seconds))
				break;
		}
		hand = (hand + 1) % NBuffers;
		state = pg_atomic_read_u32(&GetBufferDescriptor(hand)->state);
		if (!(state & BM_DIRTY) || BUF_STATE_GET_REFCOUNT(state) != 0)
			continue;
		CHECK_FOR_INTERRUPTS();
		if (write_one(hand))
			done++;
		if (deadline_passed(began, seconds))
			break;
	}
	if (done > 0)
		count_dirty_writes(done);
	return done;
}
