/*
 * pool_sample.c
 *		Use of the pool, estimated from random buffers.
 *
 * Drawing a sample lowers the usage count of each of its buffers to one. If
 * the count is higher when the sample is read, the page was accessed
 * meanwhile. (With zero, the clock sweep would evict sampled pages before
 * others.) A sample is at most 1/64 of the pool and 1/16 of the buffers
 * outside the balloon, so that the sweep is hardly affected. The accessed
 * share gives a rate per page and second, and the share of pages accessed
 * within pg_balloon.idle_after, if accesses are independent.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"

#include "compat.h"
#include "pool_sample.h"
#include "rates.h"
#include "shared_state.h"

#define MOST_SAMPLES 2048
#define FEW_SAMPLES 512
#define FEWEST_SAMPLES 64
#define SHARE_OF_POOL 64
#define SHARE_OF_REST 16		/* of the buffers outside the balloon */
#define MOST_TRIES 8

typedef struct Sample
{
	int			id;
	uint32		base;			/* usage count after drawing */
	bool		page;			/* it held a page */
	bool		ours;			/* it was in the balloon */
	BufferTag	tag;
} Sample;

static Sample samples[MOST_SAMPLES];
static int	nsamples = 0;
static double access_rate = -1;	/* accesses per page and second; < 0: unknown */

/* Forget what is known of the pool's use, and draw a sample. */
void
pool_sample_begin(void)
{
	access_rate = -1;
	pool_sample_draw(false);
}

/* Draw a new sample, a small one if "few". */
void
pool_sample_draw(bool few)
{
	nsamples = Min(NBuffers / SHARE_OF_POOL, (NBuffers - balloon->nballooned) / SHARE_OF_REST);
	nsamples = Min(few ? FEW_SAMPLES : MOST_SAMPLES, Max(FEWEST_SAMPLES, nsamples));
	for (int i = 0; i < nsamples; i++)
	{
		Sample	   *sample = &samples[i];
		BufferDesc *buffer;
		uint32		state;

		/*
		 * With most of the pool in the balloon, few samples would be outside.
		 * Try several times.
		 */
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

/*
 * Return the pinned buffers, extrapolated from the sample to all outside the
 * balloon.
 */
int64
pool_sample_pinned(void)
{
	int			outside = 0;
	int			pinned = 0;

	for (int i = 0; i < nsamples; i++)
	{
		uint32		state;

		if (balloon_has(samples[i].id))
			continue;
		outside++;
		state = pg_atomic_read_u32(&GetBufferDescriptor(samples[i].id)->state);
		if (BUF_STATE_GET_REFCOUNT(state) != 0)
			pinned++;
	}
	return outside > 0 ? (int64) (NBuffers - balloon->nballooned) * pinned / outside : 0;
}

/*
 * Read the sample, that many seconds after it was drawn.
 *
 * If "recent" is not 0, all accesses may have happened within the last
 * "recent" seconds (see access_rate_update). The state of the pool is
 * extrapolated from the sample to all buffers outside the balloon.
 */
void
pool_sample_read(double seconds, double recent, double horizon, PoolState *state)
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

		/*
		 * A replaced page counts as accessed, because another page needed its
		 * buffer. The tag is read without the lock, because it is a sample.
		 */
		if ((now & BM_TAG_VALID) && !balloon_tags_equal(&buffer->tag, &sample->tag))
		{
			filled++;
			touched++;
		}
		else if (BUF_STATE_GET_REFCOUNT(now) != 0 || BUF_STATE_GET_USAGECOUNT(now) > sample->base)
			touched++;
	}

	state->hot = access_rate_update(&access_rate,
									(pages > 0 && seconds > 0) ? (double) touched / pages : -1,
									seconds, recent, horizon);
	state->filled = (outside > 0 && seconds > 0) ? (double) live * filled / outside / seconds : 0;
	if (outside > 0)
	{
		state->unused = live * unused / outside;
		state->dirty = live * dirty / outside;
	}
	else
		state->unused = state->dirty = 0;
	state->pinned = pool_sample_pinned();
}

/* Return the total number of buffers that the clock hand has passed. */
uint64
pool_clock_hand(void)
{
	uint32		passes;
	uint64		hand = StrategySyncStart(&passes, NULL);

	return hand + (uint64) passes * NBuffers;
}

