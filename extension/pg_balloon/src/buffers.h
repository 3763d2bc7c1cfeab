/*
 * buffers.h
 *		The mechanism: a buffer leaves the pool, its memory is released,
 *		and it returns.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#ifndef PG_BALLOON_BUFFERS_H
#define PG_BALLOON_BUFFERS_H

#include "shared_state.h"

/*
 * Buffers move and are released in chunks of 2 MB. Neither holds a lock for
 * longer than one chunk.
 */
#define BALLOON_CHUNK (2 * 1024 * 1024 / BLCKSZ)

/*
 * Buffers of each chunk that always stay outside the balloon.
 *
 * A process whose clock sweep meets NBuffers pinned buffers in a row reports
 * "no unpinned buffers available". Processes share the clock hand. So one that
 * is often preempted can miss the buffers in use, if these are contiguous,
 * round by round, because others pass over them meanwhile. With a buffer in
 * each chunk it cannot.
 */
#define BALLOON_STAY 1

/* Flags of a buffer that is in use or has a pending operation. */
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

/*
 * The caller of these holds BalloonShared.lock exclusively. For
 * balloon_punch() of buffers that are in the balloon already, shared is
 * enough.
 */
extern bool balloon_inflate_one(int id, BalloonGhost *ghost, bool *had_page);
extern void balloon_deflate_one(int id);
extern bool balloon_punch(int first, int end, bool again);

/* The caller holds no lock. */
extern void balloon_init_wait_event(void);

#endif							/* PG_BALLOON_BUFFERS_H */
