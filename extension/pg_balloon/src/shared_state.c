/*
 * shared_state.c
 *		Shared memory: which buffers are in the balloon, counters, the ghost
 *		list of evicted pages, and the last decision.
 *
 * The ghost list has one entry for each buffer of the pool. If it is full, the
 * oldest entry is overwritten. It is only a hint: a page may have been read
 * again or dropped meanwhile, which the prefetch worker checks.
 *
 * A process that holds the lock of the last decision waits for nothing.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/shmem.h"

#include "shared_state.h"

BalloonShared *balloon = NULL;

/* Return the size of BalloonShared. */
Size
balloon_state_size(void)
{
	return add_size(offsetof(BalloonShared, bits), (NBuffers + 7) / 8);
}

/*
 * Attach to the shared memory, or create it with an empty balloon. The caller
 * holds AddinShmemInitLock. Returns true if it is new.
 */
bool
balloon_state_attach(LWLock *lock)
{
	bool		found;

	balloon = ShmemInitStruct("pg_balloon", balloon_state_size(), &found);
	if (found)
		return false;
	memset(balloon, 0, balloon_state_size());
	balloon->lock = lock;
	pg_atomic_init_u32(&balloon->sessions, 0);
	pg_atomic_init_u64(&balloon->read_back, 0);
	pg_atomic_init_u64(&balloon->prefetch_left, 0);
	balloon->counters.reset = GetCurrentTimestamp();
	return true;
}

/* Ghosts that are sorted at once: pages of 8 GB. */
#define SORTED_MOST (1024 * 1024)

typedef struct GhostList
{
	LWLock	   *lock;			/* protects everything below; taken alone */
	int			n;				/* number of ghosts, at the start of the array, at most NBuffers */
	int			next;			/* entry to overwrite next once the array is full */
	int			sorted_from;	/* from this one on they are in the order of ghosts_take() */
	BalloonGhost ghosts[FLEXIBLE_ARRAY_MEMBER];
} GhostList;

static GhostList *list = NULL;

/* Return the size of the ghost list in shared memory. */
Size
ghosts_size(void)
{
	return add_size(offsetof(GhostList, ghosts), mul_size(NBuffers, sizeof(BalloonGhost)));
}

/* Attach to the ghost list, or create it empty. The caller holds AddinShmemInitLock. */
void
ghosts_attach(LWLock *lock)
{
	bool		found;

	list = ShmemInitStruct("pg_balloon ghosts", ghosts_size(), &found);
	if (found)
		return;
	memset(list, 0, offsetof(GhostList, ghosts));
	list->lock = lock;
}

/*
 * Compare ghosts in the order in which they are taken, from the end of the
 * list: used pages before others, then by database, then by position in the
 * file. The heat is not compared further, because reading a run of adjacent
 * pages costs little more than reading one.
 */
static int
by_turn(const void *a, const void *b)
{
	const BalloonGhost *x = a;
	const BalloonGhost *y = b;
	bool		used_x = x->heat > 0;
	bool		used_y = y->heat > 0;

#define ORDER(p, q) if ((p) != (q)) return (p) < (q) ? -1 : 1
	ORDER(used_x, used_y);
	ORDER(balloon_database(&x->tag), balloon_database(&y->tag));
	ORDER(balloon_tablespace(&x->tag), balloon_tablespace(&y->tag));
	ORDER(balloon_relnumber(&x->tag), balloon_relnumber(&y->tag));
	ORDER(balloon_fork(&x->tag), balloon_fork(&y->tag));
	ORDER(y->tag.blockNum, x->tag.blockNum);
	return 0;
}

/* Add a page. The caller holds the lock. */
static void
add_one(const BalloonGhost *ghost)
{
	if (list->n < NBuffers)
		list->ghosts[list->n++] = *ghost;
	else
	{
		list->ghosts[list->next] = *ghost;
		list->next = (list->next + 1) % NBuffers;
	}
}

