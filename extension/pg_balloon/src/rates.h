/*
 * rates.h
 *		Access rate of pages, rate of pages read into the pool, and rates between
 *		two sets of memory signals.
 *
 * Pure C without server headers, like controller.h.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#ifndef PG_BALLOON_RATES_H
#define PG_BALLOON_RATES_H

#include <stdbool.h>
#include <stdint.h>

#include "memory_signals.h"

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

/* Rates between two sets of signals. Per second, memory in bytes. */
typedef struct MemorySignalRates
{
	double		refaults;		/* pages; -1: unknown */
	double		own_refaults;	/* pages; -1: unknown */
	double		swapping;		/* growth of the memory in swap */
	double		stall;			/* share of the time with a task waiting; -1: unknown */
} MemorySignalRates;

extern double access_rate_update(double *rate, double share, double seconds, double recent,
								 double horizon);
extern bool miss_rate_update(MissRate *rate, double dt, double cadence, int64_t count,
							 int64_t read_back);
extern void memory_signals_compare(const MemorySignals *before, const MemorySignals *now,
								   double seconds, double since_light, MemorySignalRates *rates);

#endif							/* PG_BALLOON_RATES_H */
