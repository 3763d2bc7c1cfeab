/*
 * pg_balloon.h
 *		What the parts of pg_balloon share.
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
 */
#ifndef PG_BALLOON_H
#define PG_BALLOON_H

#include "postgres.h"

#include "port/atomics.h"
#include "storage/lwlock.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "law.h"

#define BALLOON_TEXT 200		/* bytes of a reason or a source, with the final zero */

/* Buffers are taken, punched and given back in chunks of 2 MB, and no lock is held longer than for one. */
#define BALLOON_CHUNK (2 * 1024 * 1024 / BLCKSZ)

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
	int64		ticks;			/* ticks of the worker */
	int64		gives;			/* its decisions to inflate */
	int64		takes;			/* … and to deflate */
	double		inflate_time;	/* seconds */
	double		deflate_time;
	double		prefetch_time;
	TimestampTz reset;
} BalloonCounters;

/* A page that was in the pool until the balloon evicted it. */
typedef struct BalloonGhost
{
	BufferTag	tag;
	uint32		heat;			/* its usage count then */
} BalloonGhost;

/* What the worker saw and decided last; for pg_balloon_status(). */
typedef struct BalloonReport
{
	BalloonView view;
	bool		seen;			/* there has been a tick */
	int			source;			/* SignalSource */
	char		place[BALLOON_TEXT];	/* the group whose limit is the tightest */
	BalloonVerdict last;		/* the last verdict that changed something */
	int64		done;			/* buffers that it moved */
	TimestampTz when;
	int			now;			/* BalloonWhy of the last tick */
	pid_t		worker;
	double		miss_cost;		/* seconds per page read back, smoothed; 0: none read yet */
} BalloonReport;

typedef struct BalloonShared
{
	/*
	 * lock: bits, nballooned, counters, broken; held exclusively to change
	 * them. Taken before a buffer mapping lock or a buffer header lock, never
	 * after one, and never while a page is written.
	 */
	LWLock	   *lock;
	LWLock	   *ghost_lock;		/* ghosts, nghosts, ghost_next, ghosts_sorted, prefetch_left; taken alone */
	LWLock	   *report_lock;	/* report; taken alone */

	bool		usable;			/* set by the postmaster, then constant */
	char		why_not[BALLOON_TEXT];	/* constant */
	bool		broken;			/* the operating system refused to take memory back */

	pg_atomic_uint32 clients;	/* sessions of clients now */
	volatile pid_t prefetcher;	/* written by the prefetch worker, which does not count among those that wait */
	volatile bool prefetch_stop;	/* written by the worker, read by the prefetch worker; a late look does no harm */

	int			nballooned;
	BalloonCounters counters;
	BalloonReport report;

	int			nghosts;		/* ghosts in use, at most NBuffers */
	int			ghost_next;		/* where the next one goes once all are in use */
	bool		ghosts_sorted;	/* they stand in the order in which they are recalled */
	int64		prefetch_left;	/* pages that may still be read back */

	uint8		bits[FLEXIBLE_ARRAY_MEMBER];	/* one per buffer: it is in the balloon */
} BalloonShared;

extern BalloonShared *balloon;
extern BalloonGhost *balloon_ghosts;

static inline bool
balloon_has(int buffer)
{
	return (balloon->bits[buffer >> 3] >> (buffer & 7)) & 1;
}

/* settings, pg_balloon.c */
extern bool balloon_enabled;
extern int	balloon_target_mb;
extern int	balloon_floor_mb;
extern int	balloon_floor_per_backend_kb;
extern int	balloon_ceiling_percent;
extern int	balloon_yield_rate;
extern int	balloon_growth_rate;
extern int	balloon_clean_rate;
extern double balloon_reserve_low;
extern double balloon_reserve_high;
extern int	balloon_interval;
extern int	balloon_horizon;
extern int	balloon_source;
extern bool balloon_prefetch;
extern int	balloon_log_level;


/*
 * For tests only, in a library built with COPT=-DPG_BALLOON_INJECTION: the
 * process kills itself in the critical section of the so-many-th buffer that it moves.
 */
#ifdef PG_BALLOON_INJECTION
extern int	balloon_die_after;
extern void balloon_maybe_die(void);
#else
#define balloon_maybe_die() ((void) 0)
#endif

/* buffers.c */
typedef struct BalloonPoolState
{
	int64		unused;			/* buffers outside the balloon without a page */
	int64		dirty;
	int64		pinned;
	double		filled;			/* pages that came in per second */
} BalloonPoolState;

extern void balloon_need_usable(void);
extern int64 balloon_inflate(int64 buffers, bool write);
extern int64 balloon_deflate(int64 buffers);
extern int64 balloon_write(int64 buffers);
extern const char *balloon_probe(void *page, Size size);

/* checks.c */
extern int64 balloon_violations(void);
extern void balloon_residency(int64 *all, int64 *ballooned);

/* floors.c */
extern int64 balloon_floor(void);
extern int64 balloon_ceiling(void);
extern int64 balloon_pins_per_backend(void);
extern void balloon_watch_clients(void);

/* ghosts.c */
extern void balloon_remember(const BalloonGhost *ghosts, int count);
extern int	balloon_recall(Oid database, BalloonGhost *ghosts, int count);
extern Oid	balloon_ghost_database(void);
extern void balloon_allow_prefetch(int64 pages);
extern void balloon_stop_prefetch(void);
extern void balloon_forget(Oid database);

/* hugepages.c */
extern Size balloon_page_size(const void *address);

/* sampling.c */
extern int	balloon_waiting(void);
extern void balloon_sample_start(void);
extern void balloon_sample_read(double seconds, double horizon, double *hot, BalloonPoolState *state);

/* worker.c, prefetch.c */
extern void balloon_register_worker(void);
extern void balloon_prefetch_tick(void);

#endif							/* PG_BALLOON_H */
