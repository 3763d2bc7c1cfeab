/*
 * ghosts.h
 *		The pages that the balloon evicted, to be read back when there is room again.
 */
#ifndef PG_BALLOON_GHOSTS_H
#define PG_BALLOON_GHOSTS_H

#include "compat.h"

/* A page that was in the pool until the balloon evicted it. */
typedef struct BalloonGhost
{
	BufferTag	tag;
	uint32		heat;			/* its usage count then */
} BalloonGhost;

extern Size balloon_ghosts_size(void);
extern void balloon_ghosts_attach(LWLock *lock);
extern void balloon_remember(const BalloonGhost *ghosts, int count);
extern int	balloon_recall(Oid database, BalloonGhost *ghosts, int count);
extern Oid	balloon_ghost_database(void);
extern void balloon_allow_prefetch(int64 pages);
extern void balloon_stop_prefetch(void);
extern int64 balloon_prefetch_left(void);
extern void balloon_forget(Oid database);

#endif							/* PG_BALLOON_GHOSTS_H */
