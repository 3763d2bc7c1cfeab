/*
 * observe.h
 *		Measurements of one tick. Only the worker may call these functions.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#ifndef PG_BALLOON_OBSERVE_H
#define PG_BALLOON_OBSERVE_H

#include "controller.h"
#include "memory_signals.h"

extern void balloon_observe_begin(void);
extern bool balloon_observe(double dt, bool steady, BalloonInput *input, MemorySignals *now);
extern bool balloon_observe_was_light(void);
extern double balloon_observe_safe_s(void);
extern void balloon_observe_deflated(int64 buffers);
extern int	balloon_observe_source(void);
extern const char *balloon_observe_cgroup_path(const MemorySignals *reading);
extern void balloon_observe_end(void);

#endif							/* PG_BALLOON_OBSERVE_H */
