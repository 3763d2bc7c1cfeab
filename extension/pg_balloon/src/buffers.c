/*
 * buffers.c
 *		The mechanism: buffers leave the pool and come back.
 *
 * See state.h for what a buffer in the balloon is. How one gets there is
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
 * there is none.
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
#include "floors.h"
#include "ghosts.h"
#include "pool_memory.h"
#include "settings.h"
#include "state.h"

/* Buffers are taken, punched and given back in chunks of 2 MB, and no lock is held longer than for one. */
#define CHUNK (2 * 1024 * 1024 / BLCKSZ)

/* Chunks looked at in one go for memory that came back: 512 MB, which takes some 5 ms, and 0.2 s if all of it did. */
#define RETURN_STEP 256

/* What is known of a chunk when buffers to take are looked for. No lock is held for it: it may be outdated. */
typedef struct ChunkRank
{
	int			chunk;
	int			heat;			/* mean of its buffers outside the balloon, times 16 */
} ChunkRank;

/* The marks of a buffer that holds something, or with which something is being done. */
#define BUSY_MASK (BUF_REFCOUNT_MASK | BM_DIRTY | BM_IO_IN_PROGRESS | BM_PIN_COUNT_WAITER)

#define HEAT_PINNED 20			/* a pinned buffer counts as much as ten touched ones */
#define HEAT_PAGE 1				/* any page … */
#define HEAT_USE 2				/* … and each of its usage count … */
#define HEAT_DIRTY 1			/* … and being dirty */

/* Wait event PgBalloonPunch, while memory is returned; "Extension" before 17. Its number is found out once in a process. */
static uint32 wait_punch = 0;

/* Usage counts up to which buffers are taken, pass by pass. The last one takes all. */
static const int usage_passes[] = {1, BM_MAX_USAGE_COUNT};

static inline void
maybe_die(void)
{
#ifdef PG_BALLOON_INJECTION
	if (balloon_die_after > 0 && --balloon_die_after == 0)
		kill(getpid(), SIGKILL);
#endif
}

static inline int
chunks(void)
{
	return (NBuffers + CHUNK - 1) / CHUNK;
}

static inline void
chunk_bounds(int chunk, int *first, int *end)
{
	*first = chunk * CHUNK;
	*end = Min(*first + CHUNK, NBuffers);
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
static bool
take(int id, BalloonGhost *ghost, bool *had_page)
{
	BufferDesc *buffer = GetBufferDescriptor(id);
	BufferTag	tag;
	uint32		state;
	uint32		hash = 0;
	LWLock	   *partition = NULL;

	*had_page = false;
	state = LockBufHdr(buffer);
	if (state & BUSY_MASK)
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
		if ((state & BUSY_MASK) || !(state & BM_TAG_VALID) || !balloon_tags_equal(&tag, &buffer->tag))
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
static void
give_back(int id)
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

/* Before any punch(), without a lock: PostgreSQL keeps the name under a lock of its own. */
static void
name_wait(void)
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
static bool
punch(int first, int end, bool again)
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

/* Write one dirty buffer that nobody has pinned. Needs a resource owner, and no lock. */
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
	if (BUF_STATE_GET_REFCOUNT(state) != 0 || (state & (BM_VALID | BM_DIRTY)) != (BM_VALID | BM_DIRTY))
		return false;

	/* An ordinary pin of our own, taken only if the buffer still holds that page. */
	if (!ReadRecentBuffer(balloon_locator(&tag), balloon_fork(&tag), tag.blockNum, id + 1))
		return false;
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

static void
count_written(int64 written)
{
	LWLockAcquire(balloon->lock, LW_EXCLUSIVE);
	balloon->counters.written += written;
	LWLockRelease(balloon->lock);
}

static int
by_heat(const void *a, const void *b)
{
	const ChunkRank *x = a;
	const ChunkRank *y = b;

	if (x->heat != y->heat)
		return x->heat < y->heat ? -1 : 1;
	return x->chunk < y->chunk ? -1 : 1;
}

/*
 * All chunks with buffers outside the balloon, coldest first. Whole chunks
 * are preferred to scattered buffers, since neighbouring buffers are returned
 * by one system call, and before 16 a lone buffer frees only half of its memory.
 */
static int
rank_chunks(ChunkRank *ranks)
{
	int			n = 0;

	for (int chunk = 0; chunk < chunks(); chunk++)
	{
		int			first;
		int			end;
		int			outside = 0;
		int			heat = 0;

		chunk_bounds(chunk, &first, &end);
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
				heat += HEAT_PAGE + HEAT_USE * BUF_STATE_GET_USAGECOUNT(state) + ((state & BM_DIRTY) ? HEAT_DIRTY : 0);
		}
		if (outside > 0)
		{
			ranks[n].chunk = chunk;
			ranks[n].heat = heat * 16 / outside;
			n++;
		}
	}
	qsort(ranks, n, sizeof(ChunkRank), by_heat);
	return n;
}

/* Have so many seconds passed since then? 0: there is no limit. */
static bool
over(instr_time since, double seconds)
{
	instr_time	now;

	if (seconds <= 0)
		return false;
	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, since);
	return INSTR_TIME_GET_DOUBLE(now) >= seconds;
}

/*
 * Take up to want buffers of one chunk whose usage count is at most that, dirty ones too if "write". Returns how many;
 * *moved is raised by those taken and those written.
 */
