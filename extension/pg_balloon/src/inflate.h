/*
 * inflate.h
 *		Which buffers move into the balloon, and how many; dirty ones are
 *		written first.
 *
 * Copyright (c) 2026, pgherd maintainers
 */
#ifndef PG_BALLOON_INFLATE_H
#define PG_BALLOON_INFLATE_H

extern int64 balloon_inflate(int64 buffers, bool write, bool memory, double seconds);
extern int64 balloon_write(int64 buffers, double seconds);

#endif							/* PG_BALLOON_INFLATE_H */
