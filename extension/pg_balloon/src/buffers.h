/*
 * buffers.h
 *		The mechanism: a buffer leaves the pool, gives its memory back, and comes back.
 */
#ifndef PG_BALLOON_BUFFERS_H
#define PG_BALLOON_BUFFERS_H

#include "ghosts.h"

/* Buffers are taken, punched and given back in chunks of 2 MB, and no lock is held longer than for one. */
#define BALLOON_CHUNK (2 * 1024 * 1024 / BLCKSZ)

/* The marks of a buffer that holds something, or with which something is being done. */
#define BALLOON_BUSY (BUF_REFCOUNT_MASK | BM_DIRTY | BM_IO_IN_PROGRESS | BM_PIN_COUNT_WAITER)

static inline int
balloon_chunks(void)
{
	return (NBuffers + BALLOON_CHUNK - 1) / BALLOON_CHUNK;
}

static inline void
balloon_chunk_bounds(int chunk, int *first, int *end)
{
	*first = chunk * BALLOON_CHUNK;
	*end = Min(*first + BALLOON_CHUNK, NBuffers);
}

/* The caller of these holds BalloonShared.lock; exclusively, but for balloon_punch() of buffers that are in the balloon already. */
extern bool balloon_take(int id, BalloonGhost *ghost, bool *had_page);
extern void balloon_give_back(int id);
extern bool balloon_punch(int first, int end, bool again);

/* The caller of these holds none. */
extern void balloon_name_wait(void);
extern int64 balloon_deflate(int64 buffers);
extern int	balloon_return_again(int chunk);

#endif							/* PG_BALLOON_BUFFERS_H */
