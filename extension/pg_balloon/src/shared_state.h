/*
 * shared_state.h
 *		Shared memory: which buffers are in the balloon, counters, the ghost
 *		list of evicted pages, and the last decision.
 *
 * BalloonShared, the ghost list and the last decision have a lock each. No
 * process ever holds two of the three.
 *
 * A buffer in the balloon
 *  - has no tag and none of the flags valid, dirty, I/O in progress, and is
 *    not in the buffer mapping table, so no process can find it;
 *  - has a reference count of exactly one, a pin that no process owns: the
 *    clock sweep, the free list and ring strategies pass over it, and no
 *    process's exit releases it;
 *  - has its bit in BalloonShared.bits, the only record of that pin;
 *  - has had its memory released with madvise(MADV_REMOVE), as far as whole
 *    pages of the operating system are within adjacent ballooned buffers.
 *
 * The bit and the pin appear together, and disappear together, while the
 * header of the buffer is locked and BalloonShared.lock is held exclusively,
 * in a critical section. So a process that dies at any other moment leaves a
 * consistent balloon. One that dies in between makes the server restart, with
 * new shared memory and an empty balloon.
 *
 * Only buffers.c changes bits, pins and nballooned. pg_balloon_check()
 * verifies these rules.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#ifndef PG_BALLOON_SHARED_STATE_H
#define PG_BALLOON_SHARED_STATE_H

#include "port/atomics.h"
#include "storage/lwlock.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "controller.h"

#define BALLOON_TEXT 200		/* bytes of a reason, including the final zero */

typedef struct BalloonCounters
{
	int64		inflations;		/* calls that moved at least one buffer */
	int64		deflations;
	int64		inflated_unused;	/* buffers that held no page */
	int64		inflated_clean;	/* buffers that held a clean page */
	int64		buffers_written;	/* dirty pages written for the balloon */
	int64		skipped_busy;	/* buffers passed over: pinned, or changed meanwhile */
	int64		deflated;		/* buffers returned to the pool */
	int64		released;		/* bytes of the buffers moved into the balloon */
	int64		limit_hits;		/* inflations requested beyond floor or ceiling */
	int64		prefetched;		/* pages read back */
	/* remembered pages that no longer exist, or are in the pool already */
	int64		prefetch_skipped;
	int64		ticks;			/* ticks of the worker */
	int64		light_ticks;	/* ... of which were light */
	int64		inflate_decisions;	/* decisions of the worker to inflate */
	int64		deflate_decisions;	/* decisions of the worker to deflate */
	double		inflate_time;	/* seconds */
	double		deflate_time;
	double		prefetch_time;
	TimestampTz reset;
} BalloonCounters;

typedef struct BalloonShared
{
	/*
	 * Protects bits, nballooned, counters, broken; held exclusively to change
	 * them. Taken before a buffer mapping lock or a buffer header lock, never
	 * after one, and never while a page is written. Bits and nballooned may be
	 * read without it where a wrong value only costs a second look.
	 */
	LWLock	   *lock;

	bool		usable;			/* set by the postmaster, then constant */
	char		unusable_reason[BALLOON_TEXT];	/* constant */
	/*
	 * The operating system refused memory while the worker was active. Reset when
	 * pg_balloon.enabled is switched off or on.
	 */
	bool		broken;

	pg_atomic_uint32 sessions;	/* client sessions; each counts itself (inflate.c) */
	/* Buffers that a process may pin. Stored at the start, and by the worker at each reload. */
	volatile int64 pins;
	/* set by the prefetch worker, which does not count as a waiting session */
	volatile pid_t prefetcher;
	/* Pages that prefetch workers read, from files or the page cache; incremented page by page. */
	pg_atomic_uint64 read_back;
	/* The worker controls the balloon, by itself or by a target. Only the worker changes it. */
	volatile bool following;
	/* Set by the worker, read by the prefetch worker. Reading it late does no harm. */
	volatile bool prefetch_stop;
	/* Pages that may still be read back. Signed; see balloon_prefetch_left(). */
	pg_atomic_uint64 prefetch_left;

	int			nballooned;		/* number of bits that are set */
	BalloonCounters counters;

	uint8		bits[FLEXIBLE_ARRAY_MEMBER];	/* one per buffer: it is in the balloon */
} BalloonShared;

extern BalloonShared *balloon;	/* NULL if the library was not preloaded */

static inline bool
balloon_has(int buffer)
{
	return (balloon->bits[buffer >> 3] >> (buffer & 7)) & 1;
}

extern Size balloon_state_size(void);
extern bool balloon_state_attach(LWLock *lock);

/* A page that was in the pool until the balloon evicted it. */
typedef struct BalloonGhost
{
	BufferTag	tag;
	uint32		heat;			/* its usage count then */
} BalloonGhost;

extern Size ghosts_size(void);
extern void ghosts_attach(LWLock *lock);
extern void ghosts_add(const BalloonGhost *ghosts, int count);
extern void ghosts_return(const BalloonGhost *ghosts, int count);
extern int	ghosts_take(Oid database, BalloonGhost *ghosts, int count);
extern Oid	ghosts_database(void);
extern void ghosts_drop_database(Oid database);
extern int64 balloon_prefetch_left(void);

#define BALLOON_PATH 200		/* bytes of a cgroup's path, including the final zero */

typedef struct BalloonLastDecision
{
	BalloonInput input;
	/* the last tick had an input; if not, input, source and cgroup_path are invalid */
	bool		observed;
	int			source;			/* MemorySource */
	char		cgroup_path[BALLOON_PATH];	/* cgroup with the tightest limit */
	BalloonDecision decision;	/* the last decision that changed something */
	int64		buffers;		/* buffers that it moved or wrote */
	TimestampTz decided_at;
	int			reason;			/* BalloonReason of the last tick */
	pid_t		worker_pid;		/* 0: no worker */
	double		miss_cost;		/* seconds per page read back, smoothed; 0: none read yet */
} BalloonLastDecision;

extern Size balloon_last_decision_size(void);
extern void balloon_last_decision_attach(LWLock *lock);
extern void balloon_last_decision_read(BalloonLastDecision *tick);
extern void balloon_last_decision_tick(const BalloonInput *input, int source,
									   const char *cgroup_path, const BalloonDecision *decision,
									   int64 buffers);
extern void balloon_last_decision_worker(pid_t worker_pid);
extern void balloon_last_decision_miss(double seconds);
extern const char *balloon_reason_text(int reason);

#endif							/* PG_BALLOON_SHARED_STATE_H */
