/*
 * floors.h
 *		How many buffers must stay outside the balloon, and how many may be in it at most.
 */
#ifndef PG_BALLOON_FLOORS_H
#define PG_BALLOON_FLOORS_H

extern int64 balloon_floor(void);
extern int64 balloon_ceiling(void);

#endif							/* PG_BALLOON_FLOORS_H */