static int
inflate_chunk(int chunk, int64 want, int usage, bool write, int64 *moved)
{
	static BalloonGhost ghosts[CHUNK];
	int			nghosts = 0;
	int			taken = 0;
	int			unused = 0;
	int			busy = 0;
	int64		room;
	int			first;
	int			end;
	bool		punched;
	int			saved_errno;

	chunk_bounds(chunk, &first, &end);
	if (write)
	{
		int			written = 0;

		for (int id = first; id < end && written < want; id++)
		{
			uint32		state = pg_atomic_read_u32(&GetBufferDescriptor(id)->state);

			CHECK_FOR_INTERRUPTS();
			if ((state & BM_DIRTY) && BUF_STATE_GET_USAGECOUNT(state) <= usage && write_one(id))
				written++;
		}
		if (written > 0)
			count_written(written);
		*moved += written;
	}

	LWLockAcquire(balloon->lock, LW_EXCLUSIVE);
	room = Min(NBuffers - balloon_floor(), balloon_ceiling()) - balloon->nballooned;
	if (room < want)
	{
		want = room;
		balloon->counters.floor_hits++;
	}
	for (int id = first; id < end && taken < want; id++)
	{
		uint32		state = pg_atomic_read_u32(&GetBufferDescriptor(id)->state);
		bool		had_page;

		if (balloon_has(id) || (int) BUF_STATE_GET_USAGECOUNT(state) > usage)
			continue;
		if ((state & BUSY_MASK) || !take(id, &ghosts[nghosts], &had_page))
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
	punched = taken == 0 || punch(first, end, false);
	saved_errno = errno;
	if (!punched)
	{
		/* Nothing is gained by keeping them. Those that were in the balloon before have been counted when they came. */
		for (int id = first; id < end; id++)
			if (balloon_has(id))
			{
				give_back(id);
				balloon->counters.given_back++;
			}
		balloon->counters.given_back -= taken;
		if (balloon->following)
			balloon->broken = true; /* for the worker; else it finds out by itself when it is switched on */
		taken = 0;
	}
	else
	{
		balloon->counters.taken_unused += unused;
		balloon->counters.taken_clean += taken - unused;
		balloon->counters.punched += (int64) taken * BLCKSZ;
	}
	balloon->counters.busy += busy;
	LWLockRelease(balloon->lock);

	if (nghosts > 0)
		balloon_remember(ghosts, nghosts);
	if (!punched)
	{
		errno = saved_errno;
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("could not return memory of the buffer pool to the operating system: %m")));
	}
	*moved += taken;
	return taken;
}

/*
 * Move up to that many buffers into the balloon: those without a page and the
 * cold clean ones first, dirty ones last and only if "write". Never below the
 * floor, never above the ceiling. Returns how many; fewer once so many seconds
 * have passed (0: however long it takes), and where the worker is asked to end
 * meanwhile. The caller has a resource owner if "write", and holds no lock.
 *
 * Each call begins with the clean ones. Not to spend it on looking for them nearly in vain, call after call, the time ends
 * that only once as many as a chunk has were found; for the dirty ones it counts anew, and ends nothing before one was written or taken.
 */
int64
balloon_inflate(int64 buffers, bool write, double seconds)
{
	ChunkRank  *ranks;
	int			n;
	int64		done = 0;
	int64		moved = 0;		/* taken or written since the time counts */
	instr_time	began;
	instr_time	counts_from;
	instr_time	passed;

	if (buffers <= 0)
		return 0;
	name_wait();
	INSTR_TIME_SET_CURRENT(began);
	ranks = palloc_extended(sizeof(ChunkRank) * chunks(), MCXT_ALLOC_HUGE);
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
		for (int i = 0; i < n && done < buffers && !ShutdownRequestPending; i++)
		{
			int			taken;

			CHECK_FOR_INTERRUPTS();
			taken = inflate_chunk(ranks[i].chunk, buffers - done, usage, writing, &moved);
			done += taken;
			if (taken == 0 && balloon->nballooned >= Min(NBuffers - balloon_floor(), balloon_ceiling()))
				goto enough;
			if (moved >= (writing ? 1 : CHUNK) && over(counts_from, seconds))
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
	for (int chunk = chunks() - 1; chunk >= 0 && done < buffers && balloon->nballooned > 0; chunk--)
	{
		int			first;
		int			end;
		int64		before = done;

		chunk_bounds(chunk, &first, &end);
		LWLockAcquire(balloon->lock, LW_EXCLUSIVE);
		for (int id = end - 1; id >= first && done < buffers; id--)
			if (balloon_has(id))
			{
				give_back(id);
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
 * Write up to that many dirty buffers that nobody has pinned, going on where the last call of this process ended, until so many
 * seconds have passed (0: however long it takes). Needs a resource owner; returns how many.
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
		if (over(began, seconds))
			break;
	}
	if (done > 0)
		count_written(done);
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
	int			end_of_step = Min(chunks(), chunk + RETURN_STEP);

	name_wait();
	for (; chunk < end_of_step && balloon->nballooned > 0 && !ShutdownRequestPending; chunk++)
	{
		int			first;
		int			end;

		CHECK_FOR_INTERRUPTS();
		chunk_bounds(chunk, &first, &end);
		LWLockAcquire(balloon->lock, LW_SHARED);	/* nobody gives buffers back meanwhile */
		(void) punch(first, end, true);
		LWLockRelease(balloon->lock);
	}
	return chunk < chunks() && balloon->nballooned > 0 ? chunk : -1;
}
