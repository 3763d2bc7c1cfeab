/*
 * buffers.c
 *		The mechanism: a buffer leaves the pool, its memory is released,
 *		and it returns.
 *
 * shared_state.h defines a buffer in the balloon; only this file changes that
 * state. A buffer gets there in the way that DROP invalidates a buffer in
 * InvalidateBuffer(), with the pin added in the same step:
 *
 *     lock (exclusive) -> mapping partition lock (exclusive) -> header lock:
 *     still the same tag, no pin, not dirty? Then no process uses it, and none
 *     can begin to: a lookup needs the partition lock, and the clock sweep, the
 *     free list and ReadRecentBuffer() need the header lock.
 *
 * A process that reads or writes a buffer asynchronously has it pinned (since
 * 18 the I/O itself has), so a reference count of zero also means that no I/O
 * is in progress. inflate.c selects the buffers and their number.
 *
 * "lock" is BalloonShared.lock here. Its holder serves no interrupt (as with
 * any LWLock), and waits only for the locks named above and for one system
 * call per run of buffers. So it is released after each chunk, and interrupts
 * are served in between.
 *
 * Pools in huge pages get no balloon. A hole of a buffer's size frees nothing
 * there. A whole huge page that was released may be taken by another process.
 * A backend that then accesses it dies with SIGBUS. Before PostgreSQL 17 no
 * setting shows the outcome of huge_pages = try, so the kernel's page size is
 * read instead. If that is unknown, only huge_pages = off is accepted.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#include "postgres.h"

#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "portability/instr_time.h"
#include "postmaster/interrupt.h"
#include "storage/bufmgr.h"
#include "storage/pg_shmem.h"
#include "utils/wait_event.h"

#include "actuator.h"
#include "buffers.h"
#include "compat.h"
#include "guc.h"
#include "shared_state.h"

/*
 * Return the KernelPageSize in bytes of the mapping around an address, from
 * /proc/self/smaps; 0 if unknown.
 */
static Size
page_size(const void *address)
{
	FILE	   *file = fopen("/proc/self/smaps", "r");
	char		line[1024];
	bool		inside = false;
	Size		size = 0;

	if (file == NULL)
		return 0;
	while (size == 0 && fgets(line, sizeof(line), file) != NULL)
	{
		unsigned long from;
		unsigned long to;
		unsigned long kb;

		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			inside = (uintptr_t) address >= from && (uintptr_t) address < to;
		else if (inside && sscanf(line, "KernelPageSize: %lu kB", &kb) == 1)
			size = (Size) kb * 1024;
	}
	fclose(file);
	return size;
}

/*
 * Release whole pages to the operating system; they read as zeros afterwards.
 * Returns false, with errno set, if it refuses.
 */
static bool
release_pages(uintptr_t from, uintptr_t to)
{
	return madvise((void *) from, to - from, MADV_REMOVE) == 0;
}

/*
 * Return true if any of these whole pages is in memory, by mincore(); false if
 * that fails.
 */
static bool
in_memory(uintptr_t from, uintptr_t to)
{
	Size		page = (Size) sysconf(_SC_PAGESIZE);
	unsigned char vector[1024];

	while (from < to)
	{
		Size		n = Min(sizeof(vector), (to - from) / page);

		if (mincore((void *) from, n * page, vector) != 0)
			return false;
		for (Size i = 0; i < n; i++)
			if (vector[i] & 1)
				return true;
		from += n * page;
	}
	return false;
}

/* Return the bytes of shared memory that balloon_can_release() needs for its test. */
Size
balloon_probe_size(void)
{
	return 2 * (Size) sysconf(_SC_PAGESIZE);
}

/*
 * Test whether memory of this server's pool can be released, with a page of
 * the probe in shared memory. If not, unusable_reason is set.
 */
bool
balloon_can_release(void *probe, char *unusable_reason, Size size)
{
	Size		page = (Size) sysconf(_SC_PAGESIZE);
	Size		pool_page = page_size(BufferBlocks + (Size) NBuffers / 2 * BLCKSZ);
	char	   *tried = (char *) TYPEALIGN(page, probe);
	const char *wrong = NULL;

	if (pool_page > page)
	{
		snprintf(unusable_reason, size,
				 "shared_buffers uses huge pages of %zu kB, of which single buffers cannot be released; "
				 "set huge_pages to off",
				 pool_page / 1024);
		return false;
	}
	if (pool_page == 0 && huge_pages != HUGE_PAGES_OFF)
	{
		snprintf(unusable_reason, size,
				 "/proc/self/smaps does not show whether shared_buffers uses huge pages; "
				 "set huge_pages to off");
		return false;
	}
	memset(tried, 'x', page);
	if (!release_pages((uintptr_t) tried, (uintptr_t) tried + page))
		wrong = strerror(errno);
	for (Size i = 0; i < page && wrong == NULL; i++)
		if (tried[i] != 0)
			wrong = "the memory kept its content";
	if (wrong != NULL)
		snprintf(unusable_reason, size,
				 "the operating system does not take shared memory back (madvise with MADV_REMOVE): %s",
				 wrong);
	return wrong == NULL;
}

