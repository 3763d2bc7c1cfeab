/*
 * actuator.h
 *		The only interface between decisions and the pool: take buffers, give
 *		them back, read evicted pages back.
 *
 * Worker, sessions and SQL functions move buffers by these functions only.
 * Behind them is the balloon (buffers.c, inflate.c, prefetch.c). For a server
 * that can resize shared_buffers while it runs, other functions can take their
 * place; controller, signals and measurements stay as they are.
 *
 * Callers hold no lock. int64 numbers are buffers, or the pages in them.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#ifndef PG_BALLOON_ACTUATOR_H
#define PG_BALLOON_ACTUATOR_H

/* Can memory of this server's pool be released at all? */
extern Size balloon_probe_size(void);
extern bool balloon_can_release(void *probe, char *unusable_reason, Size size);

/* How much: minimum of the pool outside the balloon, maximum of the balloon. */
extern void balloon_store_pins(void);
extern int64 balloon_floor(void);
extern int64 balloon_ceiling(void);
extern void balloon_count_sessions(void);

/* Take: out of the pool, or prepare for it by writing dirty pages. */
extern int64 balloon_inflate(int64 buffers, bool write, bool memory, double seconds);
extern int64 balloon_write(int64 buffers, double seconds);
extern int	balloon_release_again(int chunk);

/* Give back: into the pool. */
extern int64 balloon_deflate(int64 buffers);

/* Read back: pages that were in the buffers that were taken. */
extern void balloon_allow_prefetch(int64 pages);
extern void balloon_stop_prefetch(void);
extern bool balloon_prefetch_due(void);
extern void balloon_prefetch_tick(void);

#endif							/* PG_BALLOON_ACTUATOR_H */
