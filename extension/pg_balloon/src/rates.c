/*
 * rates.c
 *		Access rate of pages, rate of pages read into the pool, and rates between
 *		two sets of memory signals.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#include "rates.h"

#include <math.h>
#include <stddef.h>

/* Maximum accessed share of a sample, so that the rate stays finite. */
#define MOST_TOUCHED 0.999
/* Minimum weight of the newest reading when the access rate falls. */
#define LEAST_WEIGHT 0.75
/* Seconds in which the previous rate loses half of its weight. */
#define HALF_LIFE 0.2
/* Publication periods without a publication, after which the miss rate is unknown. */
#define OVERDUE 2.0

/*
 * Return the accesses per page and second if this share of the pages was
 * accessed within that many seconds, and accesses are independent.
 */
static double
rate_from_share(double share, double seconds)
{
	return -log(1.0 - (share < MOST_TOUCHED ? share : MOST_TOUCHED)) / seconds;
}

/*
 * Update the access rate from a sample that was drawn that many seconds ago.
 *
 * "share" is the share of its pages accessed since then; < 0: the sample had no
 * page. If "recent" is between 0 and "seconds", all accesses may have happened
 * within the last "recent" seconds, which gives an upper bound for the present
 * rate. The rate falls no further than to that bound, and no page counts as
 * idle that would not be with it.
 *
 * Sets the rate (accesses per page and second; < 0: unknown). Returns the share
 * of pages accessed within the horizon (seconds); 1 if unknown.
 */
double
access_rate_update(double *rate, double share, double seconds, double recent, double horizon)
{
	double		most = 0;

	if (share >= 0)
	{
		double		least = rate_from_share(share, seconds);

		/*
		 * A rise is adopted at once. A fall is adopted by at least three
		 * quarters, so that a momentary pause is not idleness, but a longer
		 * pause is. (With one half, a pool whose pages were each accessed once
		 * a second looked idle only after 0.6 s, while others waited for it.)
		 */
		double		weight = fmax(LEAST_WEIGHT, 1.0 - pow(0.5, seconds / HALF_LIFE));

		most = recent > 0 && recent < seconds ? rate_from_share(share, recent) : least;
		if (*rate < 0 || least > *rate)
			*rate = least;
		else if (most < *rate)
			*rate += weight * (most - *rate);
	}
	return *rate < 0 ? 1.0 : 1.0 - exp(-fmax(*rate, most) * horizon);
}

/*
 * Update the miss rate from a published count, dt seconds after the last call.
 *
 * The count is published every "cadence" seconds while pages are read into the
 * pool, and not at all while none is. Returns false if the rate is unknown: the
 * publisher was silent for long. Then no page was read, or the publisher could
 * not publish.
 */
bool
miss_rate_update(MissRate *rate, double dt, double cadence, int64_t count, int64_t read_back)
{
	double		longest = OVERDUE * cadence + dt;
	bool		known = rate->started;

	rate->started = true;
	rate->silent_s += dt;
	if (read_back > rate->read_back)
		rate->read_back_s += dt;
	if (known && count == rate->count)
	{
		if (rate->silent_s <= longest)
			return true;
		rate->filled = rate->read_back_filled = 0;
		return false;
	}
	if (known && count > rate->count)
	{
		/*
		 * After a silence, the first page wakes the publisher, so all pages
		 * were read within its period. If the first unpublished prefetch is
		 * older than that, the publisher was late, and they were read since then.
		 */
		double		since = rate->read_back_s > cadence ? rate->read_back_s : cadence;
		double		period = rate->silent_s <= longest ? rate->silent_s : since;

		rate->filled = (double) (count - rate->count) / period;
		rate->read_back_filled = read_back > rate->read_back
			? (double) (read_back - rate->read_back) / period : 0;
	}
	else
		known = false;			/* the first call, or the count was reset */
	rate->count = count;
	rate->read_back = read_back;
	rate->silent_s = rate->read_back_s = 0;
	return known;
}

/* Return the increase of a count, or 0 if it has fallen. */
static double
increase(int64_t before, int64_t now)
{
	return now > before ? (double) (now - before) : 0;
}

/* Return the rate of a count, -1 if it was or is unknown (negative). */
static double
rate_of(int64_t before, int64_t now, double seconds)
{
	return before < 0 || now < 0 ? -1 : increase(before, now) / seconds;
}

/*
 * Compute rates from two sets of signals of the same level, that many seconds
 * apart. Without an earlier one (NULL) all rates are unknown.
 *
 * A light read fails if the memory in swap has grown. So if a full read finds
 * that after light ones, it has grown within since_light, if that is less.
 */
void
memory_signals_compare(const MemorySignals *before, const MemorySignals *now, double seconds,
					   double since_light, MemorySignalRates *rates)
{
	double		share;

	rates->refaults = rates->own_refaults = rates->stall = -1;
	rates->swapping = 0;
	if (before == NULL || before->tight != now->tight)
		return;					/* counts of different levels are not comparable */
	rates->refaults = rate_of(before->refaults, now->refaults, seconds);
	rates->own_refaults = rate_of(before->own_refaults, now->own_refaults, seconds);
	rates->swapping = increase(before->swapped, now->swapped) /
		(since_light < seconds ? since_light : seconds);
	if (before->stalled < 0 || now->stalled < 0)
		return;
	share = increase(before->stalled, now->stalled) / (seconds * 1e6);
	rates->stall = share < 1.0 ? share : 1.0;
}
