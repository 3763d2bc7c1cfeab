/*
 * worker.h
 *		The background worker: look, ask the law, act, say so.
 */
#ifndef PG_BALLOON_WORKER_H
#define PG_BALLOON_WORKER_H

extern void balloon_register_worker(void);

#endif							/* PG_BALLOON_WORKER_H */
