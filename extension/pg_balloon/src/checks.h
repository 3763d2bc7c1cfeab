/*
 * checks.h
 *		What can be said of the balloon from outside.
 */
#ifndef PG_BALLOON_CHECKS_H
#define PG_BALLOON_CHECKS_H

extern int64 balloon_violations(void);
extern void balloon_residency(int64 *all, int64 *ballooned);

#endif							/* PG_BALLOON_CHECKS_H */
