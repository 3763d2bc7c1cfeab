/*
 * misses.h
 *		How many pages come into the pool per second, from a count that somebody publishes now and then.
 *
 * Pure C, like law.h: tests/extension/test_misses.py feeds it by hand.
 */
#ifndef PG_BALLOON_MISSES_H
#define PG_BALLOON_MISSES_H

#include <stdbool.h>
#include <stdint.h>

/* All zero at the start; the caller's. */
typedef struct MissMeter
{
	bool		started;
	int64_t		count;			/* pages that have come in, as published last */
	int64_t		own;			/* of them read back by us, at that time */
	double		waited;			/* seconds since then */
	double		reading;		/* … of them since we were first seen to have read pages back that are not published */
	double		filled;			/* pages per second, between the last two publications */
	double		own_filled;		/* … of them read back by us */
} MissMeter;

extern bool misses_see(MissMeter *meter, double dt, double cadence, int64_t count, int64_t own);

#endif							/* PG_BALLOON_MISSES_H */
