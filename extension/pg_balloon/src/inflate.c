/*
 * inflate.c
 *		Which buffers are taken into the balloon, and how many; dirty ones are written first.
 *
 * Floor and ceiling hold because inflate_chunk() reads them, and the number of buffers in the balloon, with BalloonShared.lock held
 * exclusively, and lets it go only after the buffers are taken: whoever raises the floor either is seen here, or sees them (clients.c).
 *
 * A page is written without that lock, by an ordinary pin and with its content lock shared, which is taken only if it is
 * free: who holds it for long is not waited for. So it can be dirty again, pinned or gone when the buffer is to be taken, and
 * is then passed over. Errors of writing are thrown while no lock of ours is held; the transaction's end lets go of the rest.
 */
#include "postgres.h"

#include <unistd.h>

#include "miscadmin.h"
#include "portability/instr_time.h"
#include "postmaster/interrupt.h"
#include "storage/bufmgr.h"

#include "buffers.h"
#include "compat.h"
#include "floors.h"
#include "ghosts.h"
#include "inflate.h"
#include "state.h"

/* What is known of a chunk when buffers to take are looked for. No lock is held for it: it may be outdated. */
typedef struct ChunkRank
{
	int			chunk;
	int			heat;			/* mean of its buffers outside the balloon */
} ChunkRank;

#define HEAT_PINNED 20			/* a pinned buffer counts as much as ten touched ones */
#define HEAT_PAGE 1				/* any page … */
#define HEAT_USE 2				/* … and each of its usage count … */
#define HEAT_DIRTY 1			/* … and being dirty */

/*
 * Chunks that are equally cold go by neighbourhoods of 64 MB, in small pools of a 32nd: large enough that what is left takes hardly more of
 * the page tables than if it lay together (a page for each 2 MB and edge, in each process), small enough to pass over it in a millisecond.
 */
#define NEIGHBOURS 32
#define NEIGHBOURHOODS 32

/* Usage counts up to which buffers are taken, pass by pass. The last one takes all. */
static const int usage_passes[] = {1, BM_MAX_USAGE_COUNT};

/*
 * Map a block into this process, and read it back if it is swapped out. The kernel copies what is written with page faults switched off,
 * and where it meets a page that is not mapped, in the middle of a block of the file (before 16 buffers do not begin at a page), it reads
 * that block from disk first.
 */
static void
touch(const char *block)
{
	static long page_size = 0;

	if (page_size == 0)
		page_size = sysconf(_SC_PAGESIZE);
	for (const volatile char *at = block; at < block + BLCKSZ; at += page_size)
		(void) *at;
	(void) *(const volatile char *) (block + BLCKSZ - 1);
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
	touch(BufferGetPage(id + 1));
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

/*
 * An order of chunks in which the first so many, however many they are, lie evenly among the rest: whole neighbourhoods in the order of
 * multiples of the golden ratio, less their whole part (Knuth, The Art of Computer Programming, vol. 3, 6.4, theorem S).
 */
static uint64
spread(int chunk)
{
	int			neighbours = Max(1, Min(balloon_chunks() / NEIGHBOURHOODS, NEIGHBOURS));
	uint32		neighbourhood = (uint32) (chunk / neighbours) * UINT32_C(2654435769); /* odd, so no two are equal */

	return (uint64) neighbourhood << 32 | (uint32) chunk;
}

static int
by_heat(const void *a, const void *b)
{
	const ChunkRank *x = a;
	const ChunkRank *y = b;

	if (x->heat != y->heat)
		return x->heat < y->heat ? -1 : 1;
	return spread(x->chunk) < spread(y->chunk) ? -1 : 1;
}

/*
 * All chunks with buffers outside the balloon, coldest first. Whole chunks
 * are preferred to scattered buffers, since neighbouring buffers are returned
 * by one system call, and before 16 a lone buffer frees only half of its memory.
 * Of equally cold ones, to half a usage count, those go first that lie evenly
 * over the pool: whoever looks for a victim has to pass over all that is in the
 * balloon side by side.
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
				heat += HEAT_PAGE + HEAT_USE * BUF_STATE_GET_USAGECOUNT(state) + ((state & BM_DIRTY) ? HEAT_DIRTY : 0);
		}
		if (outside > 0)
		{
			ranks[n].chunk = chunk;
			ranks[n].heat = (heat + outside / 2) / outside;
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
 * Take up to want buffers of one chunk whose usage count is at most that, dirty ones too if "write"; with "memory" those that hold no page
 * come along and do not count. Returns how many in all; *counted is raised by those that count, *moved by those taken and those written.
 */
static int
inflate_chunk(int chunk, int64 want, int usage, bool write, bool memory, int64 *counted, int64 *moved)
{
	static BalloonGhost ghosts[BALLOON_CHUNK];
	int			nghosts = 0;
	int			taken = 0;
	int			unused = 0;
	int			busy = 0;
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
			count_written(written);
		*moved += written;
	}

	LWLockAcquire(balloon->lock, LW_EXCLUSIVE);
	room = Min(NBuffers - balloon_floor(), balloon_ceiling()) - balloon->nballooned;
	if (room < want)
		balloon->counters.floor_hits++;
	for (int id = first; id < end && taken < room && taken - (memory ? unused : 0) < want; id++)
	{
		uint32		state = pg_atomic_read_u32(&GetBufferDescriptor(id)->state);
		bool		had_page;

		if (balloon_has(id) || (int) BUF_STATE_GET_USAGECOUNT(state) > usage)
			continue;
		if ((state & BALLOON_BUSY) || !balloon_take(id, &ghosts[nghosts], &had_page))
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
		/* Nothing is gained by keeping them. Those that were in the balloon before have been counted when they came. */
		for (int id = first; id < end; id++)
			if (balloon_has(id))
			{
				balloon_give_back(id);
				balloon->counters.given_back++;
			}
		balloon->counters.given_back -= taken;
		if (balloon->following)
			balloon->broken = true; /* for the worker; else it finds out by itself when it is switched on */
		taken = unused = 0;
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
	*counted += memory ? taken - unused : taken;
	return taken;
}

/*
 * Move up to that many buffers into the balloon: those without a page and the
 * cold clean ones first, dirty ones last and only if "write". Never below the
 * floor, never above the ceiling. Returns how many; fewer once so many seconds
 * have passed (0: however long it takes), and where the worker is asked to end
 * meanwhile. The caller has a resource owner if "write", and holds no lock.
 *
 * With "memory" it is memory that is wanted, not a size of the balloon: buffers that were never used hold none and do not count. They are
 * taken all the same, or what is evicted would come back into them.
 *
 * Each call begins with the clean ones. Not to spend it on looking for them nearly in vain, call after call, the time ends
 * that only once as many as a chunk has were found; for the dirty ones it counts anew, and ends nothing before one was written or taken.
 */
int64
balloon_inflate(int64 buffers, bool write, bool memory, double seconds)
{
	ChunkRank  *ranks;
	int			n;
	int64		done = 0;
	int64		counted = 0;	/* those of them that were asked for */
	int64		moved = 0;		/* taken or written since the time counts */
	instr_time	began;
	instr_time	counts_from;
	instr_time	passed;

	if (buffers <= 0)
		return 0;
	balloon_name_wait();
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
			taken = inflate_chunk(ranks[i].chunk, buffers - counted, usage, writing, memory, &counted, &moved);
			done += taken;
			if (taken == 0 && balloon->nballooned >= Min(NBuffers - balloon_floor(), balloon_ceiling()))
				goto enough;
			if (moved >= (writing ? 1 : BALLOON_CHUNK) && over(counts_from, seconds))
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
