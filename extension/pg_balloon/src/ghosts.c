/*
 * ghosts.c
 *		Ghost list: pages that the balloon evicted, for reading back later.
 *
 * A table in shared memory with one entry for each buffer of the pool. If it
 * is full, the oldest entry is overwritten. It is only a hint: a page may have
 * been read again or dropped meanwhile, which the prefetch worker checks.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "actuator.h"
#include "ghosts.h"

typedef struct Table
{
	LWLock	   *lock;			/* protects everything below; taken alone */
	int			n;				/* number of ghosts, at the start of the array, at most NBuffers */
	int			next;			/* entry to overwrite next once the array is full */
	bool		sorted;			/* in the order of ghosts_take() */
	/* pages that may still be read back; signed, accessed without the lock */
	pg_atomic_uint64 left;
	BalloonGhost ghosts[FLEXIBLE_ARRAY_MEMBER];
} Table;

static Table *table = NULL;

/* Return the size of the table in shared memory. */
Size
ghosts_size(void)
{
	return add_size(offsetof(Table, ghosts), mul_size(NBuffers, sizeof(BalloonGhost)));
}

/* Attach to the table, or create it empty. The caller holds AddinShmemInitLock. */
void
ghosts_attach(LWLock *lock)
{
	bool		found;

	table = ShmemInitStruct("pg_balloon ghosts", ghosts_size(), &found);
	if (found)
		return;
	memset(table, 0, offsetof(Table, ghosts));
	pg_atomic_init_u64(&table->left, 0);
	table->lock = lock;
}

/*
 * Compare ghosts in the order in which they are taken, from the end of the
 * table: used pages before others, then by database, then by position in the
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

/* Add evicted pages. */
void
ghosts_add(const BalloonGhost *ghosts, int count)
{
	LWLockAcquire(table->lock, LW_EXCLUSIVE);
	for (int i = 0; i < count; i++)
	{
		if (table->n < NBuffers)
			table->ghosts[table->n++] = ghosts[i];
		else
		{
			table->ghosts[table->next] = ghosts[i];
			table->next = (table->next + 1) % NBuffers;
		}
	}
	table->sorted = false;
	LWLockRelease(table->lock);
}

/* Allow that many more pages to be read back. */
void
balloon_allow_prefetch(int64 pages)
{
	if (balloon_prefetch_left() < NBuffers)
		pg_atomic_fetch_add_u64(&table->left, pages);
}

/* Forbid reading back. */
void
balloon_stop_prefetch(void)
{
	pg_atomic_write_u64(&table->left, 0);
}

/*
 * Return how many pages may still be read back. The counter can be negative if
 * a concurrent process has stopped the prefetch; that counts as 0.
 */
int64
balloon_prefetch_left(void)
{
	return Max(0, (int64) pg_atomic_read_u64(&table->left));
}

/*
 * Take up to "count" pages of a database or of the shared catalogs out of the
 * table, as far as pages may be read back: used ones first, in the order of
 * their position. Returns how many.
 *
 * Sorting, once after pages were added, takes a third of a second for a
 * million pages. A process that adds pages waits for it.
 */
int
ghosts_take(Oid database, BalloonGhost *ghosts, int count)
{
	int			n = 0;
	int			last;
	int			kept = 0;

	if (balloon_prefetch_left() == 0)
		return 0;
	LWLockAcquire(table->lock, LW_EXCLUSIVE);
	if (!table->sorted)
	{
		qsort(table->ghosts, table->n, sizeof(BalloonGhost), by_turn);
		table->sorted = true;
		table->next = 0;
	}
	count = (int) Min(count, balloon_prefetch_left());

	/* Skip those of other databases, and move them toward the end. */
	for (last = table->n - 1; last >= 0 && n < count; last--)
	{
		Oid			its = balloon_database(&table->ghosts[last].tag);

		if (its == database || its == InvalidOid)
			ghosts[n++] = table->ghosts[last];
		else
			table->ghosts[table->n - 1 - kept++] = table->ghosts[last];
	}
	memmove(&table->ghosts[last + 1], &table->ghosts[table->n - kept],
			kept * sizeof(BalloonGhost));
	table->n -= n;
	pg_atomic_fetch_sub_u64(&table->left, n);
	LWLockRelease(table->lock);
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

	LWLockAcquire(table->lock, LW_SHARED);
	for (int i = table->n - 1; i >= 0 && balloon_prefetch_left() > 0 && found == InvalidOid; i--)
		found = balloon_database(&table->ghosts[i].tag);
	LWLockRelease(table->lock);
	return found;
}

/* Drop all ghosts of a database, because no process can connect to it. */
void
ghosts_drop_database(Oid database)
{
	int			kept = 0;

	LWLockAcquire(table->lock, LW_EXCLUSIVE);
	for (int i = 0; i < table->n; i++)
		if (balloon_database(&table->ghosts[i].tag) != database)
			table->ghosts[kept++] = table->ghosts[i];
	table->n = kept;
	table->next = 0;
	LWLockRelease(table->lock);
}
