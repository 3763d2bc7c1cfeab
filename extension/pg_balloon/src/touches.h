/*
 * touches.h
 *		How often a page is touched, and what share of the pages is touched within the horizon, by what a sample has seen.
 *
 * Pure C, like law.h: tests/extension/test_touches.py feeds it by hand.
 */
#ifndef PG_BALLOON_TOUCHES_H
#define PG_BALLOON_TOUCHES_H

extern double touches_see(double *rate, double share, double seconds, double recent, double horizon);

#endif							/* PG_BALLOON_TOUCHES_H */