/* Add evicted pages. */
void
ghosts_add(const BalloonGhost *ghosts, int count)
{
	LWLockAcquire(list->lock, LW_EXCLUSIVE);
	for (int i = 0; i < count; i++)
		add_one(&ghosts[i]);
	list->sorted_from = list->n;
	LWLockRelease(list->lock);
}

/* Return pages that ghosts_take() returned. They are the next to be taken again. */
void
ghosts_return(const BalloonGhost *ghosts, int count)
{
	LWLockAcquire(list->lock, LW_EXCLUSIVE);
	while (count > 0)
		add_one(&ghosts[--count]);
	LWLockRelease(list->lock);
}

/*
 * Return how many pages may still be read back. The counter can be negative if
 * a concurrent process has stopped the prefetch; that counts as 0.
 */
int64
balloon_prefetch_left(void)
{
	return Max(0, (int64) pg_atomic_read_u64(&balloon->prefetch_left));
}

/*
 * Take up to "count" pages of a database or of the shared catalogs out of the
 * list, as far as pages may be read back: used ones first, in the order of
 * their position. Returns how many.
 *
 * Sorting, once after pages were added, takes up to a third of a second, for
 * SORTED_MOST pages. A process that adds pages waits for it.
 */
int
ghosts_take(Oid database, BalloonGhost *ghosts, int count)
{
	int			n = 0;
	int			last;
	int			kept = 0;

	if (balloon_prefetch_left() == 0)
		return 0;
	LWLockAcquire(list->lock, LW_EXCLUSIVE);
	if (list->sorted_from >= list->n)
	{
		list->sorted_from = Max(0, list->n - SORTED_MOST);
		qsort(&list->ghosts[list->sorted_from], list->n - list->sorted_from,
			  sizeof(BalloonGhost), by_turn);
		if (list->sorted_from == 0)
			list->next = 0;
	}
	count = (int) Min(count, balloon_prefetch_left());

	/* Skip those of other databases, and move them toward the end. */
	for (last = list->n - 1; last >= list->sorted_from && n < count; last--)
	{
		Oid			its = balloon_database(&list->ghosts[last].tag);

		if (its == database || its == InvalidOid)
			ghosts[n++] = list->ghosts[last];
		else
			list->ghosts[list->n - 1 - kept++] = list->ghosts[last];
	}
	memmove(&list->ghosts[last + 1], &list->ghosts[list->n - kept],
			kept * sizeof(BalloonGhost));
	list->n -= n;
	pg_atomic_fetch_sub_u64(&balloon->prefetch_left, n);
	LWLockRelease(list->lock);
	return n;
}

/*
 * Return a database with pages that may be read back, the one of the latest
 * page; InvalidOid without any.
 */
Oid
ghosts_database(void)
{
	Oid			found = InvalidOid;

	LWLockAcquire(list->lock, LW_SHARED);
	for (int i = list->n - 1; i >= 0 && balloon_prefetch_left() > 0 && found == InvalidOid; i--)
		found = balloon_database(&list->ghosts[i].tag);
	LWLockRelease(list->lock);
	return found;
}

/* Drop all ghosts of a database, because no process can connect to it. */
void
ghosts_drop_database(Oid database)
{
	int			kept = 0;

	LWLockAcquire(list->lock, LW_EXCLUSIVE);
	for (int i = 0; i < list->n; i++)
		if (balloon_database(&list->ghosts[i].tag) != database)
			list->ghosts[kept++] = list->ghosts[i];
	list->n = list->sorted_from = kept;
	list->next = 0;
	LWLockRelease(list->lock);
}

#define SMOOTHING 0.2			/* weight of the newest reading in the cost of a miss */

typedef struct SharedLastDecision
{
	LWLock	   *lock;			/* protects tick */
	BalloonLastDecision tick;
} SharedLastDecision;

static SharedLastDecision *shared = NULL;

/* Return the size of SharedLastDecision. */
Size
balloon_last_decision_size(void)
{
	return sizeof(SharedLastDecision);
}

