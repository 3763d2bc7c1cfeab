/*
 * touches.c
 *		How often a page is touched, and what share of the pages is touched within the horizon, by what a sample has seen.
 */
#include "touches.h"

#include <math.h>

#define MOST_TOUCHED 0.999		/* of a sample: where all of it has been touched, the rate is not endless */
#define LEAST_WEIGHT 0.75		/* of the newest reading when the rate falls … */
#define HALF_LIFE 0.2			/* … and seconds in which what was known loses half of its weight */

/* Touches per page and second, if this share of the pages was touched within so many seconds and touches come independently. */
static double
reading(double share, double seconds)
{
	return -log(1.0 - (share < MOST_TOUCHED ? share : MOST_TOUCHED)) / seconds;
}

/*
 * This share of a sample's pages has been touched since it was drawn, seconds ago (< 0: it had none). Where "recent" is neither 0 nor more
 * than that, nobody knows when: all of them may have been within the last so many seconds, which is the most that there may be now. The
 * rate falls no further than to that, and nothing is taken to be idle that would not be with it.
 *
 * Sets the rate (touches per page and second; < 0: not known yet), and returns the share of the pages that are touched within the horizon
 * (seconds); 1 if nothing can be said.
 */
double
touches_see(double *rate, double share, double seconds, double recent, double horizon)
{
	double		most = 0;

	if (share >= 0)
	{
		double		least = reading(share, seconds);

		/*
		 * What rises is believed at once, what falls by three quarters, so that a moment's pause is not idleness; but a longer one is.
		 * (By half, a pool of which each page had been touched once a second looked idle only after 0.6 s, while others waited for it.)
		 */
		double		weight = fmax(LEAST_WEIGHT, 1.0 - pow(0.5, seconds / HALF_LIFE));

		most = recent > 0 && recent < seconds ? reading(share, recent) : least;
		if (*rate < 0 || least > *rate)
			*rate = least;
		else if (most < *rate)
			*rate += weight * (most - *rate);
	}
	return *rate < 0 ? 1.0 : 1.0 - exp(-fmax(*rate, most) * horizon);
}
