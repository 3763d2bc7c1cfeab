/*
 * prefetch.h
 *		Reads evicted pages back, in a background worker.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#ifndef PG_BALLOON_PREFETCH_H
#define PG_BALLOON_PREFETCH_H

extern bool balloon_prefetch_due(void);
extern void balloon_prefetch_tick(void);

#endif							/* PG_BALLOON_PREFETCH_H */
