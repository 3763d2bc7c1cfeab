/*
 * inflate.c
 *		Which buffers move into the balloon, and how many; dirty ones are
 *		written first.
 *
 * Floor and ceiling hold, because inflate_chunk() reads them, and the number
 * of buffers in the balloon, with BalloonShared.lock held exclusively, and
 * releases it only after the buffers have moved. A session that raises the
 * floor is either counted here, or sees the moved buffers (pool_limits.c).
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
#include "postmaster/interrupt.h"
#include "storage/bufmgr.h"

#include "actuator.h"
#include "buffers.h"
#include "compat.h"
#include "ghosts.h"
#include "pool_limits.h"
#include "shared_state.h"

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
	if (BUF_STATE_GET_REFCOUNT(state) != 0 ||
		(state & (BM_VALID | BM_DIRTY)) != (BM_VALID | BM_DIRTY))
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

/*
 * Move up to "want" buffers of a chunk with at most that usage count into the
 * balloon. Returns how many moved.
 *
 * Dirty ones are included if "write". With "memory", buffers without a page
 * move as well, but do not count. Increments *counted by those that count, and
 * *moved by those that moved and those that were written.
 */
static int
inflate_chunk(int chunk, int64 want, int usage, bool write, bool memory, int64 *counted,
			  int64 *moved)
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

		for (int id = first; id < end && written < want && !ShutdownRequestPending; id++)
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
	room = Min(NBuffers - balloon_floor(), balloon_ceiling()) - balloon->nballooned;
	if (room < want)
		balloon->counters.limit_hits++;
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
			busy++;
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
								  &counted, &moved);
			done += taken;
			if (taken == 0 &&
				balloon->nballooned >= Min(NBuffers - balloon_floor(), balloon_ceiling()))
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
