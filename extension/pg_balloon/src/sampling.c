/*
 * sampling.c
 *		How much of the pool is in use, from a few random buffers.
 *
 * The usage count of each sampled buffer is lowered to one, and looked at again
 * later: it is higher if somebody has touched the page since. (Lowering it to
 * zero would make the clock sweep evict sampled pages before others.) At most
 * a sixty-fourth of the pool, and a sixteenth of what is outside the balloon, is
 * sampled at a time, so that the sweep hardly notices.
 * How many are sampled, and how often, look.c says: few, and seldom, at peace.
 * A rate of touches per page and second follows, and from it the share of
 * pages touched within the horizon, if touches come independently.
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "sampling.h"
#include "state.h"
#include "touches.h"

#define MOST_SAMPLES 2048
#define FEW_SAMPLES 512
#define FEWEST_SAMPLES 64
#define SHARE_OF_POOL 64
#define SHARE_OF_REST 16		/* of the buffers outside the balloon */
#define MOST_TRIES 8

typedef struct Sample
{
	int			id;
	uint32		base;			/* its usage count then */
	bool		page;			/* it held a page */
	bool		ours;			/* it was in the balloon */
	BufferTag	tag;
} Sample;

static Sample samples[MOST_SAMPLES];
static int	nsamples = 0;
static double rate = -1;		/* touches per page and second; < 0: not known yet */

/*
 * How many sessions wait for a page of a table or index to be read at this moment: time lost, in seconds per second. Read
 * without a lock: it is a sample. Autovacuum and our own prefetch are in no hurry. An I/O worker of 18, which is in no
 * database, reads for a session: that one is counted if it waits, and reads ahead if it does not. So is a standby's replay in
 * none: only sessions are counted, for whom time is lost.
 */
int
balloon_waiting(void)
{
	int			waiting = 0;

	for (uint32 i = 0; i < ProcGlobal->allProcCount; i++)
	{
		PGPROC	   *proc = &ProcGlobal->allProcs[i];
		uint32		event = *(volatile uint32 *) &proc->wait_event_info;

		if (proc->pid != 0 && OidIsValid(proc->databaseId) && balloon_is_read(event) &&
			!(proc->statusFlags & PROC_IS_AUTOVACUUM) && proc->pid != balloon->prefetcher)
			waiting++;
	}
	return waiting;
}

/* Draw a new sample; a small one if few are enough. */
void
balloon_sample_start(bool few)
{
	nsamples = Min(NBuffers / SHARE_OF_POOL, (NBuffers - balloon->nballooned) / SHARE_OF_REST);
	nsamples = Min(few ? FEW_SAMPLES : MOST_SAMPLES, Max(FEWEST_SAMPLES, nsamples));
	for (int i = 0; i < nsamples; i++)
	{
		Sample	   *sample = &samples[i];
		BufferDesc *buffer;
		uint32		state;

		/* With most of the pool in the balloon little would be known of the rest: look for one outside, for a while. */
		for (int tries = 0; tries < MOST_TRIES; tries++)
		{
			sample->id = (int) pg_prng_uint64_range(&pg_global_prng_state, 0, NBuffers - 1);
			if (!balloon_has(sample->id))
				break;
		}
		sample->page = false;
		sample->ours = balloon_has(sample->id);
		if (sample->ours)
			continue;
		buffer = GetBufferDescriptor(sample->id);
		state = LockBufHdr(buffer);
		if ((state & BM_VALID) && (state & BM_TAG_VALID))
		{
			sample->page = true;
			sample->tag = buffer->tag;
			sample->base = Min(1, BUF_STATE_GET_USAGECOUNT(state));
			state = (state & ~BUF_USAGECOUNT_MASK) | (sample->base << BUF_USAGECOUNT_SHIFT);
		}
		UnlockBufHdr(buffer, state);
	}
}

/* Buffers that are pinned now, scaled up from the sample to all outside the balloon. */
int64
balloon_sample_pinned(void)
{
	int			outside = 0;
	int			pinned = 0;

	for (int i = 0; i < nsamples; i++)
	{
		if (balloon_has(samples[i].id))
			continue;
		outside++;
		if (BUF_STATE_GET_REFCOUNT(pg_atomic_read_u32(&GetBufferDescriptor(samples[i].id)->state)) != 0)
			pinned++;
	}
	return outside > 0 ? (int64) (NBuffers - balloon->nballooned) * pinned / outside : 0;
}

/*
 * Look at the sample again, that many seconds after it was drawn; what has been touched may all have been touched within the last
 * "recent" seconds (0: it was touched evenly). Gives the
 * share of the used pages that are touched within the horizon (seconds; 1 if nothing can be said),
 * and the state of the pool, scaled up from the sample to all buffers outside the balloon.
 */
void
balloon_sample_read(double seconds, double recent, double horizon, double *hot, BalloonPoolState *state)
{
	int			outside = 0;
	int			filled = 0;
	int			pages = 0;
	int			touched = 0;
	int			unused = 0;
	int			dirty = 0;
	int64		live = NBuffers - balloon->nballooned;

	for (int i = 0; i < nsamples; i++)
	{
		Sample	   *sample = &samples[i];
		BufferDesc *buffer = GetBufferDescriptor(sample->id);
		uint32		now;

		if (balloon_has(sample->id))
			continue;
		now = pg_atomic_read_u32(&buffer->state);
		outside++;
		if (!(now & BM_TAG_VALID))
			unused++;
		if (now & BM_DIRTY)
			dirty++;
		if (!sample->page)
		{
			if (!sample->ours && (now & BM_TAG_VALID))
				filled++;
			continue;
		}
		pages++;

		/* Replaced counts as touched: somebody needed the place. The tag is read without the lock: it is a sample. */
		if ((now & BM_TAG_VALID) && !balloon_tags_equal(&buffer->tag, &sample->tag))
		{
			filled++;
			touched++;
		}
		else if (BUF_STATE_GET_REFCOUNT(now) != 0 || BUF_STATE_GET_USAGECOUNT(now) > sample->base)
			touched++;
	}

	*hot = touches_see(&rate, (pages > 0 && seconds > 0) ? (double) touched / pages : -1, seconds, recent, horizon);
	state->filled = (outside > 0 && seconds > 0) ? (double) live * filled / outside / seconds : 0;
	if (outside > 0)
	{
		state->unused = live * unused / outside;
		state->dirty = live * dirty / outside;
	}
	else
		state->unused = state->dirty = 0;
	state->pinned = balloon_sample_pinned();
}
