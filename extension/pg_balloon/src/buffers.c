/*
 * buffers.c
 *		The mechanism: a buffer leaves the pool, gives its memory back, and comes back.
 *
 * See state.h for what a buffer in the balloon is; nobody but this file changes that. How one gets there is
 * what DROP does to a buffer in InvalidateBuffer(), with the pin added in the
 * same step:
 *
 *	 lock (exclusive) -> mapping partition lock (exclusive) -> header lock:
 *	 still the same tag, no pin, not dirty? Then nobody uses it, and nobody can
 *	 begin to: a look-up needs the partition lock, and the clock sweep, the
 *	 free list and ReadRecentBuffer() need the header lock.
 *
 * A buffer with an asynchronous read or a write under way is pinned by whoever
 * does that (since 18 by the I/O itself), so a count of zero also says that
 * there is none. Which buffers are taken, and how many, is inflate.c's affair.
 *
 * "lock" is BalloonShared.lock here. Who holds it serves no interrupt (as with any LWLock), and waits for nothing but the locks
 * named above and a system call for each run of buffers. So it is let go after each chunk, and interrupts are served in between.
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "portability/instr_time.h"
#include "postmaster/interrupt.h"
#include "storage/bufmgr.h"
#include "utils/wait_event.h"

#include "buffers.h"
#include "compat.h"
#include "ghosts.h"
#include "pool_memory.h"
#include "settings.h"
#include "state.h"

/* Chunks looked at in one go for memory that came back: 512 MB, which takes some 5 ms, and 0.2 s if all of it did. */
#define RETURN_STEP 256

/* Wait event PgBalloonPunch, while memory is returned; "Extension" before 17. Its number is found out once in a process. */
static uint32 wait_punch = 0;

static inline void
maybe_die(void)
{
#ifdef PG_BALLOON_INJECTION
	if (balloon_die_after > 0 && --balloon_die_after == 0)
		kill(getpid(), SIGKILL);
#endif
}

/*
 * Count a buffer as being in the balloon. The caller holds balloon->lock
 * exclusively and the header's lock, and is in a critical section.
 */
static inline void
mark(int id)
{
	Assert(!balloon_has(id));
	balloon->bits[id >> 3] |= (1 << (id & 7));
	balloon->nballooned++;
}

static inline void
unmark(int id)
{
	Assert(balloon_has(id));
	balloon->bits[id >> 3] &= ~(1 << (id & 7));
	balloon->nballooned--;
}

/*
 * Take one buffer if it is free to be taken. The caller holds balloon->lock
 * exclusively. If it held a page, *ghost says which, and *had_page is set.
 */
bool
balloon_take(int id, BalloonGhost *ghost, bool *had_page)
{
	BufferDesc *buffer = GetBufferDescriptor(id);
	BufferTag	tag;
	uint32		state;
	uint32		hash = 0;
	LWLock	   *partition = NULL;

	*had_page = false;
	state = LockBufHdr(buffer);
	if (state & BALLOON_BUSY)
	{
		UnlockBufHdr(buffer, state);
		return false;
	}

	if (state & BM_TAG_VALID)
	{
		/* The partition lock comes before the header lock: let go, and look again with both. */
		tag = buffer->tag;
		UnlockBufHdr(buffer, state);
		hash = BufTableHashCode(&tag);
		partition = BufMappingPartitionLock(hash);
		LWLockAcquire(partition, LW_EXCLUSIVE);
		state = LockBufHdr(buffer);
		if ((state & BALLOON_BUSY) || !(state & BM_TAG_VALID) || !balloon_tags_equal(&tag, &buffer->tag))
		{
			UnlockBufHdr(buffer, state);
			LWLockRelease(partition);
			return false;
		}
		ghost->tag = tag;
		ghost->heat = BUF_STATE_GET_USAGECOUNT(state);
		*had_page = (state & BM_VALID) != 0;
	}

	START_CRIT_SECTION();
	balloon_clear_tag(&buffer->tag);
	mark(id);
	UnlockBufHdr(buffer, (state & ~(BUF_FLAG_MASK | BUF_USAGECOUNT_MASK)) + BUF_REFCOUNT_ONE);
	maybe_die();
	if (partition != NULL)
	{
		BufTableDelete(&tag, hash);
		LWLockRelease(partition);
	}
	END_CRIT_SECTION();
	return true;
}

/* Give one buffer of the balloon back to the free list. The caller holds balloon->lock exclusively. */
void
balloon_give_back(int id)
{
	BufferDesc *buffer = GetBufferDescriptor(id);
	uint32		state;

	START_CRIT_SECTION();
	state = LockBufHdr(buffer);
	Assert(BUF_STATE_GET_REFCOUNT(state) == 1);
	unmark(id);
	UnlockBufHdr(buffer, state - BUF_REFCOUNT_ONE);
	maybe_die();
	StrategyFreeBuffer(buffer);
	END_CRIT_SECTION();
}

