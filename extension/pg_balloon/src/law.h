/*
 * law.h
 *		The control law: what a server should do with its balloon, given what it sees.
 *
 * Pure C: no server header, no clock, no file, no memory of its own. The state
 * is the caller's, so that a simulator can run a thousand servers (see
 * tests/extension/test_law.py).
 */
#ifndef PG_BALLOON_LAW_H
#define PG_BALLOON_LAW_H

#include <stdbool.h>
#include <stdint.h>

/* What a server sees in one tick. Memory in bytes, buffers in pages of the pool, rates per second. */
typedef struct BalloonView
{
	double		dt;				/* seconds since the last tick, > 0 */

	int64_t		pool;			/* all buffers of the pool */
	int64_t		ballooned;		/* of them in the balloon */
	int64_t		unused;			/* of the others never used yet: they hold no memory */
	int64_t		floor;			/* buffers that must stay outside the balloon */
	int64_t		ceiling;		/* buffers that may be in the balloon at most */
	int64_t		block;			/* bytes in a buffer */

	double		hot;			/* share of the used buffers touched within the horizon, 0..1 */
	double		pinned;			/* share of the buffers outside the balloon that are pinned */
	double		misses;			/* pages read into the pool per second, those of our own prefetch excluded */
	double		filled;			/* the same with those of our own prefetch */
	double		miss_cost;		/* seconds that one of them takes here; < 0: not known */
	double		waiting;		/* sessions that wait for a page to be read just now */
	double		dirty;			/* share of the used buffers that are dirty */

	int64_t		limit;			/* memory that there is in all */
	int64_t		available;		/* memory that everybody together could still get without swapping */
	int64_t		reachable;		/* memory that this server could get, by its own groups' limits too */
	int64_t		unclaimed;		/* of that, what nobody uses, not even as page cache */
	double		refaults;		/* pages evicted and needed again, of everybody under the limit */
	double		own_refaults;	/* those of them in this server's own group that were anonymous or shared memory */
	double		swapping;		/* bytes swapped out per second, of everybody */
	double		stall;			/* share of the time in which somebody of this group waited for memory or I/O; < 0: not known */
} BalloonView;

typedef struct BalloonTuning
{
	int64_t		reserve_low;	/* bytes: a needy server may grow until so little is available */
	int64_t		reserve_high;	/* bytes: an idle server gives until so much is available; above reserve_low */
	int64_t		yield_rate;		/* bytes per second given at most */
	int64_t		growth_rate;	/* bytes per second taken back at most */
	int64_t		clean_rate;		/* bytes per second written ahead of time at most */
} BalloonTuning;

/* Kept from tick to tick; all zero at the start. */
typedef struct BalloonMind
{
	double		pressed;		/* seconds for which memory has been short without a break */
	double		need;			/* smoothed time lost to misses, in seconds per second */
	double		waiting;		/* smoothed */
	double		needed;			/* seconds for which the server has been needy without a break */
	double		hold;			/* seconds for which it must not grow yet */
	double		exhausted;		/* seconds for which nothing has been left, as they count */
	double		nothing_left;	/* … and as they are */
	double		quiet;			/* seconds without need */
	double		refaults;		/* smoothed, per second, as far as they show a shortage */
	double		own_refaults;	/* smoothed, per second */
	double		strain;			/* buffers to be given for pages needed again or swapped, while the reserve is there */
	double		since_given;	/* seconds since idle pages were given */
	double		patience;		/* seconds without need wanted, beyond the least, before giving again */
	bool		gave;			/* idle pages have been given, and none been wanted since */
} BalloonMind;

typedef enum BalloonAct
{
	BALLOON_STAY = 0,
	BALLOON_GIVE,				/* inflate */
	BALLOON_TAKE,				/* deflate */
	BALLOON_CLEAN				/* write dirty buffers, so that giving is cheap later */
} BalloonAct;

typedef enum BalloonWhy
{
	BALLOON_WHY_CALM = 0,		/* nothing to do */
	BALLOON_WHY_EMPTY,			/* the pool is not filled yet */
	BALLOON_WHY_FLOOR,			/* below the floor */
	BALLOON_WHY_PINNED,			/* too many of the buffers left are pinned */
	BALLOON_WHY_IDLE,			/* memory is short, and part of this pool is idle */
	BALLOON_WHY_SWAPPED,		/* this pool itself is being swapped */
	BALLOON_WHY_EXHAUSTED,		/* nothing is left, and nobody else has given any */
	BALLOON_WHY_NEED,			/* misses cost time, and there is memory */
	BALLOON_WHY_NO_MEMORY,		/* misses cost time, but there is no memory */
	BALLOON_WHY_HELD,			/* misses cost time, but it has given lately because it was swapped */
	BALLOON_WHY_TIDY,			/* idle: write dirty buffers ahead of time */
	BALLOON_WHY_BOTTOM,			/* memory is short, but nothing may be given */
	BALLOON_WHY_TARGET,			/* the law is not asked: an outside manager has set a target */
	BALLOON_WHY_SWITCHED_OFF,	/* … or the balloon has been switched off, … */
	BALLOON_WHY_REFUSED,		/* … or the operating system did not take memory */
	BALLOON_WHY_CEILING			/* above the ceiling */
} BalloonWhy;

typedef struct BalloonVerdict
{
	int			act;			/* BalloonAct */
	int			why;			/* BalloonWhy */
	int64_t		buffers;		/* how many */
	bool		write;			/* giving may write dirty buffers */
	bool		prefetch;		/* taking: read back what was evicted */
} BalloonVerdict;

extern void balloon_law(const BalloonTuning *tuning, const BalloonView *view, BalloonMind *mind, BalloonVerdict *verdict);
extern bool balloon_safety(const BalloonView *view, BalloonVerdict *verdict);
extern int64_t balloon_room(const BalloonView *view);
extern const char *balloon_why_text(int why);

#endif							/* PG_BALLOON_LAW_H */
