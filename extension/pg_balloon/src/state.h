/*
 * state.h
 *		The balloon in shared memory: which buffers are in it, what was counted.
 *
 * A buffer in the balloon
 *	 - has no tag and none of the flags valid, dirty, I/O in progress, and is
 *	   not in the buffer mapping table: nobody can find it;
 *	 - has a reference count of exactly one, a pin that no process owns: the
 *	   clock sweep, the free list and ring strategies pass over it, and no
 *	   process's exit releases it;
 *	 - has its bit in BalloonShared.bits: this is the only record of that pin;
 *	 - has had its memory returned with madvise(MADV_REMOVE), as far as whole
 *	   pages of the operating system lie within neighbouring ballooned buffers.
 *
 * The bit and the pin appear together, and disappear together, while the
 * header of the buffer is locked and BalloonShared.lock is held exclusively, in a critical
 * section. So a process that dies at any other moment leaves a consistent
 * balloon, and one that dies in between takes the server down, which then
 * makes new shared memory with no balloon at all.
 *
 * Only buffers.c changes bits, pins and nballooned; pg_balloon_check() (checks.c) looks whether these rules hold.
 */
#ifndef PG_BALLOON_STATE_H
#define PG_BALLOON_STATE_H

#include "port/atomics.h"
#include "storage/lwlock.h"
#include "utils/timestamp.h"

#define BALLOON_TEXT 200		/* bytes of a reason, with the final zero */

typedef struct BalloonCounters
{
	int64		inflations;		/* calls that took at least one buffer */
	int64		deflations;
	int64		taken_unused;	/* buffers taken that held no page */
	int64		taken_clean;	/* buffers taken that held a clean page */
	int64		written;		/* dirty pages written for the balloon */
	int64		busy;			/* buffers passed over: pinned, or changed meanwhile */
	int64		given_back;		/* buffers given back to the pool */
	int64		punched;		/* bytes returned to the operating system */
	int64		floor_hits;		/* inflations cut short by floor or ceiling */
	int64		prefetched;		/* pages read back */
	int64		prefetch_stale; /* pages remembered that were not there any more, or back already */
	int64		ticks;			/* ticks of the worker, … */
	int64		glances;		/* … and those of them that were glances */
	int64		gives;			/* its decisions to inflate */
	int64		takes;			/* … and to deflate */
	double		inflate_time;	/* seconds */
	double		deflate_time;
	double		prefetch_time;
	TimestampTz reset;
} BalloonCounters;

typedef struct BalloonShared
{
	/*
	 * lock: bits, nballooned, counters, broken; held exclusively to change
	 * them. Taken before a buffer mapping lock or a buffer header lock, never
	 * after one, and never while a page is written. Bits and nballooned may be
	 * looked at without it where a wrong answer only costs a second look.
	 */
	LWLock	   *lock;

	bool		usable;			/* set by the postmaster, then constant */
	char		why_not[BALLOON_TEXT];	/* constant */
	bool		broken;			/* memory was refused while the worker followed; until pg_balloon.enabled is switched off, or on again */

	pg_atomic_uint32 clients;	/* sessions of clients now; each counts itself (clients.c) */
	volatile pid_t prefetcher;	/* written by the prefetch worker, which does not count among those that wait */
	pg_atomic_uint64 read_back; /* pages that prefetch workers have read, from files or the page cache; raised by them page by page */
	volatile bool following;	/* the worker follows memory or a target; only it writes this, and its successor if it dies */
	volatile bool prefetch_stop;	/* written by the worker, read by the prefetch worker; a late look does no harm */

	int			nballooned;		/* bits that are set */
	BalloonCounters counters;

	uint8		bits[FLEXIBLE_ARRAY_MEMBER];	/* one per buffer: it is in the balloon */
} BalloonShared;

extern BalloonShared *balloon;	/* NULL where the library was not preloaded */

static inline bool
balloon_has(int buffer)
{
	return (balloon->bits[buffer >> 3] >> (buffer & 7)) & 1;
}

extern Size balloon_state_size(void);
extern bool balloon_state_attach(LWLock *lock);

#endif							/* PG_BALLOON_STATE_H */
