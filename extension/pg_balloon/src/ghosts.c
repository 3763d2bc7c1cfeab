/*
 * ghosts.c
 *		The pages that the balloon evicted, to be read back when there is room again.
 *
 * A table in shared memory with a place for each buffer of the pool; when all
 * are in use, the oldest is overwritten. It is a hint only: a page may have
 * been read again or dropped meanwhile, which whoever reads it back finds out.
 * All of it is guarded by balloon->ghost_lock, which is taken alone.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "pg_balloon.h"

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
	LWLockAcquire(balloon->ghost_lock, LW_EXCLUSIVE);
	for (int i = 0; i < count; i++)
	{
		if (balloon->nghosts < NBuffers)
			balloon_ghosts[balloon->nghosts++] = ghosts[i];
		else
		{
			balloon_ghosts[balloon->ghost_next] = ghosts[i];
			balloon->ghost_next = (balloon->ghost_next + 1) % NBuffers;
		}
	}
	balloon->ghosts_sorted = false;
	LWLockRelease(balloon->ghost_lock);
}

/* So many more pages may be read back. */
void
balloon_allow_prefetch(int64 pages)
{
	LWLockAcquire(balloon->ghost_lock, LW_EXCLUSIVE);
	balloon->prefetch_left = Min(balloon->prefetch_left + pages, NBuffers);
	LWLockRelease(balloon->ghost_lock);
}

/* No page may be read back any more. */
void
balloon_stop_prefetch(void)
{
	LWLockAcquire(balloon->ghost_lock, LW_EXCLUSIVE);
	balloon->prefetch_left = 0;
	LWLockRelease(balloon->ghost_lock);
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

	LWLockAcquire(balloon->ghost_lock, LW_EXCLUSIVE);
	if (!balloon->ghosts_sorted)
	{
		qsort(balloon_ghosts, balloon->nghosts, sizeof(BalloonGhost), by_turn);
		balloon->ghosts_sorted = true;
		balloon->ghost_next = 0;
	}
	count = (int) Min(count, balloon->prefetch_left);

	/* Those of other databases are passed over, and close up to the end. */
	for (last = balloon->nghosts - 1; last >= 0 && n < count; last--)
	{
		Oid			its = balloon_database(&balloon_ghosts[last].tag);

		if (its == database || its == InvalidOid)
			ghosts[n++] = balloon_ghosts[last];
		else
			balloon_ghosts[balloon->nghosts - 1 - kept++] = balloon_ghosts[last];
	}
	memmove(&balloon_ghosts[last + 1], &balloon_ghosts[balloon->nghosts - kept], kept * sizeof(BalloonGhost));
	balloon->nghosts -= n;
	balloon->prefetch_left -= n;
	LWLockRelease(balloon->ghost_lock);
	return n;
}

/* A database with pages that may be read back, that of the latest one; InvalidOid if there is none. */
Oid
balloon_ghost_database(void)
{
	Oid			found = InvalidOid;

	LWLockAcquire(balloon->ghost_lock, LW_SHARED);
	for (int i = balloon->nghosts - 1; i >= 0 && balloon->prefetch_left > 0 && found == InvalidOid; i--)
		found = balloon_database(&balloon_ghosts[i].tag);
	LWLockRelease(balloon->ghost_lock);
	return found;
}

/* Forget a database, since it cannot be connected to. */
void
balloon_forget(Oid database)
{
	int			kept = 0;

	LWLockAcquire(balloon->ghost_lock, LW_EXCLUSIVE);
	for (int i = 0; i < balloon->nghosts; i++)
		if (balloon_database(&balloon_ghosts[i].tag) != database)
			balloon_ghosts[kept++] = balloon_ghosts[i];
	balloon->nghosts = kept;
	balloon->ghost_next = 0;
	LWLockRelease(balloon->ghost_lock);
}
