/*
 * pool_limits.h
 *		Minimum size of the pool outside the balloon, maximum size of the
 *		balloon.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#ifndef PG_BALLOON_POOL_LIMITS_H
#define PG_BALLOON_POOL_LIMITS_H

extern int64 balloon_floor(void);
extern int64 balloon_ceiling(void);

extern void balloon_count_sessions(void);

#endif							/* PG_BALLOON_POOL_LIMITS_H */
