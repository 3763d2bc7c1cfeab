/*
 * law.c
 *		The control law. README.md has the picture; law.h says what goes in and out.
 *
 * In the order in which they are looked at:
 *
 *	1. Safety: never below the floor or above the ceiling; when many buffers are
 *	   pinned, take back, and give no more until far fewer are.
 *	2. Short memory. Whoever has idle pages gives them, faster the longer the
 *	   shortage lasts, clean ones at first. A busy server gives only if its own
 *	   pool is being swapped, since reading a page again is then no worse.
 *	3. Need. A server that loses time to misses takes memory back, as far as
 *	   there is some: until only reserve_low is left. One whose pages are mostly
 *	   idle, and of whose sessions hardly any wait, takes page by page as they
 *	   are missed, and stops at reserve_high.
 *	4. Idleness. Dirty pages are written ahead of time, until so many idle ones are clean as may be asked for at once.
 *
 * The bands of 2 and 3 overlap: taking stops at reserve_low, giving begins
 * below reserve_high, which is more. So the growth of one server makes the mild
 * shortage that lets the others give, and they give before anything is swapped.
 */
#include "law.h"

#include <math.h>

#define SMOOTHING 0.3			/* seconds: the time constant of the need */
#define NEED 0.02				/* seconds lost to misses per second, from which on memory is wanted */
#define TOUCHED 0.3				/* share of the used pages touched within the horizon, below which it is wanted from what is left over only */
#define WAITING 1.5				/* sessions waiting for pages: clients that touch little because they wait so much are not idle */
#define WAITING_SMOOTHING 1.0	/* seconds: the time constant of their number */
#define DEFAULT_MISS_COST 2e-4	/* seconds, while nothing is known: a read from a solid-state disk */
#define LEAST_MISS_COST 5e-6	/* a read from the operating system's cache */
#define MOST_MISS_COST 2e-2		/* a seek */
#define MISSES 20.0				/* per second, from which on sessions that wait are taken to wait for those */
#define REFAULTS 300.0			/* pages needed again per second that show a shortage, where memory is in use to the last, … */
#define REFAULT_SMOOTHING 0.5	/* … over so many seconds: a burst in one tick is none */
#define SWAPPING (4.0 * 1024 * 1024)	/* bytes per second that do */
#define STRAIN_SHARE (1.0 / 8)	/* so much of the volume of either is given while the reserve is there … */
#define REFAULT_SIZE 4096		/* … in bytes each */
#define IDLE_MARGIN 1.1			/* the working set is taken to be so much larger than it looks */
#define LEAST_IDLE 0.01			/* of the used pages: less is not worth giving */
#define QUIET 0.4				/* seconds without need before idle pages may be given; the fewer pages are hot below TOUCHED, the less … */
#define REGRET 3.0				/* … and more whenever there is need so soon after giving them: twice as much … */
#define REGRETTED 0.1			/* … and so many seconds, … */
#define QUIET_MOST 30.0			/* … up to this, … */
#define QUIET_DECAY 60.0		/* … and forgotten with this time constant */
#define TIDY_AFTER 2.0			/* seconds without need before dirty pages are written ahead of time */
#define WRITE_AFTER 0.2			/* seconds of shortage before dirty pages are written to give them */
#define RAMP 0.1				/* seconds in which rates double … */
#define RAMP_START (1.0 / 16)	/* … from this share of the greatest */
#define SWAP_SMOOTHING 0.1		/* seconds: pages come back from swap several at a time */
#define SWAPPED_SHARE 0.5		/* of the own pages that came back from swap, so many are given instead at first, … */
#define SWAPPED_SHARE_MOST 4.0	/* … one share more for each second of shortage, up to so many times … */
#define SWAPPED_LEAST 640.0		/* … and so many buffers per second besides, … */
#define SWAPPED_MOST (1.0 / 8)	/* … but never more of the pool at a time */
#define EXHAUSTED 2.0			/* seconds with less than half of reserve_low, after which busy servers give too … */
#define EXHAUSTED_SHARE (1.0 / 64)	/* … so much of their pools, once a second */
#define EXHAUSTED_PATIENCE 0.25	/* time counts so much of that while somebody else's pages come back from swap, … */
#define EXHAUSTED_LONG 10.0		/* … which is over once it has been so for so many seconds: he has no more to give */
#define HOLD_SWAPPED 1.0		/* seconds without growth after either of them */
#define HOLD_IDLE 0.3			/* … and after giving idle pages */
#define PINNED 0.5				/* share of pinned buffers from which on more are taken back, … */
#define PINNED_LEAVES 0.25		/* … and which giving must not lead to: as many as are left come back at a time, so it is half the other */
#define EMPTY (1.0 / 20)		/* a pool used less than this is still empty */
#define FREE (1.0 / 50)			/* with more unused buffers than this … */
#define FREE_TIME 0.5			/* … and than will be used in so many seconds there is no need of more */
#define SPARE 0.75				/* of what is above reserve_low, so much is taken at a time: another one may be taking just now */
#define TRICKLE 16				/* buffers: less is not moved for a weak reason, … */
#define STRAIN_MOST 1.0			/* … but what comes together in so many seconds is */
#define LEAST_STEP 256			/* buffers: less is not worth a decision, except at the end or where the rate is lower */

