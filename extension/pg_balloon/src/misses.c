/*
 * misses.c
 *		How many pages come into the pool per second, from a count that somebody publishes now and then.
 */
#include "misses.h"

#define OVERDUE 2.0				/* periods without a publication, after which nothing is known any more */

/*
 * Look at the count, dt seconds after the last look. It is published every "cadence" seconds while pages come in, and not at
 * all while none does. Sets the meter's rates; returns whether they say anything. If not, the publisher has been silent for
 * long: no page has come in, or it has been kept from publishing.
 */
bool
misses_see(MissMeter *meter, double dt, double cadence, int64_t count, int64_t own)
{
	double		longest = OVERDUE * cadence + dt;
	bool		known = meter->started;

	meter->started = true;
	meter->waited += dt;
	if (own > meter->own)
		meter->reading += dt;
	if (known && count == meter->count)
	{
		if (meter->waited <= longest)
			return true;
		meter->filled = meter->own_filled = 0;
		return false;
	}
	if (known && count > meter->count)
	{
		/*
		 * After a silence it is the first page that wakes the publisher up, and all of them came in within its period. But what we
		 * read back is among them: if that goes back further, the publisher was late, and they came in since then.
		 */
		double		since = meter->reading > cadence ? meter->reading : cadence;
		double		period = meter->waited <= longest ? meter->waited : since;

		meter->filled = (double) (count - meter->count) / period;
		meter->own_filled = own > meter->own ? (double) (own - meter->own) / period : 0;
	}
	else
		known = false;			/* the first look, or somebody has set the count back */
	meter->count = count;
	meter->own = own;
	meter->waited = meter->reading = 0;
	return known;
}
