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

/* Heats in whose order pages are recalled: those of a usage count so high, then the rest. */
static const uint32 least_heats[] = {3, 1, 0};

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
	LWLockRelease(balloon->ghost_lock);
}

/* Take a place out of the table; the last one moves into it. The caller holds ghost_lock. */
static inline void
drop(int i)
{
	balloon_ghosts[i] = balloon_ghosts[--balloon->nghosts];
	balloon->ghost_next = 0;
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
 * Take up to count pages of a database or of the shared catalogs out of the
 * table, the hottest first, among them the latest, as far as pages may be read
 * back. Returns how many.
 */
int
balloon_recall(Oid database, BalloonGhost *ghosts, int count)
{
	int			n = 0;

	LWLockAcquire(balloon->ghost_lock, LW_EXCLUSIVE);
	count = (int) Min(count, balloon->prefetch_left);
	for (int k = 0; k < (int) lengthof(least_heats); k++)
		for (int i = balloon->nghosts - 1; i >= 0 && n < count; i--)
		{
			BalloonGhost *ghost = &balloon_ghosts[i];
			Oid			its = balloon_database(&ghost->tag);

			if ((its == database || its == InvalidOid) && ghost->heat >= least_heats[k])
			{
				ghosts[n++] = *ghost;
				drop(i);
			}
		}
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
	LWLockAcquire(balloon->ghost_lock, LW_EXCLUSIVE);
	for (int i = balloon->nghosts - 1; i >= 0; i--)
		if (balloon_database(&balloon_ghosts[i].tag) == database)
			drop(i);
	LWLockRelease(balloon->ghost_lock);
}
