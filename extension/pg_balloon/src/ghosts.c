/*
 * ghosts.c
 *		The pages that the balloon evicted, to be read back when there is room again.
 *
 * A table in shared memory with a place for each buffer of the pool; when all
 * are in use, the oldest is overwritten. It is a hint only: a page may have
 * been read again or dropped meanwhile, which whoever reads it back finds out.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "ghosts.h"

typedef struct Table
{
	LWLock	   *lock;			/* everything below; taken alone */
	int			n;				/* ghosts in use: the first so many, at most NBuffers */
	int			next;			/* where the next one goes once all are in use */
	bool		sorted;			/* they stand in the order in which they are recalled */
	pg_atomic_uint64 left;		/* pages that may still be read back; a signed number, which needs no lock */
	BalloonGhost ghosts[FLEXIBLE_ARRAY_MEMBER];
} Table;

static Table *table = NULL;

Size
balloon_ghosts_size(void)
{
	return add_size(offsetof(Table, ghosts), mul_size(NBuffers, sizeof(BalloonGhost)));
}

/* Find the table, or make it empty. The caller holds AddinShmemInitLock. */
void
balloon_ghosts_attach(LWLock *lock)
{
	bool		found;

	table = ShmemInitStruct("pg_balloon ghosts", balloon_ghosts_size(), &found);
	if (found)
		return;
	memset(table, 0, offsetof(Table, ghosts));
	pg_atomic_init_u64(&table->left, 0);
	table->lock = lock;
}

/*
 * The order in which pages are recalled, from the end of the table: those in use before the rest, each database by itself,
 * and by their places in their files. Heat is told no finer, since reading a run of neighbours costs little more than
 * reading one of them.
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

/* Note pages that were evicted. */
void
balloon_remember(const BalloonGhost *ghosts, int count)
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

/* So many more pages may be read back. */
void
balloon_allow_prefetch(int64 pages)
{
	if (balloon_prefetch_left() < NBuffers)
		pg_atomic_fetch_add_u64(&table->left, pages);
}

/* No page may be read back any more. */
void
balloon_stop_prefetch(void)
{
	pg_atomic_write_u64(&table->left, 0);
}

/* How many pages may still be read back; none where fewer than none are left, as somebody has stopped it who did not know of the last. */
int64
balloon_prefetch_left(void)
{
	return Max(0, (int64) pg_atomic_read_u64(&table->left));
}

/*
 * Take up to count pages of a database or of the shared catalogs out of the table, as far as pages may be read back: those
 * in use first, in the order of their places. Returns how many. Sorting the table, once after pages were noted, takes a third
 * of a second for a million pages; whoever notes pages waits for it.
 */
int
balloon_recall(Oid database, BalloonGhost *ghosts, int count)
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

	/* Those of other databases are passed over, and close up to the end. */
	for (last = table->n - 1; last >= 0 && n < count; last--)
	{
		Oid			its = balloon_database(&table->ghosts[last].tag);

		if (its == database || its == InvalidOid)
			ghosts[n++] = table->ghosts[last];
		else
			table->ghosts[table->n - 1 - kept++] = table->ghosts[last];
	}
	memmove(&table->ghosts[last + 1], &table->ghosts[table->n - kept], kept * sizeof(BalloonGhost));
	table->n -= n;
	pg_atomic_fetch_sub_u64(&table->left, n);
	LWLockRelease(table->lock);
	return n;
}

/* A database with pages that may be read back, that of the latest one; InvalidOid if there is none. */
Oid
balloon_ghost_database(void)
{
	Oid			found = InvalidOid;

	LWLockAcquire(table->lock, LW_SHARED);
	for (int i = table->n - 1; i >= 0 && balloon_prefetch_left() > 0 && found == InvalidOid; i--)
		found = balloon_database(&table->ghosts[i].tag);
	LWLockRelease(table->lock);
	return found;
}

/* Forget a database, since it cannot be connected to. */
void
balloon_forget(Oid database)
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
