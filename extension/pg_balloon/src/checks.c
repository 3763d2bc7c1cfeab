/*
 * checks.c
 *		What can be said of the balloon from outside: whether its rules hold, and
 *		what of the pool is in memory. Changes nothing.
 *
 * Both look at every buffer without its header's lock: what they find of a
 * buffer that is just being changed is looked at again (balloon_violations), or
 * is out by a page (balloon_residency).
 */
#include "postgres.h"

#include <sys/mman.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/bufmgr.h"

#include "checks.h"
#include "compat.h"
#include "state.h"

#define LOOK_AGAIN 20			/* milliseconds between two looks at what is odd … */
#define PATIENCE 10				/* … and seconds after which it counts */

/*
 * How many buffers break the rules of state.h. Zero, unless there is a
 * defect: in the balloon without exactly its pin, or with a tag; the count
 * not that of the bits; or pinned for PATIENCE without a tag and without being in the balloon.
 * (Somebody who is just bringing in a page has such a buffer for a moment, and since 16 who waits for the lock to
 * extend a table has up to 64 for as long as that takes, so those are looked at again.)
 */
int64
balloon_violations(void)
{
	int64		found = 0;
	int			counted = 0;
	int		   *odd = palloc_extended(sizeof(int) * Max(NBuffers, 1), MCXT_ALLOC_HUGE);
	int			nodd = 0;

	LWLockAcquire(balloon->lock, LW_SHARED);
	for (int id = 0; id < NBuffers; id++)
	{
		uint32		state = pg_atomic_read_u32(&GetBufferDescriptor(id)->state);

		if (balloon_has(id))
		{
			counted++;
			if (BUF_STATE_GET_REFCOUNT(state) != 1 || (state & (BM_TAG_VALID | BM_VALID | BM_DIRTY | BM_IO_IN_PROGRESS)))
				found++;
		}
		else if (BUF_STATE_GET_REFCOUNT(state) != 0 && !(state & BM_TAG_VALID))
			odd[nodd++] = id;
	}
	if (counted != balloon->nballooned)
		found++;
	LWLockRelease(balloon->lock);

	for (int again = 0; again < PATIENCE * 1000 / LOOK_AGAIN && nodd > 0; again++)
	{
		int			left = 0;

		CHECK_FOR_INTERRUPTS();
		pg_usleep(LOOK_AGAIN * 1000L);
		LWLockAcquire(balloon->lock, LW_SHARED);
		for (int i = 0; i < nodd; i++)
		{
			uint32		state = pg_atomic_read_u32(&GetBufferDescriptor(odd[i])->state);

			if (!balloon_has(odd[i]) && BUF_STATE_GET_REFCOUNT(state) != 0 && !(state & BM_TAG_VALID))
				odd[left++] = odd[i];
		}
		LWLockRelease(balloon->lock);
		nodd = left;
	}
	pfree(odd);
	return found + nodd;
}

/*
 * Bytes of the pool that are in memory now, and those of them that lie wholly
 * within ballooned buffers (which should be none), by mincore(). -1 where that is not
 * to be had. Pages in swap do not count as in memory.
 */
void
balloon_residency(int64 *all, int64 *ballooned)
{
	uintptr_t	page = (uintptr_t) sysconf(_SC_PAGESIZE);
	uintptr_t	from = TYPEALIGN_DOWN(page, (uintptr_t) BufferBlocks);
	uintptr_t	end = TYPEALIGN(page, (uintptr_t) BufferBlocks + (uintptr_t) NBuffers * BLCKSZ);
	Size		step = 8192;	/* pages asked for at once */
	unsigned char *vector = palloc(step);

	*all = *ballooned = 0;
	while (from < end)
	{
		Size		n = Min(step, (end - from) / page);

		CHECK_FOR_INTERRUPTS();
		if (mincore((void *) from, n * page, vector) != 0)
		{
			*all = *ballooned = -1;
			break;
		}
		for (Size i = 0; i < n; i++)
		{
			int64		offset = (int64) (from + i * page) - (int64) (uintptr_t) BufferBlocks;
			bool		inside = offset >= 0;

			if (!(vector[i] & 1))
				continue;
			*all += page;
			for (int64 at = offset; inside && at < offset + (int64) page; at += BLCKSZ)
				inside = at / BLCKSZ < NBuffers && balloon_has(at / BLCKSZ);
			inside = inside && (offset + (int64) page - 1) / BLCKSZ < NBuffers && balloon_has((offset + page - 1) / BLCKSZ);
			if (inside)
				*ballooned += page;
		}
		from += n * page;
	}
	pfree(vector);
}
