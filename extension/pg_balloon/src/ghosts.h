/*
 * ghosts.h
 *		Ghost list: pages that the balloon evicted, for reading back later.
 *
 * Copyright (c) 2026, pgherd maintainers
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

extern Size ghosts_size(void);
extern void ghosts_attach(LWLock *lock);
extern void ghosts_add(const BalloonGhost *ghosts, int count);
extern int	ghosts_take(Oid database, BalloonGhost *ghosts, int count);
extern Oid	ghosts_database(void);
extern int64 balloon_prefetch_left(void);
extern void ghosts_drop_database(Oid database);

#endif							/* PG_BALLOON_GHOSTS_H */
