/*
 * worker.h
 *		Background worker: observes, runs the controller, applies and logs
 *		its decision.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#ifndef PG_BALLOON_WORKER_H
#define PG_BALLOON_WORKER_H

extern void balloon_register_worker(void);

#endif							/* PG_BALLOON_WORKER_H */
