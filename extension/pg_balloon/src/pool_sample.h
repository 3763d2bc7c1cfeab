/*
 * pool_sample.h
 *		Use of the pool, estimated from random buffers.
 *
 * Only the worker may call these functions.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#ifndef PG_BALLOON_POOL_SAMPLE_H
#define PG_BALLOON_POOL_SAMPLE_H

/* State of the buffers outside the balloon, extrapolated from the sample. */
typedef struct PoolState
{
	int64		unused;			/* buffers without a page */
	int64		dirty;
	int64		pinned;
	double		filled;			/* pages read into the pool per second */
	double		hot;			/* share of used pages accessed within the horizon; 1: unknown */
} PoolState;

extern void pool_sample_begin(void);
extern void pool_sample_draw(bool few);
extern void pool_sample_read(double seconds, double recent, double horizon, PoolState *state);
extern int64 pool_sample_pinned(void);
extern uint64 pool_clock_hand(void);

#endif							/* PG_BALLOON_POOL_SAMPLE_H */
