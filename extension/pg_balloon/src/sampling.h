/*
 * sampling.h
 *		How much of the pool is in use, from a few random buffers.
 *
 * The sample is the worker's own: nobody else may draw or read one.
 */
#ifndef PG_BALLOON_SAMPLING_H
#define PG_BALLOON_SAMPLING_H

typedef struct BalloonPoolState
{
	int64		unused;			/* buffers outside the balloon without a page */
	int64		dirty;
	int64		pinned;
	double		filled;			/* pages that came in per second */
} BalloonPoolState;

extern int	balloon_waiting(void);
extern void balloon_sample_start(bool few);
extern int64 balloon_sample_pinned(void);
extern void balloon_sample_read(double seconds, double recent, double horizon, double *hot, BalloonPoolState *state);

#endif							/* PG_BALLOON_SAMPLING_H */
