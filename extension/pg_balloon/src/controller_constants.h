/*
 * controller_constants.h
 *		Constants of the controller, in the order of its rules.
 *
 * Times are in seconds.
 *
 * The values were chosen by reasoning. On 2026-11-30 each was halved and doubled
 * in a simulation (benchmarks/controller_constants.py in pgherd's repository;
 * effects in RESULTS.md). IDLE_MARGIN, QUIET,
 * WRITE_AFTER, RAMP, RAMP_START and SPARE have one. Others remain for these reasons:
 *	- The rule matters, but not the exact value: SMOOTHING, NEED, TOUCHED,
 *	  WAITING, REFAULTED, REGRET, REGRETTED, QUIET_DECAY, EXHAUSTED,
 *	  EXHAUSTED_SHARE, HOLD_BUSY, FREE_TIME, LEAST_STEP.
 *	- Measured: without MADE_ROOM, the kernel refused one of 56 lower limits for
 *	  16 s, as sessions used the room at once (pgherd balloon limits --swap none,
 *	  2026-11-29); none of 24 with it.
 *	- The simulation has no pins, dirty pages, file cache or cost of a move:
 *	  PINNED, PINNED_LEAVES, WRITEBACK_AFTER, SWAPPING, SWAP_DEBT_SHARE, TRICKLE.
 *	- They are bounds for measurements and events that it does not have:
 *	  DEFAULT_MISS_COST, LEAST_MISS_COST, MOST_MISS_COST, MISSES, QUIET_MOST,
 *	  FALL, FALL_DECAY, NOT_FULL, SWAPPED_SHARE_MOST, SWAPPED_MOST, HOLD_IDLE.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#ifndef PG_BALLOON_CONTROLLER_CONSTANTS_H
#define PG_BALLOON_CONTROLLER_CONSTANTS_H

/* Time constant of need, waiting sessions and refaults. */
#define SMOOTHING 0.3
/* Need: seconds lost to misses per second. */
#define NEED 0.02
/* Share of used pages accessed within idle_after; below it the pool counts as idle. */
#define TOUCHED 0.3
/* Waiting sessions that show a need, even if their waits keep the pool from looking hot. */
#define WAITING 1.5
/* Cost of a miss while unknown: a read from a solid-state disk. */
#define DEFAULT_MISS_COST 2e-4
/* Lower bound: a read from the operating system's page cache. */
#define LEAST_MISS_COST 5e-6
/* Upper bound: a seek of a hard disk. */
#define MOST_MISS_COST 2e-2
/* Misses per second from which on waits are attributed to misses. */
#define MISSES 20.0
/* Bytes refaulted per second that show a shortage if no memory is unclaimed. */
#define REFAULTED (300.0 * 4096)
/* Growth of the memory in swap, per second, that shows a shortage. */
#define SWAPPING (4.0 * 1024 * 1024)
/* Share of the refaults and of the growth of swap to inflate while the high watermark is kept. */
#define SWAP_DEBT_SHARE (1.0 / 8)
/* Factor by which the working set may be larger than estimated. */
#define IDLE_MARGIN 1.1
/* Time without need before idle pages may leave; shorter if hot is below TOUCHED. */
#define QUIET 0.4
/* If need follows an inflate within this time, the server was too quick ... */
#define REGRET 3.0
/* ... and the extra quiet time is doubled and grows by this ... */
#define REGRETTED 0.1
/* ... up to this maximum. */
#define QUIET_MOST 30.0
/* Time constant with which the extra quiet time decays. */
#define QUIET_DECAY 60.0
/* Time without need before dirty pages are written ahead of time. */
#define WRITEBACK_AFTER 2.0
/* Time of shortage before an inflate may write dirty pages. */
#define WRITE_AFTER 0.2
/* Time in which the rates double. */
#define RAMP 0.1
/* Initial share of the maximum rate. */
#define RAMP_START (1.0 / 16)
/* Maximum multiple of the volume that returned from swap to inflate; it grows by 1 each second. */
#define SWAPPED_SHARE_MOST 8.0
/* Maximum share of the used pages per decision. */
#define SWAPPED_MOST (1.0 / 8)
/* Share by which the limit must fall before busy servers inflate, and in about which time. */
#define FALL (1.0 / 64)
#define FALL_DECAY 1.0
/* Time with less than half of the low watermark before busy servers inflate. */
#define EXHAUSTED 2.0
/* Share of the used pages that they then inflate each second. */
#define EXHAUSTED_SHARE (1.0 / 64)
/* Time without growth after an inflate because of swapping, exhaustion or a lower limit. */
#define HOLD_BUSY 1.0
/* Time at the high watermark after which there is room enough for a lower limit. It may be
 * used at once, and the limit may fall further in steps. */
#define MADE_ROOM 3.0
/* Time without growth after an inflate of idle pages. */
#define HOLD_IDLE 0.3
/* Share of pinned buffers above which buffers return. */
#define PINNED 0.5
/* Maximum share of pinned buffers after an inflate; half of PINNED, because as many return. */
#define PINNED_LEAVES 0.25
/* Used share of the pool below which the pool is still filling. */
#define NOT_FULL (1.0 / 20)
/* Time for which unused buffers last; with more of them the server needs no other ones. */
#define FREE_TIME 0.5
/* Share of the memory above the low watermark to take, because others may take some, too. */
#define SPARE 0.75
/* Minimum number of bytes to move for a weak reason. */
#define TRICKLE (128.0 * 1024)
/* Minimum number of bytes per decision, unless the rate or the rest is smaller. */
#define LEAST_STEP (2.0 * 1024 * 1024)

#endif							/* PG_BALLOON_CONTROLLER_CONSTANTS_H */