/* Before any balloon_punch(), without a lock: PostgreSQL keeps the name under a lock of its own. */
void
balloon_name_wait(void)
{
	if (wait_punch == 0)
		wait_punch = balloon_wait_event("PgBalloonPunch");
}

/*
 * Return the memory of all ballooned buffers of [first, end) to the operating
 * system; if "again", only of neighbours some of whose memory has come back. The
 * caller holds balloon->lock, so that none of them can come back into use
 * meanwhile. Only whole pages that lie within neighbouring ballooned buffers go:
 * the pool need not begin at a page's edge (before 16 it does not), and a page can
 * be larger than a buffer. A neighbour on each side is looked at for the pages
 * across the chunk's edges.
 *
 * Returns false, with errno set, if the operating system refused.
 */
bool
balloon_punch(int first, int end, bool again)
{
	uintptr_t	page = (uintptr_t) sysconf(_SC_PAGESIZE);
	int			reach = Max(1, (int) (page / BLCKSZ));
	int			i;

	first = Max(0, first - reach);
	end = Min(NBuffers, end + reach);
	for (i = first; i < end;)
	{
		uintptr_t	from;
		uintptr_t	to;
		int			run = i;

		while (run < end && balloon_has(run))
			run++;
		if (run > i)
		{
			from = TYPEALIGN(page, (uintptr_t) BufferBlocks + (uintptr_t) i * BLCKSZ);
			to = TYPEALIGN_DOWN(page, (uintptr_t) BufferBlocks + (uintptr_t) run * BLCKSZ);
			if (to > from && (!again || balloon_in_memory(from, to)))
			{
				bool		returned;

				pgstat_report_wait_start(wait_punch);
				returned = balloon_return(from, to);
				pgstat_report_wait_end();
				if (!returned)
					return false;
			}
		}
		i = run + 1;
	}
	return true;
}

/* Is any of [first, end) in the balloon? A chunk's bits are whole bytes; without the lock it is what was a moment ago. */
static bool
any_in(int first, int end)
{
	for (int at = first >> 3; at <= (end - 1) >> 3; at++)
		if (balloon->bits[at] != 0)
			return true;
	return false;
}

/*
 * Give up to that many buffers of the balloon back to the pool, from its end
 * downwards, so that what stays in the balloon stays together. Their memory
 * comes back when they are used. Needs no resource owner; returns how many.
 */
int64
balloon_deflate(int64 buffers)
{
	int64		done = 0;
	instr_time	began;
	instr_time	passed;

	INSTR_TIME_SET_CURRENT(began);
	for (int chunk = balloon_chunks() - 1; chunk >= 0 && done < buffers && balloon->nballooned > 0; chunk--)
	{
		int			first;
		int			end;
		int64		before = done;

		CHECK_FOR_INTERRUPTS();
		balloon_chunk_bounds(chunk, &first, &end);
		if (!any_in(first, end))
			continue;
		LWLockAcquire(balloon->lock, LW_EXCLUSIVE);
		for (int id = end - 1; id >= first && done < buffers; id--)
			if (balloon_has(id))
			{
				balloon_give_back(id);
				done++;
			}
		balloon->counters.given_back += done - before;
		LWLockRelease(balloon->lock);
	}

	INSTR_TIME_SET_CURRENT(passed);
	INSTR_TIME_SUBTRACT(passed, began);
	if (done > 0)
	{
		LWLockAcquire(balloon->lock, LW_EXCLUSIVE);
		balloon->counters.deflate_time += INSTR_TIME_GET_DOUBLE(passed);
		balloon->counters.deflations++;
		LWLockRelease(balloon->lock);
	}
	return done;
}

/*
 * Return the balloon's memory once more, where it has come back. The server itself leaves it alone, but whatever reads the whole pool as
 * memory brings it back: the views of PostgreSQL 18 on NUMA nodes, a debugger. What is refused now has been taken before, and will be
 * tried again. Looks at RETURN_STEP chunks from that one on; returns the one to go on from, -1 when it is through.
 */
int
balloon_return_again(int chunk)
{
	int			end_of_step = Min(balloon_chunks(), chunk + RETURN_STEP);

	balloon_name_wait();
	for (; chunk < end_of_step && balloon->nballooned > 0 && !ShutdownRequestPending; chunk++)
	{
		int			first;
		int			end;

		CHECK_FOR_INTERRUPTS();
		balloon_chunk_bounds(chunk, &first, &end);
		LWLockAcquire(balloon->lock, LW_SHARED);	/* nobody gives buffers back meanwhile */
		(void) balloon_punch(first, end, true);
		LWLockRelease(balloon->lock);
	}
	return chunk < balloon_chunks() && balloon->nballooned > 0 ? chunk : -1;
}