static int64_t
smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t
greater(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* Buffers that a rate, in bytes per second, comes to in a tick; after a pause not more than in a second. */
static double
in_a_tick(int64_t rate, const BalloonView *view)
{
	return (double) rate * (view->dt < 1.0 ? view->dt : 1.0) / (double) view->block;
}

/* Buffers that may move in a tick at most: a rate that grows with the time for which there has been a reason, at first a step. */
static int64_t
step(int64_t rate, double lasted, const BalloonView *view)
{
	double		share = RAMP_START * pow(2.0, lasted / RAMP);
	double		most = in_a_tick(rate, view);

	return greater(1, (int64_t) fmax(fmin(LEAST_STEP, most), most * fmin(1.0, share)));
}

static void
say(BalloonVerdict *verdict, int act, int why, int64_t buffers)
{
	verdict->act = act;
	verdict->why = why;
	verdict->buffers = buffers;
}

/*
 * What a miss costs: measured, else the waiting that there was for each, else a guess. It was measured when pages were last read back,
 * from the operating system's cache perhaps; the sessions that wait now show what it is now.
 */
static double
cost_of_a_miss(const BalloonView *view, double waiting)
{
	double		cost = DEFAULT_MISS_COST;

	if (view->miss_cost >= 0)
		cost = view->miss_cost;
	else if (view->stall >= 0 && view->misses >= 1)
		cost = view->stall / view->misses;
	if (view->misses >= MISSES)
		cost = fmax(cost, waiting / view->misses);
	if (cost < LEAST_MISS_COST)
		return LEAST_MISS_COST;
	return cost > MOST_MISS_COST ? MOST_MISS_COST : cost;
}

/* Buffers that may be in the balloon at most, by floor and ceiling. */
static int64_t
most(const BalloonView *view)
{
	return greater(0, smaller(view->pool - view->floor, view->ceiling));
}

/* Buffers that may be given now, by floor and ceiling, and by the pins on what is left. */
int64_t
balloon_room(const BalloonView *view)
{
	int64_t		live = view->pool - view->ballooned;
	int64_t		by_pins = (int64_t) ((double) live * (1.0 - view->pinned / PINNED_LEAVES));

	return greater(0, smaller(most(view) - view->ballooned, by_pins));
}

/* What must come back at once, whoever steers the balloon. Returns false, with a verdict to stay, if nothing must. */
bool
balloon_safety(const BalloonView *view, BalloonVerdict *verdict)
{
	int64_t		live = view->pool - view->ballooned;

	verdict->write = false;
	verdict->prefetch = false;
	say(verdict, BALLOON_STAY, BALLOON_WHY_CALM, 0);
	if (view->ballooned > most(view))
		say(verdict, BALLOON_TAKE, live < view->floor ? BALLOON_WHY_FLOOR : BALLOON_WHY_CEILING, view->ballooned - most(view));
	else if (view->pinned > PINNED && view->ballooned > 0)
		say(verdict, BALLOON_TAKE, BALLOON_WHY_PINNED, smaller(view->ballooned, greater(live, LEAST_STEP)));
	return verdict->act != BALLOON_STAY;
}

void
balloon_law(const BalloonTuning *tuning, const BalloonView *view, BalloonMind *mind, BalloonVerdict *verdict)
{
	int64_t		live = view->pool - view->ballooned;
	int64_t		used = greater(0, live - view->unused);
	int64_t		room = balloon_room(view);
	double		untouched = 1.0 - IDLE_MARGIN * view->hot;
	int64_t		idle = untouched > 0 ? (int64_t) ((double) used * untouched) : 0;
	bool		full = view->unclaimed < tuning->reserve_high;
	double		swapping = full ? view->swapping : 0;
	bool		starved;
	bool		is_short;
	bool		missing;
	bool		wanting;
	bool		worth;

	starved = (double) view->unused <= FREE * (double) live || (double) view->unused <= FREE_TIME * view->filled;
	mind->waiting += (1.0 - exp(-view->dt / WAITING_SMOOTHING)) * (view->waiting - mind->waiting);
	mind->need += (1.0 - exp(-view->dt / SMOOTHING)) * (view->misses * cost_of_a_miss(view, mind->waiting) - mind->need);
	missing = mind->need > NEED || mind->waiting >= WAITING;
	wanting = missing && (view->hot >= TOUCHED || mind->waiting >= WAITING);
	mind->needed = wanting ? mind->needed + view->dt : 0;
	mind->quiet = wanting ? 0 : mind->quiet + view->dt;
	mind->hold = mind->hold > view->dt ? mind->hold - view->dt : 0;
	mind->since_given += view->dt;
	mind->patience *= exp(-view->dt / QUIET_DECAY);

	/* While the reserve lies there unused nothing is evicted for want of it: others come back into groups whose own limits are short. */
	mind->refaults += (1.0 - exp(-view->dt / REFAULT_SMOOTHING)) * ((full ? view->refaults : 0) - mind->refaults);
	mind->own_refaults += (1.0 - exp(-view->dt / SWAP_SMOOTHING)) * (view->own_refaults - mind->own_refaults);
	is_short = view->available < tuning->reserve_high || mind->refaults > REFAULTS || swapping > SWAPPING;
	mind->pressed = is_short ? mind->pressed + view->dt : 0;

	/* 1. Safety. */
	if (balloon_safety(view, verdict))
		return;

	/* A pool that is still filling holds little, and what it will want is not known. */
	if ((double) used < EMPTY * (double) view->pool && view->ballooned == 0)
	{
		say(verdict, BALLOON_STAY, BALLOON_WHY_EMPTY, 0);
		return;
	}

	/*
	 * 2. Short memory. A pool of which hardly anything is touched is idle beyond doubt, and somebody waits for its memory; where a part is,
	 * the need may be back in a moment. So it may anywhere where it has been of late.
	 */
	worth = (double) idle >= LEAST_IDLE * (double) used && idle > 0;
	if (is_short && worth && mind->quiet >= QUIET * fmin(1.0, view->hot / TOUCHED) + mind->patience)
	{
		int64_t		want = step(tuning->yield_rate, mind->pressed, view);

		/*
		 * Not more than is missing. With enough available pages can still be needed again or swapped, but they may be of files
		 * that are read once: only a part of their volume is given, since what is given comes back from disk.
		 */
		if (view->available < tuning->reserve_high)
		{
			mind->strain = 0;
			want = smaller(want, (tuning->reserve_high - view->available) / view->block + LEAST_STEP);
		}
		else
		{
			double		rate = (mind->refaults * REFAULT_SIZE + swapping) * STRAIN_SHARE / (double) view->block;

			mind->strain = fmin(mind->strain + rate * view->dt, rate * STRAIN_MOST);
			want = smaller(want, (int64_t) mind->strain);
		}
		want = smaller(smaller(want, idle), room);
		if (view->available >= tuning->reserve_high && want < TRICKLE)
			say(verdict, BALLOON_STAY, BALLOON_WHY_CALM, 0);
		else if (want > 0)
		{
			verdict->write = mind->pressed > WRITE_AFTER;
			mind->hold = HOLD_IDLE > mind->hold ? HOLD_IDLE : mind->hold;
			mind->since_given = 0;
			mind->gave = true;
			mind->strain = fmax(0, mind->strain - (double) want);
			say(verdict, BALLOON_GIVE, BALLOON_WHY_IDLE, want);
		}
		else
			say(verdict, BALLOON_STAY, BALLOON_WHY_BOTTOM, 0);
		return;
	}
	/* Who has nothing to give is not kept from growing: pages of his come back because he has just been woken. */
	if (is_short && view->available < tuning->reserve_low && mind->own_refaults > REFAULTS && room > 0)
	{
		double		share = SWAPPED_SHARE * (1.0 + mind->pressed);
		int64_t		came_back;
		int64_t		want;

		if (share > SWAPPED_SHARE_MOST)
			share = SWAPPED_SHARE_MOST;
		came_back = (int64_t) ((mind->own_refaults * share + SWAPPED_LEAST) * view->dt);
		want = smaller(smaller(came_back, (int64_t) (SWAPPED_MOST * (double) used)), room);

		if (want > 0)
		{
			mind->hold = HOLD_SWAPPED;
			say(verdict, BALLOON_GIVE, BALLOON_WHY_SWAPPED, want);
			return;
		}
	}

	/* While anybody's pages come back from swap, giving is up to him at first; but he may have come to his floor. */
	if (view->available >= tuning->reserve_low / 2)
		mind->exhausted = mind->nothing_left = 0;
	else
	{
		mind->nothing_left += view->dt;
		mind->exhausted += mind->refaults <= REFAULTS || mind->nothing_left > EXHAUSTED_LONG ? view->dt : view->dt * EXHAUSTED_PATIENCE;
	}
	if (mind->exhausted > EXHAUSTED)
	{
		int64_t		missing = (tuning->reserve_low - view->available) / view->block;
		int64_t		want = smaller(smaller(missing, (int64_t) (EXHAUSTED_SHARE * (double) used) + 1), room);

		mind->exhausted -= 1.0;
		mind->hold = HOLD_SWAPPED;
		if (want > 0)
		{
			verdict->write = true;
			say(verdict, BALLOON_GIVE, BALLOON_WHY_EXHAUSTED, want);
		}
		else
			say(verdict, BALLOON_STAY, BALLOON_WHY_BOTTOM, 0);
		return;
	}

	/* 3. Need. Where most pages in use are touched seldom, so would be those that come back: they are not worth others' shortage. */
	if (missing && !wanting && starved && view->ballooned > 0)
	{
		int64_t		spare = (view->reachable - tuning->reserve_high) / 2 / view->block;
		int64_t		as_missed = smaller((int64_t) (view->misses * FREE_TIME) + 1, view->ballooned);

		if (as_missed < TRICKLE)
			say(verdict, BALLOON_STAY, BALLOON_WHY_CALM, 0);
		else if (is_short || spare < as_missed)
			say(verdict, BALLOON_STAY, BALLOON_WHY_NO_MEMORY, 0);
		else
			say(verdict, BALLOON_TAKE, BALLOON_WHY_NEED, as_missed);
		return;
	}
	if (wanting && starved && view->ballooned > 0)
	{
		/* Unused buffers have been taken already, and will need memory too. */
		int64_t		spare = (int64_t) (SPARE * (double) (view->reachable - tuning->reserve_low)) / view->block - view->unused;

		/* Whether or not there is any left to take: who gave it too soon must learn that all the same. */
		if (mind->gave && mind->since_given < REGRET)
		{
			mind->patience = 2 * mind->patience + REGRETTED;
			if (mind->patience > QUIET_MOST)
				mind->patience = QUIET_MOST;
		}
		mind->gave = false;
		if (mind->hold > 0)
			say(verdict, BALLOON_STAY, BALLOON_WHY_HELD, 0);
		else if (spare < smaller(LEAST_STEP, view->ballooned))
			say(verdict, BALLOON_STAY, BALLOON_WHY_NO_MEMORY, 0);
		else
		{
			verdict->prefetch = true;
			say(verdict, BALLOON_TAKE, BALLOON_WHY_NEED,
				smaller(smaller(step(tuning->growth_rate, mind->needed, view), spare), view->ballooned));
		}
		return;
	}

	/*
	 * 4. Idleness. What a busy server writes ahead it makes dirty again; and while pages wait to be written memory is short of them. Giving
	 * fills the reserve up, so no more than that is asked for at once, and while clean pages are given the dirty ones are written.
	 */
	if (mind->quiet >= TIDY_AFTER && view->hot < TOUCHED && tuning->clean_rate > 0)
	{
		int64_t		clean = idle - (int64_t) (view->dirty * (double) used); /* if all that are dirty are idle */
		int64_t		wanted = smaller(idle, tuning->reserve_high / view->block);

		if (wanted - clean >= TRICKLE)
		{
			say(verdict, BALLOON_CLEAN, BALLOON_WHY_TIDY, smaller(greater(1, (int64_t) in_a_tick(tuning->clean_rate, view)), wanted - clean));
			return;
		}
	}
	say(verdict, BALLOON_STAY, BALLOON_WHY_CALM, 0);
}

const char *
balloon_why_text(int why)
{
	switch (why)
	{
		case BALLOON_WHY_CALM:
			return "nothing to do";
		case BALLOON_WHY_EMPTY:
			return "the pool is not filled yet";
		case BALLOON_WHY_FLOOR:
			return "the pool was below its floor";
		case BALLOON_WHY_PINNED:
			return "too many of the buffers left are pinned";
		case BALLOON_WHY_IDLE:
			return "memory is short and part of this pool is idle";
		case BALLOON_WHY_SWAPPED:
			return "this pool itself is being swapped";
		case BALLOON_WHY_EXHAUSTED:
			return "memory is exhausted";
		case BALLOON_WHY_NEED:
			return "misses cost time and there is memory";
		case BALLOON_WHY_NO_MEMORY:
			return "misses cost time but there is no memory";
		case BALLOON_WHY_HELD:
			return "misses cost time but memory has been given lately";
		case BALLOON_WHY_TIDY:
			return "idle: dirty pages are written ahead of time";
		case BALLOON_WHY_BOTTOM:
			return "memory is short but floor, ceiling or pins allow no more";
		case BALLOON_WHY_TARGET:
			return "pg_balloon.target";
		case BALLOON_WHY_SWITCHED_OFF:
			return "pg_balloon.enabled was switched off";
		case BALLOON_WHY_REFUSED:
			return "the operating system refused to take memory back";
		case BALLOON_WHY_CEILING:
			return "the balloon was above its ceiling";
	}
	return "unknown";
}