/*
 * Attach to the last decision, or create it empty. The caller holds
 * AddinShmemInitLock.
 */
void
balloon_last_decision_attach(LWLock *lock)
{
	bool		found;

	shared = ShmemInitStruct("pg_balloon last decision", sizeof(SharedLastDecision), &found);
	if (found)
		return;
	memset(shared, 0, sizeof(SharedLastDecision));
	shared->lock = lock;
}

/* Copy the last decision. */
void
balloon_last_decision_read(BalloonLastDecision *tick)
{
	LWLockAcquire(shared->lock, LW_SHARED);
	*tick = shared->tick;
	LWLockRelease(shared->lock);
}

/*
 * Store the input of a tick and its source (NULL: none), the decision, and how
 * many buffers that moved or wrote.
 */
void
balloon_last_decision_tick(const BalloonInput *input, int source, const char *cgroup_path,
						   const BalloonDecision *decision, int64 buffers)
{
	BalloonLastDecision *tick = &shared->tick;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	tick->observed = input != NULL;
	if (input != NULL)
	{
		tick->input = *input;
		tick->source = source;
		if (cgroup_path != NULL)
			strlcpy(tick->cgroup_path, cgroup_path, BALLOON_PATH);
	}
	tick->reason = decision->reason;
	if (buffers > 0)
	{
		tick->decision = *decision;
		tick->buffers = buffers;
		tick->decided_at = GetCurrentTimestamp();
	}
	LWLockRelease(shared->lock);
}

/*
 * Store the worker's process ID, 0 when it exits, and discard its
 * predecessor's input.
 */
void
balloon_last_decision_worker(pid_t worker_pid)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->tick.worker_pid = worker_pid;
	shared->tick.observed = false;
	shared->tick.reason = BALLOON_REASON_STEADY;
	LWLockRelease(shared->lock);
}

/* Update the cost of a miss with the time of one page that was read alone. */
void
balloon_last_decision_miss(double seconds)
{
	double	   *cost = &shared->tick.miss_cost;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	*cost = *cost <= 0 ? seconds : *cost + SMOOTHING * (seconds - *cost);
	LWLockRelease(shared->lock);
}

/* Texts of the reasons. */
static const char *const reason_texts[] = {
	[BALLOON_REASON_STEADY] = "nothing to do",
	[BALLOON_REASON_POOL_NOT_FULL] = "the pool is still filling",
	[BALLOON_REASON_FLOOR] = "the pool was below its floor",
	[BALLOON_REASON_PINNED] = "too many of the remaining buffers are pinned",
	[BALLOON_REASON_IDLE] = "memory is short, and part of this pool is idle",
	[BALLOON_REASON_POOL_SWAPPED] = "pages of this pool are being swapped",
	[BALLOON_REASON_LIMIT_FELL] = "the memory limit was lowered",
	[BALLOON_REASON_EXHAUSTED] = "memory is exhausted",
	[BALLOON_REASON_MISSES] = "miss cost is high, and memory is available",
	[BALLOON_REASON_NO_MEMORY] = "miss cost is high, but no memory is available",
	[BALLOON_REASON_ON_HOLD] = "miss cost is high, but growth is on hold after a recent inflate",
	[BALLOON_REASON_WRITEBACK] = "the server is idle, and dirty pages are written ahead of time",
	[BALLOON_REASON_AT_LIMIT] = "memory is short, but floor, ceiling or pinned buffers allow no more",
	[BALLOON_REASON_TARGET] = "pg_balloon.target",
	[BALLOON_REASON_SWITCHED_OFF] = "pg_balloon.enabled was switched off",
	[BALLOON_REASON_REFUSED] = "the operating system did not take memory back",
	[BALLOON_REASON_CEILING] = "the balloon was above its ceiling"
};

/* Return the text of a reason. */
const char *
balloon_reason_text(int reason)
{
	return reason_texts[reason];
}
