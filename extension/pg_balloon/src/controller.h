/*
 * controller.h
 *		Control algorithm of one server's balloon: measurements in, decision out.
 *
 * Pure C: no server header, no clock, no file, no static variable. The caller
 * owns the state, so a simulator can run many servers at once
 * (tests/extension/test_controller.py in pgherd's repository).
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#ifndef PG_BALLOON_CONTROLLER_H
#define PG_BALLOON_CONTROLLER_H

#include <stdbool.h>
#include <stdint.h>

/* Measurements of one tick. Memory in bytes, buffers as a count, rates per second. */
typedef struct BalloonInput
{
	double		dt;				/* seconds since the last tick, > 0 */

	int64_t		pool;			/* all buffers of the pool */
	int64_t		ballooned;		/* buffers in the balloon */
	int64_t		unused;			/* buffers outside the balloon that never held a page */
	int64_t		floor;			/* buffers that must stay outside the balloon */
	int64_t		ceiling;		/* maximum number of buffers in the balloon */
	int64_t		block;			/* bytes in a buffer */
	int64_t		page;			/* bytes in a page of the operating system */

	double		hot;			/* share of used buffers accessed within idle_after, 0..1 */
	double		pinned;			/* share of buffers outside the balloon that are pinned */
	double		misses;			/* pages read into the pool, without prefetched ones */
	double		filled;			/* pages read into the pool, with prefetched ones */
	double		miss_cost;		/* seconds to read one page; < 0: unknown */
	double		waiting;		/* sessions that wait for a page read now */
	double		dirty;			/* share of used buffers that are dirty */

	int64_t		limit;			/* memory limit */
	int64_t		limit_fall;		/* by how much it was lowered since the last tick */
	int64_t		available;		/* memory available below the limit without swapping */
	/*
	 * memory that this server can get, by all its limits, to be compared with
	 * the low watermark
	 */
	int64_t		reachable;
	int64_t		reachable_high; /* the same for the high watermark */
	int64_t		unclaimed;		/* part of it that is free, not even page cache */
	/* pages evicted and read again, by all below the limit; < 0: unknown */
	double		refaults;
	/* anonymous and shared ones of this server's own cgroup; < 0: unknown */
	double		own_refaults;
	double		swapping;		/* growth of the memory in swap, of all below the limit */
	double		stall;			/* share of time with a task waiting for memory or I/O;
								 * < 0: unknown */
} BalloonInput;

/* Watermarks and rates from the settings. */
typedef struct BalloonLimits
{
	int64_t		low_watermark;	/* bytes that a needy server leaves available */
	int64_t		high_watermark; /* bytes available, below which an idle server inflates;
								 * above low_watermark */
	int64_t		max_inflate_rate;	/* bytes per second */
	int64_t		max_deflate_rate;	/* bytes per second */
	int64_t		max_writeback_rate; /* bytes per second written ahead of time */
} BalloonLimits;

/* State kept from tick to tick; all zero at the start. */
typedef struct BalloonControllerState
{
	double		shortage_s;		/* uninterrupted memory shortage */
	double		need;			/* seconds per second lost to misses, smoothed */
	double		waiting;		/* waiting sessions, smoothed */
	double		need_s;			/* uninterrupted need */
	double		hold_s;			/* remaining time without growth */
	double		limit_fallen;	/* bytes by which the limit was lowered, fading */
	double		making_room_s;	/* remaining time to make room for a lower limit */
	double		exhausted_s;	/* time with nearly no memory, less a second for each inflate */
	double		idle_s;			/* time without need */
	double		refaulted;		/* bytes per second, smoothed; 0 while memory is unclaimed */
	double		own_refaulted;	/* bytes per second, smoothed */
	double		swap_debt;		/* buffers owed for refaults and swapping while the high
								 * watermark is kept */
	double		since_inflated_s;	/* since idle pages were moved into the balloon */
	double		extra_quiet_s;	/* idle time required beyond QUIET before inflating */
	bool		falls_again;	/* the limit fell further while room was made for it */
	bool		inflated_idle;	/* idle pages were inflated, and no need has followed yet */
	bool		room_made;		/* the room for the lower limit was there */
} BalloonControllerState;

typedef enum BalloonAction
{
	BALLOON_HOLD = 0,
	BALLOON_INFLATE,
	BALLOON_DEFLATE,
	BALLOON_WRITEBACK			/* write dirty buffers so that a later inflate is cheap */
} BalloonAction;

typedef enum BalloonReason
{
	BALLOON_REASON_STEADY = 0,	/* nothing to do */
	BALLOON_REASON_POOL_NOT_FULL,	/* the pool is still filling */
	BALLOON_REASON_FLOOR,		/* the pool is below its floor */
	BALLOON_REASON_PINNED,		/* too many of the remaining buffers are pinned */
	BALLOON_REASON_IDLE,		/* memory is short, and part of this pool is idle */
	BALLOON_REASON_POOL_SWAPPED,	/* pages of this pool are being swapped */
	BALLOON_REASON_LIMIT_FELL,	/* the memory limit was lowered */
	BALLOON_REASON_EXHAUSTED,	/* no memory is left, and no other server freed any */
	BALLOON_REASON_MISSES,		/* misses cost time, and memory is available */
	BALLOON_REASON_NO_MEMORY,	/* misses cost time, but no memory is available */
	BALLOON_REASON_ON_HOLD,		/* misses cost time, but growth is on hold */
	BALLOON_REASON_WRITEBACK,	/* idle: dirty buffers are written ahead of time */
	BALLOON_REASON_AT_LIMIT,	/* memory is short, but no buffer may be inflated */
	/* The worker sets the following without the controller. */
	BALLOON_REASON_TARGET,		/* pg_balloon.target is set */
	BALLOON_REASON_SWITCHED_OFF,	/* pg_balloon.enabled was switched off */
	BALLOON_REASON_REFUSED,		/* the operating system did not take memory back */
	BALLOON_REASON_CEILING		/* the balloon is above its ceiling */
} BalloonReason;

typedef struct BalloonDecision
{
	int			action;			/* BalloonAction */
	int			reason;			/* BalloonReason */
	int64_t		buffers;		/* how many to move or write */
	bool		write;			/* inflate: dirty buffers may be written */
	bool		prefetch;		/* deflate: read evicted pages back */
} BalloonDecision;

extern void balloon_controller_step(const BalloonLimits *limits, const BalloonInput *input,
									BalloonControllerState *state, BalloonDecision *decision);
extern bool balloon_safety(const BalloonInput *input, BalloonDecision *decision);
extern int64_t balloon_inflatable(const BalloonInput *input);

#endif							/* PG_BALLOON_CONTROLLER_H */
