/*
 * prefetch.h
 *		Reads evicted pages back, in a worker of its own.
 */
#ifndef PG_BALLOON_PREFETCH_H
#define PG_BALLOON_PREFETCH_H

extern bool balloon_prefetch_due(void);
extern void balloon_prefetch_tick(void);

#endif							/* PG_BALLOON_PREFETCH_H */