/*
 * Chunks checked per call for memory that came back: 512 MB, which takes about
 * 5 ms, or 0.2 s if all of it did.
 */
#define RETURN_STEP 256

/*
 * Wait event PgBalloonPunch while memory is released; "Extension" before 17.
 * Looked up once per process.
 */
static uint32 wait_punch = 0;

/* Kill this process once pg_balloon.die_after buffers have moved. For tests only. */
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

/* Undo mark(), under the same conditions. */
static inline void
unmark(int id)
{
	Assert(balloon_has(id));
	balloon->bits[id >> 3] &= ~(1 << (id & 7));
	balloon->nballooned--;
}

/*
 * Move one buffer into the balloon if it is free. The caller holds
 * balloon->lock exclusively. If the buffer held a page, *ghost identifies it,
 * and *had_page is set.
 */
bool
balloon_inflate_one(int id, BalloonGhost *ghost, bool *had_page)
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
		/*
		 * The partition lock comes before the header lock: release it, and
		 * check again with both.
		 */
		tag = buffer->tag;
		UnlockBufHdr(buffer, state);
		hash = BufTableHashCode(&tag);
		partition = BufMappingPartitionLock(hash);
		LWLockAcquire(partition, LW_EXCLUSIVE);
		state = LockBufHdr(buffer);
		if ((state & BALLOON_BUSY) || !(state & BM_TAG_VALID) ||
			!balloon_tags_equal(&tag, &buffer->tag))
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

/*
 * Return one buffer of the balloon to the free list. The caller holds
 * balloon->lock exclusively.
 */
void
balloon_deflate_one(int id)
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

/*
 * Look up the wait event. Call it before balloon_punch() and without a lock,
 * because PostgreSQL takes one to find the name.
 */
void
balloon_init_wait_event(void)
{
	if (wait_punch == 0)
		wait_punch = balloon_wait_event("PgBalloonPunch");
}

/*
 * Release the memory of all ballooned buffers of [first, end) to the operating
 * system; if "again", only of runs where some memory has come back.
 *
 * The caller holds balloon->lock, so that none of them can return to use
 * meanwhile. Only whole pages within adjacent ballooned buffers are released:
 * before 16 the pool does not begin at a page boundary, and a page can be
 * larger than a buffer. One neighbor on each side is included for pages that
 * cross the chunk's boundaries.
 *
 * Returns false, with errno set, if the operating system refuses.
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
			if (to > from && (!again || in_memory(from, to)))
			{
				bool		returned;

				pgstat_report_wait_start(wait_punch);
				returned = release_pages(from, to);
				pgstat_report_wait_end();
				if (!returned)
					return false;
			}
		}
		i = run + 1;
	}
	return true;
}

/*
 * Return true if any of [first, end) is in the balloon. A chunk's bits are
 * whole bytes. Without the lock the result may be slightly out of date.
 */
static bool
any_ballooned(int first, int end)
{
	for (int at = first >> 3; at <= (end - 1) >> 3; at++)
		if (balloon->bits[at] != 0)
			return true;
	return false;
}

/*
 * Return up to that many buffers of the balloon to the pool, from its end
 * downward, so that the rest of the balloon stays contiguous. Memory is
 * allocated again when they are used. Needs no resource owner. Returns how
 * many.
 */
int64
balloon_deflate(int64 buffers)
{
	int64		done = 0;
	instr_time	began;
	instr_time	passed;

	INSTR_TIME_SET_CURRENT(began);
	for (int chunk = balloon_chunks() - 1;
		 chunk >= 0 && done < buffers && balloon->nballooned > 0;
		 chunk--)
	{
		int			first;
		int			end;
		int64		before = done;

		CHECK_FOR_INTERRUPTS();
		balloon_chunk_bounds(chunk, &first, &end);
		if (!any_ballooned(first, end))
			continue;
		LWLockAcquire(balloon->lock, LW_EXCLUSIVE);
		for (int id = end - 1; id >= first && done < buffers; id--)
			if (balloon_has(id))
			{
				balloon_deflate_one(id);
				done++;
			}
		balloon->counters.deflated += done - before;
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
 * Release the balloon's memory again where it has come back.
 *
 * The server never accesses it, but a process that reads the whole pool as
 * memory brings it back: the NUMA views of PostgreSQL 18, a debugger. A
 * refusal is ignored, because an earlier release succeeded and there will be
 * another attempt. Checks RETURN_STEP chunks from the given one on. Returns
 * the chunk to continue with, or -1 at the end.
 */
int
balloon_release_again(int chunk)
{
	int			end_of_step = Min(balloon_chunks(), chunk + RETURN_STEP);

	balloon_init_wait_event();
	for (; chunk < end_of_step && balloon->nballooned > 0 && !ShutdownRequestPending; chunk++)
	{
		int			first;
		int			end;

		CHECK_FOR_INTERRUPTS();
		balloon_chunk_bounds(chunk, &first, &end);
		LWLockAcquire(balloon->lock, LW_SHARED);	/* no process deflates meanwhile */
		(void) balloon_punch(first, end, true);
		LWLockRelease(balloon->lock);
	}
	return chunk < balloon_chunks() && balloon->nballooned > 0 ? chunk : -1;
}
