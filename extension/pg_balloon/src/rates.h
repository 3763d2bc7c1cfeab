/*
 * rates.h
 *		Access rate of pages, and rate of pages read into the pool.
 *
 * Pure C without server headers, like controller.h.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#ifndef PG_BALLOON_RATES_H
#define PG_BALLOON_RATES_H

#include <stdbool.h>
#include <stdint.h>

/* Rate of pages read into the pool. All zero at the start; owned by the caller. */
typedef struct MissRate
{
	bool		started;
	int64_t		count;			/* pages read into the pool, as last published */
	int64_t		read_back;		/* prefetched pages at that time */
	double		silent_s;		/* time since then */
	double		read_back_s;	/* time since the first unpublished prefetch */
	double		filled;			/* pages per second between the last two publications */
	double		read_back_filled;	/* part of filled that was prefetched */
} MissRate;

extern double access_rate_update(double *rate, double share, double seconds, double recent,
								 double horizon);
extern bool miss_rate_update(MissRate *rate, double dt, double cadence, int64_t count,
							 int64_t read_back);

#endif							/* PG_BALLOON_RATES_H */
